// SPDX-License-Identifier: Apache-2.0
// Extents of a kernel's result, and the offsets at which it reads its sources.
#include <algorithm>

#include "core/kernel/encode_checks.hh"
#include "core/kernel/kernel_impl.hh"
#include "core/kernel/kernel_sources.hh"
#include "core/kernel/padding_policy.hh"

namespace mpscnn {

namespace {

std::int64_t dilated(std::int64_t k, std::int64_t dilation) { return (k - 1) * dilation + 1; }

MPSNNDefaultPadding *policy(Padding::Kind kind) {
  // "same" puts the remainder at the bottom right as PyTorch, ONNX (SAME_UPPER) and TensorFlow do; MPS's default is the
  // top left.
  const MPSNNPaddingMethod method =
      MPSNNPaddingMethodAlignCentered | MPSNNPaddingMethodAddRemainderToBottomRight |
      (kind == Padding::Kind::same ? MPSNNPaddingMethodSizeSame : MPSNNPaddingMethodSizeValidOnly);
  return [MPSNNDefaultPadding paddingWithMethod:method];
}

/// Return the dilated extent of the window in pixels.
Pair extent_of(const WindowShape &window) {
  return {dilated(window.kernel_size.h, window.dilation.h), dilated(window.kernel_size.w, window.dilation.w)};
}

/// Return the geometry of one result pixel per window, with `channels`.
Geometry window_geometry(const WindowShape &window, const Padding &padding, ImageShape source, std::int64_t channels) {
  const auto [kh, kw] = extent_of(window);
  Geometry g;
  g.shape = {source.n, window_extent(source.h, kh, window.stride.h, padding.top, padding.bottom, window.ceil_mode),
             window_extent(source.w, kw, window.stride.w, padding.left, padding.right, window.ceil_mode), channels};
  g.offsets[0] = {.x = kw / 2 - padding.left, .y = kh / 2 - padding.top, .z = 0};
  return g;
}

Geometry transpose_geometry(const ConvolutionDescriptor &d, const Padding &padding, Pair extra, ImageShape source) {
  Geometry g;
  g.shape = {source.n, transpose_extent(source.h, d.kernel_size.h, d.stride.h, padding.top, padding.bottom, extra.h),
             transpose_extent(source.w, d.kernel_size.w, d.stride.w, padding.left, padding.right, extra.w),
             d.out_channels};
  g.kernel_offset = {d.kernel_size.h / 2 - d.kernel_size.h + 1 + padding.top,
                     d.kernel_size.w / 2 - d.kernel_size.w + 1 + padding.left};
  return g;
}

/// Return the geometry given by the caller's policy or MPS's own, which also sets the kernel's offset. The result has
/// `channels`; the caller's policy may add channels that are not written.
Geometry policy_geometry(const Kernel::Impl &impl, MPSImage *source, std::int64_t channels) {
  MPSCNNKernel *kernel = unary(impl);
  Geometry g;
  if (const auto &callers = impl.made.padding.policy) {
    g.shape = ask_policy(callers, *impl.owner, kernel, source);
    g.offsets[0] = kernel.offset;
    // The policy's channels include destinationFeatureChannelOffset, which our callers add.
    g.spare_channels = g.shape.c - channels - static_cast<std::int64_t>(common(impl).destinationFeatureChannelOffset);
    g.shape.c = channels;
    return g;
  }
  kernel.padding = policy(impl.made.padding.kind);
  MPSImageDescriptor *result = [kernel destinationImageDescriptorForSourceImages:@[ source ] sourceStates:nil];
  g.shape = {static_cast<std::int64_t>(result.numberOfImages), static_cast<std::int64_t>(result.height),
             static_cast<std::int64_t>(result.width), channels};
  g.offsets[0] = kernel.offset;
  return g;
}

void check_result(const Kernel::Impl &impl, const Geometry &g, ImageShape source, Pair kernel_size, Pair dilation) {
  check(g.shape.h >= 1 && g.shape.w >= 1, impl.row->name, ": the result has ", g.shape.h, " x ", g.shape.w,
        " pixels, less than the minimum (1 x 1): kernel_size (", kernel_size.h, ", ", kernel_size.w, "), dilation (",
        dilation.h, ", ", dilation.w, ") do not fit x (", source.h, ", ", source.w, ") with its padding.");
}

/// Return the geometry of a window with padding in pixels or by a policy.
Geometry windows(const Kernel::Impl &impl, ImageShape source, MPSImage *image, std::int64_t channels) {
  const auto &window = *impl.made.window;
  const auto &padding = impl.made.padding;
  Geometry g;
  if (padding.kind == Padding::Kind::pixels) {
    g = window_geometry(window, padding, source, channels);
  } else {
    // Check before the policy is called: it cannot size a result where no window fits.
    const auto [kh, kw] = extent_of(window);
    check(padding.kind != Padding::Kind::valid || (source.h >= kh && source.w >= kw), impl.row->name, ": kernel_size (",
          kh, ", ", kw, ") dilated is greater than x (", source.h, ", ", source.w, ") with padding \"valid\".");
    g = policy_geometry(impl, image, channels);
  }
  check_result(impl, g, source, window.kernel_size, window.dilation);
  return g;
}

/// Return the geometry of a kernel of one source. Only padding policies read `image`.
Geometry unary_geometry(const Kernel::Impl &impl, ImageShape source, MPSImage *image) {
  const auto &row = *impl.row;
  const auto &made = impl.made;
  const auto channels = source_channels(impl, 0, source);
  Geometry g;
  g.shape = {source.n, source.h, source.w, channels};
  if (const auto &d = made.descriptor) {
    check(channels == d->in_channels, row.name, ": x has ", channels,
          " channels to read; the weights have in_channels (", d->in_channels, ").");
    if (row.shape == ShapeRule::fully_connected) {
      check(source.h == d->kernel_size.h && source.w == d->kernel_size.w, row.name, ": x has ", source.h, " x ",
            source.w, " pixels; the weights cover kernel_size (", d->kernel_size.h, ", ", d->kernel_size.w, ").");
      g.shape = {source.n, 1, 1, d->out_channels};
    } else if (row.family == "convolution_transpose") {
      if (made.padding.kind == Padding::Kind::pixels) {
        g = transpose_geometry(*d, made.padding, made.output_padding, source);
      } else {
        g = policy_geometry(impl, image, d->out_channels);
      }
      check_result(impl, g, source, d->kernel_size, d->dilation);
    } else {
      const auto r = d->sub_pixel_scale_factor;
      g = windows(impl, source, image, d->out_channels / (r * r));
      if (made.padding.kind == Padding::Kind::pixels) g.shape.h *= r, g.shape.w *= r;
    }
  } else if (made.window) {
    g = windows(impl, source, image, channels);
  } else if (made.result_shape) {
    g.shape = made.result_shape(made.read_shape ? made.read_shape(0, g.shape) : g.shape);
    g.offsets[0] = {.x = made.offset.x, .y = made.offset.y, .z = made.offset.image};
  } else if (!made.neuron.data.empty()) {
    check(static_cast<std::int64_t>(made.neuron.data.size()) == channels, row.name, ": x has ", channels,
          " channels to read; there are ", made.neuron.data.size(), " slopes.");
  }
  return g;
}

/// Return the geometry of an elementwise kernel of two sources: extents are equal, or 1 where a source broadcasts.
Geometry pointwise_geometry(const Kernel::Impl &impl, std::span<const ImageShape> sources) {
  const auto &row = *impl.row;
  const bool repeats = row.family == "arithmetic";
  std::array<ImageShape, 2> read{sources[0], sources[1]};
  for (std::size_t i = 0; i < 2; ++i) {
    read[i].c = source_channels(impl, i, sources[i]);
    if (impl.offsets[i]) read[i].n -= impl.offsets[i]->image;
    if (impl.made.read_shape) read[i] = impl.made.read_shape(i, read[i]);
  }
  Geometry g;
  const auto axis = [&](std::int64_t ImageShape::*extent, std::optional<bool> Repeat::*given, const char *name) {
    std::array<bool, 2> repeat{};
    for (std::size_t i = 0; i < 2; ++i) {
      const auto asked = given == nullptr ? std::nullopt : impl.made.repeat[i].*given;
      repeat[i] = asked.value_or(repeats && read[i].*extent == 1 && read[1 - i].*extent != 1);
      g.strides[i].*extent = repeat[i] ? 0 : 1;
    }
    // With a clip rectangle, all extents but channels may differ: edge modes supply missing pixels.
    check(repeat[0] || repeat[1] || read[0].*extent == read[1].*extent || (impl.clip && given != &Repeat::c), row.name,
          ": the ", name, " of ", row.sources[0], " (", read[0].*extent, ") is not that of ", row.sources[1], " (",
          read[1].*extent, ").");
    g.shape.*extent = repeat[0] && repeat[1] ? 1
                      : repeat[0]            ? read[1].*extent
                      : repeat[1]            ? read[0].*extent
                                             : std::min(read[0].*extent, read[1].*extent);
  };
  axis(&ImageShape::n, nullptr, "number of images");
  axis(&ImageShape::h, &Repeat::h, "height");
  axis(&ImageShape::w, &Repeat::w, "width");
  axis(&ImageShape::c, &Repeat::c, "number of channels");
  if (!impl.made.neuron.data.empty())
    check(static_cast<std::int64_t>(impl.made.neuron.data.size()) == g.shape.c, row.name, ": ", row.sources[1], " has ",
          g.shape.c, " channels to read; there are ", impl.made.neuron.data.size(), " slopes.");
  if (impl.made.result_shape) g.shape = impl.made.result_shape(g.shape);
  return g;
}

}  // namespace

std::int64_t source_channels(const Kernel::Impl &impl, std::size_t source, ImageShape shape) {
  const auto first = static_cast<std::int64_t>(first_channel(impl, source));
  check(first < shape.c, impl.row->name, ": ", prefix_of(impl, source), "source_feature_channel_offset (", first,
        ") is not less than the channels of ", impl.row->sources[source], " (", shape.c, ").");
  return static_cast<std::int64_t>(std::min<NSUInteger>(shape.c - first, most_channels(impl, source)));
}

Geometry geometry(const Kernel::Impl &impl, std::span<const ImageShape> sources, MPSImage *image,
                  const GradientState *state) {
  for (std::size_t i = 0; i < sources.size(); ++i)
    if (const auto &given = impl.offsets[i])
      check(given->image >= 0 && given->image < sources[i].n, impl.row->name, ": ", prefix_of(impl, i),
            "offset has image (", given->image, "), not in [0, ", sources[i].n, ").");
  if (is_gradient(impl)) return gradient_geometry(impl, sources, image, state);
  auto g = is_binary(impl) ? pointwise_geometry(impl, sources) : unary_geometry(impl, sources[0], image);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const auto &given = impl.offsets[i];
    if (!given) continue;
    g.offsets[i] = {.x = given->x, .y = given->y, .z = given->image};
    if (!is_binary(impl)) g.shape.n = sources[i].n - given->image;
  }
  return g;
}

ImageShape new_destination(const Kernel::Impl &impl, const Geometry &g) {
  auto shape = g.shape;
  shape.c += static_cast<std::int64_t>(common(impl).destinationFeatureChannelOffset) + g.spare_channels;
  return shape;
}

void check_destination(const Kernel::Impl &impl, const Geometry &g, ImageShape out) {
  const auto &row = *impl.row;
  const auto first = static_cast<std::int64_t>(common(impl).destinationFeatureChannelOffset);
  check(first + g.shape.c <= out.c, row.name, ": out has ", out.c, " channels; destination_feature_channel_offset (",
        first, ") and the result's channels (", g.shape.c, ") need ", first + g.shape.c, ".");
  if (impl.clip) {
    check_inside(row.name, *impl.clip, out);
    const auto images = impl.clip->images;
    check(images <= g.shape.n, row.name, ": clip_rect has ", images, " images; ",
          is_binary(impl) ? "the sources provide " : "x provides ", g.shape.n, ".");
    return;
  }
  check(out.h == g.shape.h && out.w == g.shape.w && out.n == g.shape.n, row.name, ": out.shape ", out,
        " is not the result's ", g.shape, " (clip_rect restricts what is written).");
}

ImageShape Kernel::result_shape(std::span<const ImageShape> sources, const EncodeStates &states) const {
  check_source_count(sources.size());
  check_result_is_image();
  check_states(states);
  // Together with the parameters' limits, this keeps sums and products of extents within 64 bits.
  for (std::size_t i = 0; i < sources.size(); ++i)
    for (auto extent : sources[i].nhwc())
      check<MemoryError>(extent <= std::int64_t{1} << 31, impl_->row->name, ": ", impl_->row->sources[i], " of shape ",
                         sources[i], " has an extent (", extent, ") greater than the maximum (", std::int64_t{1} << 31,
                         ").");
  return guard([&] {
    const std::scoped_lock lock(impl_->mutex);
    // A policy needs an image; its storage is never accessed.
    auto image = impl_->made.padding.kind == Padding::Kind::pixels
                     ? Ref<MPSImage *>()
                     : Ref<MPSImage *>::adopt([[MPSImage alloc]
                            initWithDevice:impl_->device->impl().device.get()
                           imageDescriptor:image_descriptor(sources.back(), DType::float32)]);
    return new_destination(*impl_, geometry(*impl_, sources, image.get(), states.gradient));
  });
}

}  // namespace mpscnn
