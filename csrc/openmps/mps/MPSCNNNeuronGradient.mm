// SPDX-License-Identifier: Apache-2.0
// MPSCNNNeuronGradient: the derivative of an activation function at the forward source, times the gradient of its
// result [MPSCNNNeuron.h].

#import "mps/MPSCNNNeuron+Engine.hh"

#include "engine/problem/problem.hpp"

namespace openmps {
namespace {

struct NeuronGradientState : Extends<NeuronGradientState, GradientKernelState> {
  NeuronFunction function;

  NSUInteger result_channels(std::span<const NSUInteger> channels) const override {
    function.check_channels(*this, CNNBinaryKernelState::result_channels(channels));
    return channels[1];
  }

  /// Pixel (0, 0) of the forward kernel's result is pixel `offset` of its source, and the result of this kernel lies on
  /// that source.
  void take_forward(const GradientData::Source &forward) override {
    GradientKernelState::take_forward(forward);
    secondary().offset.x = secondary().offset.y = 0;
  }

  void check_encode(const Encode &, const Clip &) const override { check_strides_are_1(*this); }

  Problem make_problem(const Encode &encode) const override {
    NeuronGradientProblem problem;
    problem.diff_dst = operand(primary(), encode.src[0]);
    problem.diff_dst.start_h = first_row();
    problem.diff_dst.start_w = first_column();
    problem.src = operand(secondary(), encode.src[1]);
    // Pixels beyond the source clamp as in the forward kernel; there is no gradient beyond sourceGradient.
    if (problem.src.edge == Edge::clamp) problem.diff_dst.edge = Edge::zero;
    problem.diff_src = encode.dst;
    problem.neuron = function.neuron;
    return problem;
  }

  void archive(Archive &archive) override {
    GradientKernelState::archive(archive);
    function.archive(archive, @"MPSCNNNeuronGradient.neuronDescriptor");
  }

  void did_read(MPSKernel *kernel) override {
    GradientKernelState::did_read(kernel);
    function.did_read(*this);
  }
};

}  // namespace
}  // namespace openmps

using openmps::NeuronGradientState;

@implementation MPSCNNNeuronGradient

+ (openmps::KernelState *)openmps_newState {
  return new NeuronGradientState();
}

- (instancetype)initWithDevice:(id<MTLDevice>)device {
  (void)device;
  openmps::UnwindRelease unwind(self);
  openmps::raise_unavailable(self, _cmd, "-initWithDevice:neuronDescriptor:");
}

- (instancetype)initWithDevice:(id<MTLDevice>)device neuronDescriptor:(MPSNNNeuronDescriptor *)neuronDescriptor {
  if (!(self = [self openmps_initWithDevice:device])) return nil;
  openmps::UnwindRelease unwind(self);
  auto &state = openmps::state_of<NeuronGradientState>(self);
  state.function.set(state, neuronDescriptor);
  return unwind.done();
}

OPENMPS_INIT_WITH_CODER

OPENMPS_GETTER(NeuronGradientState, MPSCNNNeuronType, neuronType, function.descriptor.get().neuronType)
OPENMPS_GETTER(NeuronGradientState, float, a, function.neuron.a)
OPENMPS_GETTER(NeuronGradientState, float, b, function.neuron.b)
OPENMPS_GETTER(NeuronGradientState, float, c, function.neuron.c)
OPENMPS_GETTER(NeuronGradientState, NSData *, data, function.descriptor.get().data)

@end
