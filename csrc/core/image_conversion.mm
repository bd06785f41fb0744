// SPDX-License-Identifier: Apache-2.0
// MPSImageConversion without colour spaces: formats and alpha.
#include <mpscnn/error.hpp>
#include <mpscnn/image_conversion.hpp>

#include <iterator>

#include "device_impl.hh"
#include "encode_checks.hh"
#include "objc_scope.hh"

namespace mpscnn {

struct ImageConversion::Impl {
  std::shared_ptr<Device> device;
  Ref<MPSImageConversion *> kernel;
  DType dtype;
  AlphaType source_alpha, destination_alpha;
};

namespace {

constexpr const char *kAlphaNames[] = {"non_premultiplied", "alpha_is_one", "premultiplied"};

MPSAlphaType alpha_of(AlphaType type) {
  switch (type) {
    case AlphaType::non_premultiplied: return MPSAlphaTypeNonPremultiplied;
    case AlphaType::alpha_is_one: return MPSAlphaTypeAlphaIsOne;
    case AlphaType::premultiplied: return MPSAlphaTypePremultiplied;
  }
  return MPSAlphaTypeAlphaIsOne;
}

}  // namespace

AlphaType alpha_type_from_name(std::string_view name, const char *what) {
  for (std::size_t i = 0; i < std::size(kAlphaNames); ++i)
    if (name == kAlphaNames[i]) return static_cast<AlphaType>(i);
  throw std::invalid_argument(
      say(what, " (\"", name, "\") is not \"non_premultiplied\", \"alpha_is_one\" or \"premultiplied\"."));
}

const char *name_of(AlphaType type) { return kAlphaNames[static_cast<std::size_t>(type)]; }

ImageConversion::ImageConversion(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ImageConversion::~ImageConversion() {
  Pool pool;
  impl_.reset();
}

std::shared_ptr<ImageConversion> ImageConversion::make(std::shared_ptr<Device> device, DType dtype,
                                                       AlphaType source_alpha, AlphaType destination_alpha,
                                                       std::array<double, 3> background) {
  Image::bytes(*device, {}, dtype);  // says what dtypes images have
  return guard([&] {
    std::array<CGFloat, 3> colour = {background[0], background[1], background[2]};
    auto kernel =
        Ref<MPSImageConversion *>::adopt([[MPSImageConversion alloc] initWithDevice:device->impl().device.get()
                                                                           srcAlpha:alpha_of(source_alpha)
                                                                          destAlpha:alpha_of(destination_alpha)
                                                                    backgroundColor:colour.data()
                                                                     conversionInfo:nullptr]);
    check<NotImplementedError>(static_cast<bool>(kernel), "ImageConversion: the device has no such kernel.");
    return std::make_shared<ImageConversion>(
        std::unique_ptr<Impl>(new Impl{device, kernel, dtype, source_alpha, destination_alpha}));
  });
}

void ImageConversion::check_channels(std::int64_t channels) const {
  const bool keeps_alpha =
      impl_->source_alpha == impl_->destination_alpha && impl_->source_alpha != AlphaType::alpha_is_one;
  check(channels <= 4 || keeps_alpha, "ImageConversion: source_alpha (\"", name_of(impl_->source_alpha),
        "\") and destination_alpha (\"", name_of(impl_->destination_alpha),
        "\") ask for a change of alpha, which images of ", channels, " channels have not.");
}

/// unverified: images of more than 4 channels and several images at once on Apple's.
std::shared_ptr<Image> ImageConversion::encode(CommandBuffer &buffer, const Image &source, std::shared_ptr<Image> out,
                                               bool temporary) const {
  const char *const name = "ImageConversion";
  check_open(buffer, *impl_->device, name);
  check_source(source, *impl_->device, name);
  const auto shape = source.shape();
  check_channels(shape.c);
  if (out) {
    check_target(*out, *impl_->device, name);
    check<TypeError>(out->dtype() == impl_->dtype, name, ": out.dtype (", name_of(out->dtype()), ") is not dtype (",
                     name_of(impl_->dtype), ").");
    check(out->shape() == shape, name, ": out.shape ", out->shape(), " is not x.shape ", shape, ".");
  } else {
    out = temporary ? Image::temporary(buffer, shape, impl_->dtype) : Image::make(impl_->device, shape, impl_->dtype);
  }
  guard([&] {
    id<MTLCommandBuffer> commands = buffer.impl().buffer.get();
    [impl_->kernel.get() encodeToCommandBuffer:commands
                                   sourceImage:source.impl().image.get()
                              destinationImage:out->impl().image.get()];
    out->impl().writer->set(commands);
  });
  return out;
}

DType ImageConversion::dtype() const { return impl_->dtype; }
AlphaType ImageConversion::source_alpha() const { return impl_->source_alpha; }
AlphaType ImageConversion::destination_alpha() const { return impl_->destination_alpha; }
std::shared_ptr<Device> ImageConversion::device() const { return impl_->device; }

}  // namespace mpscnn
