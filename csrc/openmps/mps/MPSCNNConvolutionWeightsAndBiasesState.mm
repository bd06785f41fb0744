// SPDX-License-Identifier: Apache-2.0
// MPSCNNConvolutionWeightsAndBiasesState: weights (OHWI) and biases as float buffers [MPSCNNConvolution.h].

#import "mps/MPSCNNConvolutionDescriptor+Engine.hh"
#import "mps/MPSState+Engine.hh"

using openmps::raise_argument;

namespace {

struct WeightsData : openmps::StateData {
  NSUInteger weights_offset = 0, biases_offset = 0;
};

/// Bytes of the two buffers. Depth-wise: inputs * multiplier * height * width weights.
struct Lengths {
  NSUInteger weights, biases;
};

Lengths lengths_of(MPSCNNConvolutionDescriptor *descriptor) {
  if (descriptor == nil) raise_argument(@"MPSCNNConvolutionWeightsAndBiasesState: cnnConvolutionDescriptor is nil.");
  const openmps::ConvolutionDescriptorState &given = [descriptor openmps_state];
  const NSUInteger multiplier = [descriptor openmps_channelMultiplier];
  NSUInteger count = given.kernel_width;
  const NSUInteger inputs = multiplier != 0 ? multiplier : given.inputs / given.groups;
  const NSUInteger outputs = multiplier != 0 ? given.inputs : given.outputs;
  bool too_many = false;
  for (NSUInteger factor : {given.kernel_height, inputs, outputs, sizeof(float)})
    too_many |= __builtin_mul_overflow(count, factor, &count);
  if (too_many || count > NSUInteger{1} << 48)
    raise_argument(@"MPSCNNConvolutionWeightsAndBiasesState: the descriptor's weights are too many.");
  return {count, given.outputs * sizeof(float)};
}

MPSStateResourceList *buffers_for(MPSCNNConvolutionDescriptor *descriptor) {
  const Lengths lengths = lengths_of(descriptor);
  MPSStateResourceList *list = [MPSStateResourceList resourceList];
  [list appendBuffer:lengths.weights];
  [list appendBuffer:lengths.biases];
  return list;
}

void check_buffer(id<MTLBuffer> buffer, const char *name, NSUInteger offset, NSUInteger length) {
  if (offset % sizeof(float) != 0)
    raise_argument(@"MPSCNNConvolutionWeightsAndBiasesState: %sOffset (%lu) is not a multiple of 4.", name,
                   (unsigned long)offset);
  const NSUInteger available = [buffer length];
  if (offset > available || length > available - offset)
    raise_argument(@"MPSCNNConvolutionWeightsAndBiasesState: %s has %lu bytes, expected %lu from %sOffset (%lu) on.",
                   name, (unsigned long)available, (unsigned long)length, name, (unsigned long)offset);
}

}  // namespace

@implementation MPSCNNConvolutionWeightsAndBiasesState

- (instancetype)initWithWeights:(id<MTLBuffer>)weights biases:(id<MTLBuffer>)biases {
  openmps::UnwindRelease unwind(self);
  if (weights == nil) raise_argument(@"MPSCNNConvolutionWeightsAndBiasesState: weights is nil.");
  return [unwind.done() initWithResources:[NSArray arrayWithObjects:weights, biases, nil]];
}

- (instancetype)initWithDevice:(id<MTLDevice>)device
      cnnConvolutionDescriptor:(MPSCNNConvolutionDescriptor *)descriptor {
  openmps::UnwindRelease unwind(self);
  MPSStateResourceList *list = buffers_for(descriptor);
  return [unwind.done() initWithDevice:device resourceList:list];
}

+ (instancetype)temporaryCNNConvolutionWeightsAndBiasesStateWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                                     cnnConvolutionDescriptor:
                                                         (MPSCNNConvolutionDescriptor *)descriptor {
  return [self temporaryStateWithCommandBuffer:commandBuffer resourceList:buffers_for(descriptor)];
}

- (instancetype)initWithWeights:(id<MTLBuffer>)weights
                  weightsOffset:(NSUInteger)weightsOffset
                         biases:(id<MTLBuffer>)biases
                   biasesOffset:(NSUInteger)biasesOffset
       cnnConvolutionDescriptor:(MPSCNNConvolutionDescriptor *)descriptor {
  if (!(self = [self initWithWeights:weights biases:biases])) return nil;
  openmps::UnwindRelease unwind(self);
  const Lengths lengths = lengths_of(descriptor);
  check_buffer(weights, "weights", weightsOffset, lengths.weights);
  if (biases != nil) check_buffer(biases, "biases", biasesOffset, lengths.biases);
  auto data = std::make_unique<WeightsData>();
  data->weights_offset = weightsOffset;
  data->biases_offset = biasesOffset;
  [self openmps_setData:std::move(data)];
  return unwind.done();
}

- (id<MTLBuffer>)weights {
  return (id<MTLBuffer>)[self resourceAtIndex:0 allocateMemory:YES];
}

- (id<MTLBuffer>)biases {
  return [self resourceCount] < 2 ? nil : (id<MTLBuffer>)[self resourceAtIndex:1 allocateMemory:YES];
}

- (NSUInteger)weightsOffset {
  const auto *data = static_cast<const WeightsData *>([self openmps_data]);
  return data == nullptr ? 0 : data->weights_offset;
}

- (NSUInteger)biasesOffset {
  const auto *data = static_cast<const WeightsData *>([self openmps_data]);
  return data == nullptr ? 0 : data->biases_offset;
}

@end
