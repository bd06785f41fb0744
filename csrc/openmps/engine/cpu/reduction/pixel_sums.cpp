// SPDX-License-Identifier: Apache-2.0
// Sums of all pixels of an image, by channel, with AVX-512: the average in front of classifiers and gates.
#include <algorithm>
#include <vector>

#include "engine/cpu/pointwise/vectors.hpp"
#include "engine/cpu/reduction/reduce.hpp"
#include "engine/shared/operands.hpp"

namespace openmps::cpu {

#if defined(__x86_64__)

namespace {

using i64 = std::int64_t;

constexpr i64 kGrain = 64 * 1024;      // min values per thread
constexpr i64 kRun = 64;               // pixels per float sum: the error grows with runs, not with pixels
constexpr int kVectors = 4;            // sums in registers
constexpr i64 kBlock = kVectors * 16;  // channels

/// sums += the channels [0, channels), at most kBlock, of `count` pixels `step` values apart.
template <class Value>
MPSCNN_AVX512 void add_pixels(const Value* from, i64 step, i64 count, i64 channels, double* sums) {
  __mmask16 lanes[kVectors];
  for (int i = 0; i < kVectors; ++i) {
    const i64 left = std::clamp<i64>(channels - 16 * i, 0, 16);
    lanes[i] = static_cast<__mmask16>((1 << left) - 1);
  }
  for (i64 x = 0; x < count;) {
    __m512 run[kVectors];
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) run[i] = _mm512_setzero_ps();
    for (const i64 end = std::min(count, x + kRun); x < end; ++x, from += step) {
#pragma GCC unroll 4
      for (int i = 0; i < kVectors; ++i) run[i] = _mm512_add_ps(run[i], load(lanes[i], from + 16 * i));
    }
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) {
      double* const to = sums + 16 * i;
      const auto low = static_cast<__mmask8>(lanes[i]), high = static_cast<__mmask8>(lanes[i] >> 8);
      const __m512d first = _mm512_cvtps_pd(_mm512_castps512_ps256(run[i]));
      const __m512d second = _mm512_cvtps_pd(_mm512_extractf32x8_ps(run[i], 1));
      _mm512_mask_storeu_pd(to, low, _mm512_add_pd(_mm512_maskz_loadu_pd(low, to), first));
      _mm512_mask_storeu_pd(to + 8, high, _mm512_add_pd(_mm512_maskz_loadu_pd(high, to + 8), second));
    }
  }
}

template <class Value>
void sum_pixels(const Tensor& src, const Tensor& dst, double scale) {
  const i64 c = src.c;
  const int threads = threads_for(src.size(), kGrain);
  const i64 parts = std::clamp<i64>(threads / src.n, 1, src.h);  // of the rows of an image
  std::vector<double> sums(static_cast<std::size_t>(src.n * parts * c));
  const bool is_line = src.images_are_dense();
  parallel_ranges(src.n * parts, threads, [&](i64 begin, i64 end) {
    for (i64 task = begin; task < end; ++task) {
      const i64 n = task / parts, first = src.h * (task % parts) / parts, last = src.h * (task % parts + 1) / parts;
      const i64 rows = is_line ? 1 : last - first, pixels = is_line ? (last - first) * src.w : src.w;
      for (i64 y = first; y < first + rows; ++y) {
        const auto* const row = reinterpret_cast<const Value*>(src.at(n, y));
        for (i64 k = 0; k < c; k += kBlock)
          add_pixels(row + k, src.w_stride, pixels, std::min(kBlock, c - k), sums.data() + task * c + k);
      }
    }
  });
  std::vector<float> values(static_cast<std::size_t>(c));
  for (i64 n = 0; n < src.n; ++n) {
    for (i64 k = 0; k < c; ++k) {
      double sum = 0;
      for (i64 part = 0; part < parts; ++part) sum += sums[static_cast<std::size_t>((n * parts + part) * c + k)];
      values[static_cast<std::size_t>(k)] = static_cast<float>(sum * scale);
    }
    row_from_float(values.data(), dst.at(n, 0), dst.format, c);
  }
}

}  // namespace

const char* pixel_sums_in_vectors(const ReduceProblem& problem) {
  if (!has_avx512()) return "the processor has no AVX-512";
  const Tensor src = tensor_of(problem.src), dst = tensor_of(problem.dst);
  if (src.format == Format::float32)
    sum_pixels<float>(src, dst, problem.scale);
  else if (src.format == Format::bfloat16)
    sum_pixels<std::uint16_t>(src, dst, problem.scale);
  else
    return "neither float32 nor bfloat16";
  return nullptr;
}

#else

const char* pixel_sums_in_vectors(const ReduceProblem&) { return "not for this processor"; }

#endif

}  // namespace openmps::cpu
