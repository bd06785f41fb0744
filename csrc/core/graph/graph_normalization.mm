// SPDX-License-Identifier: Apache-2.0
// Data sources of normalization nodes. MPSNNGraph calls the update methods of the protocols while it is encoded, or
// when its command buffer has completed.
#include "core/graph/graph_normalization.hh"

#import <objc/runtime.h>

#include <mpscnn/error.hpp>

#include <algorithm>

#include "core/device/objc_scope.hh"
#include "core/graph/graph_object_impl.hh"
#include "core/graph/graph_scope.hpp"
#include "core/graph/graph_states.hh"
#include "core/kernel/families/family.hh"

namespace mpscnn {
namespace {

std::shared_ptr<Buffer> buffer_on(const std::shared_ptr<Device> &device, id<MTLBuffer> values) {
  return std::make_shared<Buffer>(
      std::make_unique<Buffer::Impl>(Buffer::Impl{device, Ref<id<MTLBuffer>>::retain(values)}));
}

/// Throw unless the buffers of a state that the program returned have a float for each channel.
void check_state(const Device &device, std::int64_t channels,
                 std::array<std::pair<const char *, std::shared_ptr<Buffer>>, 2> buffers) {
  const auto bytes = static_cast<std::uint64_t>(channels) * sizeof(float);
  for (const auto &[name, buffer] : buffers) {
    check_same_device(*buffer->impl().device, device, "data source: the state that its update returned");
    check(buffer->bytes() >= bytes, "data source: ", name, " of the state has ", buffer->bytes(), " bytes; ", channels,
          " channels need ", bytes, ".");
  }
}

}  // namespace

/// Load the source, and purge it after `read`.
template <class Read>
void NormalizationUpdates::read_source(const Read &read) const {
  if (!source_->load()) source_->rethrow();
  const auto unload = std::shared_ptr<void>(nullptr, [this](void *) { source_->purge(); });
  read();
}

std::shared_ptr<Buffer> NormalizationUpdates::values_like(const float *from, float fallback) const {
  const auto channels = static_cast<std::size_t>(source_->channels());
  auto buffer = Buffer::make(optimizer_->device(), channels * sizeof(float));
  auto *to = static_cast<float *>(buffer->contents());
  from != nullptr ? std::copy_n(from, channels, to) : std::fill_n(to, channels, fallback);
  return buffer;
}

void NormalizationUpdates::step(CommandBuffer &buffer, const Gradients &gradients) {
  if (!is_trained()) {
    auto values = std::make_shared<NormalizationGammaAndBetaState>();
    read_source([&] {
      values->gamma = values_like(source_->gamma(), 1);
      values->beta = values_like(source_->beta(), 0);
    });
    state_ = optimizer_->state_for(values);
    values_.gamma = values->gamma, values_.beta = values->beta;
  }
  std::visit([&](const auto &given) { optimizer_->encode(buffer, given, *state_); }, gradients);
  writer_.set(buffer.impl().buffer.get());
}

MPSCNNNormalizationGammaAndBetaState *NormalizationUpdates::update(const std::shared_ptr<CommandBuffer> &buffer,
                                                                   const Gradients &gradients, id<MTLBuffer> gamma,
                                                                   id<MTLBuffer> beta) {
  std::shared_ptr<NormalizationGammaAndBetaState> next;
  if (optimizer_) {
    step(*buffer, gradients);
    next = std::make_shared<NormalizationGammaAndBetaState>();
    next->gamma = values_.gamma, next->beta = values_.beta;
  } else {
    id<MTLCommandBuffer> commands = buffer->impl().buffer.get();
    const auto channels = source_->channels();
    auto source = std::make_shared<NormalizationGammaAndBetaState>();
    source->gamma = floats_of(buffer->device(), commands, gamma, 0, channels);
    source->beta = floats_of(buffer->device(), commands, beta, 0, channels);
    next = own()->update(buffer, gradients, source);
    if (!next) return nil;
    check_state(*buffer->device(), channels, {{{"gamma", next->gamma}, {"beta", next->beta}}});
  }
  return [[[MPSCNNNormalizationGammaAndBetaState alloc] initWithGamma:next->gamma->impl().buffer.get()
                                                                 beta:next->beta->impl().buffer.get()] autorelease];
}

bool NormalizationUpdates::update_on_cpu(const Gradients &gradients, id<MTLBuffer> gamma, id<MTLBuffer> beta) {
  const auto device = device_of([gamma device]);
  auto source = std::make_shared<NormalizationGammaAndBetaState>();
  source->gamma = buffer_on(device, gamma);
  source->beta = buffer_on(device, beta);
  if (!own()->update_on_cpu(gradients, source)) return false;
  // MPS would refuse a source that declines to load, or has another number of channels.
  read_source([] {});
  return true;
}

/// values = (1 - momentum) * values + momentum * factor * batch, as a step of gradient descent with weight decay: MPS
/// has no other kernel of vectors.
void NormalizationUpdates::average(CommandBuffer &buffer, Average &average, const std::shared_ptr<Buffer> &values,
                                   id<MTLBuffer> batch, double factor) {
  if (!average.optimizer || average.factor != factor) {
    average.optimizer = Optimizer::make(optimizer_->device(), "OptimizerStochasticGradientDescent",
                                        {{"learning_rate", 1.0},
                                         {"momentum_scale", 0.0},
                                         {"use_nesterov_momentum", false},
                                         {"gradient_rescale", -momentum_ * factor},
                                         {"gradient_clip", std::monostate()},
                                         {"regularization", "l2"},
                                         {"regularization_scale", momentum_}});
    average.state = average.optimizer->state_for(values);
    average.factor = factor;
  }
  average.optimizer->encode(buffer, buffer_on(optimizer_->device(), batch), *average.state);
}

MPSCNNNormalizationMeanAndVarianceState *NormalizationUpdates::follow(const std::shared_ptr<CommandBuffer> &buffer,
                                                                      MPSCNNBatchNormalizationState *batch) {
  const auto count = count_of([batch batchNormalization]);
  if (count == 0) return nil;
  std::shared_ptr<NormalizationMeanAndVarianceState> next;
  if (optimizer_) {
    check(count > 1, kernel_, "Node: the batch has 1 value in each channel; the unbiased variance needs 2 or more.");
    if (!values_.mean)
      read_source([&] {
        values_.variance = values_like(source_->variance(), 1);
        values_.mean = values_like(source_->mean(), 0);
      });
    average(*buffer, mean_, values_.mean, [batch mean], 1);
    average(*buffer, variance_, values_.variance, [batch variance],
            static_cast<double>(count) / static_cast<double>(count - 1));
    writer_.set(buffer->impl().buffer.get());
    next = std::make_shared<NormalizationMeanAndVarianceState>();
    next->mean = values_.mean, next->variance = values_.variance;
  } else {
    const GraphStatistics statistics(buffer->device(), batch, source_->channels(), count, buffer->impl().buffer.get());
    next = own()->update_mean_and_variance(buffer, statistics.state());
    if (!next) return nil;
    check_state(*buffer->device(), source_->channels(), {{{"mean", next->mean}, {"variance", next->variance}}});
  }
  return
      [[[MPSCNNNormalizationMeanAndVarianceState alloc] initWithMean:next->mean->impl().buffer.get()
                                                            variance:next->variance->impl().buffer.get()] autorelease];
}

void NormalizationUpdates::note_count(MPSKernel *kernel, std::int64_t count) {
  const std::scoped_lock lock(mutex_);
  counts_[kernel] = count;
}

std::int64_t NormalizationUpdates::count_of(MPSKernel *kernel) const {
  const std::scoped_lock lock(mutex_);
  const auto found = counts_.find(kernel);
  check<std::runtime_error>(found != counts_.end(), kernel_, "Node: the number of values in the batch is unknown.");
  return found->second;
}

GraphObject::Ptr GraphObject::normalization(const KernelRow &row, const Params &params,
                                            std::shared_ptr<Optimizer> optimizer, double momentum) {
  check_params(row, params);
  return guard([&] {
    const auto source = normalization_of(row, params);
    if (!source->load()) source->rethrow();
    source->purge();
    source->rethrow();
    source->keep_channels();
    if (const auto *own = dynamic_cast<const UpdatingNormalization *>(source->source().get()); own && optimizer) {
      const char *const name = own->has_update()                     ? "update"
                               : own->has_update_mean_and_variance() ? "update_mean_and_variance"
                               : own->has_update_on_cpu()            ? "update_on_cpu"
                                                                     : nullptr;
      check(name == nullptr, row.name, "Node: optimizer was given with a data source that has ", name,
            "(), which updates the values.");
    }
    auto updates = std::make_shared<NormalizationUpdates>(source, row.name, std::move(optimizer), momentum);
    auto object = Ref<id>::adopt([[PyMPSGraphNormalization alloc] initWithUpdates:updates]);
    return std::make_shared<GraphObject>(
        std::unique_ptr<Impl>(new Impl{.object = std::move(object), .updates = std::move(updates)}));
  });
}

GraphObject::Ptr GraphObject::counting() const {
  return guard([&] {
    const auto &updates = impl_->updates;
    if (!updates->has_update() && !updates->has_follow() && !updates->has_update_on_cpu()) return GraphObject::Ptr();
    return graph_object([[[PyMPSCountingPadding alloc] initWithUpdates:updates] autorelease]);
  });
}

NormalizationValues GraphObject::trained_values() const {
  return guard([&] {
    check<std::runtime_error>(impl_->updates->is_trained(), "values: no optimizer has changed them yet.");
    impl_->updates->check_readable();
    return impl_->updates->values();
  });
}

}  // namespace mpscnn

using mpscnn::GraphGradients;
using mpscnn::GraphScope;
using mpscnn::GraphStatistics;

@interface PyMPSGraphNormalization ()
- (float *)contentsOf:(const std::shared_ptr<mpscnn::Buffer> &)values or:(float *)given;
@end

@implementation PyMPSGraphNormalization

- (instancetype)initWithUpdates:(std::shared_ptr<mpscnn::NormalizationUpdates>)updates {
  if ((self = [super initWithGuardedNormalization:updates->source()])) updates_ = std::move(updates);
  return self;
}

/// Keep a failure for the caller of MPS.
- (BOOL)load {
  BOOL loaded = [super load];
  auto *scope = GraphScope::current();
  if (scope == nullptr) return loaded;
  scope->run([&] { updates_->source()->rethrow(); });
  if (loaded && !scope->run([&] { updates_->check_readable(); })) {
    [super purge];
    loaded = NO;
  }
  if (updates_->has_own()) scope->sources.push_back(updates_->source());
  return loaded;
}

- (float *)contentsOf:(const std::shared_ptr<mpscnn::Buffer> &)values or:(float *)given {
  return values ? static_cast<float *>(values->contents()) : given;
}

- (float *)gamma {
  return [self contentsOf:updates_->values().gamma or:[super gamma]];
}

- (float *)beta {
  return [self contentsOf:updates_->values().beta or:[super beta]];
}

- (float *)mean {
  return [self contentsOf:updates_->values().mean or:[super mean]];
}

- (float *)variance {
  return [self contentsOf:updates_->values().variance or:[super variance]];
}

- (BOOL)respondsToSelector:(SEL)selector {
  const auto is = [&](std::initializer_list<SEL> selectors) {
    return std::any_of(selectors.begin(), selectors.end(), [&](SEL one) { return sel_isEqual(selector, one); });
  };
  if (is({
        @selector(updateGammaAndBetaWithCommandBuffer:batchNormalizationState:),
            @selector(updateGammaAndBetaWithCommandBuffer:instanceNormalizationStateBatch:),
            @selector(updateGammaAndBetaWithCommandBuffer:groupNormalizationStateBatch:)
      }))
    return updates_->has_update();
  if (is({ @selector(updateMeanAndVarianceWithCommandBuffer:batchNormalizationState:) })) return updates_->has_follow();
  if (is({
        @selector(updateGammaAndBetaWithBatchNormalizationState:),
            @selector(updateGammaAndBetaWithInstanceNormalizationStateBatch:),
            @selector(updateGammaAndBetaWithGroupNormalizationStateBatch:)
      }))
    return updates_->has_update_on_cpu();
  return [super respondsToSelector:selector];
}

// -------------------------------------------------------------------------------------- on the command buffer

/// Call `update` with the encode's command buffer. Exceptions of the program's source are kept by it.
template <class Update>
static void run_update(const mpscnn::NormalizationUpdates &updates, const Update &update) {
  auto *scope = GraphScope::current();
  if (scope == nullptr) return;
  scope->has_updated = true;
  const auto call = [&] { update(scope->buffer()); };
  if (updates.has_own())
    updates.source()->run(call);
  else
    scope->run(call);
}

- (MPSCNNNormalizationGammaAndBetaState *)updateGammaAndBetaWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                                      batchNormalizationState:(MPSCNNBatchNormalizationState *)batch {
  MPSCNNNormalizationGammaAndBetaState *result = nil;
  run_update(*updates_, [&](const std::shared_ptr<mpscnn::CommandBuffer> &buffer) {
    const GraphStatistics given(buffer->device(), batch, updates_->source()->channels(),
                                std::max<std::int64_t>(updates_->count_of([batch batchNormalization]), 1),
                                commandBuffer);
    result = updates_->update(buffer, given.state(), [batch gamma], [batch beta]);
  });
  MPSStateBatchIncrementReadCount([NSArray arrayWithObject:batch], -1);
  return result;
}

- (MPSCNNNormalizationMeanAndVarianceState *)updateMeanAndVarianceWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                                            batchNormalizationState:
                                                                (MPSCNNBatchNormalizationState *)batch {
  (void)commandBuffer;
  MPSCNNNormalizationMeanAndVarianceState *result = nil;
  run_update(*updates_,
             [&](const std::shared_ptr<mpscnn::CommandBuffer> &buffer) { result = updates_->follow(buffer, batch); });
  MPSStateBatchIncrementReadCount([NSArray arrayWithObject:batch], -1);
  return result;
}

/// The states of both classes have the same properties.
static MPSCNNNormalizationGammaAndBetaState *update_images(mpscnn::NormalizationUpdates &updates,
                                                           NSArray<MPSState *> *batch) {
  MPSCNNNormalizationGammaAndBetaState *result = nil;
  auto *first = static_cast<MPSCNNInstanceNormalizationGradientState *>([batch objectAtIndex:0]);
  run_update(updates, [&](const std::shared_ptr<mpscnn::CommandBuffer> &buffer) {
    const GraphGradients given(buffer->device(), updates.kernel(), batch,
                               mpscnn::gradients_of_channels(updates.source()->channels()),
                               buffer->impl().buffer.get());
    result = updates.update(buffer, given.state(), [first gamma], [first beta]);
  });
  MPSStateBatchIncrementReadCount(batch, -1);
  return result;
}

- (MPSCNNNormalizationGammaAndBetaState *)updateGammaAndBetaWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                              instanceNormalizationStateBatch:
                                                  (MPSCNNInstanceNormalizationGradientStateBatch *)batch {
  (void)commandBuffer;
  return update_images(*updates_, batch);
}

- (MPSCNNNormalizationGammaAndBetaState *)updateGammaAndBetaWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                                 groupNormalizationStateBatch:
                                                     (MPSCNNGroupNormalizationGradientStateBatch *)batch {
  (void)commandBuffer;
  return update_images(*updates_, static_cast<NSArray *>(batch));
}

// ------------------------------------------------------------------------------------------------- on the CPU

- (BOOL)updateGammaAndBetaWithBatchNormalizationState:(MPSCNNBatchNormalizationState *)batch {
  const mpscnn::Pool pool;
  bool changed = false;
  updates_->source()->run([&] {
    const GraphStatistics given(mpscnn::device_of([[batch gamma] device]), batch, updates_->source()->channels(),
                                std::max<std::int64_t>(updates_->count_of([batch batchNormalization]), 1), nil);
    changed = updates_->update_on_cpu(given.state(), [batch gamma], [batch beta]);
  });
  return changed;
}

static BOOL update_images_on_cpu(mpscnn::NormalizationUpdates &updates, NSArray<MPSState *> *batch) {
  const mpscnn::Pool pool;
  bool changed = false;
  auto *first = static_cast<MPSCNNInstanceNormalizationGradientState *>([batch objectAtIndex:0]);
  updates.source()->run([&] {
    const GraphGradients given(mpscnn::device_of([[first gamma] device]), updates.kernel(), batch,
                               mpscnn::gradients_of_channels(updates.source()->channels()), nil);
    changed = updates.update_on_cpu(given.state(), [first gamma], [first beta]);
  });
  return changed;
}

- (BOOL)updateGammaAndBetaWithInstanceNormalizationStateBatch:(MPSCNNInstanceNormalizationGradientStateBatch *)batch {
  return update_images_on_cpu(*updates_, batch);
}

- (BOOL)updateGammaAndBetaWithGroupNormalizationStateBatch:(MPSCNNGroupNormalizationGradientStateBatch *)batch {
  return update_images_on_cpu(*updates_, static_cast<NSArray *>(batch));
}

- (id)copyWithZone:(NSZone *)zone {
  // The values are shared, not copied.
  return [[[self class] allocWithZone:zone] initWithUpdates:updates_];
}

@end

@implementation PyMPSCountingPadding

@synthesize follows = follows_;

- (instancetype)initWithUpdates:(std::shared_ptr<mpscnn::NormalizationUpdates>)updates {
  if ((self = [super init])) {
    updates_ = std::move(updates);
    follows_ = YES;
  }
  return self;
}

- (MPSNNPaddingMethod)paddingMethod {
  return MPSNNPaddingMethodCustom | MPSNNPaddingMethodSizeSame;
}

- (NSString *)label {
  return @"mpscnn, batch normalization";
}

- (MPSImageDescriptor *)destinationImageDescriptorForSourceImages:(NSArray<MPSImage *> *)sourceImages
                                                     sourceStates:(NSArray<MPSState *> *)sourceStates
                                                        forKernel:(MPSKernel *)kernel
                                              suggestedDescriptor:(MPSImageDescriptor *)inDescriptor {
  (void)sourceStates;
  MPSImage *source = [sourceImages objectAtIndex:0];
  if (const auto *scope = GraphScope::current()) {
    const auto pixels = static_cast<std::int64_t>(source.height * source.width);
    updates_->note_count(kernel, follows_ ? scope->batch * pixels : 0);
  }
  return inDescriptor;
}

@end
