// SPDX-License-Identifier: Apache-2.0
// Positions of a window's taps along one axis of a source.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace openmps {

/// `count` in-bounds taps of a window, `dilation` apart, starting at `first`; `before` and `after` count the
/// out-of-bounds taps.
struct Span {
  std::int64_t first, count, before, after;
};

inline Span span_of(std::int64_t start, std::int64_t kernel, std::int64_t dilation, std::int64_t size) {
  const std::int64_t before = std::clamp<std::int64_t>(start >= 0 ? 0 : (dilation - 1 - start) / dilation, 0, kernel);
  const std::int64_t reach = size - 1 - start;  // from the first tap to the last pixel
  const std::int64_t inside_until = reach < 0 ? 0 : std::min(kernel, reach / dilation + 1);
  const std::int64_t count = std::max<std::int64_t>(0, inside_until - before);
  return {start + before * dilation, count, before, kernel - before - count};
}

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
