// SPDX-License-Identifier: Apache-2.0
// Clip rectangles and views, plain C++: clipping, overlap, and images that follow each other in memory.
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

/// Return the length of [origin, origin + size) within [0, bound); `size` may be the type's max ("infinite").
constexpr std::int64_t clipped(std::uint64_t origin, std::uint64_t size, std::uint64_t bound) {
  return origin >= bound ? 0 : static_cast<std::int64_t>(std::min(size, bound - origin));
}

/// Return whether every tap of every destination pixel is inside the source.
inline bool is_inside(const Window &window, const ImageView &src, const ImageView &dst) {
  const auto inside = [](std::int64_t start, std::int64_t count, std::int64_t stride, std::int64_t taps,
                         std::int64_t dilation, std::int64_t size) {
    return start >= 0 && start + (count - 1) * stride + (taps - 1) * dilation < size;
  };
  return inside(window.start_h, dst.h, window.stride_h, window.kernel_h, window.dilation_h, src.h) &&
         inside(window.start_w, dst.w, window.stride_w, window.kernel_w, window.dilation_w, src.w);
}

/// Return whether two views have an element in common. Unallocated memory overlaps only within the same Memory. Exact
/// for equal strides (two parts of one image), otherwise a comparison of byte ranges.
bool overlap(const ImageView &a, const ImageView &b);

/// Extend `run` by `next` if that is the image which follows in memory (as in MPSImage.batchRepresentation), so that a
/// batch becomes one problem. Otherwise return false and change nothing.
bool append_images(ImageView &run, const ImageView &next);

}  // namespace openmps
