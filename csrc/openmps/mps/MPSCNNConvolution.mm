// SPDX-License-Identifier: Apache-2.0
// MPSCNNConvolution [MPSCNNConvolution.h].

#import "mps/MPSCNNConvolutionGradientState+Engine.hh"

using openmps::ConvolutionState;

static ConvolutionState &conv_state(MPSCNNKernel *kernel) { return openmps::state_of<ConvolutionState>(kernel); }

@implementation MPSCNNConvolution

+ (openmps::KernelState *)openmps_newState {
  return new ConvolutionState();
}

- (instancetype)initWithDevice:(id<MTLDevice>)device {
  (void)device;
  openmps::UnwindRelease unwind(self);
  openmps::raise_unavailable(self, _cmd, "-initWithDevice:weights:");
}

- (instancetype)initWithDevice:(id<MTLDevice>)device weights:(id<MPSCNNConvolutionDataSource>)weights {
  return openmps::init_convolution(self, device, weights);
}

- (instancetype)initWithDevice:(id<MTLDevice>)device
         convolutionDescriptor:(const MPSCNNConvolutionDescriptor *)convolutionDescriptor
                 kernelWeights:(const float *)kernelWeights
                     biasTerms:(const float *)biasTerms
                         flags:(MPSCNNConvolutionFlags)flags {
  return openmps::init_convolution(self, device, convolutionDescriptor, kernelWeights, biasTerms, flags);
}

OPENMPS_INIT_WITH_CODER

// ------------------------------------------------------------------------------------------ properties

OPENMPS_GETTER(ConvolutionState, NSUInteger, inputFeatureChannels, inputs)
OPENMPS_GETTER(ConvolutionState, NSUInteger, outputFeatureChannels, outputs)
OPENMPS_GETTER(ConvolutionState, NSUInteger, groups, groups)
OPENMPS_GETTER(ConvolutionState, NSUInteger, subPixelScaleFactor, subpixel)
OPENMPS_GETTER(ConvolutionState, NSUInteger, channelMultiplier, channel_multiplier)
OPENMPS_GETTER(ConvolutionState, id<MPSCNNConvolutionDataSource>, dataSource, data_source.get())
OPENMPS_GETTER(ConvolutionState, MPSNNNeuronDescriptor *, fusedNeuronDescriptor, neuron_descriptor.get())
OPENMPS_GETTER(ConvolutionState, const MPSCNNNeuron *, neuron, neuron_filter.get())
OPENMPS_GETTER(ConvolutionState, MPSNNConvolutionAccumulatorPrecisionOption, accumulatorPrecisionOption, accumulator)

- (void)setAccumulatorPrecisionOption:(MPSNNConvolutionAccumulatorPrecisionOption)option {
  openmps::set_accumulator(conv_state(self), option);
}

- (MPSCNNNeuronType)neuronType {
  return static_cast<MPSCNNNeuronType>(conv_state(self).neuron.type);
}

// 1 without a neuron [MPSCNNConvolution.h].
- (float)neuronParameterA {
  const ConvolutionState &state = conv_state(self);
  return state.neuron_descriptor ? state.neuron.a : 1.0f;
}

- (float)neuronParameterB {
  const ConvolutionState &state = conv_state(self);
  return state.neuron_descriptor ? state.neuron.b : 1.0f;
}

- (float)neuronParameterC {
  const ConvolutionState &state = conv_state(self);
  return state.neuron_descriptor ? state.neuron.c : 1.0f;
}

// ---------------------------------------------------------------------------------------------- states

/// One state for the whole batch: its buffers receive the sum over the images.
- (BOOL)isResultStateReusedAcrossBatch {
  return YES;
}

- (MPSCNNConvolutionGradientState *)resultStateForSourceImage:(MPSImage *)sourceImage
                                                 sourceStates:(NSArray<MPSState *> *)sourceStates
                                             destinationImage:(MPSImage *)destinationImage {
  (void)sourceStates, (void)destinationImage;
  return [MPSCNNConvolutionGradientState openmps_stateForConvolution:self source:sourceImage on:nil];
}

- (MPSCNNConvolutionGradientState *)temporaryResultStateForCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                                             sourceImage:(MPSImage *)sourceImage
                                                            sourceStates:(NSArray<MPSState *> *)sourceStates
                                                        destinationImage:(MPSImage *)destinationImage {
  (void)sourceStates, (void)destinationImage;
  openmps::begin_encode(conv_state(self), commandBuffer);
  return [MPSCNNConvolutionGradientState openmps_stateForConvolution:self source:sourceImage on:commandBuffer];
}

- (MPSCNNConvolutionGradientStateBatch *)resultStateBatchForSourceImage:(MPSImageBatch *)sourceImage
                                                           sourceStates:(NSArray<MPSStateBatch *> *)sourceStates
                                                       destinationImage:(MPSImageBatch *)destinationImage {
  return (MPSCNNConvolutionGradientStateBatch *)[super resultStateBatchForSourceImage:sourceImage
                                                                         sourceStates:sourceStates
                                                                     destinationImage:destinationImage];
}

- (MPSCNNConvolutionGradientStateBatch *)temporaryResultStateBatchForCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                                                       sourceImage:(MPSImageBatch *)sourceImage
                                                                      sourceStates:
                                                                          (NSArray<MPSStateBatch *> *)sourceStates
                                                                  destinationImage:(MPSImageBatch *)destinationImage {
  return (MPSCNNConvolutionGradientStateBatch *)[super temporaryResultStateBatchForCommandBuffer:commandBuffer
                                                                                     sourceImage:sourceImage
                                                                                    sourceStates:sourceStates
                                                                                destinationImage:destinationImage];
}

// ------------------------------------------------------------------------------------- weights afterwards

- (void)reloadWeightsAndBiasesFromDataSource {
  openmps::reload_weights(conv_state(self), conv_state(self).data_source.get());
}

- (void)reloadWeightsAndBiasesWithDataSource:(id<MPSCNNConvolutionDataSource>)dataSource {
  openmps::reload_weights(conv_state(self), dataSource);
}

- (void)reloadWeightsAndBiasesWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                          state:(MPSCNNConvolutionWeightsAndBiasesState *)state {
  openmps::reload_weights(conv_state(self), commandBuffer, state);
}

- (BOOL)readWeightsInPlaceWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                      state:(MPSCNNConvolutionWeightsAndBiasesState *)state {
  return !openmps::is_hidden(_cmd) && openmps::read_weights_in_place(conv_state(self), commandBuffer, state);
}

- (MPSCNNConvolutionWeightsAndBiasesState *)exportWeightsAndBiasesWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                                          resultStateCanBeTemporary:(BOOL)resultStateCanBeTemporary {
  return openmps::export_weights(self, commandBuffer, resultStateCanBeTemporary);
}

@end
