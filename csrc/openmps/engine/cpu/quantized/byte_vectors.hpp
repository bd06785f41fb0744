// SPDX-License-Identifier: Apache-2.0
// Vectors of 8-bit numbers, for code that the functions below guard.
#pragma once

#include "engine/cpu/convolution/convolution.hpp"
#include "engine/cpu/pointwise/vectors.hpp"

#if defined(__x86_64__)

#define MPSCNN_AVX512_BYTES __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma")))
#define MPSCNN_AVX512_TABLES __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi")))

namespace openmps::cpu {

/// Return whether the processor looks bytes up in tables of 128 bytes.
inline bool has_avx512_tables() {
  static const bool has = has_avx512() && __builtin_cpu_supports("avx512vbmi");
  return has;
}

}  // namespace openmps::cpu

#endif
