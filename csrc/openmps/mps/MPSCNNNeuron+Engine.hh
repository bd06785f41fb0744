// SPDX-License-Identifier: Apache-2.0
// Activation functions as the kernels that contain one see them.
#pragma once

#import "mps/MPSCNNKernel+Engine.hh"

namespace openmps {

/// A, b, c that the header documents for a neuron made without them [MPSCNNNeuron.h].
Neuron default_neuron(MPSCNNNeuronType type);

/// The function of a kernel that is nothing but one, forward or gradient.
struct NeuronFunction {
  Neuron neuron;
  Ref<MPSNNNeuronDescriptor *> descriptor;  ///< our copy

  void set(const KernelState &state, MPSNNNeuronDescriptor *given);
  /// Raises when there is none, or when a PReLU has another number of slopes.
  void check_channels(const KernelState &state, NSUInteger channels) const;
  void archive(Archive &archive, NSString *key);
  void did_read(const KernelState &state);
};

}  // namespace openmps

@interface MPSNNNeuronDescriptor (Engine)
/// The function as it is now. Raises for a PReLU without data.
- (openmps::Neuron)openmps_neuron;
@end
