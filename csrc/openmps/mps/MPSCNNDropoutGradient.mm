// SPDX-License-Identifier: Apache-2.0
// Gradient of a dropout: the gradient times the forward kernel's mask and scale [MPSCNNDropout.h].

#import "mps/MPSCNNDropout+Engine.hh"

#include "engine/problem/problem.hpp"

namespace openmps {
namespace {

struct DropoutGradientState : Extends<DropoutGradientState, GradientKernelState> {
  DropoutParameters parameters;
  ForwardBorders borders;

  bool uses_states() const override { return true; }
  NSUInteger result_channels(std::span<const NSUInteger> channels) const override {
    return CNNBinaryKernelState::result_channels(channels);
  }

  /// The secondary image's pixels are not read: secondaryOffset is the mask's offset on the gradient.
  void take_forward(const GradientData::Source &forward) override {
    GradientKernelState::take_forward(forward);
    borders.take(forward);
    secondary().offset = {kernel_offset_x, kernel_offset_y, forward.slot.offset.z};
  }

  void check_encode(const Encode &, const Clip &) const override { check_strides_are_1(*this); }

  Problem make_problem(const Encode &encode) const override {
    if (encode.source_state == nil)
      raise_for(*this, @"gradientState is nil: it says which values the forward kernel kept.");
    if (![encode.source_state isKindOfClass:[MPSCNNDropoutGradientState class]])
      raise_for(*this, @"gradientState is an object of class %@, expected MPSCNNDropoutGradientState.",
                [encode.source_state class]);
    const DropoutData &data = [(MPSCNNDropoutGradientState *)encode.source_state openmps_dropoutData];
    const ImageView &dst = encode.dst;
    const std::int64_t first = primary().offset.z;
    if (data.images < first + dst.n)
      raise_for(*this, @"gradientState is that of an encode of %ld images; %ld are asked for.", (long)data.images,
                (long)(first + dst.n));
    const DropoutMask &mask = data.mask;
    if (mask.keep != parameters.keep)
      raise_for(*this, @"keepProbability (%g) is not that of the forward kernel (%g).", parameters.keep, mask.keep);
    if (mask.c != 1 && mask.c != dst.c)
      raise_for(*this, @"gradientState is that of an encode of %ld feature channels; there are %ld here.", (long)mask.c,
                (long)dst.c);
    DropoutProblem problem;
    problem.src = operand(primary(), encode.src[0]);
    problem.src.start_h = first_row();
    problem.src.start_w = first_column();
    problem.dst = dst;
    problem.mask = mask;
    problem.mask.image += static_cast<std::uint64_t>(first);
    if (mask.h != 1) problem.start_h = secondary().offset.y;
    if (mask.w != 1) problem.start_w = secondary().offset.x;
    problem.source = borders.source(*this, problem.src);
    return problem;
  }

  void archive(Archive &archive) override {
    GradientKernelState::archive(archive);
    parameters.archive(archive, @"MPSCNNDropoutGradient");
    borders.archive(archive, @"MPSCNNDropoutGradient");
  }

  void did_read(MPSKernel *kernel) override {
    GradientKernelState::did_read(kernel);
    parameters.check(*this);
  }
};

}  // namespace
}  // namespace openmps

using openmps::DropoutGradientState;

@implementation MPSCNNDropoutGradient

+ (openmps::KernelState *)openmps_newState {
  return new DropoutGradientState();
}

- (instancetype)initWithDevice:(id<MTLDevice>)device {
  (void)device;
  openmps::UnwindRelease unwind(self);
  openmps::raise_unavailable(self, _cmd, "-initWithDevice:keepProbability:seed:maskStrideInPixels:");
}

- (instancetype)initWithDevice:(id<MTLDevice>)device
               keepProbability:(float)keepProbability
                          seed:(NSUInteger)seed
            maskStrideInPixels:(MTLSize)maskStrideInPixels {
  if (!(self = [self openmps_initWithDevice:device])) return nil;
  openmps::UnwindRelease unwind(self);
  auto &state = openmps::state_of<DropoutGradientState>(self);
  state.parameters = {keepProbability, seed, maskStrideInPixels};
  state.parameters.check(state);
  return unwind.done();
}

OPENMPS_INIT_WITH_CODER
OPENMPS_GETTER(DropoutGradientState, float, keepProbability, parameters.keep)
OPENMPS_GETTER(DropoutGradientState, NSUInteger, seed, parameters.seed)
OPENMPS_GETTER(DropoutGradientState, MTLSize, maskStrideInPixels, parameters.mask_stride)

@end
