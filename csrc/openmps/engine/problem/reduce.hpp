// SPDX-License-Identifier: Apache-2.0
// Reductions along an axis.
#pragma once

#include <cstdint>

#include "engine/problem/common.hpp"

namespace openmps {

enum class ReduceAxis : std::uint8_t { row, column, channels };

enum class ReduceType : std::uint8_t { max, min, sum, argument_max, argument_min };

/// One value of dst per row (dst.w == 1), column (dst.h == 1) or pixel (dst.c == 1) of src: the max, the min, `scale`
/// times the sum, or the index from 0 of the first extreme (channels only). dst may crop the other extents. NaN is
/// greater and less than any number.
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

}  // namespace openmps
