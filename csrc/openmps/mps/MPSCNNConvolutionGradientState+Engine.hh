// SPDX-License-Identifier: Apache-2.0
// The state that a convolution makes for its gradient kernel and for a transpose that undoes it.
#pragma once

#import "mps/MPSCNNConvolution+Engine.hh"
#import "mps/MPSState+Engine.hh"

namespace openmps {

struct ConvolutionGradientData : GradientData {
  Ref<MPSCNNKernel *> kernel;                          ///< MPSCNNConvolution or MPSCNNConvolutionTranspose
  Ref<MPSCNNConvolution *> pair;                       ///< result of -convolution
  NSInteger kernel_offset_x = 0, kernel_offset_y = 0;  ///< of a transpose
  bool has_gradients = false;                          ///< an encode that writes the gradients has been recorded
};

}  // namespace openmps

@interface MPSCNNConvolutionGradientState (Engine)
/// Two buffers: the gradients of the weights and of the biases. Temporary if `commandBuffer` is not nil.
+ (instancetype)openmps_stateForConvolution:(MPSCNNKernel *)kernel
                                     source:(MPSImage *)source
                                         on:(id<MTLCommandBuffer>)commandBuffer;
- (openmps::ConvolutionGradientData &)openmps_gradientData;
@end
