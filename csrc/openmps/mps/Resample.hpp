// SPDX-License-Identifier: Apache-2.0
// Sampling positions of an enlarged or reduced image [MPSCNNUpsampling.h, MPSNNResize.h], one axis at a time.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/problem/resample.hpp"

namespace openmps {

/// Result pixel i of `result` samples offset + i * source / result, without half a pixel for the centres. With
/// `align_corners` the last pixels coincide: offset + i * (source - 1) / (result - 1); unverified: a result of one
/// pixel, which samples the first.
inline Positions positions_of(std::int64_t offset, std::int64_t source, std::int64_t result, bool align_corners) {
  Positions positions;
  positions.start = static_cast<double>(offset);
  positions.numerator = static_cast<double>(align_corners ? source - 1 : source);
  positions.denominator = static_cast<double>(align_corners ? std::max<std::int64_t>(result - 1, 1) : result);
  return positions;
}

/// Result pixel i of `result` samples i / (result - 1) of the way through a region, 0 and 1 being the source's first
/// and last pixel; a single pixel samples the middle. unverified: TensorFlow's rule for the operation of this name.
inline Positions positions_in(double begin, double extent, std::int64_t source, std::int64_t result) {
  const auto last = static_cast<double>(source - 1);
  Positions positions;
  if (result == 1) {
    positions.start = (begin + extent / 2) * last;
    positions.numerator = 0;
  } else {
    positions.start = begin * last;
    positions.numerator = extent * last;
    positions.denominator = static_cast<double>(result - 1);
  }
  return positions;
}

}  // namespace openmps
