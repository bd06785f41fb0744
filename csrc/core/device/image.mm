// SPDX-License-Identifier: Apache-2.0
// MPSImage and its conversions from and to arrays: shared where the platform can, else one direct transfer.
#include <mpscnn/error.hpp>
#include <mpscnn/image.hpp>
#include <mpscnn/pages.hpp>
#include <mpscnn/watched_memory.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "core/data_source/sharing.hh"
#include "core/device/device_impl.hh"
#include "core/device/forked.hpp"
#include "core/device/objc_scope.hh"
#include "core/reorder/strided.hpp"

namespace mpscnn {
namespace {

MPSImageFeatureChannelFormat format_of(DType dtype) {
  switch (dtype) {
    case DType::float32: return MPSImageFeatureChannelFormatFloat32;
    case DType::float16: return MPSImageFeatureChannelFormatFloat16;
    case DType::uint8: return MPSImageFeatureChannelFormatUnorm8;
    case DType::uint16: return MPSImageFeatureChannelFormatUnorm16;
    default: throw TypeError(say("Image: dtype (", name_of(dtype), ") is not float32, float16, uint8 or uint16."));
  }
}

/// Index of each axis in an array of the layout.
struct Axes {
  int n, h, w, c;
};
constexpr Axes axes_of(ImageLayout layout) { return layout == ImageLayout::NHWC ? Axes{0, 1, 2, 3} : Axes{0, 2, 3, 1}; }

ImageShape shape_of(const ArrayView &array, ImageLayout layout, const char *what) {
  check(array.ndim() == 4, what, ": x.ndim (", array.ndim(), ") is not 4.");
  const auto axes = axes_of(layout);
  return {array.shape[axes.n], array.shape[axes.h], array.shape[axes.w], array.shape[axes.c]};
}

void check_matches(const ArrayView &array, ImageLayout layout, ImageShape shape, DType dtype, const char *what) {
  check<TypeError>(array.dtype == dtype, what, ": dtype (", name_of(array.dtype), ") is not the image's (",
                   name_of(dtype), ").");
  const auto given = shape_of(array, layout, what);
  check(given == shape, what, ": shape ", given, " is not the image's ", shape, " (as N, H, W, C).");
}

MPSDataLayout data_layout(ImageLayout layout) {
  return layout == ImageLayout::NHWC ? MPSDataLayoutHeightxWidthxFeatureChannels
                                     : MPSDataLayoutFeatureChannelsxHeightxWidth;
}

/// Return the data of image `n` of the array if it is dense in the layout.
std::byte *dense_image(const ArrayView &array, ImageLayout layout, ImageShape shape, std::int64_t n) {
  const auto axes = axes_of(layout);
  const auto size = static_cast<std::int64_t>(size_of(array.dtype));
  const Extents order = layout == ImageLayout::NHWC ? Extents{axes.h, axes.w, axes.c} : Extents{axes.c, axes.h, axes.w};
  std::int64_t step = size;
  for (int i = 2; i >= 0; --i) {
    if (array.shape[order[i]] != 1 && array.strides[order[i]] != step) return nullptr;
    step *= array.shape[order[i]];
  }
  (void)shape;
  return static_cast<std::byte *>(array.data) + n * array.strides[axes.n];
}

/// Copy between an image and an array in the memory of its device, or an array without gaps in the host's memory.
/// Return false if the rows have to be copied one by one.
bool copy_at_once(const Image::Impl &image, const ArrayView &array, ImageLayout layout, bool into_image) {
  if (with_memory(image.device->impl().device.get()) == nil) return false;
  const auto axes = axes_of(layout);
  const auto step = [&](int axis) { return static_cast<NSInteger>(array.strides[static_cast<std::size_t>(axis)]); };
  const NSInteger strides[] = {step(axes.n), step(axes.h), step(axes.w), step(axes.c)};
  return guard([&]() -> bool {
    MPSImage *const own = image.image.get();
    if (array.space.is_host()) return [own copyHostBytes:array.data strides:strides intoImage:into_image];
    [own copyDeviceBytes:array.data strides:strides intoImage:into_image];
    return true;
  });
}

/// Call `move(dense row, region)` for each row of image `n`; gather the row before, or scatter it after.
template <class Move>
void each_row(const ArrayView &array, ImageLayout layout, ImageShape shape, std::int64_t n, bool into_image,
              Move move) {
  const auto axes = axes_of(layout);
  const auto size = size_of(array.dtype);
  std::vector<std::byte> dense(static_cast<std::size_t>(shape.w * shape.c) * size);
  for (std::int64_t y = 0; y < shape.h; ++y) {
    const StridedRow row{static_cast<std::byte *>(array.data) + n * array.strides[axes.n] + y * array.strides[axes.h],
                         shape.w,
                         shape.c,
                         array.strides[axes.w],
                         array.strides[axes.c],
                         size};
    if (into_image) gather_row(row, dense.data());
    move(dense.data(), MTLRegionMake3D(0, y, 0, shape.w, 1, 1));
    if (!into_image) scatter_row(row, dense.data());
  }
}

/// The same for arrays with gaps in the host's memory, through a copy without gaps.
bool copy_packed(const Image::Impl &image, const ArrayView &array, ImageLayout layout, bool into_image) {
  if (copy_at_once(image, array, layout, into_image)) return true;
  if (with_memory(image.device->impl().device.get()) == nil) return false;
  const auto row_bytes = static_cast<std::size_t>(image.shape.w * image.shape.c) * size_of(array.dtype);
  const auto pages = allocate_pages(row_bytes * static_cast<std::size_t>(image.shape.n * image.shape.h));
  const ArrayView packed{.data = pages.get(),
                         .dtype = array.dtype,
                         .shape = image.shape.nhwc(),
                         .strides = contiguous_strides(image.shape.nhwc(), array.dtype)};
  const auto move_rows = [&] {
    for (std::int64_t n = 0; n < image.shape.n; ++n)
      each_row(array, layout, image.shape, n, into_image, [&](std::byte *dense, MTLRegion region) {
        auto *const row = static_cast<std::byte *>(pages.get()) +
                          (static_cast<std::size_t>(n * image.shape.h) + region.origin.y) * row_bytes;
        std::memcpy(into_image ? row : dense, into_image ? dense : row, row_bytes);
      });
  };
  if (into_image) move_rows();
  if (!copy_at_once(image, packed, ImageLayout::NHWC, into_image)) return false;
  if (!into_image) move_rows();
  return true;
}

}  // namespace

ImageLayout image_layout_from_name(std::string_view name) {
  if (name == "NHWC") return ImageLayout::NHWC;
  if (name == "NCHW") return ImageLayout::NCHW;
  throw std::invalid_argument(say("layout (\"", name, "\") is not \"NHWC\" or \"NCHW\"."));
}

MPSImageDescriptor *image_descriptor(ImageShape shape, DType dtype) {
  // Cached: programs use few shapes, and a descriptor costs a dozen messages.
  struct Made {
    ImageShape shape;
    DType dtype;
    Ref<MPSImageDescriptor *> descriptor;
  };
  thread_local std::array<Made, 4> last = {};
  thread_local std::size_t next = 0;
  for (const auto &made : last)
    if (made.descriptor && made.shape == shape && made.dtype == dtype) return made.descriptor.get();
  auto &made = last[next++ % last.size()];
  made = {shape, dtype,
          Ref<MPSImageDescriptor *>::retain([MPSImageDescriptor
              imageDescriptorWithChannelFormat:format_of(dtype)
                                         width:shape.w
                                        height:shape.h
                               featureChannels:shape.c
                                numberOfImages:shape.n
                                         usage:MTLTextureUsageShaderRead | MTLTextureUsageShaderWrite])};
  if (!limits_slices()) [made.descriptor.get() setHasNoSliceLimit:YES];
  return made.descriptor.get();
}

std::uint64_t Image::bytes(const Device &device, ImageShape shape, DType dtype) {
  format_of(dtype);
  std::uint64_t bytes = size_of(dtype);
  for (auto extent : shape.nhwc()) {
    check(extent > 0, "Image: shape ", shape, " has an extent (", extent, ") less than the minimum (1).");
    check<MemoryError>(!__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(extent), &bytes), "Image: shape ",
                       shape, " of ", name_of(dtype), " needs more bytes than can be counted.");
  }
  const auto limit = device.recommended_max_working_set_bytes();
  check<MemoryError>(bytes <= limit, "Image: shape ", shape, " of ", name_of(dtype), " needs ", bytes,
                     " bytes, more than the device's recommended_max_working_set_bytes (", limit, ").");
  check(shape.h <= kMostPixels && shape.w <= kMostPixels, "Image: shape ", shape, " has an extent (",
        std::max(shape.h, shape.w), ") along its height or width greater than the maximum (", kMostPixels, ").");
  return bytes;
}

std::int64_t Image::most_images(std::int64_t channels) {
  if (channels > kMostChannels) return 0;
  if (!limits_slices()) return std::numeric_limits<std::int32_t>::max();
  // Images of a batch do not share slices.
  constexpr std::int64_t kMostSlices = kMostChannels / 4;
  return kMostSlices / ((channels + 3) / 4);
}

static void check_image(const Device &device, ImageShape shape, DType dtype) {
  check_not_forked();
  Image::bytes(device, shape, dtype);
  const auto most = Image::most_images(shape.c);
  check(most > 0, "Image: shape ", shape, " has more channels (", shape.c, ") than the maximum (", Image::kMostChannels,
        ").");
  check(shape.n <= most, "Image: shape ", shape, " has more images (", shape.n, ") than the maximum (", most, ") for ",
        shape.c, " channels.");
}

/// Reset readCount before a temporary image with outstanding reads is freed: Metal's validation refuses to free an
/// image whose readCount is not 0 [MPSImage.h]. A part holds one readCount of `whole` and keeps it alive.
static std::shared_ptr<const void> reads_of(MPSImage *image, std::shared_ptr<const void> whole = {}) {
  auto held = Ref<MPSTemporaryImage *>::retain(static_cast<MPSTemporaryImage *>(image));
  return std::shared_ptr<const void>(nullptr, [held, whole = std::move(whole)](const void *) {
    if ([held.get() readCount] > 0) [held.get() setReadCount:0];
  });
}

Image::Image(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Image::~Image() {
  Pool pool;
  impl_.reset();
}

std::shared_ptr<Image> Image::make(std::shared_ptr<Device> device, ImageShape shape, DType dtype) {
  check_image(*device, shape, dtype);
  return guard([&] {
    auto image = Ref<MPSImage *>::adopt([[MPSImage alloc] initWithDevice:device->impl().device.get()
                                                         imageDescriptor:image_descriptor(shape, dtype)]);
    check<std::runtime_error>(static_cast<bool>(image), "Image: the device cannot make an image of shape ", shape, ".");
    return std::make_shared<Image>(
        std::make_unique<Impl>(Impl{.device = device, .image = image, .shape = shape, .dtype = dtype, .shared = {}}));
  });
}

std::shared_ptr<Image> Image::temporary(CommandBuffer &buffer, ImageShape shape, DType dtype) {
  check_image(*buffer.device(), shape, dtype);
  return guard([&] {
    auto image =
        Ref<MPSImage *>::retain([MPSTemporaryImage temporaryImageWithCommandBuffer:buffer.impl().buffer.get()
                                                                   imageDescriptor:image_descriptor(shape, dtype)]);
    check<std::runtime_error>(static_cast<bool>(image), "Image: the device cannot make a temporary image of shape ",
                              shape, ".");
    return std::make_shared<Image>(std::make_unique<Impl>(Impl{.device = buffer.device(),
                                                               .image = image,
                                                               .shape = shape,
                                                               .dtype = dtype,
                                                               .shared = {},
                                                               .temporary = true,
                                                               .reads = reads_of(image.get())}));
  });
}

void prefetch_temporaries(CommandBuffer &buffer, std::span<const ImageShape> shapes, DType dtype) {
  if (shapes.empty()) return;
  guard([&] {
    NSMutableArray *list = [NSMutableArray arrayWithCapacity:shapes.size()];
    for (const auto &shape : shapes) [list addObject:image_descriptor(shape, dtype)];
    [MPSTemporaryImage prefetchStorageWithCommandBuffer:buffer.impl().buffer.get() imageDescriptorList:list];
  });
}

std::string Image::why_not_shared(const Device &device, const ArrayView &array, ImageLayout layout) {
  const bool is_reachable = array.space.is_host() ? device.shares_images() : array.space == device.memory_space();
  if (!is_reachable) return "this device's images have memory of their own";
  if (layout != ImageLayout::NHWC) return "its layout is not NHWC";
  const auto size = static_cast<std::int64_t>(size_of(array.dtype));
  if (array.shape[3] != 1 && array.strides[3] != size)
    return say("its channels are not adjacent (stride ", array.strides[3], " bytes)");
  for (int axis = 0; axis < 3; ++axis) {
    if (array.shape[axis] == 1) continue;
    if (array.strides[axis] <= 0)
      return say("its stride ", array.strides[axis], " along axis ", axis, " is not positive");
    if (array.strides[axis] % size != 0)
      return say("its stride ", array.strides[axis], " along axis ", axis, " is not a multiple of ", size, " bytes");
  }
  // Axes may have any order in memory, but must not overlap.
  std::array<int, 3> axes{0, 1, 2};
  std::ranges::sort(axes, {}, [&](int axis) { return array.strides[axis]; });
  auto span = array.shape[3] * size;
  for (int axis : axes) {
    if (array.shape[axis] == 1) continue;
    if (array.strides[axis] < span && !array.read_only) return "its pixels overlap";
    span += array.strides[axis] * (array.shape[axis] - 1);
  }
  if (reinterpret_cast<std::uintptr_t>(array.data) % static_cast<std::uintptr_t>(size) != 0)
    return say("its address is not a multiple of ", size, " bytes");
  return {};
}

std::shared_ptr<Image> Image::over_array(const std::shared_ptr<Device> &device, const ArrayView &array) {
  const auto shape = shape_of(array, ImageLayout::NHWC, "Image");
  check_image(*device, shape, array.dtype);
  if (!why_not_shared(*device, array, ImageLayout::NHWC).empty()) return nullptr;
  // NumPy allows any stride for axes of extent 1; the image requires the dense ones.
  const auto size = static_cast<NSUInteger>(size_of(array.dtype));
  const NSUInteger pixel = shape.w == 1 ? size * shape.c : array.strides[2];
  const NSUInteger row = shape.h == 1 ? pixel * shape.w : array.strides[1];
  const NSUInteger image_bytes = shape.n == 1 ? row * shape.h : array.strides[0];
  return guard([&] {
    auto owner = array.owner;
    auto image = Ref<MPSImage *>::adopt([[MPSImage alloc] initWithDevice:device->impl().device.get()
                                                         imageDescriptor:image_descriptor(shape, array.dtype)
                                                             bytesNoCopy:array.data
                                                           bytesPerPixel:pixel
                                                             bytesPerRow:row
                                                           bytesPerImage:image_bytes
                                                                readOnly:array.read_only
                                                             deallocator:^{
                                                               (void)owner;
                                                             }]);
    check<BufferError>(static_cast<bool>(image), "Image: the device refused to share the array.");
    return std::make_shared<Image>(std::make_unique<Impl>(
        Impl{.device = device, .image = image, .shape = shape, .dtype = array.dtype, .shared = array}));
  });
}

std::shared_ptr<Image> Image::from_array(std::shared_ptr<Device> device, const ArrayView &array, ImageLayout layout,
                                         CopyMode copy) {
  if (layout == ImageLayout::NHWC && !copy.value_or(false))
    if (auto image = over_array(device, array)) return image;
  const auto shape = shape_of(array, layout, "Image");
  check_image(*device, shape, array.dtype);
  check<BufferError>(copy.value_or(true), "Image: the array cannot be shared: ", why_not_shared(*device, array, layout),
                     ".");
  auto image = make(device, shape, array.dtype);
  image->write(array, layout);
  return image;
}

void Image::write(const ArrayView &array, ImageLayout layout) {
  const auto extents = shape();
  check_matches(array, layout, extents, dtype(), "Image.write");
  check(!impl_->shared || !impl_->shared->read_only,
        "Image.write: the image is read-only, as the array is that it shares.");
  check_readable();
  if (copy_packed(*impl_, array, layout, true)) return array.space.is_host() ? check_whole(array) : void();
  guard([&] {
    const NSUInteger row_bytes = extents.w * extents.c * size_of(array.dtype);
    for (std::int64_t n = 0; n < extents.n; ++n) {
      if (const auto *bytes = dense_image(array, layout, extents, n)) {
        [impl_->image.get() writeBytes:bytes dataLayout:data_layout(layout) imageIndex:n];
        continue;
      }
      each_row(array, layout, extents, n, true, [&](std::byte *dense, MTLRegion region) {
        [impl_->image.get() writeBytes:dense
                            dataLayout:MPSDataLayoutHeightxWidthxFeatureChannels
                           bytesPerRow:row_bytes
                                region:region
                    featureChannelInfo:{0, static_cast<NSUInteger>(extents.c)}
                            imageIndex:n];
      });
    }
  });
  check_whole(array);
}

void Image::to_array(const ArrayView &array, ImageLayout layout) const {
  const auto extents = shape();
  check(!array.read_only, "Image.numpy: out is read-only.");
  check_matches(array, layout, extents, dtype(), "Image.numpy");
  check_readable();
  if (copy_packed(*impl_, array, layout, false)) return array.space.is_host() ? check_whole(array) : void();
  guard([&] {
    const NSUInteger row_bytes = extents.w * extents.c * size_of(array.dtype);
    for (std::int64_t n = 0; n < extents.n; ++n) {
      if (auto *bytes = dense_image(array, layout, extents, n)) {
        [impl_->image.get() readBytes:bytes dataLayout:data_layout(layout) imageIndex:n];
        continue;
      }
      each_row(array, layout, extents, n, false, [&](std::byte *dense, MTLRegion region) {
        [impl_->image.get() readBytes:dense
                           dataLayout:MPSDataLayoutHeightxWidthxFeatureChannels
                          bytesPerRow:row_bytes
                               region:region
                   featureChannelInfo:{0, static_cast<NSUInteger>(extents.c)}
                           imageIndex:n];
      });
    }
  });
  check_whole(array);
}

void check_written(Writer &last, const char *what) {
  const auto writer = last.get();
  if (!writer) return;
  const auto status = [writer.get() status];
  check<std::runtime_error>(status >= MTLCommandBufferStatusCompleted, what,
                            ": the command buffer that writes it has not completed (status ",
                            name_of(static_cast<CommandBufferStatus>(status)), "); commit() and wait() come first.");
  check<std::runtime_error>(status != MTLCommandBufferStatusError, what,
                            ": the command buffer that writes it has failed.");
  last.forget(writer);
}

void Image::check_readable() const {
  check<std::runtime_error>(!impl_->temporary, "Image: a temporary image cannot be read by the CPU.");
  check_written(*impl_->writer, "Image");
}

std::optional<ArrayView> Image::shared_array() const {
  return impl_->shared && impl_->shared->space.is_host() ? impl_->shared : std::nullopt;
}

ArrayView Image::device_array(const std::shared_ptr<Image> &image) {
  const auto &impl = *image->impl_;
  const auto space = impl.device->memory_space();
  check<BufferError>(!space.is_host(), "Image: its memory is the host's, not that of a GPU.");
  image->check_readable();
  NSInteger strides[3] = {};
  void *const data = guard([&] { return [impl.image.get() deviceBytesWithStrides:strides]; });
  return {.data = data,
          .dtype = impl.dtype,
          .shape = impl.shape.nhwc(),
          .strides = {strides[0], strides[1], strides[2], static_cast<std::int64_t>(size_of(impl.dtype))},
          .read_only = impl.shared && impl.shared->read_only,
          .owner = image,
          .space = space};
}

ImageShape Image::shape() const { return impl_->shape; }
DType Image::dtype() const { return impl_->dtype; }
bool Image::is_temporary() const { return impl_->temporary; }

std::int64_t Image::read_count() const {
  return impl_->temporary ? [static_cast<MPSTemporaryImage *>(impl_->image.get()) readCount] : 0;
}

void Image::set_read_count(std::int64_t count) {
  check<std::runtime_error>(impl_->temporary, "Image: only a temporary image has a read_count.");
  check(count >= 0, "Image: read_count (", count, ") is less than the minimum (0).");
  check<std::runtime_error>(read_count() > 0, "Image: read_count is 0 already; the storage is gone.");
  guard([&] { [static_cast<MPSTemporaryImage *>(impl_->image.get()) setReadCount:count]; });
}

std::shared_ptr<Image> Image::channels(std::int64_t first, std::int64_t count) const {
  const auto c = impl_->shape.c;
  check(first >= 0 && first % 4 == 0 && first < c, "Image.channels: first (", first, ") is not a multiple of 4 in [0, ",
        c, ").");
  check(count >= 1 && count <= c - first && (count % 4 == 0 || count == c - first), "Image.channels: count (", count,
        ") is not a multiple of 4 in [1, ", c - first, "], nor the rest of the channels.");
  // MPS takes multiples of 4 and truncates a range that is too long [MPSImage.h].
  const auto rounded = static_cast<NSUInteger>((count + 3) / 4 * 4);
  auto channels = impl_->shape;
  channels.c = count;
  return guard([&] {
    auto part =
        Ref<MPSImage *>::retain([impl_->image.get() subImageWithFeatureChannelRange:NSMakeRange(first, rounded)]);
    std::optional<ArrayView> shared;
    if (impl_->shared) {
      shared = *impl_->shared;
      shared->data = static_cast<std::byte *>(shared->data) + first * static_cast<std::int64_t>(size_of(shared->dtype));
      shared->shape[3] = count;
    }
    return std::make_shared<Image>(
        std::make_unique<Impl>(Impl{.device = impl_->device,
                                    .image = part,
                                    .shape = channels,
                                    .dtype = impl_->dtype,
                                    .shared = shared,
                                    .temporary = impl_->temporary,
                                    .writer = impl_->writer,
                                    .first_channel = impl_->first_channel + first,
                                    .reads = impl_->temporary ? reads_of(part.get(), impl_->reads) : nullptr}));
  });
}

std::string Image::label() const {
  return guard([&] { return text([impl_->image.get() label]); });
}
void Image::set_label(const std::string &label) {
  guard([&] { [impl_->image.get() setLabel:ns(label)]; });
}
std::shared_ptr<Device> Image::device() const { return impl_->device; }

}  // namespace mpscnn
