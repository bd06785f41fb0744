// SPDX-License-Identifier: Apache-2.0
// Data sources of nodes. MPSNNGraph calls the update method of the protocol while it is encoded, and passes only MPS
// objects; the command buffer comes from the GraphScope of the encode.
#import <objc/runtime.h>

#include <mpscnn/error.hpp>

#include "core/data_source/objc_weights.hh"
#include "core/device/objc_scope.hh"
#include "core/graph/graph_object_impl.hh"
#include "core/graph/graph_scope.hpp"
#include "core/graph/graph_weights.hh"
#include "core/kernel/convolution_params.hpp"
#include "core/kernel/families/family.hh"

namespace mpscnn {

void WeightsTraining::step(CommandBuffer &buffer, id<MTLCommandBuffer> commands, Parameter &parameter,
                           id<MTLBuffer> gradient, id<MTLBuffer> source, NSUInteger offset, std::int64_t count) {
  const auto bytes = static_cast<NSUInteger>(count) * sizeof(float);
  if (!parameter.values) {
    auto values = Buffer::make(optimizer_->device(), bytes);
    id<MTLBlitCommandEncoder> blit = [commands blitCommandEncoder];
    [blit copyFromBuffer:source
             sourceOffset:offset
                 toBuffer:values->impl().buffer.get()
        destinationOffset:0
                     size:bytes];
    [blit endEncoding];
    parameter.state = optimizer_->state_for(values);
    parameter.values = std::move(values);
  }
  const auto gradients = std::make_shared<Buffer>(
      std::make_unique<Buffer::Impl>(Buffer::Impl{optimizer_->device(), Ref<id<MTLBuffer>>::retain(gradient)}));
  optimizer_->encode(buffer, gradients, *parameter.state);
}

MPSCNNConvolutionWeightsAndBiasesState *WeightsTraining::update(id<MTLCommandBuffer> commands,
                                                                const ConvolutionDescriptor &descriptor,
                                                                MPSCNNConvolutionGradientState *gradient,
                                                                MPSCNNConvolutionWeightsAndBiasesState *source) {
  const auto &buffer = GraphScope::current()->buffer();
  const auto shape = weights_shape(descriptor);
  check(shape[3] > 0, "weights: the descriptor is empty.");
  step(*buffer, commands, weights_, [gradient gradientForWeights], [source weights], [source weightsOffset],
       shape[0] * shape[1] * shape[2] * shape[3]);
  if ([source biases] != nil)
    step(*buffer, commands, biases_, [gradient gradientForBiases], [source biases], [source biasesOffset], shape[0]);
  writer_->set(commands);
  return objc_weights({.weights = weights_.values, .biases = biases_.values, .shape = shape});
}

GraphObject::Ptr GraphObject::weights(const KernelRow &row, const Params &params,
                                      std::shared_ptr<Optimizer> optimizer) {
  check_params(row, params);
  return guard([&] {
    const bool is_binary = row.family == "binary_convolution" || row.family == "binary_fully_connected";
    const auto given = is_binary ? binary_source(row, params) : convolution_source(row, params);
    const auto source =
        std::make_shared<GuardedSource>(given, is_binary ? GuardedSource::Takes::bits : GuardedSource::Takes::numbers);
    // Load once before MPS does, to check the values: MPS would abort.
    if (!source->load()) source->rethrow();
    source->purge();
    source->rethrow();
    std::shared_ptr<WeightsTraining> training;
    if (optimizer) {
      const auto &activation = source->descriptor().activation;
      check<NotImplementedError>(activation.type == MPSCNNNeuronTypeNone, row.name,
                                 ": the weights have an activation, which MPS does not differentiate: use a neuron "
                                 "node instead.");
      training = std::make_shared<WeightsTraining>(std::move(optimizer));
    }
    auto object = Ref<id>::adopt([[PyMPSGraphWeights alloc] initWithGuardedSource:source training:training]);
    return std::make_shared<GraphObject>(
        std::unique_ptr<Impl>(new Impl{.object = std::move(object), .source = source, .training = training}));
  });
}

}  // namespace mpscnn

@implementation PyMPSGraphWeights

- (instancetype)initWithGuardedSource:(std::shared_ptr<mpscnn::GuardedSource>)source
                             training:(std::shared_ptr<mpscnn::WeightsTraining>)training {
  if ((self = [super initWithGuardedSource:source])) {
    guarded_ = std::move(source);
    training_ = std::move(training);
  }
  return self;
}

/// Keep a failure for the caller of MPS.
- (BOOL)load {
  const BOOL loaded = [super load];
  if (auto *scope = mpscnn::GraphScope::current()) scope->run([&] { guarded_->rethrow(); });
  return loaded;
}

- (BOOL)isTrained {
  return training_ && training_->weights();
}

- (MPSDataType)dataType {
  return [self isTrained] ? MPSDataTypeFloat32 : [super dataType];
}

- (void *)weights {
  return [self isTrained] ? training_->weights()->contents() : [super weights];
}

/// Trained weights change, so that MPS must copy them.
- (id)weightsOwner {
  return [self isTrained] ? nil : [super weightsOwner];
}

- (float *)biasTerms {
  if (![self isTrained] || !training_->biases()) return [super biasTerms];
  return static_cast<float *>(training_->biases()->contents());
}

- (BOOL)respondsToSelector:(SEL)selector {
  if (sel_isEqual(selector, @selector(updateWithCommandBuffer:gradientState:sourceState:))) return training_ != nullptr;
  return [super respondsToSelector:selector];
}

- (MPSCNNConvolutionWeightsAndBiasesState *)updateWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                                      gradientState:(MPSCNNConvolutionGradientState *)gradientState
                                                        sourceState:
                                                            (MPSCNNConvolutionWeightsAndBiasesState *)sourceState {
  MPSCNNConvolutionWeightsAndBiasesState *result = nil;
  if (auto *scope = mpscnn::GraphScope::current())
    scope->run([&] { result = training_->update(commandBuffer, guarded_->descriptor(), gradientState, sourceState); });
  MPSStateBatchIncrementReadCount([NSArray arrayWithObjects:gradientState, sourceState, nil], -1);
  return result;
}

- (id)copyWithZone:(NSZone *)zone {
  // The weights are shared, not copied.
  return [[[self class] allocWithZone:zone] initWithGuardedSource:guarded_ training:training_];
}

@end
