// SPDX-License-Identifier: Apache-2.0
// MPSNNForwardLoss, MPSNNLossGradient and MPSNNInitialGradient.
#include <mpscnn/error.hpp>
#include <mpscnn/forward_loss.hpp>

#include <initializer_list>

#include "core/device/image_batch.hh"
#include "core/device/objc_scope.hh"
#include "core/kernel/encode_checks.hh"
#include "core/kernel/params.hpp"
#include "core/loss/loss_impl.hh"

namespace mpscnn {
namespace {

struct NamedImage {
  const Image *image;
  const char *name;
};

/// Throw if a source is on another device or has no reads left; null images are skipped.
void check_sources(const char *who, const Device &device, std::initializer_list<NamedImage> sources) {
  for (const auto &[image, name] : sources) {
    if (image == nullptr) continue;
    check_same_device(*image->device(), device, name);
    check<std::runtime_error>(!image->is_temporary() || image->read_count() > 0, who, ": ", name,
                              " is a temporary image whose read_count is 0: its last read has been encoded.");
  }
}

void check_like(const char *who, const NamedImage &image, ImageShape predictions) {
  if (image.image == nullptr) return;
  const auto shape = image.image->shape();
  check(shape == predictions, who, ": ", image.name, ".shape ", shape, " is not x.shape ", predictions, ".");
}

/// Return the given destination, or a new one.
std::shared_ptr<Image> destination(const char *who, CommandBuffer &buffer, const std::shared_ptr<Device> &device,
                                   std::shared_ptr<Image> out, ImageShape shape, DType dtype, bool temporary) {
  if (!out) return temporary ? Image::temporary(buffer, shape, dtype) : Image::make(device, shape, dtype);
  check_target(*out, *device, who);
  check(out->shape() == shape, who, ": out.shape ", out->shape(), " is not the result's ", shape, ".");
  check<TypeError>(out->dtype() == DType::float32 || out->dtype() == DType::float16, who, ": out.dtype (",
                   name_of(out->dtype()), ") is not float32 or float16.");
  return out;
}

}  // namespace

// -------------------------------------------------------------------------------------------------------- ForwardLoss

struct ForwardLoss::Impl {
  std::shared_ptr<Device> device;
  LossOptions options;
  Ref<MPSNNForwardLoss *> kernel;
};

ForwardLoss::ForwardLoss(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ForwardLoss::~ForwardLoss() {
  Pool pool;
  impl_.reset();
}

std::shared_ptr<ForwardLoss> ForwardLoss::make(std::shared_ptr<Device> device, const Params &params) {
  const auto options = LossOptions::from("ForwardLoss", params);
  return guard([&] {
    auto kernel = Ref<MPSNNForwardLoss *>::adopt([[MPSNNForwardLoss alloc] initWithDevice:device->impl().device.get()
                                                                           lossDescriptor:objc_loss(options)]);
    check<NotImplementedError>(static_cast<bool>(kernel), "ForwardLoss: the device has no such kernel.");
    return std::make_shared<ForwardLoss>(std::unique_ptr<Impl>(new Impl{device, options, kernel}));
  });
}

ImageShape ForwardLoss::result_shape(ImageShape predictions) const {
  return impl_->options.reduction == LossReduction::none ? predictions : ImageShape{predictions.n, 1, 1, 1};
}

std::shared_ptr<Image> ForwardLoss::encode(CommandBuffer &buffer, const Image &x, const Image &labels,
                                           const Image *weights, std::shared_ptr<Image> out, bool temporary) const {
  const char *const name = "ForwardLoss";
  check_open(buffer, *impl_->device, name);
  check_sources(name, *impl_->device, {{&x, "x"}, {&labels, "labels"}, {weights, "weights"}});
  check_like(name, {&labels, "labels"}, x.shape());
  check_like(name, {weights, "weights"}, x.shape());
  out = destination(name, buffer, impl_->device, std::move(out), result_shape(x.shape()), DType::float32, temporary);
  guard([&] {
    const ImageBatch sources(x), compared(labels), losses(*out);
    const ImageBatch factors = weights != nullptr ? ImageBatch(*weights) : ImageBatch();
    id<MTLCommandBuffer> commands = buffer.impl().buffer.get();
    [impl_->kernel.get() encodeBatchToCommandBuffer:commands
                                       sourceImages:sources.images()
                                             labels:compared.images()
                                            weights:weights != nullptr ? factors.images() : nil
                                  destinationStates:nil
                                  destinationImages:losses.images()];
    for (const ImageBatch *batch : {&sources, &compared, &factors}) batch->did_read();
    out->impl().note_write(commands);
  });
  return out;
}

std::shared_ptr<Device> ForwardLoss::device() const { return impl_->device; }

// ------------------------------------------------------------------------------------------------------- LossGradient

struct LossGradient::Impl {
  std::shared_ptr<Device> device;
  Ref<MPSNNLossGradient *> kernel;
};

LossGradient::LossGradient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LossGradient::~LossGradient() {
  Pool pool;
  impl_.reset();
}

std::shared_ptr<LossGradient> LossGradient::make(std::shared_ptr<Device> device, const Params &params) {
  const auto options = LossOptions::from("LossGradient", params);
  const bool of_labels = Options("LossGradient", params).boolean("compute_label_gradients");
  return guard([&] {
    auto kernel = Ref<MPSNNLossGradient *>::adopt([[MPSNNLossGradient alloc] initWithDevice:device->impl().device.get()
                                                                             lossDescriptor:objc_loss(options)]);
    check<NotImplementedError>(static_cast<bool>(kernel), "LossGradient: the device has no such kernel.");
    kernel.get().computeLabelGradients = of_labels ? YES : NO;
    return std::make_shared<LossGradient>(std::unique_ptr<Impl>(new Impl{device, kernel}));
  });
}

std::shared_ptr<Image> LossGradient::encode(CommandBuffer &buffer, const Image &grad, const Image &x,
                                            const Image &labels, const Image *weights, std::shared_ptr<Image> out,
                                            bool temporary) const {
  const char *const name = "LossGradient";
  check_open(buffer, *impl_->device, name);
  check_sources(name, *impl_->device, {{&grad, "grad"}, {&x, "x"}, {&labels, "labels"}, {weights, "weights"}});
  const auto shape = x.shape(), given = grad.shape();
  const ImageShape reduced{shape.n, 1, 1, 1};
  check(given == shape || given == reduced, name, ": grad.shape ", given, " is neither ", reduced, " nor x.shape ",
        shape, ".");
  check_like(name, {&labels, "labels"}, shape);
  check_like(name, {weights, "weights"}, shape);
  out = destination(name, buffer, impl_->device, std::move(out), shape, gradient_dtype(x.dtype()), temporary);
  guard([&] {
    const ImageBatch incoming(grad), sources(x), compared(labels), results(*out);
    const ImageBatch factors = weights != nullptr ? ImageBatch(*weights) : ImageBatch();
    id<MTLCommandBuffer> commands = buffer.impl().buffer.get();
    [impl_->kernel.get() encodeBatchToCommandBuffer:commands
                                    sourceGradients:incoming.images()
                                       sourceImages:sources.images()
                                             labels:compared.images()
                                            weights:weights != nullptr ? factors.images() : nil
                                       sourceStates:nil
                               destinationGradients:results.images()];
    for (const ImageBatch *batch : {&incoming, &sources, &compared, &factors}) batch->did_read();
    out->impl().note_write(commands);
  });
  return out;
}

std::shared_ptr<Device> LossGradient::device() const { return impl_->device; }

// ---------------------------------------------------------------------------------------------------- InitialGradient

struct InitialGradient::Impl {
  std::shared_ptr<Device> device;
  Ref<MPSNNInitialGradient *> kernel;
};

InitialGradient::InitialGradient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
InitialGradient::~InitialGradient() {
  Pool pool;
  impl_.reset();
}

std::shared_ptr<InitialGradient> InitialGradient::make(std::shared_ptr<Device> device) {
  return guard([&] {
    auto kernel =
        Ref<MPSNNInitialGradient *>::adopt([[MPSNNInitialGradient alloc] initWithDevice:device->impl().device.get()]);
    check<NotImplementedError>(static_cast<bool>(kernel), "InitialGradient: the device has no such kernel.");
    return std::make_shared<InitialGradient>(std::unique_ptr<Impl>(new Impl{device, kernel}));
  });
}

std::shared_ptr<Image> InitialGradient::encode(CommandBuffer &buffer, const Image &x, std::shared_ptr<Image> out,
                                               bool temporary) const {
  const char *const name = "InitialGradient";
  check_open(buffer, *impl_->device, name);
  check_sources(name, *impl_->device, {{&x, "x"}});
  out = destination(name, buffer, impl_->device, std::move(out), x.shape(), gradient_dtype(x.dtype()), temporary);
  guard([&] {
    id<MTLCommandBuffer> commands = buffer.impl().buffer.get();
    [impl_->kernel.get() encodeToCommandBuffer:commands
                                   sourceImage:x.impl().image.get()
                              destinationImage:out->impl().image.get()];
    out->impl().note_write(commands);
  });
  return out;
}

std::shared_ptr<Device> InitialGradient::device() const { return impl_->device; }

}  // namespace mpscnn
