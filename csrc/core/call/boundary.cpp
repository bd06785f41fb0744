// SPDX-License-Identifier: Apache-2.0
#include <mpscnn/boundary.hpp>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include <mpscnn/error.hpp>

namespace mpscnn {
namespace {

constexpr std::string_view kAxes = "NHWC";

/// Set `nchw` to the view as N, C, H, W; return whether each image is dense in that order, which images copy at once.
bool to_dense_nchw(const ArrayView& nhwc, ArrayView& nchw) {
  const auto& s = nhwc.shape;
  const auto& t = nhwc.strides;
  nchw = nhwc;
  nchw.shape = {s[0], s[3], s[1], s[2]};
  nchw.strides = {t[0], t[3], t[1], t[2]};
  const auto size = static_cast<std::int64_t>(size_of(nhwc.dtype));
  return (s[2] == 1 || t[2] == size) && (s[1] == 1 || t[1] == s[2] * size) && (s[3] == 1 || t[3] == s[1] * s[2] * size);
}

std::pair<std::uintptr_t, std::uintptr_t> addresses(const ArrayView& view) {
  auto first = reinterpret_cast<std::uintptr_t>(view.data), last = first;
  for (std::size_t i = 0; i < view.ndim(); ++i) {
    const auto reach = (view.shape[i] - 1) * view.strides[i];
    (reach < 0 ? first : last) += static_cast<std::uintptr_t>(reach);
  }
  return {first, last + size_of(view.dtype)};
}

}  // namespace

BoundaryLayout::BoundaryLayout(std::string letters) : letters_(std::move(letters)) {
  bool fits = !letters_.empty() && letters_[0] == 'N';
  for (std::size_t i = 0; i < letters_.size(); ++i)
    fits &= kAxes.find(letters_[i]) != std::string_view::npos && letters_.find(letters_[i]) == i;
  check(fits, "layout (\"", letters_, "\") is not \"N\" followed by letters of \"HWC\", each at most once.");
  for (std::size_t i = 0; i < 4; ++i) {
    const auto at = letters_.find(kAxes[i]);
    axes_[i] = at == std::string::npos ? -1 : static_cast<int>(at);
  }
}

Extents BoundaryLayout::extents(ImageShape shape) const {
  Extents extents(ndim());
  const auto nhwc = shape.nhwc();
  for (std::size_t i = 0; i < 4; ++i) {
    check(axes_[i] >= 0 || nhwc[i] == 1, "layout (\"", letters_, "\") has no ", kAxes[i],
          ", along which the result has ", nhwc[i], " values.");
    if (axes_[i] >= 0) extents[static_cast<std::size_t>(axes_[i])] = nhwc[i];
  }
  return extents;
}

ArrayView to_nhwc(const ArrayView& view, const BoundaryLayout& layout, const std::string& name) {
  check(view.ndim() == layout.ndim(), name, ".ndim (", view.ndim(), ") is not ", layout.ndim(), " (layout \"",
        layout.letters(), "\").");
  auto nhwc = view;
  nhwc.shape.assign(4, 1);
  nhwc.strides.assign(4, static_cast<std::int64_t>(size_of(view.dtype)));
  for (std::size_t i = 0; i < 4; ++i) {
    if (layout.axis(i) < 0) continue;
    nhwc.shape[i] = view.shape[static_cast<std::size_t>(layout.axis(i))];
    nhwc.strides[i] = view.strides[static_cast<std::size_t>(layout.axis(i))];
  }
  return nhwc;
}

ImageShape shape_of(const ArrayView& nhwc) { return {nhwc.shape[0], nhwc.shape[1], nhwc.shape[2], nhwc.shape[3]}; }

Extents batch_of(std::int64_t n, const Extents& rest) {
  Extents extents{n};
  extents.insert(extents.end(), rest.begin(), rest.end());
  return extents;
}

ArrayView images_of(ArrayView nhwc, std::int64_t first, std::int64_t count) {
  nhwc.data = static_cast<std::byte*>(nhwc.data) + first * nhwc.strides[0];
  nhwc.shape[0] = count;
  return nhwc;
}

bool overlap(const ArrayView& a, const ArrayView& b) {
  if (a.size() == 0 || b.size() == 0) return false;
  const auto [a_first, a_last] = addresses(a);
  const auto [b_first, b_last] = addresses(b);
  return a_first < b_last && b_first < a_last;
}

std::shared_ptr<Image> image_of(const std::shared_ptr<Device>& device, const ArrayView& nhwc) {
  const bool is_adjacent = nhwc.shape[3] == 1 || nhwc.strides[3] == static_cast<std::int64_t>(size_of(nhwc.dtype));
  ArrayView nchw;
  if (!is_adjacent && to_dense_nchw(nhwc, nchw)) return Image::from_array(device, nchw, ImageLayout::NCHW);
  return Image::from_array(device, nhwc, ImageLayout::NHWC);
}

void write_image(Image& image, const ArrayView& nhwc) {
  ArrayView nchw;
  if (to_dense_nchw(nhwc, nchw)) return image.write(nchw, ImageLayout::NCHW);
  image.write(nhwc, ImageLayout::NHWC);
}

void read_image(const Image& image, const ArrayView& nhwc) {
  ArrayView nchw;
  if (to_dense_nchw(nhwc, nchw)) return image.to_array(nchw, ImageLayout::NCHW);
  image.to_array(nhwc, ImageLayout::NHWC);
}

}  // namespace mpscnn
