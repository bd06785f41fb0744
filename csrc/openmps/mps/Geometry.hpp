// SPDX-License-Identifier: Apache-2.0
// Rectangles and views, plain C++: what a clip rectangle leaves, whether two views share a byte, whether views follow
// each other.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/problem/common.hpp"

namespace openmps {

/// The part of a destination that a kernel writes, in pixels and images. Empty when an extent is 0.
struct Clip {
  std::int64_t x = 0, y = 0, z = 0;
  std::int64_t width = 0, height = 0, depth = 0;
  bool is_empty() const { return width <= 0 || height <= 0 || depth <= 0; }
};

/// What remains of `origin` .. `origin + size` inside of 0 .. `bound`; sizes may be as large as the type ("infinite").
constexpr std::int64_t clipped(std::uint64_t origin, std::uint64_t size, std::uint64_t bound) {
  return origin >= bound ? 0 : static_cast<std::int64_t>(std::min(size, bound - origin));
}

/// Every tap of every destination pixel is inside of the source.
inline bool is_inside(const Window &window, const ImageView &src, const ImageView &dst) {
  const auto inside = [](std::int64_t start, std::int64_t count, std::int64_t stride, std::int64_t taps,
                         std::int64_t dilation, std::int64_t size) {
    return start >= 0 && start + (count - 1) * stride + (taps - 1) * dilation < size;
  };
  return inside(window.start_h, dst.h, window.stride_h, window.kernel_h, window.dilation_h, src.h) &&
         inside(window.start_w, dst.w, window.stride_w, window.kernel_w, window.dilation_w, src.w);
}

/// Whether two views have an element in common. Views of lazily allocated memory overlap only within the same Memory;
/// with equal strides (two parts of one image) the answer is exact, otherwise it compares byte ranges.
bool overlap(const ImageView &a, const ImageView &b);

/// Makes `run` longer by `next` when that is the image which follows in memory (MPSImage.batchRepresentation gives such
/// images), so that a batch becomes one problem. False, and nothing changed, when it is not.
bool append_images(ImageView &run, const ImageView &next);

}  // namespace openmps
