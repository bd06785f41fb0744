// SPDX-License-Identifier: Apache-2.0
// ImageConversion: an MPSImageConversion, which converts images to another dtype and alpha convention. It is not in the
// kernel table: unlike the classes there, MPSUnaryImageKernel has no channel offsets, no padding policy and no encode
// that returns an image.
#pragma once

#include <array>
#include <memory>
#include <string_view>

#include <mpscnn/command_buffer.hpp>
#include <mpscnn/image.hpp>
#include <mpscnn/table.hpp>
#include <mpscnn/value.hpp>

namespace mpscnn {

/// Values of MPSAlphaType: the meaning of channel 3 of a 4-channel image.
enum class AlphaType : std::uint32_t { non_premultiplied, alpha_is_one, premultiplied };
AlphaType alpha_type_from_name(std::string_view name, const char* what);
const char* name_of(AlphaType type);

class ImageConversion {
 public:
  struct Impl;
  /// `background`: the colour onto which an image is composited when its alpha is flattened (to alpha_is_one).
  static std::shared_ptr<ImageConversion> make(std::shared_ptr<Device> device, DType dtype, AlphaType source_alpha,
                                               AlphaType destination_alpha, std::array<double, 3> background);
  explicit ImageConversion(std::unique_ptr<Impl> impl);
  ~ImageConversion();

  /// Throw unless images with this number of channels can be converted.
  void check_channels(std::int64_t channels) const;

  /// Name and attributes (offset, clip_rect, edge_mode), as for kernels of the table.
  static const KernelRow& row();
  Value get(std::string_view name) const;
  void set(std::string_view name, const Value& value);

  /// Return the shape of the result. Throw unless the image index of the offset is within the source.
  ImageShape result_shape(ImageShape source) const;
  /// Throw unless `out` fits as the destination: the shape of the result, or a shape that contains clip_rect.
  void check_destination(ImageShape source, ImageShape out) const;
  /// Throw if clip_rect is set, since it requires a destination.
  void check_no_clip() const;
  bool has_clip() const;
  /// Whether image i of the result depends only on image i of the source, so that arrays may be run in chunks.
  bool works_image_by_image() const;

  /// Convert into `out` (of dtype()) or a new image, temporary on request. Thread-safe on different command buffers.
  std::shared_ptr<Image> encode(CommandBuffer& buffer, const Image& source, std::shared_ptr<Image> out = nullptr,
                                bool temporary = false) const;
  DType dtype() const;
  AlphaType source_alpha() const;
  AlphaType destination_alpha() const;
  std::shared_ptr<Device> device() const;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace mpscnn
