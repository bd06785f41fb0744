// SPDX-License-Identifier: Apache-2.0
// ImageConversion: an MPSImageConversion, images to another dtype and alpha convention. It is no row of the kernel
// table: MPSUnaryImageKernel has neither channel offsets nor a padding policy nor an encode that returns an image,
// which the rows' classes share.
#pragma once

#include <array>
#include <memory>
#include <string_view>

#include <mpscnn/command_buffer.hpp>
#include <mpscnn/image.hpp>
#include <mpscnn/table.hpp>
#include <mpscnn/value.hpp>

namespace mpscnn {

/// Values of MPSAlphaType: what channel 3 of an image of four channels says about the others.
enum class AlphaType : std::uint32_t { non_premultiplied, alpha_is_one, premultiplied };
AlphaType alpha_type_from_name(std::string_view name, const char* what);
const char* name_of(AlphaType type);

class ImageConversion {
 public:
  struct Impl;
  /// `background`: the colour behind an image whose alpha is flattened (to alpha_is_one).
  static std::shared_ptr<ImageConversion> make(std::shared_ptr<Device> device, DType dtype, AlphaType source_alpha,
                                               AlphaType destination_alpha, std::array<double, 3> background);
  explicit ImageConversion(std::unique_ptr<Impl> impl);
  ~ImageConversion();

  /// Throws unless images of so many channels can be converted.
  void check_channels(std::int64_t channels) const;

  /// Its name and its attributes: offset, clip_rect and edge_mode, as kernels of the table have them.
  static const KernelRow& row();
  Value get(std::string_view name) const;
  void set(std::string_view name, const Value& value);

  /// Of the result for such a source; throws unless the offset's image is one of the source.
  ImageShape result_shape(ImageShape source) const;
  /// Throws unless `out` may be the destination for such a source: all of the result, or what clip_rect says.
  void check_destination(ImageShape source, ImageShape out) const;
  /// Throws when there is a clip_rect, which needs a destination.
  void check_no_clip() const;
  bool has_clip() const;
  /// Whether image i of the result comes of image i of the source, and so arrays may be run in parts.
  bool works_image_by_image() const;

  /// Into `out` (dtype()), else into a new image, temporary if asked. Safe from several threads on different command
  /// buffers.
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
