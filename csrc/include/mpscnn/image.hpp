// SPDX-License-Identifier: Apache-2.0
// Image: an MPSImage, N x H x W x C, and its ways to and from arrays.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include <mpscnn/array.hpp>
#include <mpscnn/device.hpp>

namespace mpscnn {

class CommandBuffer;

/// Order of the axes of an array that goes into or comes out of an image.
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
  /// float32, float16, uint8 or uint16 (the last two are 0...1 in steps of 1/255 and 1/65535).
  static std::shared_ptr<Image> make(std::shared_ptr<Device> device, ImageShape shape, DType dtype);
  static std::shared_ptr<Image> temporary(CommandBuffer& buffer, ImageShape shape, DType dtype);
  static std::shared_ptr<Image> from_array(std::shared_ptr<Device> device, const ArrayView& array,
                                           ImageLayout layout = ImageLayout::NHWC, CopyMode copy = std::nullopt);
  /// Return an image over the memory of an array (N, H, W, C), or null where that cannot be shared.
  static std::shared_ptr<Image> over_array(const std::shared_ptr<Device>& device, const ArrayView& array);
  /// Why `array` cannot be an image's memory on this device; empty when it can.
  static std::string why_not_shared(const Device& device, const ArrayView& array, ImageLayout layout);

  /// Bytes of such pixels, of however many images. Throws when an extent is not positive or beyond what MPS takes, or
  /// when the device could never hold them.
  static std::uint64_t bytes(const Device& device, ImageShape shape, DType dtype);
  /// Largest height and width of a texture [Metal feature set tables, all GPU families with MPS].
  static constexpr std::int64_t kMostPixels = 16384;
  /// 2048 slices of an array texture, of four channels each [Metal feature set tables].
  static constexpr std::int64_t kMostChannels = 8192;
  /// How many images of so many channels one Image can hold; 0 for too many channels. Apple's images hold 2048 slices,
  /// those of openmps any number.
  static std::int64_t most_images(std::int64_t channels);

  explicit Image(std::unique_ptr<Impl> impl);
  ~Image();

  /// Writes the pixels into `array` (shape and dtype of the image, any strides).
  void to_array(const ArrayView& array, ImageLayout layout = ImageLayout::NHWC) const;
  /// Replaces the pixels.
  void write(const ArrayView& array, ImageLayout layout = ImageLayout::NHWC);
  /// The array whose memory the image uses; nullopt when it has its own that cannot be seen.
  std::optional<ArrayView> shared_array() const;
  /// Throws std::runtime_error when the CPU may not read now: temporary, or being written.
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

/// Say what temporary images are going to be made, to a device that prefetches_temporaries().
void prefetch_temporaries(CommandBuffer& buffer, std::span<const ImageShape> shapes, DType dtype);

/// Images for arrays whose memory images cannot share.
class ImagePool {
 public:
  virtual ~ImagePool() = default;
  /// Return an image with undefined contents.
  virtual std::shared_ptr<Image> take_image(ImageShape shape, DType dtype) const = 0;
  /// Keep the image for a later call, now that no work uses it.
  virtual void give_image(std::shared_ptr<Image> image) const = 0;
};

}  // namespace mpscnn
