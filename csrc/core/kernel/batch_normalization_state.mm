// SPDX-License-Identifier: Apache-2.0
// Batch normalization states: created by a kernel made only for that, read as arrays.
#include <mpscnn/batch_normalization_state.hpp>
#include <mpscnn/error.hpp>

#include "core/data_source/data_source.hh"
#include "core/device/objc_scope.hh"
#include "core/kernel/batch_normalization_state_impl.hh"
#include "core/kernel/encode_checks.hh"

namespace mpscnn {
namespace {

/// Return an identity normalization of `channels`.
Ref<MPSCNNBatchNormalization *> make_maker(id<MTLDevice> device, std::int64_t channels) {
  const std::vector<float> ones(static_cast<std::size_t>(channels), 1);
  NormalizationArrays arrays{.gamma = {.data = const_cast<float *>(ones.data()),
                                       .shape = {channels},
                                       .strides = contiguous_strides({channels}, DType::float32)}};
  auto source = std::make_shared<GuardedNormalization>(normalization_arrays("BatchNormalizationState", arrays),
                                                       GuardedNormalization::Wanted{.statistics = true});
  const auto values =
      Ref<PyMPSNormalizationValues *>::adopt([[PyMPSNormalizationValues alloc] initWithGuardedNormalization:source]);
  auto maker = Ref<MPSCNNBatchNormalization *>::adopt([[MPSCNNBatchNormalization alloc] initWithDevice:device
                                                                                            dataSource:values.get()]);
  source->rethrow();
  check<std::runtime_error>(static_cast<bool>(maker), "BatchNormalizationState: the device refused the kernel.");
  return maker;
}

}  // namespace

BatchNormalizationState::BatchNormalizationState(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
BatchNormalizationState::~BatchNormalizationState() {
  Pool pool;
  impl_.reset();
}

std::shared_ptr<BatchNormalizationState> BatchNormalizationState::make(std::shared_ptr<Device> device,
                                                                       std::int64_t channels) {
  check(channels >= 1, "BatchNormalizationState: channels (", channels, ") is less than the minimum (1).");
  const ImageShape shape{1, 1, 1, channels};
  Image::bytes(*device, shape, DType::float32);  // throws if there are too many
  return guard([&] {
    id<MTLDevice> metal = device->impl().device.get();
    auto impl = std::make_unique<Impl>();
    impl->device = device;
    impl->channels = channels;
    impl->maker = make_maker(metal, channels);
    // A state is made for an image. Only its channels matter; its storage is never accessed.
    const auto image =
        Ref<MPSImage *>::adopt([[MPSImage alloc] initWithDevice:metal
                                                imageDescriptor:image_descriptor(shape, DType::float32)]);
    impl->state =
        Ref<MPSCNNBatchNormalizationState *>::retain([impl->maker.get() resultStateForSourceImage:image.get()
                                                                                     sourceStates:nil
                                                                                 destinationImage:image.get()]);
    check<std::runtime_error>(static_cast<bool>(impl->state), "BatchNormalizationState: the device refused the state.");
    return std::make_shared<BatchNormalizationState>(std::move(impl));
  });
}

std::int64_t BatchNormalizationState::channels() const { return impl_->channels; }
std::shared_ptr<Device> BatchNormalizationState::device() const { return impl_->device; }

std::int64_t BatchNormalizationState::count() const {
  const std::scoped_lock lock(impl_->mutex);
  return impl_->count;
}

/// Return values of one of the state's buffers, or of its `copy` on the host if that is up to date.
static std::vector<float> values_of(const BatchNormalizationState::Impl &impl, SEL which,
                                    const std::shared_ptr<Buffer> &copy) {
  return guard([&] {
    const std::scoped_lock lock(impl.mutex);
    check<std::runtime_error>(impl.count > 0, "BatchNormalizationState: no statistics have been encoded to it.");
    check<std::runtime_error>(!impl.is_temporary, "BatchNormalizationState: the CPU cannot read the state, which is in "
                                                  "temporary memory of a graph; export_from_graph of the node's "
                                                  "result_state keeps it.");
    check_written(impl.writer, "BatchNormalizationState");
    id<MTLBuffer> buffer = [impl.state.get() performSelector:which];
    const auto *floats = static_cast<const float *>(impl.is_downloaded && copy ? copy->contents() : [buffer contents]);
    check<NotImplementedError>(floats != nullptr, "BatchNormalizationState: this device does not show the CPU its "
                                                  "memory.");
    return std::vector<float>(floats, floats + impl.channels);
  });
}

std::vector<float> BatchNormalizationState::mean() const {
  return values_of(*impl_, @selector(mean), impl_->downloaded[0]);
}
std::vector<float> BatchNormalizationState::variance() const {
  return values_of(*impl_, @selector(variance), impl_->downloaded[1]);
}

void BatchNormalizationState::encode_download(CommandBuffer &buffer) {
  guard([&] {
    const std::scoped_lock lock(impl_->mutex);
    if (impl_->device->shares_images()) return;
    check_open(buffer, *impl_->device, "BatchNormalizationState");
    id<MTLBlitCommandEncoder> blit = [buffer.impl().buffer.get() blitCommandEncoder];
    id<MTLBuffer> given[] = {[impl_->state.get() mean], [impl_->state.get() variance]};
    const auto bytes = static_cast<std::uint64_t>(impl_->channels) * sizeof(float);
    for (std::size_t i = 0; i < 2; ++i) {
      auto &copy = impl_->downloaded[i];
      if (!copy) {
        copy = Buffer::make(impl_->device, bytes);
        copy->contents();  // keeps it on the host
      }
      [blit copyFromBuffer:given[i] sourceOffset:0 toBuffer:copy->impl().buffer.get() destinationOffset:0 size:bytes];
    }
    [blit endEncoding];
    impl_->is_downloaded = true;
  });
}

namespace {

std::vector<float> gradients_of(const BatchNormalizationState::Impl &impl, SEL which) {
  {
    const std::scoped_lock lock(impl.mutex);
    check<std::runtime_error>(impl.has_gradients, "BatchNormalizationState: no gradients have been encoded to it.");
  }
  return values_of(impl, which, nullptr);
}

}  // namespace

std::vector<float> BatchNormalizationState::grad_gamma() const {
  return gradients_of(*impl_, @selector(gradientForGamma));
}
std::vector<float> BatchNormalizationState::grad_beta() const {
  return gradients_of(*impl_, @selector(gradientForBeta));
}

void BatchNormalizationState::reset() {
  guard([&] {
    const std::scoped_lock lock(impl_->mutex);
    [impl_->state.get() reset];
    impl_->count = 0;
    impl_->is_used = impl_->has_gradients = false;
  });
}

}  // namespace mpscnn
