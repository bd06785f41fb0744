// SPDX-License-Identifier: Apache-2.0
// Reductions along an axis, and sums over the channels of two images.
#pragma once

#include <cstdint>

#include "engine/problem/common.hpp"

namespace openmps {

enum class ReduceAxis : std::uint8_t {
  row,
  column,
  channels,
  pixels,  ///< rows and columns: sums, which only plans make of two sums
};

enum class ReduceType : std::uint8_t { max, min, sum, argument_max, argument_min };

/// One value of dst per row (dst.w == 1), column (dst.h == 1), pixel (dst.c == 1) or channel (both 1) of src: the max,
/// the min, `scale` times the sum, or the index from 0 of the first extreme (channels only). dst may crop the other
/// extents. NaN is greater and less than any number.
struct ReduceProblem {
  ImageView src, dst;
  ReduceAxis axis = ReduceAxis::row;
  ReduceType type = ReduceType::max;
  double scale = 1;
  ImageView weights;                ///< if it has memory: factors with src's extents; sums over channels only
  bool by_nonzero_weights = false;  ///< divide by the number of the pixel's nonzero weights, if any

  static constexpr auto fields() {
    using P = ReduceProblem;
    using namespace roles;
    return std::tuple(in("src", &P::src), out("dst", &P::dst), shape("axis", &P::axis), shape("type", &P::type),
                      value("scale", &P::scale), in("weights", &P::weights),
                      value("by_nonzero_weights", &P::by_nonzero_weights));
  }
};

/// Channel j * (2 * reach_w + 1) + i of result pixel (y, x) is the sum over all channels of a(y, x) * b(y + (j -
/// reach_h) * step_h, x + (i - reach_w) * step_w). dst may crop a.
struct CorrelationProblem {
  ImageView a, b, dst;
  std::int64_t reach_h = 0, reach_w = 0, step_h = 1, step_w = 1;
  Edge edge = Edge::zero;  ///< of b

  static constexpr auto fields() {
    using P = CorrelationProblem;
    using namespace roles;
    return std::tuple(in("a", &P::a), in("b", &P::b), out("dst", &P::dst), shape("reach_h", &P::reach_h),
                      shape("reach_w", &P::reach_w), shape("step_h", &P::step_h), shape("step_w", &P::step_w),
                      shape("edge", &P::edge));
  }
};

}  // namespace openmps
