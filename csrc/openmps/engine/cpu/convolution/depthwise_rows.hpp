// SPDX-License-Identifier: Apache-2.0
// Rows of depth-wise convolutions of float32 for AVX-512: the vectors of results side by side, 16 channels at a time,
// stay in registers while the window's taps are added.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "engine/cpu/pointwise/vectors.hpp"
#include "engine/problem/conv.hpp"

#if defined(__x86_64__)

namespace openmps::cpu::depthwise {

using i64 = std::int64_t;

constexpr i64 kLanes = 16;
constexpr int kWide = 7, kNarrow = 3;  // results side by side: widths of networks are often multiples of 7

/// Filters by blocks of kLanes channels, zeros after the last channel: [block][tap][lane]. And the biases.
struct PackedFilters {
  std::vector<float> taps, bias;

  explicit PackedFilters(const ConvWeights& weights) {
    const i64 c = weights.out_channels, count = weights.kernel_h * weights.kernel_w;
    const i64 blocks = (c + kLanes - 1) / kLanes;
    taps.resize(static_cast<std::size_t>(blocks * count * kLanes));
    bias.resize(static_cast<std::size_t>(blocks * kLanes));
    const float* const values = weights.values.data();
    for (i64 k = 0; k < c; ++k) {
      for (i64 t = 0; t < count; ++t)
        taps[static_cast<std::size_t>((k / kLanes * count + t) * kLanes + k % kLanes)] = values[k * count + t];
      if (!weights.bias.empty()) bias[static_cast<std::size_t>(k)] = weights.bias[static_cast<std::size_t>(k)];
    }
  }

  static std::shared_ptr<const PackedFilters> of(const ConvWeights& weights) {
    return weights.derived<const PackedFilters>("depthwise",
                                                [&] { return std::make_shared<const PackedFilters>(weights); });
  }
};

/// Arguments of all results of one row and one block of channels. Steps count values.
template <int kernel, class Source = float, class Result = float>
struct RowCall {
  std::array<const Source*, kernel> rows;  ///< of the source, at column 0 and the block's channels; null: zeros
  i64 step, columns;
  Result* dst;  ///< at column 0
  i64 dst_step;
  const float *taps, *bias;
  const Activation* activation;
  __mmask16 lanes;
};

/// Compute `count` results from `x` on, which read columns from `first` on. `is_inside`: all of them are in the source.
template <int kernel, int stride, int count, bool is_inside, class Source, class Result>
MPSCNN_AVX512 void results(const RowCall<kernel, Source, Result>& call, i64 x, i64 first) {
  const Activation activation = *call.activation;
  const i64 step = call.step;
  __m512 sums[count];
  const __m512 bias = _mm512_loadu_ps(call.bias);
#pragma GCC unroll 8
  for (int i = 0; i < count; ++i) sums[i] = bias;
  for (int p = 0; p < kernel; ++p) {
    const Source* const row = call.rows[static_cast<std::size_t>(p)];
    if (!row) continue;
    const Source* from = row + first * step;
    __m512 taps[kernel];
#pragma GCC unroll 8
    for (int q = 0; q < kernel; ++q) taps[q] = _mm512_loadu_ps(call.taps + (p * kernel + q) * kLanes);
#pragma GCC unroll 32
    for (int j = 0; j < (count - 1) * stride + kernel; ++j, from += step) {
      if (!is_inside && (first + j < 0 || first + j >= call.columns)) continue;
      const __m512 pixel = load(call.lanes, from);
#pragma GCC unroll 8
      for (int q = 0; q < kernel; ++q) {
        const int i = (j - q) / stride;
        if (j >= q && (j - q) % stride == 0 && i < count) sums[i] = _mm512_fmadd_ps(pixel, taps[q], sums[i]);
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < count; ++i) {
    const bool is_float = sizeof(Result) == sizeof(float);
    const __m512 result = is_float ? activate(activation, sums[i]) : activate_roughly(activation, sums[i]);
    store(call.lanes, call.dst + (x + i) * call.dst_step, result);
  }
}

template <int kernel, int stride, int count, class Source, class Result>
i64 results_from(const RowCall<kernel, Source, Result>& call, i64 x, i64 first) {
  constexpr int reach = (count - 1) * stride + kernel;
  if (first >= 0 && first + reach <= call.columns)
    results<kernel, stride, count, true>(call, x, first);
  else
    results<kernel, stride, count, false>(call, x, first);
  return x + count;
}

/// Compute a row of results, whose window begins `start` columns from the source's first one.
template <int kernel, int stride, class Source, class Result>
void row_results(const RowCall<kernel, Source, Result>& call, i64 start, i64 width) {
  for (i64 x = 0; x < width;) {
    const i64 first = start + x * stride;
    if (x + kWide <= width)
      x = results_from<kernel, stride, kWide>(call, x, first);
    else if (x + kNarrow <= width)
      x = results_from<kernel, stride, kNarrow>(call, x, first);
    else
      x = results_from<kernel, stride, 1>(call, x, first);
  }
}

}  // namespace openmps::cpu::depthwise

#endif
