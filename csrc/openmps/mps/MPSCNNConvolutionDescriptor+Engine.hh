// SPDX-License-Identifier: Apache-2.0
// The convolution descriptor's interface for the kernels.
#pragma once

#include "mps/ConvolutionWeights.hpp"
#import "mps/MPSCNNNeuron+Engine.hh"

namespace openmps {

/// State of an MPSCNNConvolutionDescriptor and its subclasses.
struct ConvolutionDescriptorState {
  NSUInteger kernel_width = 3, kernel_height = 3;
  NSUInteger inputs = 1, outputs = 1;
  NSUInteger stride_x = 1, stride_y = 1;
  NSUInteger dilation_x = 1, dilation_y = 1;
  NSUInteger groups = 1;
  NSUInteger subpixel = 1;              ///< MPSCNNSubPixelConvolutionDescriptor
  Ref<MPSNNNeuronDescriptor *> neuron;  ///< nil: none
  Ref<MPSCNNNeuron *> neuron_filter;    ///< the object passed to -setNeuron:
  std::shared_ptr<const BatchNorm> batch_norm;

  void archive(Archive &archive);
};

}  // namespace openmps

@interface MPSCNNConvolutionDescriptor (Engine)
- (openmps::ConvolutionDescriptorState &)openmps_state;
/// 0 for ordinary convolution.
- (NSUInteger)openmps_channelMultiplier;
@end
