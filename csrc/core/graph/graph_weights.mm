// SPDX-License-Identifier: Apache-2.0
// Data sources of nodes. MPSNNGraph calls the update method of the protocol while it is encoded, and passes only MPS
// objects; the command buffer comes from the GraphScope of the encode.
#import <objc/runtime.h>

#include <mpscnn/error.hpp>
#include <mpscnn/weights_update.hpp>

#include "core/data_source/objc_weights.hh"
#include "core/device/objc_scope.hh"
#include "core/graph/graph_object_impl.hh"
#include "core/graph/graph_scope.hpp"
#include "core/graph/graph_states.hh"
#include "core/graph/graph_weights.hh"
#include "core/kernel/convolution_params.hpp"
#include "core/kernel/families/family.hh"

namespace mpscnn {

void WeightsTraining::step(CommandBuffer &buffer, id<MTLCommandBuffer> commands, Parameter &parameter,
                           id<MTLBuffer> gradient, id<MTLBuffer> source, NSUInteger offset, std::int64_t count) {
  if (!parameter.values) {
    auto values = floats_of(optimizer_->device(), commands, source, offset, count);
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
      const auto *own = dynamic_cast<const UpdatingSource *>(given.get());
      check(own == nullptr || !(own->has_update() || own->has_update_on_cpu()), row.name,
            "Node: optimizer was given with a data source that has ",
            own && own->has_update() ? "update()" : "update_on_cpu()", ", which updates the weights.");
      const auto &activation = source->descriptor().activation;
      check<NotImplementedError>(activation.type == MPSCNNNeuronTypeNone, row.name,
                                 ": the weights have an activation, which MPS does not differentiate: use a neuron "
                                 "node instead.");
      training = std::make_shared<WeightsTraining>(std::move(optimizer));
    }
    auto object = Ref<id>::adopt([[PyMPSGraphWeights alloc] initWithGuardedSource:source
                                                                           kernel:row.name
                                                                         training:training]);
    return std::make_shared<GraphObject>(
        std::unique_ptr<Impl>(new Impl{.object = std::move(object), .source = source, .training = training}));
  });
}

namespace {

/// Names, properties and shapes of a convolution's gradients.
std::vector<StateValues> values_of(const Extents &shape) {
  return {{"grad_weight", @selector(gradientForWeights), shape},
          {"grad_bias", @selector(gradientForBiases), {shape[0]}}};
}

/// Call update() of the program's source. Return the state with the new values; nil: none.
MPSCNNConvolutionWeightsAndBiasesState *own_update(UpdatingSource &source, const std::shared_ptr<CommandBuffer> &buffer,
                                                   std::string_view kernel, const ConvolutionDescriptor &descriptor,
                                                   MPSCNNConvolutionGradientState *gradient,
                                                   MPSCNNConvolutionWeightsAndBiasesState *current) {
  const auto device = buffer->device();
  id<MTLCommandBuffer> commands = buffer->impl().buffer.get();
  const auto shape = weights_shape(descriptor);
  const GraphGradients gradients(device, kernel, [NSArray arrayWithObject:gradient], values_of(shape), commands);
  auto weights = std::make_shared<ConvolutionWeightsAndBiasesState>();
  weights->shape = shape;
  weights->weights = floats_of(device, commands, [current weights], [current weightsOffset],
                               shape[0] * shape[1] * shape[2] * shape[3]);
  if ([current biases] != nil)
    weights->biases = floats_of(device, commands, [current biases], [current biasesOffset], shape[0]);
  const auto next = source.update(buffer, gradients.state(), weights);
  if (!next) return nil;
  for (const auto &values : {next->weights, next->biases})
    if (values) check_same_device(*values->impl().device, *device, "data source: the state that update() returned");
  check_sizes("data source", *next, shape);
  return objc_weights(*next);
}

/// Call update_on_cpu() of the program's source. Return whether it has new values.
bool own_update_on_cpu(UpdatingSource &source, std::string_view kernel, const Extents &shape,
                       MPSCNNConvolutionGradientState *gradient, MPSCNNConvolutionWeightsAndBiasesState *current) {
  const auto device = device_of([[current weights] device]);
  const GraphGradients gradients(device, kernel, [NSArray arrayWithObject:gradient], values_of(shape), nil);
  const auto buffer_of = [&](id<MTLBuffer> values) {
    return std::make_shared<Buffer>(
        std::make_unique<Buffer::Impl>(Buffer::Impl{device, Ref<id<MTLBuffer>>::retain(values)}));
  };
  auto weights = std::make_shared<ConvolutionWeightsAndBiasesState>();
  weights->shape = shape;
  weights->weights = buffer_of([current weights]);
  if ([current biases] != nil) weights->biases = buffer_of([current biases]);
  return source.update_on_cpu(gradients.state(), weights);
}

}  // namespace
}  // namespace mpscnn

@implementation PyMPSGraphWeights

- (instancetype)initWithGuardedSource:(std::shared_ptr<mpscnn::GuardedSource>)source
                               kernel:(std::string_view)kernel
                             training:(std::shared_ptr<mpscnn::WeightsTraining>)training {
  if ((self = [super initWithGuardedSource:source])) {
    guarded_ = std::move(source);
    kernel_ = kernel;
    training_ = std::move(training);
  }
  return self;
}

/// Keep a failure for the caller of MPS.
- (BOOL)load {
  const BOOL loaded = [super load];
  if (auto *scope = mpscnn::GraphScope::current()) {
    scope->run([&] { guarded_->rethrow(); });
    if ([self updates] != nullptr) scope->sources.push_back(guarded_);
  }
  return loaded;
}

/// The program's own updates; null if there are none.
- (mpscnn::UpdatingSource *)updates {
  auto *own = training_ ? nullptr : dynamic_cast<mpscnn::UpdatingSource *>(guarded_->source().get());
  return own != nullptr && (own->has_update() || own->has_update_on_cpu()) ? own : nullptr;
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
  if (training_ && sel_isEqual(selector, @selector(updateWithCommandBuffer:gradientState:sourceState:))) return YES;
  return [super respondsToSelector:selector];
}

- (MPSCNNConvolutionWeightsAndBiasesState *)updateWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                                      gradientState:(MPSCNNConvolutionGradientState *)gradientState
                                                        sourceState:
                                                            (MPSCNNConvolutionWeightsAndBiasesState *)sourceState {
  MPSCNNConvolutionWeightsAndBiasesState *result = nil;
  if (auto *scope = mpscnn::GraphScope::current()) {
    scope->has_updated = true;
    if (training_)
      scope->run(
          [&] { result = training_->update(commandBuffer, guarded_->descriptor(), gradientState, sourceState); });
    else
      guarded_->run([&] {
        result = mpscnn::own_update(*[self updates], scope->buffer(), kernel_, guarded_->descriptor(), gradientState,
                                    sourceState);
      });
  }
  MPSStateBatchIncrementReadCount([NSArray arrayWithObjects:gradientState, sourceState, nil], -1);
  return result;
}

/// Called when the command buffer has completed, on any thread. A source that declines to load would be refused by MPS.
- (BOOL)updateWithGradientState:(MPSCNNConvolutionGradientState *)gradientState
                    sourceState:(MPSCNNConvolutionWeightsAndBiasesState *)sourceState {
  const mpscnn::Pool pool;
  bool changed = false;
  guarded_->run([&] {
    const auto shape = mpscnn::weights_shape(guarded_->descriptor());
    changed = mpscnn::own_update_on_cpu(*[self updates], kernel_, shape, gradientState, sourceState);
    if (!changed) return;
    changed = guarded_->load();
    if (!changed) return;
    guarded_->purge();
    const auto now = mpscnn::weights_shape(guarded_->descriptor());
    changed = now == shape;
    mpscnn::check(changed, "data source: descriptor asks for weights of shape ", mpscnn::as_tuple(now),
                  "; those of the kernel have ", mpscnn::as_tuple(shape), ".");
  });
  return changed;
}

- (id)copyWithZone:(NSZone *)zone {
  // The weights are shared, not copied.
  return [[[self class] allocWithZone:zone] initWithGuardedSource:guarded_ kernel:kernel_ training:training_];
}

@end
