// SPDX-License-Identifier: Apache-2.0
// Pixels that a resampled pixel reads. Compiles for the host and for a GPU.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "engine/problem/resample.hpp"
#include "engine/shared/neuron.hpp"

namespace openmps {

/// The two pixels that a sample reads along one axis, -1 for zeros, and the weight of the second one.
struct SampleTaps {
  std::int64_t first, second;
  float weight;
};

/// NaN is a position beyond the first pixel.
MPSCNN_HOST_DEVICE SampleTaps sample_taps_at(double at, std::int64_t size, ResampleType type, ResampleEdge edge) {
  at = at == at ? at : -2.0;
  // Beyond these bounds samples no longer change, and the number fits an integer.
  const double near = std::clamp(at, -2.0, static_cast<double>(size) + 1.0), floor = std::floor(near);
  const auto pixel = static_cast<std::int64_t>(floor);
  const auto inside = [&](std::int64_t p) -> std::int64_t {
    if (edge == ResampleEdge::clamp) return std::clamp<std::int64_t>(p, 0, size - 1);
    return p < 0 || p >= size ? -1 : p;
  };
  if (edge == ResampleEdge::zero_samples && !(at >= 0 && at <= static_cast<double>(size - 1))) return {-1, -1, 0};
  const float weight = type == ResampleType::nearest ? 0.0f : static_cast<float>(near - floor);
  const SampleTaps taps{inside(pixel), inside(weight == 0 ? pixel : pixel + 1), weight};
  return {taps.first, taps.second, taps.first == taps.second ? 0.0f : weight};
}

MPSCNN_HOST_DEVICE SampleTaps sample_taps(const Positions& positions, std::int64_t i, std::int64_t size,
                                          ResampleType type, ResampleEdge edge) {
  const double at = positions.start + static_cast<double>(i) * positions.numerator / positions.denominator;
  return sample_taps_at(at, size, type, edge);
}

}  // namespace openmps
