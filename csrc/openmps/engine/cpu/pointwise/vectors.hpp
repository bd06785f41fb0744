// SPDX-License-Identifier: Apache-2.0
// Vectors of AVX-512, sixteen channels of float32 or bfloat16 in memory, and of AVX2, eight channels of float32; and
// activations of them. Only for code that has_avx512() or has_avx2() guards. Code for both is in a file that
// vector_copies.inc includes once per instruction set.
#pragma once

#include <cstdint>

namespace openmps::cpu::any_processor {

/// Four floats, which every 64-bit processor has vectors for.
using Vector = float __attribute__((vector_size(16)));
constexpr std::int64_t kLanes = 4;

inline Vector constant(float value) { return Vector{value, value, value, value}; }
inline Vector load_all(const float* from) {
  using Anywhere = float __attribute__((vector_size(16), aligned(4), may_alias));
  return *reinterpret_cast<const Anywhere*>(from);
}
inline void store_all(float* to, Vector value) {
  using Anywhere = float __attribute__((vector_size(16), aligned(4), may_alias));
  *reinterpret_cast<Anywhere*>(to) = value;
}
/// Add a vector to the doubles `to`.
inline void add_to(double* to, Vector value) {
  for (int i = 0; i < kLanes; ++i) to[i] += double{value[i]};
}

using Doubles = double __attribute__((vector_size(16)));
constexpr std::int64_t kDoubles = 2;

inline Doubles doubles(double value) { return Doubles{value, value}; }
inline Doubles load_doubles(const double* from) { return Doubles{from[0], from[1]}; }
inline Doubles load_doubles(const float* from) { return Doubles{double{from[0]}, double{from[1]}}; }
inline void store_doubles(double* to, Doubles value) { to[0] = value[0], to[1] = value[1]; }
inline void store_floats(float* to, Doubles value) {
  to[0] = static_cast<float>(value[0]), to[1] = static_cast<float>(value[1]);
}

}  // namespace openmps::cpu::any_processor

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
#define MPSCNN_AVX2 __attribute__((target("avx2,fma")))

namespace openmps::cpu {

/// Return whether the processor has these instructions; false if ONEDNN_MAX_CPU_ISA excludes them.
bool has_avx512();
bool has_avx2();

/// Return whether AVX-512 is that of AMD's Zen 4, which computes its vectors in two halves.
bool is_zen4();
/// Return whether it is that of AMD's family of Zen 5.
bool is_zen5();

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

MPSCNN_AVX512 inline __m512 fmadd(__m512 a, __m512 b, __m512 c) { return _mm512_fmadd_ps(a, b, c); }
MPSCNN_AVX512 inline __m512 fnmadd(__m512 a, __m512 b, __m512 c) { return _mm512_fnmadd_ps(a, b, c); }
MPSCNN_AVX512 inline __m512d fmadd(__m512d a, __m512d b, __m512d c) { return _mm512_fmadd_pd(a, b, c); }
MPSCNN_AVX512 inline __m512 add(__m512 a, __m512 b) { return _mm512_add_ps(a, b); }
MPSCNN_AVX2 inline __m256 add(__m256 a, __m256 b) { return _mm256_add_ps(a, b); }
MPSCNN_AVX2 inline __m256 fmadd(__m256 a, __m256 b, __m256 c) { return _mm256_fmadd_ps(a, b, c); }
MPSCNN_AVX2 inline __m256 fnmadd(__m256 a, __m256 b, __m256 c) { return _mm256_fnmadd_ps(a, b, c); }
MPSCNN_AVX2 inline __m256d fmadd(__m256d a, __m256d b, __m256d c) { return _mm256_fmadd_pd(a, b, c); }

/// Factors of the polynomial of exp_of() besides the first, 1 / 6!.
constexpr float kExpFactors[] = {1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f};

/// exp(x), within 2 units in the last place: 2^n times a polynomial on [-ln 2 / 2, ln 2 / 2].
MPSCNN_AVX512 inline __m512 exp_of(__m512 x) {
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), _MM_FROUND_TO_NEAREST_INT);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
  __m512 p = _mm512_set1_ps(1.0f / 720);
  for (const float factor : kExpFactors) p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(factor));
  return _mm512_scalef_ps(p, n);
}

/// The same for -87 < x < 87 and NaN.
MPSCNN_AVX2 inline __m256 exp_of(__m256 x) {
  const __m256 n = _mm256_round_ps(x * _mm256_set1_ps(1.44269504f), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256 r = fnmadd(n, _mm256_set1_ps(0.693359375f), x);
  r = fnmadd(n, _mm256_set1_ps(-2.12194440e-4f), r);
  __m256 p = _mm256_set1_ps(1.0f / 720);
  for (const float factor : kExpFactors) p = fmadd(p, r, _mm256_set1_ps(factor));
  const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return p * _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
}

/// NaN stays NaN: the max and the min of two values are the second one if either is NaN.
MPSCNN_AVX512 inline __m512 clamp(__m512 low, __m512 high, __m512 x) {
  return _mm512_min_ps(high, _mm512_max_ps(low, x));
}
MPSCNN_AVX2 inline __m256 clamp(__m256 low, __m256 high, __m256 x) {
  return _mm256_min_ps(high, _mm256_max_ps(low, x));
}

/// NaN stays NaN here, too.
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
  return clamp(_mm512_set1_ps(f.low), _mm512_set1_ps(f.high), x);
}

/// The same for results that are rounded to bfloat16: the sigmoid is within 2^-12 of its value.
MPSCNN_AVX512 inline __m512 activate_roughly(const Activation& f, __m512 x) {
  if (f.gate != Activation::sigmoid) return activate(f, x);
  const __m512 minus_log2_e = _mm512_set1_ps(-1.44269504f);
  const __m512 t = _mm512_max_ps(_mm512_set1_ps(-64), _mm512_mul_ps(x, minus_log2_e));  // NaN stays NaN
  // 2^t = 2^floor(t) times a polynomial of the rest.
  const __m512 rest = _mm512_reduce_ps(t, _MM_FROUND_TO_NEG_INF);
  __m512 p = _mm512_set1_ps(0.07802427f);
  p = _mm512_fmadd_ps(p, rest, _mm512_set1_ps(0.22606727f));
  p = _mm512_fmadd_ps(p, rest, _mm512_set1_ps(0.69583363f));
  p = _mm512_fmadd_ps(p, rest, _mm512_set1_ps(0.99992519f));
  const __m512 divisor = _mm512_add_ps(_mm512_set1_ps(1), _mm512_scalef_ps(p, t));
  // As in activate(), results below 2^-85 become 0.
  const __mmask16 is_large = _mm512_cmp_ps_mask(t, _mm512_set1_ps(92), _CMP_NGT_UQ);
  return _mm512_mul_ps(x, _mm512_maskz_rcp14_ps(is_large, divisor));
}

MPSCNN_AVX2 inline __m256 activate(const Activation& f, __m256 x) {
  const __m256 zero = _mm256_setzero_ps(), one = _mm256_set1_ps(1);
  if (f.gate == Activation::sigmoid) {
    const __m256 limit = _mm256_set1_ps(64), infinity = _mm256_set1_ps(std::numeric_limits<float>::infinity());
    const __m256 t = _mm256_max_ps(_mm256_set1_ps(-64), zero - x);
    const __m256 is_tiny = _mm256_and_ps(_mm256_cmp_ps(t, limit, _CMP_GT_OQ), _mm256_cmp_ps(t, infinity, _CMP_LT_OQ));
    const __m256 e = _mm256_blendv_ps(exp_of(_mm256_min_ps(limit, t)), t, _mm256_cmp_ps(t, infinity, _CMP_EQ_OQ));
    return _mm256_andnot_ps(is_tiny, x / (one + e));
  }
  if (f.gate == Activation::hard_sigmoid) {
    const __m256 gate = fmadd(x, _mm256_set1_ps(f.a), _mm256_set1_ps(f.b));
    return x * _mm256_min_ps(one, _mm256_max_ps(zero, gate));
  }
  if (f.gate == Activation::slope)
    return _mm256_blendv_ps(x, x * _mm256_set1_ps(f.a), _mm256_cmp_ps(x, zero, _CMP_LT_OQ));
  return clamp(_mm256_set1_ps(f.low), _mm256_set1_ps(f.high), x);
}

/// The one for results of this type.
MPSCNN_AVX512 inline __m512 activate_for(float, const Activation& f, __m512 x) { return activate(f, x); }
MPSCNN_AVX512 inline __m512 activate_for(std::uint16_t, const Activation& f, __m512 x) {
  return activate_roughly(f, x);
}
MPSCNN_AVX2 inline __m256 activate_for(float, const Activation& f, __m256 x) { return activate(f, x); }

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

/// Store a whole cache line without reading it first, past the caches. Other threads see it after finish_stores().
MPSCNN_AVX512 inline void store_past_caches(float* to, __m512 value) { _mm512_stream_ps(to, value); }
inline void finish_stores() { _mm_sfence(); }

/// The first `count` of eight lanes.
struct Lanes8 {
  std::int64_t count;
};
MPSCNN_AVX2 inline __m256i mask_of(Lanes8 lanes) {
  alignas(32) static constexpr int kMasks[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kMasks + 8 - lanes.count));
}
MPSCNN_AVX2 inline __m256 load(Lanes8 lanes, const float* from) { return _mm256_maskload_ps(from, mask_of(lanes)); }
/// The instruction with a mask takes processors of AMD some 20 cycles, also with all lanes.
MPSCNN_AVX2 inline void store(Lanes8 lanes, float* to, __m256 value) {
  if (lanes.count == 8)
    _mm256_storeu_ps(to, value);
  else
    _mm256_maskstore_ps(to, mask_of(lanes), value);
}

// All lanes, known when code is compiled.
struct All16 {};
struct All8 {};
template <class Value>
MPSCNN_AVX512 inline __m512 load(All16, const Value* from) {
  return load(__mmask16{0xffff}, from);
}
template <class Value>
MPSCNN_AVX512 inline void store(All16, Value* to, __m512 value) {
  store(__mmask16{0xffff}, to, value);
}
MPSCNN_AVX2 inline __m256 load(All8, const float* from) { return _mm256_loadu_ps(from); }
MPSCNN_AVX2 inline void store(All8, float* to, __m256 value) { _mm256_storeu_ps(to, value); }

namespace avx512 {

using Vector = __m512;
using Lanes = __mmask16;
using AllLanes = All16;
constexpr std::int64_t kLanes = 16;

/// Return the first `left` lanes, all of them, or none.
inline Lanes lanes_of(std::int64_t left) {
  return static_cast<Lanes>(left >= kLanes ? 0xffff : left <= 0 ? 0 : (1 << left) - 1);
}
MPSCNN_AVX512 inline Vector constant(float value) { return _mm512_set1_ps(value); }
MPSCNN_AVX512 inline Vector load_all(const float* from) { return _mm512_loadu_ps(from); }
MPSCNN_AVX512 inline void store_all(float* to, Vector value) { _mm512_storeu_ps(to, value); }
MPSCNN_AVX512 inline float sum_of(Vector value) { return _mm512_reduce_add_ps(value); }
MPSCNN_AVX512 inline void add_to(double* to, Vector value) {
  _mm512_storeu_pd(to, _mm512_loadu_pd(to) + _mm512_cvtps_pd(_mm512_castps512_ps256(value)));
  _mm512_storeu_pd(to + 8, _mm512_loadu_pd(to + 8) + _mm512_cvtps_pd(_mm512_extractf32x8_ps(value, 1)));
}

using Doubles = __m512d;
constexpr std::int64_t kDoubles = 8;

MPSCNN_AVX512 inline Doubles doubles(double value) { return _mm512_set1_pd(value); }
MPSCNN_AVX512 inline Doubles load_doubles(const double* from) { return _mm512_loadu_pd(from); }
MPSCNN_AVX512 inline Doubles load_doubles(const float* from) { return _mm512_cvtps_pd(_mm256_loadu_ps(from)); }
MPSCNN_AVX512 inline void store_doubles(double* to, Doubles value) { _mm512_storeu_pd(to, value); }
MPSCNN_AVX512 inline void store_floats(float* to, Doubles value) { _mm256_storeu_ps(to, _mm512_cvtpd_ps(value)); }

}  // namespace avx512

namespace avx2 {

using Vector = __m256;
using Lanes = Lanes8;
using AllLanes = All8;
constexpr std::int64_t kLanes = 8;

inline Lanes lanes_of(std::int64_t left) { return {left >= kLanes ? kLanes : left <= 0 ? 0 : left}; }
MPSCNN_AVX2 inline Vector constant(float value) { return _mm256_set1_ps(value); }
MPSCNN_AVX2 inline Vector load_all(const float* from) { return _mm256_loadu_ps(from); }
MPSCNN_AVX2 inline void store_all(float* to, Vector value) { _mm256_storeu_ps(to, value); }
MPSCNN_AVX2 inline float sum_of(Vector value) {
  __m128 sum = _mm_add_ps(_mm256_castps256_ps128(value), _mm256_extractf128_ps(value, 1));
  sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
  return _mm_cvtss_f32(_mm_add_ss(sum, _mm_movehdup_ps(sum)));
}
MPSCNN_AVX2 inline void add_to(double* to, Vector value) {
  _mm256_storeu_pd(to, _mm256_loadu_pd(to) + _mm256_cvtps_pd(_mm256_castps256_ps128(value)));
  _mm256_storeu_pd(to + 4, _mm256_loadu_pd(to + 4) + _mm256_cvtps_pd(_mm256_extractf128_ps(value, 1)));
}

using Doubles = __m256d;
constexpr std::int64_t kDoubles = 4;

MPSCNN_AVX2 inline Doubles doubles(double value) { return _mm256_set1_pd(value); }
MPSCNN_AVX2 inline Doubles load_doubles(const double* from) { return _mm256_loadu_pd(from); }
MPSCNN_AVX2 inline Doubles load_doubles(const float* from) { return _mm256_cvtps_pd(_mm_loadu_ps(from)); }
MPSCNN_AVX2 inline void store_doubles(double* to, Doubles value) { _mm256_storeu_pd(to, value); }
MPSCNN_AVX2 inline void store_floats(float* to, Doubles value) { _mm_storeu_ps(to, _mm256_cvtpd_ps(value)); }

}  // namespace avx2
}  // namespace openmps::cpu

#endif
