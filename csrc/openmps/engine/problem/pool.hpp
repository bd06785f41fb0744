// SPDX-License-Identifier: Apache-2.0
// Pooling and its gradient.
#pragma once

#include <cstdint>

#include "engine/problem/common.hpp"

namespace openmps {

enum class PoolType : std::uint8_t { max, average, l2_norm };

/// dst[n][y][x][c] over the taps of window(y, x): max; average, their sum divided by their number; L2 norm.
/// Out-of-bounds taps are zero or clamp to the edge. An average counts all taps with Edge::zero, and with Edge::clamp
/// only those within the source grown by zero_pad zeros on each side (0 if there are none).
struct PoolProblem {
  ImageView src, dst;
  PoolType type = PoolType::max;
  Window window;
  std::int64_t zero_pad_h = 0, zero_pad_w = 0;  ///< average

  static constexpr auto fields() {
    using P = PoolProblem;
    using namespace roles;
    return std::tuple(in("src", &P::src), out("dst", &P::dst), shape("type", &P::type), shape("window", &P::window),
                      shape("zero_pad_h", &P::zero_pad_h), shape("zero_pad_w", &P::zero_pad_w));
  }
};

/// Gradient of pixel (first_h + y, first_w + x) of src: diff_src(y, x) is the sum over the windows v of diff_dst(v)
/// * (slope of pool(v) at that pixel), with windows and pool() of PoolProblem. diff_dst covers all windows.
///   max: diff_dst(v) goes to the max of the window, among equal values to the first one (rows, then columns), among
///        NaNs to the first one; nowhere if a zero outside of the source is greater.
///   l2_norm: src / pool(v) per tap, 0 where pool(v) is 0.
struct PoolGradientProblem {
  ImageView diff_dst;
  ImageView src;       ///< average: only extents, no memory
  ImageView diff_src;  ///< shares no memory with the sources
  std::int64_t first_h = 0, first_w = 0;
  PoolType type = PoolType::max;
  Window window;
  std::int64_t zero_pad_h = 0, zero_pad_w = 0;  ///< average

  static constexpr auto fields() {
    using P = PoolGradientProblem;
    using namespace roles;
    return std::tuple(in("diff_dst", &P::diff_dst), in("src", &P::src), out("diff_src", &P::diff_src),
                      shape("first_h", &P::first_h), shape("first_w", &P::first_w), shape("type", &P::type),
                      shape("window", &P::window), shape("zero_pad_h", &P::zero_pad_h),
                      shape("zero_pad_w", &P::zero_pad_w));
  }
};

}  // namespace openmps
