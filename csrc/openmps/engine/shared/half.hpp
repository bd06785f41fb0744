// SPDX-License-Identifier: Apache-2.0
// Conversion of single values between float and the storage formats; rounds to nearest even.
#pragma once

#include <bit>
#include <cstdint>

#include "engine/shared/neuron.hpp"

namespace openmps {

MPSCNN_HOST_DEVICE float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16, body = half & 0x7fffu;
  // Normal numbers only shift their bits; the others are scaled by an exact multiplication.
  const float scaled = std::bit_cast<float>((body << 13) + (112u << 23));
  const float tiny = std::bit_cast<float>((body | 0x4b000000u)) - 8388608.0f;  // body converted to float
  const float value = body >= 0x7c00u   ? std::bit_cast<float>((body << 13) | 0x7f800000u)
                      : body >= 0x0400u ? scaled
                                        : tiny * 5.9604644775390625e-8f;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | sign);
}

MPSCNN_HOST_DEVICE std::uint16_t float_to_half(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value), sign = (bits >> 16) & 0x8000u,
                      body = bits & 0x7fffffffu;
  // Normal results: round the 13 low bits to nearest even; a carry correctly increments the exponent.
  const std::uint32_t normal = (body - (112u << 23) + 0xfffu + ((body >> 13) & 1u)) >> 13;
  // Below 2^-14, adding 0.5 leaves the rounded result in the low bits.
  const std::uint32_t tiny = std::bit_cast<std::uint32_t>(std::bit_cast<float>(body) + 0.5f) - 0x3f000000u;
  const std::uint32_t nan = 0x7e00u | ((body >> 13) & 0x3ffu);
  const std::uint32_t magnitude = body > 0x7f800000u    ? nan
                                  : body >= 0x477ff000u ? 0x7c00u
                                  : body < 0x38800000u  ? tiny
                                                        : normal;
  return static_cast<std::uint16_t>(sign | magnitude);
}

/// [0, 1] to 0 ... max; NaN gives 0.
MPSCNN_HOST_DEVICE std::uint32_t float_to_unorm(float value, float max) {
  float t = value > 0.0f ? value : 0.0f;
  t = t < 1.0f ? t : 1.0f;
#if defined(__CUDACC_RTC__)
  const float scaled = __fmul_rn(t, max);  // not one instruction with the addition: halves would not be rounded as here
#else
  const float scaled = t * max;
#endif
  return std::bit_cast<std::uint32_t>(scaled + 8388608.0f) & 0xffffu;  // the addition rounds to an integer
}

MPSCNN_HOST_DEVICE float unorm_to_float(std::uint32_t value, float max) { return static_cast<float>(value) / max; }

}  // namespace openmps
