// SPDX-License-Identifier: Apache-2.0
// MPSNNForwardLoss, MPSNNLossGradient and MPSNNInitialGradient.
#include <mpscnn/error.hpp>
#include <mpscnn/forward_loss.hpp>

#include <array>
#include <string_view>

#include "core/device/image_batch.hh"
#include "core/device/objc_scope.hh"
#include "core/kernel/encode_checks.hh"
#include "core/kernel/params.hpp"
#include "core/loss/loss_impl.hh"

namespace mpscnn {
namespace {

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

ImageBatch batch_of(const Image *image) { return image != nullptr ? ImageBatch(*image) : ImageBatch(); }

}  // namespace

struct ForwardLossKernel::Impl {
  virtual ~Impl() = default;
  virtual const char *name() const = 0;
  virtual ImageShape result_shape(ImageShape predictions) const { return predictions; }
  virtual DType result_dtype(DType predictions) const { return gradient_dtype(predictions); }
  /// Throw unless the sources fit x.
  virtual void check_sources(const LossSources &sources) const {
    for (const auto &[image, source] : {std::pair(sources.labels, "labels"), std::pair(sources.weights, "weights")})
      check(image == nullptr || image->shape() == sources.x->shape(), name(), ": ", source, ".shape ",
            image != nullptr ? image->shape() : ImageShape{}, " is not x.shape ", sources.x->shape(), ".");
  }
  virtual void encode(id<MTLCommandBuffer> commands, const LossSources &sources, const Image &out) const = 0;

  std::shared_ptr<Device> device;
};

namespace {

template <class Kernel>
Ref<Kernel> checked(Ref<Kernel> kernel, const char *name) {
  check<NotImplementedError>(static_cast<bool>(kernel), name, ": the device has no such kernel.");
  return kernel;
}

struct ForwardImpl final : ForwardLossKernel::Impl {
  static constexpr const char *kName = "ForwardLoss";
  ForwardImpl(const Device &device, const Params &params)
      : options(LossOptions::from(kName, params)),
        kernel(
            checked(Ref<MPSNNForwardLoss *>::adopt([[MPSNNForwardLoss alloc] initWithDevice:device.impl().device.get()
                                                                             lossDescriptor:objc_loss(options)]),
                    kName)) {}
  const char *name() const override { return kName; }
  ImageShape result_shape(ImageShape predictions) const override {
    return options.reduction == LossReduction::none ? predictions : ImageShape{predictions.n, 1, 1, 1};
  }
  DType result_dtype(DType) const override { return DType::float32; }
  void encode(id<MTLCommandBuffer> commands, const LossSources &s, const Image &out) const override {
    const ImageBatch sources(*s.x), compared(*s.labels), factors = batch_of(s.weights), losses(out);
    [kernel.get() encodeBatchToCommandBuffer:commands
                                sourceImages:sources.images()
                                      labels:compared.images()
                                     weights:s.weights != nullptr ? factors.images() : nil
                           destinationStates:nil
                           destinationImages:losses.images()];
    for (const ImageBatch *batch : {&sources, &compared, &factors}) batch->did_read();
  }

  LossOptions options;
  Ref<MPSNNForwardLoss *> kernel;
};

struct GradientImpl final : ForwardLossKernel::Impl {
  static constexpr const char *kName = "LossGradient";
  GradientImpl(const Device &device, const Params &params)
      : kernel(checked(Ref<MPSNNLossGradient *>::adopt([[MPSNNLossGradient alloc]
                           initWithDevice:device.impl().device.get()
                           lossDescriptor:objc_loss(LossOptions::from(kName, params))]),
                       kName)) {
    kernel.get().computeLabelGradients = Options(kName, params).boolean("compute_label_gradients") ? YES : NO;
  }
  const char *name() const override { return kName; }
  void check_sources(const LossSources &sources) const override {
    const auto shape = sources.x->shape(), given = sources.grad->shape();
    const ImageShape reduced{shape.n, 1, 1, 1};
    check(given == shape || given == reduced, kName, ": grad.shape ", given, " is neither ", reduced, " nor x.shape ",
          shape, ".");
    Impl::check_sources(sources);
  }
  void encode(id<MTLCommandBuffer> commands, const LossSources &s, const Image &out) const override {
    const ImageBatch incoming(*s.grad), sources(*s.x), compared(*s.labels), factors = batch_of(s.weights);
    const ImageBatch results(out);
    [kernel.get() encodeBatchToCommandBuffer:commands
                             sourceGradients:incoming.images()
                                sourceImages:sources.images()
                                      labels:compared.images()
                                     weights:s.weights != nullptr ? factors.images() : nil
                                sourceStates:nil
                        destinationGradients:results.images()];
    for (const ImageBatch *batch : {&incoming, &sources, &compared, &factors}) batch->did_read();
  }

  Ref<MPSNNLossGradient *> kernel;
};

struct InitialImpl final : ForwardLossKernel::Impl {
  static constexpr const char *kName = "InitialGradient";
  InitialImpl(const Device &device, const Params &)
      : kernel(checked(Ref<MPSNNInitialGradient *>::adopt(
                           [[MPSNNInitialGradient alloc] initWithDevice:device.impl().device.get()]),
                       kName)) {}
  const char *name() const override { return kName; }
  void encode(id<MTLCommandBuffer> commands, const LossSources &s, const Image &out) const override {
    [kernel.get() encodeToCommandBuffer:commands
                            sourceImage:s.x->impl().image.get()
                       destinationImage:out.impl().image.get()];
  }

  Ref<MPSNNInitialGradient *> kernel;
};

}  // namespace

ForwardLossKernel::ForwardLossKernel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ForwardLossKernel::~ForwardLossKernel() {
  Pool pool;
  impl_.reset();
}

std::shared_ptr<ForwardLossKernel> ForwardLossKernel::make(std::shared_ptr<Device> device, std::string_view name,
                                                           const Params &options) {
  return guard([&] {
    std::unique_ptr<Impl> impl;
    if (name == ForwardImpl::kName) impl = std::make_unique<ForwardImpl>(*device, options);
    if (name == GradientImpl::kName) impl = std::make_unique<GradientImpl>(*device, options);
    if (name == InitialImpl::kName) impl = std::make_unique<InitialImpl>(*device, options);
    check<KeyError>(impl != nullptr, name);
    impl->device = std::move(device);
    return std::make_shared<ForwardLossKernel>(std::move(impl));
  });
}

const char *ForwardLossKernel::name() const { return impl_->name(); }
std::shared_ptr<Device> ForwardLossKernel::device() const { return impl_->device; }
ImageShape ForwardLossKernel::result_shape(const Image &x) const { return impl_->result_shape(x.shape()); }
DType ForwardLossKernel::result_dtype(const Image &x) const { return impl_->result_dtype(x.dtype()); }

std::shared_ptr<Image> ForwardLossKernel::encode(CommandBuffer &buffer, const LossSources &sources,
                                                 std::shared_ptr<Image> out, bool temporary) const {
  const std::array<std::pair<const Image *, const char *>, 4> named = {
      {{sources.grad, "grad"}, {sources.x, "x"}, {sources.labels, "labels"}, {sources.weights, "weights"}}};
  check_open(buffer, *impl_->device, name());
  for (const auto &[image, source] : named) {
    if (image == nullptr) continue;
    check_same_device(*image->device(), *impl_->device, source);
    check<std::runtime_error>(!image->is_temporary() || image->read_count() > 0, name(), ": ", source,
                              " is a temporary image whose read_count is 0: its last read has been encoded.");
  }
  impl_->check_sources(sources);
  out = destination(name(), buffer, impl_->device, std::move(out), result_shape(*sources.x), result_dtype(*sources.x),
                    temporary);
  guard([&] {
    id<MTLCommandBuffer> commands = buffer.impl().buffer.get();
    impl_->encode(commands, sources, *out);
    out->impl().note_write(commands);
  });
  return out;
}

}  // namespace mpscnn
