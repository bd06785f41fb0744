// SPDX-License-Identifier: Apache-2.0
// Reads and writes of images: any region, channels and layout, checked first [MPSImage.h].

#import "mps/ImageState.hh"

#include <algorithm>

#include "engine/shared/pixels.hpp"

namespace openmps {
namespace {

/// A transfer between an image and the program's buffer, checked and resolved.
struct Transfer {
  std::int64_t first_image = 0, images = 1, y = 0, x = 0, height = 0, width = 0;
  std::int64_t first_channel = 0, channels = 0;             ///< in the buffer; the image may have fewer
  std::size_t element = 0, column = 0, row = 0, image = 0;  ///< strides in the buffer, bytes
  bool planes = false;                                      ///< C x H x W
};

void check_layout(NSUInteger layout) {
  if (layout > MPSDataLayoutFeatureChannelsxHeightxWidth)
    raise_argument(@"MPSImage: dataLayout (%lu) is not 0 or 1.", (unsigned long)layout);
}

void check_step(const char *name, NSUInteger given, NSUInteger min, NSUInteger element, bool is_used) {
  if (is_used && given < min)
    raise_argument(@"MPSImage: %s (%lu) is less than what one takes (%lu).", name, (unsigned long)given,
                   (unsigned long)min);
  if (is_used && given % element != 0)
    raise_argument(@"MPSImage: %s (%lu) is not a multiple of the size of an element (%lu).", name, (unsigned long)given,
                   (unsigned long)element);
}

Transfer resolve(MPSImage *image, MPSDataLayout layout, ByteStrides strides, MTLRegion region,
                 MPSImageReadWriteParams info, NSUInteger image_index) {
  const ImageView &view = [image openmps_state].view;
  check_layout(layout);
  const auto images = static_cast<NSUInteger>(view.n), width = static_cast<NSUInteger>(view.w);
  const auto height = static_cast<NSUInteger>(view.h), channels = static_cast<NSUInteger>(view.c);
  if (region.size.width == 0 || region.size.height == 0 || region.size.depth == 0)
    raise_argument(@"MPSImage: region.size (%lu x %lu x %lu) has an extent of 0.", (unsigned long)region.size.width,
                   (unsigned long)region.size.height, (unsigned long)region.size.depth);
  if (region.origin.x > width || region.size.width > width - region.origin.x || region.origin.y > height ||
      region.size.height > height - region.origin.y)
    raise_argument(@"MPSImage: region (%lu x %lu pixels at (%lu, %lu)) ends beyond width and height (%lu x %lu).",
                   (unsigned long)region.size.width, (unsigned long)region.size.height, (unsigned long)region.origin.x,
                   (unsigned long)region.origin.y, (unsigned long)width, (unsigned long)height);
  // unverified: imageIndex and origin.z both select the first image. They are added, because one of them is 0 in every
  // program seen.
  if (image_index >= images)
    raise_argument(@"MPSImage: imageIndex (%lu) is not less than numberOfImages (%lu).", (unsigned long)image_index,
                   (unsigned long)images);
  const NSUInteger left = images - image_index;
  if (region.origin.z > left || region.size.depth > left - region.origin.z)
    raise_argument(@"MPSImage: %lu images from imageIndex %lu + region.origin.z %lu end beyond numberOfImages (%lu).",
                   (unsigned long)region.size.depth, (unsigned long)image_index, (unsigned long)region.origin.z,
                   (unsigned long)images);
  const NSUInteger offset = info.featureChannelOffset, count = info.numberOfFeatureChannelsToReadWrite;
  const NSUInteger padded = (channels + 3) / 4 * 4;
  if (offset % 4 != 0)
    raise_argument(@"MPSImage: featureChannelOffset (%lu) is not a multiple of 4.", (unsigned long)offset);
  if (count == 0) raise_argument(@"MPSImage: numberOfFeatureChannelsToReadWrite (0) is less than the minimum (1).");
  if (offset != 0 && count % 4 != 0)
    raise_argument(@"MPSImage: numberOfFeatureChannelsToReadWrite (%lu) is not a multiple of 4, as it must be when "
                   @"featureChannelOffset (%lu) is not 0.",
                   (unsigned long)count, (unsigned long)offset);
  if (offset > padded || count > padded - offset)
    raise_argument(@"MPSImage: channels %lu to %lu end beyond featureChannels (%lu, padded to %lu).",
                   (unsigned long)offset, (unsigned long)(offset + count), (unsigned long)channels,
                   (unsigned long)padded);

  Transfer transfer;
  transfer.first_image = static_cast<std::int64_t>(image_index + region.origin.z);
  transfer.images = static_cast<std::int64_t>(region.size.depth);
  transfer.y = static_cast<std::int64_t>(region.origin.y);
  transfer.x = static_cast<std::int64_t>(region.origin.x);
  transfer.height = static_cast<std::int64_t>(region.size.height);
  transfer.width = static_cast<std::int64_t>(region.size.width);
  transfer.first_channel = static_cast<std::int64_t>(offset);
  transfer.channels = static_cast<std::int64_t>(count);
  transfer.element = size_of(view.format);
  transfer.planes = layout == MPSDataLayoutFeatureChannelsxHeightxWidth;

  const NSUInteger element = transfer.element, dense_column = transfer.planes ? element : count * element;
  transfer.column = strides.column ? strides.column : dense_column;
  check_step("bytesPerColumn", transfer.column, dense_column, element, region.size.width > 1);
  const auto columns = product({region.size.width - 1, transfer.column});
  const NSUInteger dense_row = columns ? *columns + dense_column : 0;
  if (!columns) raise_argument(@"MPSImage: bytesPerColumn (%lu) is too large.", (unsigned long)transfer.column);
  transfer.row = strides.row ? strides.row : dense_row;
  // bytesPerRow is ignored if one row is moved [turicreate].
  const bool has_rows = region.size.height > 1 || (transfer.planes && count > 1);
  check_step("bytesPerRow", transfer.row, dense_row, element, has_rows);
  if (!has_rows) transfer.row = std::max<NSUInteger>(dense_row, element);
  const auto dense_image = product({transfer.row, region.size.height, transfer.planes ? count : 1});
  if (!dense_image) raise_argument(@"MPSImage: bytesPerRow (%lu) is too large.", (unsigned long)transfer.row);
  transfer.image = strides.image ? strides.image : *dense_image;
  const NSUInteger min_image = *dense_image - transfer.row + dense_row;
  check_step("bytesPerImage", transfer.image, min_image, element, region.size.depth > 1);
  if (region.size.depth > 1 && !product({transfer.image, region.size.depth}))
    raise_argument(@"MPSImage: bytesPerImage (%lu) is too large.", (unsigned long)transfer.image);
  return transfer;
}

/// Return 1 in the element's own format.
std::uint32_t one_of(Format format) {
  switch (format) {
    case Format::unorm8: return 0xff;
    case Format::unorm16: return 0xffff;
    case Format::float16: return 0x3c00;
    case Format::float32: return 0x3f800000;
    case Format::bfloat16: return 0x3f80;
  }
  return 0;
}

/// Copy the channels that the image has; `to_image` is the direction.
void move(const Transfer &transfer, const ImageView &view, std::byte *data, std::byte *buffer, bool to_image) {
  const std::size_t element = transfer.element;
  const std::int64_t present = std::min(transfer.channels, view.c - transfer.first_channel);
  const auto height = static_cast<std::size_t>(transfer.height), width = static_cast<std::size_t>(transfer.width);
  for (std::int64_t i = 0; i < transfer.images; ++i) {
    const std::int64_t first = (transfer.first_image + i) * view.n_stride + transfer.y * view.h_stride +
                               transfer.x * view.w_stride + transfer.first_channel;
    const Pixels inside{data + view.offset + static_cast<std::size_t>(first) * element,
                        static_cast<std::size_t>(view.w_stride) * element,
                        static_cast<std::size_t>(view.h_stride) * element};
    std::byte *const outside = buffer + static_cast<std::size_t>(i) * transfer.image;
    if (transfer.planes) {
      const Planes planes{outside, transfer.column, transfer.row, transfer.row * height};
      const auto channels = static_cast<std::size_t>(present);
      if (to_image)
        planes_to_pixels(inside, planes, height, width, channels, element);
      else
        pixels_to_planes(planes, inside, height, width, channels, element);
    } else {
      const Pixels pixels{outside, transfer.column, transfer.row};
      const std::size_t bytes = static_cast<std::size_t>(present) * element;
      if (to_image)
        copy_pixels(inside, pixels, height, width, bytes);
      else
        copy_pixels(pixels, inside, height, width, bytes);
    }
    if (to_image || present == transfer.channels) continue;
    // Lanes beyond the channels: 0, but images of one and two channels read as Metal's default texel (0, 0, 0, 1).
    for (std::int64_t lane = present; lane < transfer.channels; ++lane) {
      const std::uint32_t value = view.c <= 2 && lane == 3 ? one_of(view.format) : 0;
      if (transfer.planes) {
        std::byte *plane = outside + static_cast<std::size_t>(lane) * transfer.row * height;
        fill_elements({plane, transfer.column, transfer.row}, height, width, 0, 1, &value, element);
      } else {
        fill_elements({outside, transfer.column, transfer.row}, height, width, static_cast<std::size_t>(lane), 1,
                      &value, element);
      }
    }
  }
}

}  // namespace

void transfer(MPSImage *image, void *bytes, MPSDataLayout layout, ByteStrides strides, MTLRegion region,
              MPSImageReadWriteParams info, NSUInteger index, bool to_image) {
  const ImageState &state = [image openmps_state];
  if (state.temporary)
    raise_usage(@"%@ is temporary: its storage is private and the CPU has no access.", describe(image));
  if (state.storage_mode == MTLStorageModePrivate)
    raise_usage(@"%@ has storageMode private (2): the CPU has no access.", describe(image));
  if (bytes == nullptr) raise_argument(@"MPSImage: dataBytes is NULL.");
  const Transfer steps = resolve(image, layout, strides, region, info, index);
  if (to_image) {
    if (state.read_only) raise_usage(@"%@ is read-only and cannot be written.", describe(image));
    if (state.usage->before_writing() != Usage::Blocker::none) check_cpu_may_write(*state.usage, describe(image));
  } else if (state.usage->before_reading() != Usage::Blocker::none) {
    check_cpu_may_read(*state.usage, describe(image));
  }
  const auto &memory = state.view.memory;
  auto *const buffer = static_cast<std::byte *>(bytes);
  if (memory->has_cpu_copy()) move(steps, state.view, touch_cpu(memory, @"MPSImage"), buffer, to_image);
  // Writes update both copies, reads only use the CPU's [MTLTexture.h].
  if (memory->has_cpu_copy() && !to_image) return;
  // Only the images that are moved: those of a device are copied to the host.
  ImageView view = state.view;
  const ImageView moved = view.images(steps.first_image, steps.images);
  const std::int64_t reach =
      (moved.n - 1) * moved.n_stride + (moved.h - 1) * moved.h_stride + (moved.w - 1) * moved.w_stride + moved.c;
  const bool writes_all = to_image && moved.is_dense() && steps.y == 0 && steps.x == 0 && steps.height == moved.h &&
                          steps.width == moved.w && steps.first_channel == 0 && steps.channels >= moved.c;
  const HostAccess access(memory, moved.offset, static_cast<std::size_t>(reach) * steps.element,
                          writes_all ? HostAccess::Mode::write
                          : to_image ? HostAccess::Mode::update
                                     : HostAccess::Mode::read);
  Transfer within = steps;
  within.first_image = 0;
  view.offset = 0;
  move(within, view, checked_data(access, memory, @"MPSImage"), buffer, to_image);
}

}  // namespace openmps
