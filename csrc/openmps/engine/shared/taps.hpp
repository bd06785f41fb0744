// SPDX-License-Identifier: Apache-2.0
// Positions of a window's taps along one axis of a source.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/shared/span.hpp"

namespace openmps {

/// Positions along an axis that a window reads, and how often each counts.
struct Taps {
  std::vector<std::int64_t> at;
  std::vector<float> times;

  explicit Taps(std::int64_t most) {
    at.reserve(static_cast<std::size_t>(most) + 2);
    times.reserve(static_cast<std::size_t>(most) + 2);
  }
  void fill(const Span& span, std::int64_t dilation, std::int64_t size, bool clamp) {
    at.clear(), times.clear();
    for (std::int64_t i = 0; i < span.count; ++i) at.push_back(span.first + i * dilation), times.push_back(1.0f);
    if (clamp && span.before > 0) at.push_back(0), times.push_back(static_cast<float>(span.before));
    if (clamp && span.after > 0) at.push_back(size - 1), times.push_back(static_cast<float>(span.after));
  }
};

}  // namespace openmps
