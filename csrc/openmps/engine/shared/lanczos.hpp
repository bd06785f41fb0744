// SPDX-License-Identifier: Apache-2.0
// Weights of Lanczos resampling along one axis. Compiles for the host and for a GPU.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "engine/problem/resample.hpp"
#include "engine/shared/neuron.hpp"

namespace openmps {

constexpr double kLanczosLobes = 3;

/// Return the pixels between adjacent positions, at least 1: the width of a lobe.
MPSCNN_HOST_DEVICE double lanczos_lobe(const Positions& positions) {
  const double step = positions.numerator / positions.denominator;
  return step > 1 ? step : 1;
}

/// Return the max number of taps of a position.
MPSCNN_HOST_DEVICE std::int64_t lanczos_most_taps(const Positions& positions) {
  return static_cast<std::int64_t>(2 * kLanczosLobes * lanczos_lobe(positions)) + 1;
}

/// The taps of one position: `count` adjacent pixels from `first` on, which may be out of bounds.
struct LanczosTaps {
  double at, lobe;
  std::int64_t first, count;

  MPSCNN_HOST_DEVICE LanczosTaps(const Positions& positions, std::int64_t i, std::int64_t size)
      : at(positions.start + static_cast<double>(i) * positions.numerator / positions.denominator),
        lobe(lanczos_lobe(positions)) {
    // Beyond these bounds all taps are out of bounds, and the numbers fit an integer.
    const double reach = kLanczosLobes * lobe;
    at = std::clamp(at, -reach - 2, static_cast<double>(size) + reach + 2);
    first = static_cast<std::int64_t>(std::ceil(at - reach));
    count = static_cast<std::int64_t>(std::floor(at + reach)) - first + 1;
  }

  /// Return the window at tap `i`, sinc(t) * sinc(t / 3); the weights of a position are divided by their sum.
  MPSCNN_HOST_DEVICE double window(std::int64_t i) const {
    const double t = (static_cast<double>(first + i) - at) / lobe, x = 3.14159265358979323846 * t;
    if (t == 0) return 1;
    if (t <= -kLanczosLobes || t >= kLanczosLobes) return 0;
    return std::sin(x) * std::sin(x / kLanczosLobes) * kLanczosLobes / (x * x);
  }
  MPSCNN_HOST_DEVICE double sum() const {
    double total = 0;
    for (std::int64_t i = 0; i < count; ++i) total += window(i);
    return total;
  }
};

}  // namespace openmps
