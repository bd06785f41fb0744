// SPDX-License-Identifier: Apache-2.0
// MPSCNNConvolutionGradientState and the state of the transposed convolution [MPSCNNConvolution.h].

#import "mps/MPSCNNConvolutionGradientState+Engine.hh"

using openmps::ConvolutionGradientData;
using openmps::ConvolutionState;
using openmps::Ref;

@implementation MPSCNNConvolutionGradientState

+ (instancetype)openmps_stateForConvolution:(MPSCNNKernel *)kernel
                                     source:(MPSImage *)source
                                         on:(id<MTLCommandBuffer>)commandBuffer {
  const ConvolutionState &state = openmps::state_of<ConvolutionState>(kernel);
  openmps::check_image(state, source, "sourceImage");
  if (!state.weights) openmps::raise_for(state, @"The kernel has no weights.");
  // Floats, OHWI; depth-wise O x kH x kW. The second buffer exists even if the kernel has no biases.
  MPSStateResourceList *buffers = [MPSStateResourceList resourceList];
  [buffers appendBuffer:state.weights->values.size() * sizeof(float)];
  [buffers appendBuffer:state.outputs * sizeof(float)];
  MPSCNNConvolutionGradientState *result =
      commandBuffer != nil ? [self temporaryStateWithCommandBuffer:commandBuffer resourceList:buffers]
                           : [[[self alloc] initWithDevice:state.device.get() resourceList:buffers] autorelease];
  auto data = std::make_unique<ConvolutionGradientData>();
  data->kernel = Ref<MPSCNNKernel *>(kernel);
  if ([kernel isKindOfClass:[MPSCNNConvolution class]])
    data->pair = Ref<MPSCNNConvolution *>((MPSCNNConvolution *)kernel);
  openmps::take_sources(*data, state, {&source, 1});
  [result openmps_setData:std::move(data)];
  return result;
}

- (ConvolutionGradientData &)openmps_gradientData {
  return static_cast<ConvolutionGradientData &>(openmps::gradient_data(self));
}

- (id<MTLBuffer>)gradientForWeights {
  return (id<MTLBuffer>)[self resourceAtIndex:0 allocateMemory:YES];
}

- (id<MTLBuffer>)gradientForBiases {
  return (id<MTLBuffer>)[self resourceAtIndex:1 allocateMemory:YES];
}

- (MPSCNNConvolution *)convolution {
  return [self openmps_gradientData].pair.get();
}

- (MPSCNNConvolutionWeightsLayout)gradientForWeightsLayout {
  return MPSCNNConvolutionWeightsLayoutOHWI;
}

- (NSUInteger)sourceWidth {
  return [self openmps_gradientData].sources[0].width;
}

- (NSUInteger)sourceHeight {
  return [self openmps_gradientData].sources[0].height;
}

/// A transpose inverts the convolution: its result has the size of the convolution's source, and tap q of one kernel is
/// tap extent - 1 - q of the other. With off the convolution's offset: kernelOffset = -off, + 1 for an even extent.
- (MPSImageDescriptor *)destinationImageDescriptorForSourceImages:(NSArray<MPSImage *> *)sourceImages
                                                     sourceStates:(NSArray<MPSState *> *)sourceStates
                                                        forKernel:(MPSKernel *)kernel
                                              suggestedDescriptor:(MPSImageDescriptor *)inDescriptor {
  MPSImageDescriptor *descriptor = [super destinationImageDescriptorForSourceImages:sourceImages
                                                                       sourceStates:sourceStates
                                                                          forKernel:kernel
                                                                suggestedDescriptor:inDescriptor];
  if (![kernel isKindOfClass:[MPSCNNConvolutionTranspose class]]) return descriptor;
  const openmps::GradientData::Source &forward = [self openmps_gradientData].sources[0];
  const openmps::SourceSlot &slot = forward.slot;
  [descriptor setWidth:forward.width];
  [descriptor setHeight:forward.height];
  MPSCNNConvolutionTranspose *transpose = (MPSCNNConvolutionTranspose *)kernel;
  [transpose setOffset:MPSOffset{0, 0, 0}];
  [transpose setKernelOffsetX:-slot.offset.x + (slot.extent_x() % 2 == 0 ? 1 : 0)];
  [transpose setKernelOffsetY:-slot.offset.y + (slot.extent_y() % 2 == 0 ? 1 : 0)];
  return descriptor;
}

@end

@implementation MPSCNNConvolutionTransposeGradientState

/// The position of the transpose depends on its kernelOffset too.
- (MPSImageDescriptor *)destinationImageDescriptorForSourceImages:(NSArray<MPSImage *> *)sourceImages
                                                     sourceStates:(NSArray<MPSState *> *)sourceStates
                                                        forKernel:(MPSKernel *)kernel
                                              suggestedDescriptor:(MPSImageDescriptor *)inDescriptor {
  MPSImageDescriptor *descriptor = [super destinationImageDescriptorForSourceImages:sourceImages
                                                                       sourceStates:sourceStates
                                                                          forKernel:kernel
                                                                suggestedDescriptor:inDescriptor];
  if ([kernel isKindOfClass:[MPSCNNConvolutionTransposeGradient class]]) {
    const ConvolutionGradientData &data = [self openmps_gradientData];
    [(MPSCNNConvolutionTransposeGradient *)kernel setKernelOffsetX:data.kernel_offset_x];
    [(MPSCNNConvolutionTransposeGradient *)kernel setKernelOffsetY:data.kernel_offset_y];
  }
  return descriptor;
}

- (MPSCNNConvolutionTranspose *)convolutionTranspose {
  return (MPSCNNConvolutionTranspose *)[self openmps_gradientData].kernel.get();
}

@end
