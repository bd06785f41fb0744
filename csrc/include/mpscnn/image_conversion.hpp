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
  /// Into `out` (the source's shape, dtype()), else into a new image, temporary if asked. Safe from several threads on
  /// different command buffers.
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
