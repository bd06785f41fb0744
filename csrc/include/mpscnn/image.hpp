// SPDX-License-Identifier: Apache-2.0
// Image: an MPSImage, N x H x W x C, and its conversion to and from arrays.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include <mpscnn/array.hpp>
#include <mpscnn/device.hpp>

namespace mpscnn {

class CommandBuffer;

/// Order of the axes of an array that is copied to or from an image.
enum class ImageLayout : std::uint32_t { NHWC, NCHW };
ImageLayout image_layout_from_name(std::string_view name);

/// Array API's `copy=`: true copies, false shares or throws, nullopt shares if it can.
using CopyMode = std::optional<bool>;

struct ImageShape {
  std::int64_t n = 1, h = 1, w = 1, c = 1;
  Extents nhwc() const { return {n, h, w, c}; }
  bool operator==(const ImageShape&) const = default;
};
inline std::ostream& operator<<(std::ostream& out, const ImageShape& shape) { return out << as_tuple(shape.nhwc()); }

class Image {
 public:
  struct Impl;
  /// float32, float16, uint8 or uint16 (uint8 and uint16 represent 0...1 in steps of 1/255 and 1/65535).
  static std::shared_ptr<Image> make(std::shared_ptr<Device> device, ImageShape shape, DType dtype);
  static std::shared_ptr<Image> temporary(CommandBuffer& buffer, ImageShape shape, DType dtype);
  static std::shared_ptr<Image> from_array(std::shared_ptr<Device> device, const ArrayView& array,
                                           ImageLayout layout = ImageLayout::NHWC, CopyMode copy = std::nullopt);
  /// Return an image over the memory of an array (N, H, W, C), or null if that cannot be shared.
  static std::shared_ptr<Image> over_array(const std::shared_ptr<Device>& device, const ArrayView& array);
  /// Return why `array` cannot be an image's memory on this device; empty if it can.
  static std::string why_not_shared(const Device& device, const ArrayView& array, ImageLayout layout);

  /// Return the size of the pixels in bytes, for any number of images. Throw if an extent is not positive or exceeds
  /// MPS's limit, or if the size exceeds the device's memory.
  static std::uint64_t bytes(const Device& device, ImageShape shape, DType dtype);
  /// Largest height and width of a texture [Metal feature set tables, all GPU families with MPS].
  static constexpr std::int64_t kMostPixels = 16384;
  /// 2048 slices of an array texture, of four channels each [Metal feature set tables].
  static constexpr std::int64_t kMostChannels = 8192;
  /// Channels of a slice [MPSImage.h].
  static constexpr std::int64_t kSlice = 4;
  /// Return the max number of images with `channels` channels in one Image; 0 for too many channels. Apple's images
  /// hold 2048 slices, those of openmps any number.
  static std::int64_t most_images(std::int64_t channels);

  explicit Image(std::unique_ptr<Impl> impl);
  ~Image();

  /// Copy the pixels into `array` (shape and dtype of the image, any strides).
  void to_array(const ArrayView& array, ImageLayout layout = ImageLayout::NHWC) const;
  /// Replace the pixels.
  void write(const ArrayView& array, ImageLayout layout = ImageLayout::NHWC);
  /// The array whose memory the image uses; nullopt if its memory is not visible to the CPU.
  std::optional<ArrayView> shared_array() const;
  /// Return the array in the memory of a device that the host cannot access; keeps the image. Throw BufferError for
  /// images of other devices.
  static ArrayView device_array(const std::shared_ptr<Image>& image);
  /// Throw std::runtime_error if the CPU may not read the image: it is temporary, or being written.
  void check_readable() const;

  ImageShape shape() const;
  DType dtype() const;
  bool is_temporary() const;
  std::int64_t read_count() const;
  void set_read_count(std::int64_t count);
  std::shared_ptr<Image> channels(std::int64_t first, std::int64_t count) const;
  std::string label() const;
  void set_label(const std::string& label);
  std::shared_ptr<Device> device() const;
  Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

/// Announce the temporary images that will be created, for devices with prefetches_temporaries().
void prefetch_temporaries(CommandBuffer& buffer, std::span<const ImageShape> shapes, DType dtype);

}  // namespace mpscnn
