// SPDX-License-Identifier: Apache-2.0
// Arrays at the boundary of a network: axes in any order, some may be absent.
#pragma once

#include <array>
#include <memory>
#include <string>

#include <mpscnn/array.hpp>
#include <mpscnn/image.hpp>

namespace mpscnn {

/// Order of the axes: letters of "NHWC", N first, each at most once. An absent axis has extent 1.
class BoundaryLayout {
 public:
  explicit BoundaryLayout(std::string letters);

  std::size_t ndim() const { return letters_.size(); }
  const std::string& letters() const { return letters_; }
  /// Return the array's axis for `image_axis` (an index into N, H, W, C), -1 if absent.
  int axis(std::size_t image_axis) const { return axes_[image_axis]; }
  /// Return the extents of the array for images of `shape`.
  Extents extents(ImageShape shape) const;

 private:
  std::string letters_;
  std::array<int, 4> axes_{};
};

/// Return an N, H, W, C view of the same memory. Throw std::invalid_argument if the number of axes differs.
ArrayView to_nhwc(const ArrayView& view, const BoundaryLayout& layout, const std::string& name);

ImageShape shape_of(const ArrayView& nhwc);
Extents batch_of(std::int64_t n, const Extents& rest);
/// Return a view of images [first, first + count).
ArrayView images_of(ArrayView nhwc, std::int64_t first, std::int64_t count);
/// Return whether the address ranges overlap.
bool overlap(const ArrayView& a, const ArrayView& b);

/// Return an image with the pixels of the array, over its memory where that can be shared.
std::shared_ptr<Image> image_of(const std::shared_ptr<Device>& device, const ArrayView& nhwc);
/// Copy the array into an image of the same shape.
void write_image(Image& image, const ArrayView& nhwc);
/// Copy an image into an array of the same shape.
void read_image(const Image& image, const ArrayView& nhwc);

}  // namespace mpscnn
