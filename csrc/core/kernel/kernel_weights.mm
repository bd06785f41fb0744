// SPDX-License-Identifier: Apache-2.0
// Transfer of weights and statistics between a kernel and its data source, or a state.
#include "core/data_source/objc_weights.hh"
#include "core/data_source/sharing.hh"
#include "core/kernel/batch_normalization_state_impl.hh"
#include "core/kernel/encode_checks.hh"
#include "core/kernel/kernel_impl.hh"

namespace mpscnn {

void Kernel::reload() {
  check<std::runtime_error>(impl_->made.source != nullptr, impl_->row->name, ": there is no data source to reload.");
  guard([&] {
    const std::scoped_lock lock(impl_->mutex);
    ++impl_->changes;
    check<NotImplementedError>(impl_->made.read_again != nullptr, impl_->row->apple_class,
                               " cannot reload its weights.");
    if (!impl_->made.source->load()) impl_->made.source->rethrow();
    impl_->made.source->purge();
    impl_->made.source->rethrow();
    impl_->made.read_again(impl_->made);
    impl_->made.source->rethrow();
  });
}

namespace {

/// Reload parameters or statistics of a normalization from `buffers`, named by their contents.
void reload_from(Kernel::Impl &impl, CommandBuffer &commands, const FamilyKernel::Reload &read,
                 std::array<std::pair<const char *, id<MTLBuffer>>, 2> buffers) {
  const auto &row = *impl.row;
  check<TypeError>(read != nullptr, row.name, ": the kernel has no ", buffers[0].first, " and ", buffers[1].first,
                   " to reload.");
  check_open(commands, *impl.device, row.name.data());
  const auto bytes = static_cast<NSUInteger>(impl.made.channels) * sizeof(float);
  for (const auto &[name, buffer] : buffers)
    check([buffer length] >= bytes, row.name, ": ", name, " of the state has ", [buffer length], " bytes; ",
          impl.made.channels, " channels need ", bytes, ".");
  const std::scoped_lock lock(impl.mutex);
  ++impl.changes;
  read(impl.made, commands.impl().buffer.get(), buffers[0].second, buffers[1].second);
}

}  // namespace

void Kernel::reload(CommandBuffer &buffer, const NormalizationGammaAndBetaState &state) {
  guard([&] {
    reload_from(*impl_, buffer, impl_->made.reload_gamma_and_beta,
                {{{"gamma", state.gamma->impl().buffer.get()}, {"beta", state.beta->impl().buffer.get()}}});
  });
}

void Kernel::reload(CommandBuffer &buffer, const NormalizationMeanAndVarianceState &state) {
  guard([&] {
    reload_from(*impl_, buffer, impl_->made.reload_mean_and_variance,
                {{{"mean", state.mean->impl().buffer.get()}, {"variance", state.variance->impl().buffer.get()}}});
  });
}

void Kernel::reload(CommandBuffer &buffer, const BatchNormalizationState &state) {
  guard([&] {
    auto &impl = state.impl();
    const std::scoped_lock lock(impl.mutex);
    check<std::runtime_error>(impl.count > 0, impl_->row->name, ": no statistics have been encoded to state.");
    reload_from(*impl_, buffer, impl_->made.reload_mean_and_variance,
                {{{"mean", [impl.state.get() mean]}, {"variance", [impl.state.get() variance]}}});
  });
}

namespace {

/// Return the convolution; throw unless it has `selector` and the command buffer is open.
MPSCNNConvolution *movable(const Kernel::Impl &impl, const CommandBuffer &commands, SEL selector, const char *what) {
  const auto &row = *impl.row;
  check<TypeError>(impl.made.descriptor && [impl.made.kernel.get() respondsToSelector:selector], row.name,
                   ": the kernel has no weights to ", what, ".");
  check_open(commands, *impl.device, row.name.data());
  // MPSCNNConvolutionTranspose has the same methods.
  return static_cast<MPSCNNConvolution *>(static_cast<id>(impl.made.kernel.get()));
}

/// Return values of a state in memory shared by CPU and GPU. The device chooses the storage mode of states: managed or
/// private values are copied.
std::shared_ptr<Buffer> shared_values(const std::shared_ptr<Device> &device, id<MTLBuffer> values,
                                      const CommandBuffer &commands) {
  if (values.storageMode == MTLStorageModeShared)
    return std::make_shared<Buffer>(
        std::make_unique<Buffer::Impl>(Buffer::Impl{device, Ref<id<MTLBuffer>>::adopt([values retain])}));
  auto copy = Buffer::make(device, values.length);
  id<MTLBlitCommandEncoder> blit = [commands.impl().buffer.get() blitCommandEncoder];
  [blit copyFromBuffer:values sourceOffset:0 toBuffer:copy->impl().buffer.get() destinationOffset:0 size:values.length];
  [blit endEncoding];
  return copy;
}

}  // namespace

void check_sizes(std::string_view who, const ConvolutionWeightsAndBiasesState &state, const Extents &shape) {
  const auto enough = [&](const Buffer &values, const char *name, std::int64_t count) {
    check(values.bytes() >= static_cast<std::uint64_t>(count) * sizeof(float), who, ": ", name, " of the state has ",
          values.bytes(), " bytes; the kernel needs ", count * sizeof(float), " (OHWI ", as_tuple(shape),
          ", float32).");
  };
  enough(*state.weights, "weights", shape[0] * shape[1] * shape[2] * shape[3]);
  if (state.biases) enough(*state.biases, "biases", shape[0]);
}

void Kernel::reload(CommandBuffer &buffer, const ConvolutionWeightsAndBiasesState &state) {
  guard([&] {
    const std::scoped_lock lock(impl_->mutex);
    ++impl_->changes;
    MPSCNNConvolution *kernel =
        movable(*impl_, buffer, @selector(reloadWeightsAndBiasesWithCommandBuffer:state:), "reload");
    check_sizes(impl_->row->name, state, weights_shape(*impl_->made.descriptor));
    [kernel reloadWeightsAndBiasesWithCommandBuffer:buffer.impl().buffer.get() state:objc_weights(state)];
  });
}

bool Kernel::read_in_place(CommandBuffer &buffer, const ConvolutionWeightsAndBiasesState &state) {
  return guard([&] {
    const SEL method = @selector(readWeightsInPlaceWithCommandBuffer:state:);
    if (![impl_->made.kernel.get() respondsToSelector:method]) return false;
    const std::scoped_lock lock(impl_->mutex);
    ++impl_->changes;
    id kernel = movable(*impl_, buffer, method, "read");
    check_sizes(impl_->row->name, state, weights_shape(*impl_->made.descriptor));
    const bool is_read =
        [static_cast<id<WeightsInPlace>>(kernel) readWeightsInPlaceWithCommandBuffer:buffer.impl().buffer.get()
                                                                               state:objc_weights(state)];
    if (is_read) impl_->made.source = nullptr;
    return is_read;
  });
}

std::shared_ptr<ConvolutionWeightsAndBiasesState> Kernel::export_weights(CommandBuffer &buffer) {
  return guard([&] {
    const std::scoped_lock lock(impl_->mutex);
    MPSCNNConvolution *kernel = movable(
        *impl_, buffer, @selector(exportWeightsAndBiasesWithCommandBuffer:resultStateCanBeTemporary:), "export");
    MPSCNNConvolutionWeightsAndBiasesState *state =
        [kernel exportWeightsAndBiasesWithCommandBuffer:buffer.impl().buffer.get() resultStateCanBeTemporary:NO];
    check<std::runtime_error>(state != nil && state.weightsOffset == 0 && state.biasesOffset == 0, impl_->row->name,
                              ": the weights cannot be exported.");
    auto result = std::make_shared<ConvolutionWeightsAndBiasesState>();
    result->weights = shared_values(impl_->device, state.weights, buffer);
    if (state.biases != nil) result->biases = shared_values(impl_->device, state.biases, buffer);
    result->shape = weights_shape(*impl_->made.descriptor);
    return result;
  });
}

}  // namespace mpscnn
