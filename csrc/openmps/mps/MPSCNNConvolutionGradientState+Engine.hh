// SPDX-License-Identifier: Apache-2.0
// What a convolution leaves for its gradient kernel and for a transpose that undoes it.
#pragma once

#import "mps/MPSCNNConvolution+Engine.hh"
#import "mps/MPSState+Engine.hh"

namespace openmps {

struct ConvolutionGradientData : GradientData {
  Ref<MPSCNNKernel *> kernel;                          ///< MPSCNNConvolution or MPSCNNConvolutionTranspose
  Ref<MPSCNNConvolution *> pair;                       ///< what `convolution` answers
  NSInteger kernel_offset_x = 0, kernel_offset_y = 0;  ///< a transpose's
  bool has_gradients = false;  ///< an encode has been recorded that leaves gradients in the buffers
};

}  // namespace openmps

@interface MPSCNNConvolutionGradientState (Engine)
/// Two buffers: the weights' gradient and the biases'. On a command buffer (not nil) the state is temporary.
+ (instancetype)openmps_stateForConvolution:(MPSCNNKernel *)kernel
                                     source:(MPSImage *)source
                                         on:(id<MTLCommandBuffer>)commandBuffer;
- (openmps::ConvolutionGradientData &)openmps_gradientData;
@end
