// SPDX-License-Identifier: Apache-2.0
// Gradients of a reshape, the same values in the shape of the source; and of a pad, where each value of the source
// receives the sum over its copies [MPSNNReshape.h].

#import "mps/MPSNNReshape+Engine.hh"

#include "engine/problem/problem.hpp"

namespace openmps {
namespace {

struct ReshapeGradientState : Extends<ReshapeGradientState, GradientKernelState> {
  void check_encode(const Encode &encode, const Clip &) const override {
    const ImageView &diff = encode.src[0], &dst = encode.dst;
    if (primary().offset.x != 0 || primary().offset.y != 0 || kernel_offset_x != 0 || kernel_offset_y != 0)
      raise_for(*this,
                @"primaryOffset (%ld, %ld) and kernelOffset (%ld, %ld) are not 0: the whole gradient is reshaped.",
                (long)primary().offset.x, (long)primary().offset.y, (long)kernel_offset_x, (long)kernel_offset_y);
    if (diff.h * diff.w * diff.c != dst.h * dst.w * dst.c)
      raise_for(*this,
                @"The %ld values of sourceGradient, %ld x %ld x %ld (width x height x channels), are not the %ld of "
                @"the destination, %ld x %ld x %ld.",
                (long)(diff.h * diff.w * diff.c), (long)diff.w, (long)diff.h, (long)diff.c,
                (long)(dst.h * dst.w * dst.c), (long)dst.w, (long)dst.h, (long)dst.c);
  }

  Problem make_problem(const Encode &encode) const override { return ReshapeProblem{encode.src[0], encode.dst}; }
};

/// The edge mode and secondaryOffset are the forward kernel's, primaryOffset is the origin of its clipRect, and the
/// result lies on its source. Only the state has the number of channels before those of the source: 0 without one.
struct PadGradientState : Extends<PadGradientState, GradientKernelState> {
  NSUInteger channels_before = 0;

  bool takes_edge(MPSImageEdgeMode edge) const override { return edge <= MPSImageEdgeModeConstant; }
  NSUInteger source_channel_step() const override { return 1; }

  void take_forward(const GradientData::Source &forward) override {
    secondary() = forward.slot;
    primary().offset = {0, 0, 0};
    kernel_offset_x = kernel_offset_y = 0;
  }

  void take_data(const GradientData &data) override {
    if (const auto *pad = dynamic_cast<const PadData *>(&data)) channels_before = pad->channels_before;
  }

  void check_encode(const Encode &encode, const Clip &clip) const override {
    check_lies_on_source(*this, clip, encode.src[1]);
    check_strides_are_1(*this);
    const ImageView &diff = encode.src[0], &src = encode.src[1];
    if (diff.c < static_cast<std::int64_t>(channels_before) + src.c)
      raise_for(*this,
                @"sourceGradient has %ld feature channels, fewer than the %lu that the forward kernel put before "
                @"the source and the source's %ld.",
                (long)diff.c, (unsigned long)channels_before, (long)src.c);
  }

  Problem make_problem(const Encode &encode) const override {
    const ImageView &diff = encode.src[0], &src = encode.src[1];
    const auto top = static_cast<std::int64_t>(destination.clip.origin.y),
               left = static_cast<std::int64_t>(destination.clip.origin.x);
    const PadEdge edge = pad_edge_of(secondary().edge);
    if (edge == PadEdge::constant) {
      // No pixel has a copy: the result is the gradient without the border.
      PadProblem problem;
      problem.src = diff, problem.dst = encode.dst;
      problem.start_h = primary().offset.y + top - secondary().offset.y;
      problem.start_w = primary().offset.x + left - secondary().offset.x;
      problem.start_c = static_cast<std::int64_t>(channels_before);
      return problem;
    }
    const Part rows = part_of(*this, "Rows", primary().offset.y, NSUIntegerMax, diff.h);
    const Part columns = part_of(*this, "Columns", primary().offset.x, NSUIntegerMax, diff.w);
    PadGradientProblem problem;
    problem.diff_dst = diff.region(rows.begin, columns.begin, rows.count, columns.count);
    problem.diff_src = encode.dst;
    problem.src_h = src.h, problem.src_w = src.w;
    problem.first_h = top, problem.first_w = left;
    problem.start_h = secondary().offset.y + rows.begin - primary().offset.y;
    problem.start_w = secondary().offset.x + columns.begin - primary().offset.x;
    problem.start_c = -static_cast<std::int64_t>(channels_before);
    problem.edge = edge;
    return problem;
  }

  void archive(Archive &archive) override {
    GradientKernelState::archive(archive);
    archive.field(@"MPSNNPadGradient.channelsBefore", channels_before);
  }

  void did_read(MPSKernel *kernel) override {
    GradientKernelState::did_read(kernel);
    constexpr NSUInteger max = NSUInteger{1} << 31;
    if (channels_before > max)
      raise_for(*this, @"The archive has %lu channels before the source, more than %lu.",
                (unsigned long)channels_before, (unsigned long)max);
  }
};

}  // namespace
}  // namespace openmps

@implementation MPSNNReshapeGradient

+ (openmps::KernelState *)openmps_newState {
  return new openmps::ReshapeGradientState();
}

OPENMPS_INIT_WITH_DEVICE
OPENMPS_INIT_WITH_CODER

@end

@implementation MPSNNPadGradient

+ (openmps::KernelState *)openmps_newState {
  return new openmps::PadGradientState();
}

OPENMPS_INIT_WITH_DEVICE
OPENMPS_INIT_WITH_CODER

@end
