// SPDX-License-Identifier: Apache-2.0
// Products of pixels and weights for AVX-512 and AVX2 (pointwise_kernels.inc), and which convolutions they are for.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "engine/cpu/convolution/bfloat16.hpp"
#include "engine/cpu/convolution/convolution.hpp"
#include "engine/cpu/pointwise/vectors.hpp"
#include "engine/cpu/runtime.hpp"
#include "engine/shared/parallel.hpp"

#if defined(__x86_64__)

namespace openmps::cpu::pointwise {

using i64 = std::int64_t;

constexpr i64 kChunk = 112;        // pixels that stay in the first caches for all panels
constexpr i64 kGrain = 64 * 1024;  // min multiplications per thread

/// Inputs that one product of a lane takes: two numbers of bfloat16, or one of float32.
template <class Value>
constexpr i64 kInputs = sizeof(float) / sizeof(Value);

inline float value_of(float value, float) { return value; }
inline std::uint16_t value_of(float value, std::uint16_t) { return bfloat16_of(value); }

/// Arguments of the results of some pixels and one panel. Steps count values.
template <class Value, class Result = Value>
struct BlockCall {
  const Value* src;
  i64 src_step, inputs;
  const Value* panel;
  const float* bias;
  Result* dst;
  i64 dst_step, outputs;  ///< from the panel's first one on
  const Activation* activation;
  const Result* addend = nullptr;  ///< if not null: dst = after(activation(...) + addend)
  i64 addend_step = 0;
  const Activation* after = nullptr;
};

inline bool same_pixels(const ImageView& a, const ImageView& b) {
  return a.memory == b.memory && a.offset == b.offset && a.n == b.n && a.h == b.h && a.w == b.w && a.c == b.c &&
         a.n_stride == b.n_stride && a.h_stride == b.h_stride && a.w_stride == b.w_stride;
}

/// Return whether the window is one pixel of all channels.
inline bool is_one_pixel(const ConvProblem& conv) {
  const Window& w = conv.window;
  return w.kernel_h == 1 && w.kernel_w == 1 && w.stride_h == 1 && w.stride_w == 1 && w.start_h == 0 && w.start_w == 0 &&
         conv.weights->groups == 1 && conv.subpixel <= 1 && conv.dst.h == conv.src.h && conv.dst.w == conv.src.w;
}

/// Return whether products are of pairs of bfloat16, if an option allows them. Those of tiles are faster.
inline bool multiplies_pairs() { return has_avx512_bfloat16() && multiplies_bfloat16() && !multiplies_tiles(); }

/// Return whether the convolution may be computed together with others here: of float32 or, in a plan, an image that
/// may become one of bfloat16; with a neuron that has vectors; and with weights that are packed once.
inline bool may_be_fused(const ConvProblem& conv) {
  const bool is_float = conv.src.format == Format::float32 && conv.dst.format == Format::float32;
  const bool is_bfloat = conv.src.format == Format::bfloat16 && conv.dst.format == Format::bfloat16;
  const bool is_reduced = conv.reduced_precision && multiplies_bfloat16();
  return (is_float || (is_bfloat && is_reduced)) && !conv.weights->in_place && (!is_reduced || multiplies_pairs()) &&
         activation_of(conv.neuron);
}

/// Return whether it is such a convolution of one pixel, which may add another image.
inline bool may_fuse(const ConvProblem& conv) {
  return may_be_fused(conv) && is_one_pixel(conv) &&
         (!conv.addend.memory || (conv.addend.format == conv.dst.format && activation_of(conv.after)));
}

/// Add to each lane the product of its weight and an input or, of bfloat16, those of pairs. The type of the values is
/// that of the last argument.
MPSCNN_AVX512 inline __m512 add_products(__m512 sums, __m512 inputs, __m512 weights, float) {
  return _mm512_fmadd_ps(inputs, weights, sums);
}
MPSCNN_AVX512_BF16 inline __m512 add_products(__m512 sums, __m512 inputs, __m512 weights, std::uint16_t) {
  return _mm512_dpbf16_ps(sums, (__m512bh)inputs, (__m512bh)weights);
}
MPSCNN_AVX2 inline __m256 add_products(__m256 sums, __m256 inputs, __m256 weights, float) {
  return _mm256_fmadd_ps(inputs, weights, sums);
}

// Of 32 registers, 24 have sums: 8 pixels of up to 48 outputs. The copies for float32 have no instructions for
// bfloat16.
namespace with_avx512 {
using namespace cpu::avx512;
constexpr i64 kVectors = 3;  // of a panel
constexpr i64 pixels_of(i64) { return 8; }
#define MPSCNN_TARGET MPSCNN_AVX512_BF16
#include "engine/cpu/convolution/pointwise_kernels.inc"
#undef MPSCNN_TARGET
}  // namespace with_avx512

// Of 16 registers, 12 have sums: 6 pixels of 16 outputs, or 12 of 8.
namespace with_avx2 {
using namespace cpu::avx2;
constexpr i64 kVectors = 2;
constexpr i64 pixels_of(i64 vectors) { return 12 / vectors; }
#define MPSCNN_TARGET MPSCNN_AVX2
#include "engine/cpu/convolution/pointwise_kernels.inc"
#undef MPSCNN_TARGET
}  // namespace with_avx2

}  // namespace openmps::cpu::pointwise

#endif
