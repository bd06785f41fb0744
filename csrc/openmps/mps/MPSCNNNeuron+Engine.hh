// SPDX-License-Identifier: Apache-2.0
// Activation functions as the kernels that contain one see them.
#pragma once

#import "mps/MPSCNNKernel+Engine.hh"

namespace openmps {

/// A, b, c that the header documents for a neuron made without them [MPSCNNNeuron.h].
Neuron default_neuron(MPSCNNNeuronType type);

}  // namespace openmps

@interface MPSNNNeuronDescriptor (Engine)
/// The function as it is now. Raises for a PReLU without data.
- (openmps::Neuron)openmps_neuron;
@end
