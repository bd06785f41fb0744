// SPDX-License-Identifier: Apache-2.0
// Reductions along an axis.
#pragma once

#include <cstdint>

#include "engine/problem/common.hpp"

namespace openmps {

enum class ReduceAxis : std::uint8_t { row, column, channels };

enum class ReduceType : std::uint8_t { max, min, sum, argument_max, argument_min };

/// One value of dst for each row (dst.w == 1), column (dst.h == 1) or pixel (dst.c == 1) of src, whose other extents
/// dst has or cuts off: the greatest, the least, `scale` times the sum, or the index from 0 of the first extreme
/// (channels only). NaN is greater and less than anything.
struct ReduceProblem {
  ImageView src, dst;
  ReduceAxis axis = ReduceAxis::row;
  ReduceType type = ReduceType::max;
  double scale = 1;
  ImageView weights;  ///< with memory, sums over channels only: products with it are summed; extents of src
  bool by_nonzero_weights = false;  ///< and divided by how many weights of the pixel are not 0, if there is one

  static constexpr auto fields() {
    using P = ReduceProblem;
    using namespace roles;
    return std::tuple(in("src", &P::src), out("dst", &P::dst), shape("axis", &P::axis), shape("type", &P::type),
                      value("scale", &P::scale), in("weights", &P::weights),
                      value("by_nonzero_weights", &P::by_nonzero_weights));
  }
};

}  // namespace openmps
