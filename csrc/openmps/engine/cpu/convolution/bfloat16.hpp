// SPDX-License-Identifier: Apache-2.0
// Products of pairs of bfloat16 numbers, for code that has_avx512_bfloat16() guards.
#pragma once

#include <cstdint>
#include <cstring>

#define MPSCNN_AVX512_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma")))

namespace openmps::cpu {

/// Round to nearest even.
inline std::uint16_t bfloat16_of(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if (value != value) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace openmps::cpu
