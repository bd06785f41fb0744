// SPDX-License-Identifier: Apache-2.0
// MPSImageConversion of formats and alpha, without colour spaces.
#include <mpscnn/error.hpp>
#include <mpscnn/image_conversion.hpp>

#include <algorithm>
#include <iterator>
#include <mutex>

#include "core/device/completion_check.hh"
#include "core/device/device_impl.hh"
#include "core/device/forked.hpp"
#include "core/device/objc_scope.hh"
#include "core/kernel/encode_checks.hh"
#include "core/kernel/families/family.hh"

namespace mpscnn {

struct ImageConversion::Impl {
  std::shared_ptr<Device> device;
  Ref<MPSImageConversion *> kernel;
  DType dtype;
  AlphaType source_alpha, destination_alpha;
  Params attributes = {};  ///< as they were set
  Offset3 offset = {};
  std::optional<Region3> clip = {};
  mutable ForkChecked<std::mutex> mutex = {};  ///< guards `attributes` and the MPS object's properties
};

namespace {

const ParamSpec *shared_spec(std::string_view name) {
  return *std::ranges::find(common_params(std::size_t{1}), name, [](const ParamSpec *spec) { return spec->name; });
}

const ParamSpec &attribute(std::string_view name) {
  for (const auto *spec : ImageConversion::row().params)
    if (spec->name == name) return *spec;
  throw KeyError(say("ImageConversion has no attribute \"", name, "\"."));
}

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
  Image::bytes(*device, {}, dtype);  // throws for dtypes that images do not have
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

const KernelRow &ImageConversion::row() {
  static const ParamSpec *const specs[] = {shared_spec("offset"), shared_spec("clip_rect"), shared_spec("edge_mode")};
  static const KernelRow row{.name = "ImageConversion", .apple_class = "MPSImageConversion", .params = specs};
  return row;
}

Value ImageConversion::get(std::string_view name) const {
  attribute(name);
  const std::scoped_lock lock(impl_->mutex);
  const auto found = impl_->attributes.find(name);
  return found == impl_->attributes.end() ? Value{} : found->second;
}

void ImageConversion::set(std::string_view name, const Value &value) {
  check_value(row(), attribute(name), value);
  guard([&] {
    const std::scoped_lock lock(impl_->mutex);
    MPSImageConversion *kernel = impl_->kernel.get();
    if (name == "offset") {
      impl_->offset = to_offset(value).value_or(Offset3{});
      kernel.offset = {.x = impl_->offset.x, .y = impl_->offset.y, .z = impl_->offset.image};
    } else if (name == "clip_rect") {
      impl_->clip = to_region(value);
      kernel.clipRect = impl_->clip ? mtl_region(*impl_->clip) : MPSRectNoClip;
    } else {
      kernel.edgeMode = std::get<std::string>(value) == "clamp" ? MPSImageEdgeModeClamp : MPSImageEdgeModeZero;
    }
    impl_->attributes.insert_or_assign(std::string(name), value);
  });
}

ImageShape ImageConversion::result_shape(ImageShape source) const {
  const std::scoped_lock lock(impl_->mutex);
  const auto image = impl_->offset.image;
  check(image >= 0 && image < source.n, "ImageConversion: offset has image (", image, "), not in [0, ", source.n, ").");
  source.n -= image;
  return source;
}

void ImageConversion::check_destination(ImageShape source, ImageShape out) const {
  const char *const name = "ImageConversion";
  const auto result = result_shape(source);
  const std::scoped_lock lock(impl_->mutex);
  if (!impl_->clip) {
    check(out == result, name, ": out.shape ", out, " is not ", result == source ? "x.shape " : "the result's ", result,
          ".");
    return;
  }
  const auto images = impl_->clip->images;
  check(out.c == source.c, name, ": out has ", out.c, " channels; x has ", source.c, ".");
  check_inside(name, *impl_->clip, out);
  check(images <= result.n, name, ": clip_rect has ", images, " images; x provides ", result.n, ".");
}

void ImageConversion::check_no_clip() const {
  check(!has_clip(), "ImageConversion: clip_rect needs a destination (out) whose other pixels are kept.");
}

bool ImageConversion::has_clip() const {
  const std::scoped_lock lock(impl_->mutex);
  return impl_->clip.has_value();
}

bool ImageConversion::works_image_by_image() const {
  const std::scoped_lock lock(impl_->mutex);
  return !impl_->clip && impl_->offset.image == 0;
}

/// unverified: more than 4 channels and batches on Apple's MPS.
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
    check_destination(shape, out->shape());
  } else {
    check_no_clip();
    const auto result = result_shape(shape);
    out = temporary ? Image::temporary(buffer, result, impl_->dtype) : Image::make(impl_->device, result, impl_->dtype);
  }
  guard([&] {
    const std::scoped_lock lock(impl_->mutex);
    id<MTLCommandBuffer> commands = buffer.impl().buffer.get();
    check_files_of(commands, {&source, out.get()});
    [impl_->kernel.get() encodeToCommandBuffer:commands
                                   sourceImage:source.impl().image.get()
                              destinationImage:out->impl().image.get()];
    out->impl().note_write(commands);
  });
  return out;
}

DType ImageConversion::dtype() const { return impl_->dtype; }
AlphaType ImageConversion::source_alpha() const { return impl_->source_alpha; }
AlphaType ImageConversion::destination_alpha() const { return impl_->destination_alpha; }
std::shared_ptr<Device> ImageConversion::device() const { return impl_->device; }

}  // namespace mpscnn
