// SPDX-License-Identifier: Apache-2.0
// Activation functions, for the kernels that contain one.
#pragma once

#import "mps/MPSCNNKernel+Engine.hh"

namespace openmps {

/// Return the neuron with the header's default a, b, c [MPSCNNNeuron.h].
Neuron default_neuron(MPSCNNNeuronType type);

/// The function of a neuron kernel, forward or gradient.
struct NeuronFunction {
  Neuron neuron;
  Ref<MPSNNNeuronDescriptor *> descriptor;  ///< our copy

  void set(const KernelState &state, MPSNNNeuronDescriptor *given);
  /// Raise if there is none, or if a PReLU has another number of slopes.
  void check_channels(const KernelState &state, NSUInteger channels) const;
  void archive(Archive &archive, NSString *key);
  void did_read(const KernelState &state);
};

}  // namespace openmps

@interface MPSNNNeuronDescriptor (Engine)
/// Return the current function. Raise for a PReLU without data.
- (openmps::Neuron)openmps_neuron;
@end
