// SPDX-License-Identifier: Apache-2.0
// MPSNNSlice: a range of channels and pixels [MPSNNSlice.h].

#import "mps/MPSCNNKernel+Engine.hh"

#include "engine/problem/problem.hpp"

namespace openmps {
namespace {

/// Properties of all kernels select the slice: sourceFeatureChannelOffset and -MaxCount, offset, clipRect.
struct SliceState : Extends<SliceState, CNNKernelState> {
  Class result_state_class() const override { return [MPSNNGradientState class]; }

  Problem problem(const ImageView &src, const ImageView &dst, const Window &window) const override {
    if (is_inside(window, src, dst)) return CopyProblem{src.region(window.start_h, window.start_w, dst.h, dst.w), dst};
    PadProblem problem;
    problem.src = src, problem.dst = dst;
    problem.start_h = window.start_h;
    problem.start_w = window.start_w;
    problem.edge = window.edge == Edge::clamp ? PadEdge::clamp : PadEdge::constant;
    return problem;
  }
};

}  // namespace
}  // namespace openmps

@implementation MPSNNSlice

+ (openmps::KernelState *)openmps_newState {
  return new openmps::SliceState();
}

OPENMPS_INIT_WITH_DEVICE
OPENMPS_INIT_WITH_CODER

@end
