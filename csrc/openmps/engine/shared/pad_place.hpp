// SPDX-License-Identifier: Apache-2.0
// Positions that padding reads. Compiles for the host and for a GPU.
#pragma once

#include <cstdint>

#include "engine/problem/reshape.hpp"
#include "engine/shared/neuron.hpp"

namespace openmps {

/// Return the position in a source of `size` values that position `i` reads; -1: the constant.
MPSCNN_HOST_DEVICE std::int64_t pad_place(std::int64_t i, std::int64_t size, PadEdge edge) {
  if (i >= 0 && i < size) return i;
  switch (edge) {
    case PadEdge::constant: return -1;
    case PadEdge::clamp: return i < 0 ? 0 : size - 1;
    case PadEdge::mirror: {
      if (size == 1) return 0;
      const std::int64_t period = 2 * size - 2, t = (i % period + period) % period;
      return t < size ? t : period - t;
    }
    case PadEdge::mirror_with_edge: {
      const std::int64_t period = 2 * size, t = (i % period + period) % period;
      return t < size ? t : period - 1 - t;
    }
  }
  return -1;
}

}  // namespace openmps
