// SPDX-License-Identifier: Apache-2.0
// Conversion of single elements between types.
#pragma once

#include "engine/shared/half.hpp"

namespace openmps {

MPSCNN_HOST_DEVICE float bfloat_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// Rounds to nearest even.
MPSCNN_HOST_DEVICE std::uint16_t float_to_bfloat(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  return static_cast<std::uint16_t>(value != value ? (bits >> 16) | 0x40u : rounded >> 16);
}

/// Truncate and clamp to the limits of T, which are `min` and `max`; NaN gives 0.
template <class T>
MPSCNN_HOST_DEVICE T float_to_integer(float value, T min, T max) {
  // The float of `max` is `max` or the power of two after it.
  if (value != value) return 0;
  if (value <= static_cast<float>(min)) return min;
  return value >= static_cast<float>(max) ? max : static_cast<T>(value);
}

}  // namespace openmps
