// SPDX-License-Identifier: Apache-2.0
// Reloads and exports of weights, in the order of a command buffer [MPSCNNConvolution.h].

#import "mps/MPSCNNConvolution+Engine.hh"

#include "engine/engine.hpp"
#include "engine/problem/problem.hpp"

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

/// The last reload that this thread has recorded. The kernels of a layer are reloaded one after the other.
struct Load {
  std::weak_ptr<Completion> completion;  ///< of its command buffer
  std::size_t commands = 0;              ///< recorded in it, this one included
  std::weak_ptr<const ConvWeights> weights;
  std::weak_ptr<Memory> weights_memory, biases_memory;
  std::size_t weights_offset = 0, biases_offset = 0;
  bool round_to_half = false, in_place = false;
};
thread_local Load last_load;

/// Return the weights of the last reload if it was the same and nothing has been recorded since, else null.
std::shared_ptr<const ConvWeights> just_loaded(const Recorder &recorder, const ConvWeights &like,
                                               const WeightBuffers &buffers, bool round_to_half, bool in_place) {
  const Load &last = last_load;
  auto weights = last.weights.lock();
  if (!weights || last.completion.lock() != recorder.completion() || last.commands != recorder.command_count() ||
      last.weights_memory.lock() != buffers.weights || last.biases_memory.lock() != buffers.biases ||
      last.weights_offset != buffers.weights_offset || last.biases_offset != buffers.biases_offset ||
      last.round_to_half != round_to_half || last.in_place != in_place)
    return nullptr;
  const bool is_alike = weights->out_channels == like.out_channels && weights->kernel_h == like.kernel_h &&
                        weights->kernel_w == like.kernel_w && weights->groups == like.groups &&
                        weights->in_channels_per_group == like.in_channels_per_group;
  return is_alike ? weights : nullptr;
}

void reload(ConvolutionState &state, id<MTLCommandBuffer> buffer, MPSCNNConvolutionWeightsAndBiasesState *given,
            bool in_place) {
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
  const bool round_to_half = !state.float_weights;
  if (auto weights = just_loaded(recorder, *state.weights, buffers, round_to_half, in_place)) {
    state.weights = std::move(weights);
  } else {
    const std::shared_ptr<const ConvWeights> made = in_place
                                                        ? weights_in_place(*state.weights, buffers)
                                                        : weights_to_fill(state.weights, buffers.biases != nullptr);
    if (!made) raise_memory(@"%s: There is not enough memory for the weights.", state.title.c_str());
    if (!in_place)
      recorder.append(LoadWeightsProblem{.values = {buffers.weights, buffers.weights_offset},
                                         .bias = {buffers.biases, buffers.biases_offset},
                                         .weights = made,
                                         .round_to_half = round_to_half},
                      state.title);
    last_load = {recorder.completion(),  recorder.command_count(), made,          buffers.weights, buffers.biases,
                 buffers.weights_offset, buffers.biases_offset,    round_to_half, in_place};
    state.weights = made;
  }
  state.weights_are_there = false;
  [given openmps_didRead];
}

}  // namespace

void reload_weights(ConvolutionState &state, id<MTLCommandBuffer> buffer,
                    MPSCNNConvolutionWeightsAndBiasesState *given) {
  reload(state, buffer, given, false);
}

bool read_weights_in_place(ConvolutionState &state, id<MTLCommandBuffer> buffer,
                           MPSCNNConvolutionWeightsAndBiasesState *given) {
  const Engine &engine = *begin_encode(state, buffer).engine();
  const bool is_host = engine.image_storage() == Storage::host && engine.buffer_storage() == Storage::host;
  if (!is_host || !state.float_weights) return false;
  reload(state, buffer, given, true);
  state.data_source = {};  // nothing reads it again, and it may keep arrays
  return true;
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
