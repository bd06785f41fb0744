// SPDX-License-Identifier: Apache-2.0
// Gradients of upsampling: each source pixel receives its weighted share of the gradients [MPSCNNUpsampling.h].
//
// secondaryOffset and secondaryEdgeMode are the forward kernel's, primaryOffset is the origin of its clipRect, and the
// result lies on its source. Only the state has the alignment of corners: the class has no property for it.

#import "mps/MPSCNNUpsampling+Engine.hh"

#include "engine/problem/problem.hpp"
#include "mps/Resample.hpp"

namespace openmps {
namespace {

struct UpsamplingGradientState : Extends<UpsamplingGradientState, GradientKernelState> {
  ResampleType type = ResampleType::nearest;  ///< fixed by the class
  UpsamplingFactors factors;
  bool align_corners = false;

  UpsamplingGradientState() = default;
  explicit UpsamplingGradientState(ResampleType own) : type(own) {}

  NSUInteger result_channels(std::span<const NSUInteger> channels) const override {
    return CNNBinaryKernelState::result_channels(channels);
  }

  void take_forward(const GradientData::Source &forward) override {
    secondary() = forward.slot;
    primary().offset = {0, 0, 0};
    kernel_offset_x = kernel_offset_y = 0;
  }

  void take_data(const GradientData &data) override {
    if (const auto *upsampling = dynamic_cast<const UpsamplingData *>(&data)) align_corners = upsampling->align_corners;
  }

  void check_encode(const Encode &encode, const Clip &clip) const override {
    check_lies_on_source(*this, clip, encode.src[1]);
    check_strides_are_1(*this);
  }

  Problem make_problem(const Encode &encode) const override {
    const ImageView &diff = encode.src[0], &src = encode.src[1];
    const Part rows = part_of(*this, "Rows", primary().offset.y, NSUIntegerMax, diff.h);
    const Part columns = part_of(*this, "Columns", primary().offset.x, NSUIntegerMax, diff.w);
    const auto positions = [&](std::int64_t offset, std::int64_t size, NSUInteger factor, std::int64_t skipped) {
      Positions all = positions_of(offset, size, size * static_cast<std::int64_t>(factor), align_corners);
      all.start += static_cast<double>(skipped) * all.numerator / all.denominator;
      return all;
    };
    ResampleGradientProblem problem;
    problem.diff_dst = diff.region(rows.begin, columns.begin, rows.count, columns.count);
    problem.diff_src = encode.dst;
    problem.src_h = src.h, problem.src_w = src.w;
    problem.first_h = static_cast<std::int64_t>(destination.clip.origin.y);
    problem.first_w = static_cast<std::int64_t>(destination.clip.origin.x);
    problem.type = type;
    problem.edge = secondary().edge == MPSImageEdgeModeClamp ? ResampleEdge::clamp : ResampleEdge::zero;
    problem.region = {positions(secondary().offset.y, src.h, factors.y, rows.begin - primary().offset.y),
                      positions(secondary().offset.x, src.w, factors.x, columns.begin - primary().offset.x)};
    return problem;
  }

  void archive(Archive &archive) override {
    GradientKernelState::archive(archive);
    factors.archive(archive, @"MPSCNNUpsamplingGradient");
    archive.field(@"MPSCNNUpsamplingGradient.alignCorners", align_corners);
  }

  void did_read(MPSKernel *kernel) override {
    GradientKernelState::did_read(kernel);
    factors.check(*this);
  }
};

id init_upsampling_gradient(MPSCNNUpsamplingGradient *kernel, id<MTLDevice> device, NSUInteger factor_x,
                            NSUInteger factor_y) {
  if (!(kernel = [kernel openmps_initWithDevice:device])) return nil;
  UnwindRelease unwind(kernel);
  auto &state = state_of<UpsamplingGradientState>(kernel);
  state.factors = {factor_x, factor_y};
  state.factors.check(state);
  return unwind.done();
}

}  // namespace
}  // namespace openmps

using openmps::ResampleType;
using openmps::UpsamplingGradientState;

@implementation MPSCNNUpsamplingGradient

+ (openmps::KernelState *)openmps_newState {
  return new UpsamplingGradientState();
}

- (instancetype)initWithDevice:(id<MTLDevice>)device {
  (void)device;
  openmps::UnwindRelease unwind(self);
  openmps::raise_unavailable(self, _cmd, "-initWithDevice:integerScaleFactorX:integerScaleFactorY: of a subclass");
}

OPENMPS_GETTER(UpsamplingGradientState, double, scaleFactorX, factors.x)
OPENMPS_GETTER(UpsamplingGradientState, double, scaleFactorY, factors.y)

@end

#define OPENMPS_UPSAMPLING_GRADIENT(NAME, TYPE)                                                       \
  @implementation NAME                                                                                \
  +(openmps::KernelState *)openmps_newState {                                                         \
    return new UpsamplingGradientState(TYPE);                                                         \
  }                                                                                                   \
  -(instancetype)initWithDevice : (id<MTLDevice>)device integerScaleFactorX                           \
      : (NSUInteger)integerScaleFactorX integerScaleFactorY : (NSUInteger)integerScaleFactorY {       \
    return openmps::init_upsampling_gradient(self, device, integerScaleFactorX, integerScaleFactorY); \
  }                                                                                                   \
  @end

OPENMPS_UPSAMPLING_GRADIENT(MPSCNNUpsamplingNearestGradient, ResampleType::nearest)
OPENMPS_UPSAMPLING_GRADIENT(MPSCNNUpsamplingBilinearGradient, ResampleType::bilinear)
