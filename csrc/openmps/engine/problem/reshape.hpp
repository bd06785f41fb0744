// SPDX-License-Identifier: Apache-2.0
// Reshape and padding.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/problem/common.hpp"

namespace openmps {

/// Each image of dst has the values of the same image of src in the same order: channels, then columns, then rows. Both
/// have the same number of values.
struct ReshapeProblem {
  ImageView src, dst;

  static constexpr auto fields() {
    using P = ReshapeProblem;
    using namespace roles;
    return std::tuple(in("src", &P::src), out("dst", &P::dst));
  }
};

/// Values beyond the source: the nearest value; the source mirrored about its outermost values (not repeated) or about
/// its outer edge (repeated); a constant.
enum class PadEdge : std::uint8_t { clamp, mirror, mirror_with_edge, constant };

/// dst[n][y][x][k] = src[n][start_h + y][start_w + x][start_c + k], with `edge` along all three axes.
struct PadProblem {
  ImageView src, dst;
  std::int64_t start_h = 0, start_w = 0, start_c = 0;
  PadEdge edge = PadEdge::constant;
  float fill = 0;                                              ///< the constant
  std::shared_ptr<const std::vector<float>> fill_per_channel;  ///< or one value per channel of dst

  static constexpr auto fields() {
    using P = PadProblem;
    using namespace roles;
    return std::tuple(in("src", &P::src), out("dst", &P::dst), shape("start_h", &P::start_h),
                      shape("start_w", &P::start_w), shape("start_c", &P::start_c), shape("edge", &P::edge),
                      value("fill", &P::fill), value("fill_per_channel", &P::fill_per_channel));
  }
};

/// Adjoint of a PadProblem with a source of src_h x src_w x diff_src.c: diff_src(y, x, k) is the sum of all values of
/// diff_dst that are copies of value (first_h + y, first_w + x, k) of the source.
struct PadGradientProblem {
  ImageView diff_dst, diff_src;  ///< share no memory
  std::int64_t src_h = 1, src_w = 1, first_h = 0, first_w = 0;
  std::int64_t start_h = 0, start_w = 0, start_c = 0;
  PadEdge edge = PadEdge::constant;

  static constexpr auto fields() {
    using P = PadGradientProblem;
    using namespace roles;
    return std::tuple(in("diff_dst", &P::diff_dst), out("diff_src", &P::diff_src), shape("src_h", &P::src_h),
                      shape("src_w", &P::src_w), shape("first_h", &P::first_h), shape("first_w", &P::first_w),
                      shape("start_h", &P::start_h), shape("start_w", &P::start_w), shape("start_c", &P::start_c),
                      shape("edge", &P::edge));
  }
};

}  // namespace openmps
