// SPDX-License-Identifier: Apache-2.0
// Gradients of soft max and of its logarithm, from the forward kernel's result [MPSCNNSoftMax.h].

#import "mps/MPSCNNKernel+Engine.hh"

#include "engine/problem/problem.hpp"

namespace openmps {
namespace {

struct SoftMaxGradientState : Extends<SoftMaxGradientState, GradientKernelState> {
  bool log = false;
  ForwardBorders borders;

  explicit SoftMaxGradientState(bool logarithm) : log(logarithm) {}

  std::size_t secondary_source() const override { return kNoSource; }
  NSUInteger result_channels(std::span<const NSUInteger> channels) const override {
    return CNNBinaryKernelState::result_channels(channels);
  }

  /// The secondary image lies on the gradient, not on the forward kernel's source: all its channels are read.
  void take_forward(const GradientData::Source &forward) override {
    GradientKernelState::take_forward(forward);
    borders.take(forward);
    secondary().offset = {kernel_offset_x, kernel_offset_y, 0};
    secondary().channel_offset = 0;
    secondary().channel_max = NSUIntegerMax;
  }

  void check_encode(const Encode &, const Clip &) const override { check_strides_are_1(*this); }

  Problem make_problem(const Encode &encode) const override {
    SoftmaxGradientProblem problem;
    problem.diff_dst = operand(primary(), encode.src[0]);
    problem.diff_dst.start_h = first_row();
    problem.diff_dst.start_w = first_column();
    problem.dst = operand(secondary(), encode.src[1]);
    problem.diff_src = encode.dst;
    problem.log = log;
    problem.source = borders.source(*this, problem.diff_dst);
    return problem;
  }

  void archive(Archive &archive) override {
    GradientKernelState::archive(archive);
    borders.archive(archive, @"MPSCNNSoftMaxGradient");
  }
};

}  // namespace
}  // namespace openmps

#define OPENMPS_SOFT_MAX_GRADIENT(NAME, LOG)       \
  @implementation NAME                             \
  +(openmps::KernelState *)openmps_newState {      \
    return new openmps::SoftMaxGradientState(LOG); \
  }                                                \
  OPENMPS_INIT_WITH_DEVICE                         \
  OPENMPS_INIT_WITH_CODER                          \
  @end

OPENMPS_SOFT_MAX_GRADIENT(MPSCNNSoftMaxGradient, false)
OPENMPS_SOFT_MAX_GRADIENT(MPSCNNLogSoftMaxGradient, true)
