// SPDX-License-Identifier: Apache-2.0
// In-bounds taps of a window along one axis. Compiles for the host and for a GPU.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/shared/neuron.hpp"

namespace openmps {

/// `count` in-bounds taps of a window, `dilation` apart, starting at `first`; `before` and `after` count the
/// out-of-bounds taps.
struct Span {
  std::int64_t first, count, before, after;
};

/// Return a / b for a >= 0. Divisions of 64 bits are slow, and steps of windows are mostly 1 or 2.
MPSCNN_HOST_DEVICE std::int64_t quotient(std::int64_t a, std::int64_t b) {
  return b == 1 ? a : b == 2 ? a >> 1 : a / b;
}

MPSCNN_HOST_DEVICE Span span_of(std::int64_t start, std::int64_t kernel, std::int64_t dilation, std::int64_t size) {
  const std::int64_t before =
      std::clamp<std::int64_t>(start >= 0 ? 0 : quotient(dilation - 1 - start, dilation), 0, kernel);
  const std::int64_t reach = size - 1 - start;  // from the first tap to the last pixel
  const std::int64_t inside_until = reach < 0 ? 0 : std::min(kernel, quotient(reach, dilation) + 1);
  const std::int64_t count = std::max<std::int64_t>(0, inside_until - before);
  return {start + before * dilation, count, before, kernel - before - count};
}

}  // namespace openmps
