// SPDX-License-Identifier: Apache-2.0
// Soft max over the feature channels of each pixel, and its logarithm [MPSCNNSoftMax.h].

#import "mps/MPSCNNKernel+Engine.hh"

#include "engine/problem/problem.hpp"

namespace openmps {
namespace {

struct SoftMaxState : Extends<SoftMaxState, CNNKernelState> {
  bool log = false;

  explicit SoftMaxState(bool logarithm) : log(logarithm) {}

  Class result_state_class() const override { return [MPSNNGradientState class]; }

  /// Pixels outside the source have equal channels with Zero. unverified: Apple's text does not mention them.
  Problem problem(const ImageView &src, const ImageView &dst, const Window &) const override {
    return SoftmaxProblem{operand(source, src), dst, log};
  }
};

}  // namespace
}  // namespace openmps

@implementation MPSCNNSoftMax

+ (openmps::KernelState *)openmps_newState {
  return new openmps::SoftMaxState(false);
}

@end

@implementation MPSCNNLogSoftMax

+ (openmps::KernelState *)openmps_newState {
  return new openmps::SoftMaxState(true);
}

@end
