// SPDX-License-Identifier: Apache-2.0
// Arrays at the boundary of a network: their axes in any order, some of them missing.
#pragma once

#include <array>
#include <memory>
#include <string>

#include <mpscnn/array.hpp>
#include <mpscnn/image.hpp>

namespace mpscnn {

/// Letters of "NHWC", N first, each at most once; what is missing has extent 1.
class BoundaryLayout {
 public:
  explicit BoundaryLayout(std::string letters);

  std::size_t ndim() const { return letters_.size(); }
  const std::string& letters() const { return letters_; }
  /// Axis of the array, -1 if it has none: of N, H, W, C.
  int axis(std::size_t image_axis) const { return axes_[image_axis]; }
  /// The array's, for images of that shape.
  Extents extents(ImageShape shape) const;

 private:
  std::string letters_;
  std::array<int, 4> axes_{};
};

/// The same memory as N, H, W, C. Throws std::invalid_argument when `view` has another number of axes.
ArrayView to_nhwc(const ArrayView& view, const BoundaryLayout& layout, const std::string& name);

ImageShape shape_of(const ArrayView& nhwc);
Extents batch_of(std::int64_t n, const Extents& rest);
/// The view of `count` images from `first` on.
ArrayView images_of(ArrayView nhwc, std::int64_t first, std::int64_t count);
/// Whether the address ranges meet.
bool overlap(const ArrayView& a, const ArrayView& b);

/// An image with the pixels of the array: over its memory where that can be shared.
std::shared_ptr<Image> image_of(const std::shared_ptr<Device>& device, const ArrayView& nhwc);
/// Into an image of the same shape.
void write_image(Image& image, const ArrayView& nhwc);
/// The other way round.
void read_image(const Image& image, const ArrayView& nhwc);

}  // namespace mpscnn
