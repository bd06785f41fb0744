// SPDX-License-Identifier: Apache-2.0
// The gradients of local normalization [MPSCNNNormalization.h]. They are the derivatives of the forward formulas; those
// that the header prints are not.

#import "mps/MPSCNNNormalization+Engine.hh"
#import "mps/MPSCNNNormalizationWeights+Engine.hh"

#include "engine/problem/problem.hpp"

namespace openmps {
namespace {

/// The window is the forward kernel's, kept in the secondary source's slot.
struct LRNGradientState : Extends<LRNGradientState, PixelGradientState> {
  LRNParameters parameters;

  explicit LRNGradientState(LRNType type) : parameters(type) {}

  /// Pixel (0, 0) of the result is at the centre of the window of pixel `at` of the gradient: kernelOffset is that of
  /// the reversed window, whose centre is one further on if its extent is even.
  Problem make_problem(const Encode &encode) const override {
    LRNGradientProblem problem;
    const SourceSlot &slot = secondary();
    Window window = slot.window();
    const std::int64_t at_y = first_row() - (slot.extent_y() % 2 == 0 ? 1 : 0);
    const std::int64_t at_x = first_column() - (slot.extent_x() % 2 == 0 ? 1 : 0);
    window.start_h -= at_y, window.start_w -= at_x;
    problem.forward = parameters.problem(encode.src[1], encode.src[0], window);
    problem.diff_src = encode.dst;
    problem.start_h = slot.offset.y, problem.start_w = slot.offset.x;
    return problem;
  }

  void check_encode(const Encode &encode, const Clip &clip) const override {
    PixelGradientState::check_encode(encode, clip);
    parameters.check(*this, secondary(), names(1));
    if (parameters.type == LRNType::channels && secondary().kernel_width != 1)
      raise_for(*this, @"secondaryKernelWidth (%lu) is not 1.", (unsigned long)secondary().kernel_width);
  }

  void archive(Archive &archive) override {
    PixelGradientState::archive(archive);
    parameters.archive(archive);
  }

  void did_read(MPSKernel *kernel) override {
    PixelGradientState::did_read(kernel);
    parameters.did_read(*this, secondary(), names(1));
  }
};

id init_lrn_gradient(MPSCNNGradientKernel *kernel, id<MTLDevice> device, NSUInteger width, NSUInteger height,
                     NSUInteger size) {
  if (!(kernel = [kernel openmps_initWithDevice:device])) return nil;
  UnwindRelease unwind(kernel);
  auto &state = state_of<LRNGradientState>(kernel);
  state.secondary().kernel_width = width, state.secondary().kernel_height = height;
  state.parameters.size = size;
  state.check_slots();
  state.parameters.check(state, state.secondary(), state.names(1));
  return unwind.done();
}

}  // namespace
}  // namespace openmps

using openmps::init_lrn_gradient;
using openmps::LRNGradientState;
using openmps::LRNType;

#define OPENMPS_NEW_STATE(TYPE)               \
  +(openmps::KernelState *)openmps_newState { \
    return new LRNGradientState(TYPE);        \
  }

@implementation MPSCNNCrossChannelNormalizationGradient
OPENMPS_NEW_STATE(LRNType::channels)
OPENMPS_CROSS_CHANNEL_NORM(LRNGradientState, init_lrn_gradient)
@end

@implementation MPSCNNSpatialNormalizationGradient
OPENMPS_NEW_STATE(LRNType::pixels)
OPENMPS_WINDOW_NORM(LRNGradientState, init_lrn_gradient)
@end

@implementation MPSCNNLocalContrastNormalizationGradient
OPENMPS_NEW_STATE(LRNType::contrast)
#undef OPENMPS_NEW_STATE
OPENMPS_CONTRAST_NORM(LRNGradientState, init_lrn_gradient)
@end
