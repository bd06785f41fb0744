// SPDX-License-Identifier: Apache-2.0
// Pooling and its gradient.
#pragma once

#include <cstdint>

#include "engine/problem/common.hpp"

namespace openmps {

enum class PoolType : std::uint8_t { max, average, l2_norm };

/// dst[n][y][x][c] over the taps of window(y, x): the greatest; their sum divided by their number; the root of the sum
/// of squares. Taps outside of the source are zeros or the nearest pixels; an average takes as many taps as the window
/// has with Edge::zero, and with Edge::clamp only those within the source grown by zero_pad pixels of 0 on each side
/// (none: 0).
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

/// diff_src(y, x) is the gradient of pixel (first_h + y, first_w + x) of src: the sum over the windows v of diff_dst(v)
/// * (slope of pool(v) at that pixel), windows and pool() as in PoolProblem; diff_dst has all windows there are.
///   max: the whole of diff_dst(v) goes to the greatest pixel of the window, of equal ones to the first (rows, then
///        columns), of NaN to the first NaN; to none when zeros outside are greater.
///   l2_norm: src / pool(v) for each tap, 0 where pool(v) is 0.
struct PoolGradientProblem {
  ImageView diff_dst;
  ImageView src;       ///< average: extents alone, without memory
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
