// SPDX-License-Identifier: Apache-2.0
// Results that read a pixel of a source that clamps to its edge, along one axis. Compiles for the host and for a GPU.
#pragma once

#include <cstdint>

#include "engine/shared/neuron.hpp"

namespace openmps {

/// Results [first, last] along an axis that read position `at` of a clamped source of `size`, if result 0 reads
/// position `start`.
struct Seers {
  std::int64_t first, last;

  MPSCNN_HOST_DEVICE Seers(std::int64_t at, std::int64_t start, std::int64_t size, std::int64_t results, bool clamp)
      : first(at - start), last(at - start) {
    first = (clamp && at == 0) || first < 0 ? 0 : first;
    last = (clamp && at == size - 1) || last > results - 1 ? results - 1 : last;
    if (at < 0 || at >= size) first = 0, last = -1;
  }
};

/// `count` results along an axis, the first of which reads position `start` of a clamped source of `size`; position 0
/// of the gradient is position `at` of the source.
struct ResultsAxis {
  std::int64_t at, start, size, count;

  bool is_seen_twice() const { return size > 0 && (start < 0 || start + count > size); }
  MPSCNN_HOST_DEVICE Seers of(std::int64_t position) const { return Seers(at + position, start, size, count, true); }
};

}  // namespace openmps
