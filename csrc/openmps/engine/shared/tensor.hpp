// SPDX-License-Identifier: Apache-2.0
// An image view resolved to an address, for code that computes. Owns nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/memory.hpp"

namespace openmps {

struct Tensor {
  std::byte* data = nullptr;
  Format format = Format::float32;
  std::int64_t n = 1, h = 1, w = 1, c = 1;
  std::int64_t n_stride = 0, h_stride = 0, w_stride = 0;  ///< in elements

  bool operator==(const Tensor&) const = default;
  /// Return whether there are no gaps between the pixels of an image.
  bool images_are_dense() const { return (w == 1 || w_stride == c) && (h == 1 || h_stride == w * c); }
  bool is_dense() const { return images_are_dense() && (n == 1 || n_stride == h * w * c); }
  bool is_dense_float() const { return format == Format::float32 && is_dense(); }
  std::int64_t size() const { return n * h * w * c; }
  std::byte* at(std::int64_t in, std::int64_t y, std::int64_t x = 0) const {
    return data + (in * n_stride + y * h_stride + x * w_stride) * static_cast<std::int64_t>(size_of(format));
  }
  float* floats() const { return reinterpret_cast<float*>(data); }
  float* floats(std::int64_t in, std::int64_t y, std::int64_t x = 0) const {
    return reinterpret_cast<float*>(data) + in * n_stride + y * h_stride + x * w_stride;
  }
  /// Make each image one row, or all images one row; requires density up to there.
  void flatten(bool images = false) {
    w *= h, w_stride = c;
    h = 1;
    if (images) w *= n, n = 1;
    h_stride = w * c;
  }
  Tensor region(std::int64_t y, std::int64_t x, std::int64_t height, std::int64_t width) const {
    Tensor part = *this;
    part.data = at(0, y, x);
    part.h = height;
    part.w = width;
    return part;
  }
};

/// Return the view as a tensor in `memory`.
inline Tensor tensor_of(const ImageView& view, std::byte* memory) {
  return {memory + view.offset, view.format,   view.n,       view.h, view.w, view.c,
          view.n_stride,        view.h_stride, view.w_stride};
}

/// Allocates the view's memory if that has not happened yet.
inline Tensor tensor_of(const ImageView& view) { return tensor_of(view, view.memory->data()); }

/// Return whether images that may be in one place share bytes.
inline bool overlap(const Tensor& a, const Tensor& b) {
  const auto end = [](const Tensor& image) {
    return image.at(image.n - 1, image.h - 1, image.w - 1) + image.c * static_cast<std::int64_t>(size_of(image.format));
  };
  return a.data < end(b) && b.data < end(a);
}

inline Tensor dense_tensor(void* data, Format format, std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t c) {
  return {static_cast<std::byte*>(data), format, n, h, w, c, h * w * c, w * c, c};
}

}  // namespace openmps
