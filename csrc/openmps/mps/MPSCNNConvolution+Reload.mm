// SPDX-License-Identifier: Apache-2.0
// Weights that go out of a kernel and into it in the order of a command buffer [MPSCNNConvolution.h].

#import "mps/MPSCNNConvolution+Engine.hh"

namespace openmps {
namespace {

std::shared_ptr<Memory> memory_of(const ConvolutionState &state, id<MTLBuffer> buffer, const char *name,
                                  NSUInteger offset, std::size_t count) {
  id<OpenMPSBuffer> known = buffer_of(buffer, name);
  const NSUInteger bytes = count * sizeof(float), length = [known length];
  if (offset > length || bytes > length - offset)
    raise_for(state, @"%s of the state has %lu bytes from its offset (%lu) on, expected %lu.", name,
              (unsigned long)(offset > length ? 0 : length - offset), (unsigned long)offset, (unsigned long)bytes);
  std::shared_ptr<Memory> memory = [known openmps_memory];
  touch(memory, @"The buffer of the weights");
  return memory;
}

}  // namespace

void reload_weights(MPSCNNKernel *kernel, id<MTLCommandBuffer> buffer, MPSCNNConvolutionWeightsAndBiasesState *given) {
  ConvolutionState &state = state_of<ConvolutionState>(kernel);
  Recorder &recorder = begin_encode(state, buffer);
  if (given == nil) raise_for(state, @"state is nil.");
  if (!state.weights) raise_for(state, @"The kernel has no weights.");
  [given openmps_willUseOn:buffer];
  WeightBuffers buffers;
  buffers.weights_offset = [given weightsOffset];
  buffers.weights = memory_of(state, [given weights], "weights", buffers.weights_offset, state.weights->values.size());
  if ([given biases] != nil) {
    buffers.biases_offset = [given biasesOffset];
    buffers.biases = memory_of(state, [given biases], "biases", buffers.biases_offset, state.outputs);
  }
  const std::shared_ptr<ConvWeights> weights = weights_to_fill(*state.weights, buffers.biases != nullptr);
  if (!weights) raise_memory(@"%s: There is not enough memory for the weights.", state.title.c_str());
  const bool round_to_half = !state.float_weights;
  recorder.append(HostTask{[weights, buffers, round_to_half] { fill_weights(*weights, buffers, round_to_half); }},
                  state.title);
  state.weights = weights;
  [given openmps_didRead];
}

MPSCNNConvolutionWeightsAndBiasesState *export_weights(MPSCNNKernel *kernel, id<MTLCommandBuffer> buffer,
                                                       BOOL temporary) {
  const ConvolutionState &state = state_of<ConvolutionState>(kernel);
  Recorder &recorder = begin_encode(state, buffer);
  if (!state.weights) raise_for(state, @"The kernel has no weights.");
  const std::shared_ptr<const ConvWeights> weights = state.weights;
  MPSStateResourceList *list = [MPSStateResourceList resourceList];
  [list appendBuffer:weights->values.size() * sizeof(float)];
  if (!weights->bias.empty()) [list appendBuffer:weights->bias.size() * sizeof(float)];
  MPSCNNConvolutionWeightsAndBiasesState *result =
      temporary ? [MPSCNNConvolutionWeightsAndBiasesState temporaryStateWithCommandBuffer:buffer resourceList:list]
                : [[[MPSCNNConvolutionWeightsAndBiasesState alloc] initWithDevice:state.device.get()
                                                                     resourceList:list] autorelease];
  WeightBuffers buffers;
  buffers.weights = memory_of(state, [result weights], "weights", 0, weights->values.size());
  if (!weights->bias.empty()) buffers.biases = memory_of(state, [result biases], "biases", 0, weights->bias.size());
  recorder.append(HostTask{[weights, buffers] { store_weights(*weights, buffers); }}, state.title);
  return result;
}

}  // namespace openmps
