// SPDX-License-Identifier: Apache-2.0
// Vectors of AVX-512: sixteen channels, of float32 or bfloat16 in memory, and activations of them. Only for code that
// has_avx512() guards.
#pragma once

#include <cstdint>

#if defined(__x86_64__)

// GCC 12 takes the undefined operands in its own header for errors (bug 105593); they are reported here when inlined.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include <limits>
#include <optional>

#include "engine/problem/common.hpp"
#include "engine/shared/neuron.hpp"

#define MPSCNN_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,fma")))

namespace openmps::cpu {

inline bool has_avx512() {
  static const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  return has;
}

/// Return whether the processor also rounds to bfloat16.
inline bool has_avx512_bfloat16() {
  static const bool has = has_avx512() && __builtin_cpu_supports("avx512bf16");
  return has;
}

/// An activation in vectors: min(max(x, low), high), or x times its gate, which is `a` below 0 and 1 above for `slope`.
struct Activation {
  enum Gate : std::uint8_t { none, sigmoid, hard_sigmoid, slope } gate = none;
  float a = 0, b = 0;  ///< of the hard sigmoid; `a` of the slope
  float low = -std::numeric_limits<float>::infinity(), high = std::numeric_limits<float>::infinity();
};

/// Return nothing for functions that have no vectors.
inline std::optional<Activation> activation_of(const Neuron& neuron) {
  Activation result;
  if (neuron_is_identity(neuron)) return result;
  switch (neuron.type) {
    case NeuronType::relu:
      if (neuron.a == 0)
        result.low = 0;
      else
        result.gate = Activation::slope, result.a = neuron.a;
      return result;
    case NeuronType::relun:
      if (neuron.a != 0 || neuron.b < 0) return std::nullopt;
      result.low = 0, result.high = neuron.b;
      return result;
    case NeuronType::swish: result.gate = Activation::sigmoid; return result;
    case NeuronType::hard_swish:
      result.gate = Activation::hard_sigmoid, result.a = neuron.a, result.b = neuron.b;
      return result;
    default: return std::nullopt;
  }
}

/// exp(x), within 2 units in the last place: 2^n times a polynomial on [-ln 2 / 2, ln 2 / 2].
MPSCNN_AVX512 inline __m512 exp_of(__m512 x) {
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), _MM_FROUND_TO_NEAREST_INT);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
  __m512 p = _mm512_set1_ps(1.0f / 720);
  for (const float factor : {1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f})
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(factor));
  return _mm512_scalef_ps(p, n);
}

/// NaN stays NaN: the max and the min of two values are the second one if either is NaN.
MPSCNN_AVX512 inline __m512 activate(const Activation& f, __m512 x) {
  const __m512 zero = _mm512_setzero_ps(), one = _mm512_set1_ps(1);
  if (f.gate == Activation::sigmoid) {
    // Results below 2^-85 become 0: processors take hundreds of cycles for numbers that underflow, here or in products
    // with these results. Likewise exp() that adds nothing to 1.
    const __m512 t = _mm512_max_ps(_mm512_set1_ps(-64), _mm512_sub_ps(zero, x));
    const __m512 infinity = _mm512_set1_ps(std::numeric_limits<float>::infinity());
    const __mmask16 is_tiny =
        _mm512_mask_cmp_ps_mask(_mm512_cmp_ps_mask(t, _mm512_set1_ps(64), _CMP_GT_OQ), t, infinity, _CMP_LT_OQ);
    return _mm512_maskz_div_ps(_knot_mask16(is_tiny), x, _mm512_add_ps(one, exp_of(t)));
  }
  if (f.gate == Activation::hard_sigmoid) {
    const __m512 gate = _mm512_fmadd_ps(x, _mm512_set1_ps(f.a), _mm512_set1_ps(f.b));
    return _mm512_mul_ps(x, _mm512_min_ps(one, _mm512_max_ps(zero, gate)));
  }
  if (f.gate == Activation::slope)
    return _mm512_mask_mul_ps(x, _mm512_cmp_ps_mask(x, zero, _CMP_LT_OQ), x, _mm512_set1_ps(f.a));
  return _mm512_min_ps(_mm512_set1_ps(f.high), _mm512_max_ps(_mm512_set1_ps(f.low), x));
}

MPSCNN_AVX512 inline __m512 load(__mmask16 lanes, const float* from) { return _mm512_maskz_loadu_ps(lanes, from); }
MPSCNN_AVX512 inline __m512 load(__mmask16 lanes, const std::uint16_t* from) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, from)), 16));
}
MPSCNN_AVX512 inline void store(__mmask16 lanes, float* to, __m512 value) { _mm512_mask_storeu_ps(to, lanes, value); }
/// Rounds to nearest even. The instruction is named here because a function for processors that have it could not be
/// shared with float32; it runs only on those (has_avx512_bfloat16()).
MPSCNN_AVX512 inline void store(__mmask16 lanes, std::uint16_t* to, __m512 value) {
  __m256i rounded;
  asm("vcvtneps2bf16 %1, %0" : "=v"(rounded) : "v"(value));
  _mm256_mask_storeu_epi16(to, lanes, rounded);
}

}  // namespace openmps::cpu

#endif
