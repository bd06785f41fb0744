// SPDX-License-Identifier: Apache-2.0
// A window of 3 x 3 reads 3 pixels for each new column instead of 9 for each result. Images of bfloat16 are neither
// converted for maxima nor copied for averages.
#include "engine/cpu/pooling/pool_columns.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/cpu/convolution/bfloat16.hpp"
#include "engine/cpu/pointwise/vectors.hpp"
#include "engine/shared/parallel.hpp"
#include "engine/shared/span.hpp"
#include "engine/shared/tensor.hpp"

namespace openmps::cpu {
namespace {

using i64 = std::int64_t;

constexpr i64 kGrain = 64 * 1024;  // min taps per thread
constexpr i64 kMaxRows = 8;        // of a window

/// A row of windows. Steps count numbers.
template <class Number>
struct ColumnsCall {
  const Number* rows[kMaxRows];  ///< those of the source that the windows read, at column 0
  i64 row_count;
  bool has_rows_outside;
  float outside;      ///< the value of pixels outside of the source
  i64 step, columns;  ///< of the source
  i64 first;          ///< the first window's first column
  const float* taps;  ///< of each window; averages
  i64 windows, channels;
  Number* result;
  i64 result_step;
};

#define MPSCNN_LOOPS "engine/cpu/pooling/pool_columns.inc"
#define MPSCNN_ANY_PROCESSOR
#include "engine/cpu/pointwise/vector_copies.inc"

#if defined(__x86_64__)
namespace with_avx512 {

/// Maxima of bfloat16 numbers as unsigned integers in the same order: -infinity, the other numbers, infinity, NaN.
struct MaxOfBfloats {
  using Number = std::uint16_t;
  using Value = __m512i;
  static constexpr i64 lanes = 32;
  static constexpr std::int16_t kLowest = -0x7f81;  ///< of -infinity, when numbers below 0 have their bits inverted

  /// Invert all bits but the sign's of numbers below 0. The inverse function is itself.
  MPSCNN_AVX512 static __m512i ordered(__m512i x) {
    return _mm512_ternarylogic_epi64(x, _mm512_srai_epi16(x, 15), _mm512_set1_epi16(0x7fff), 0x78);  // x ^ (b & c)
  }
  MPSCNN_AVX512 static Value key(__m512i x) { return _mm512_sub_epi16(ordered(x), _mm512_set1_epi16(kLowest)); }
  MPSCNN_AVX512 static Value of(float number) {
    return key(_mm512_set1_epi16(static_cast<std::int16_t>(bfloat16_of(number))));
  }
  MPSCNN_AVX512 static Value load(const Number* from) { return key(_mm512_loadu_si512(from)); }
  MPSCNN_AVX512 static Value combine(Value a, Value b) { return _mm512_max_epu16(a, b); }
  MPSCNN_AVX512 static void store(Number* to, Value value, float) {
    _mm512_storeu_si512(to, ordered(_mm512_add_epi16(value, _mm512_set1_epi16(kLowest))));
  }
};

struct MeanOfBfloats {
  using Number = std::uint16_t;
  using Value = __m512;
  static constexpr i64 lanes = 16;

  MPSCNN_AVX512 static Value of(float number) { return _mm512_set1_ps(number); }
  MPSCNN_AVX512 static Value load(const Number* from) { return cpu::load(All16{}, from); }
  MPSCNN_AVX512 static Value combine(Value a, Value b) { return _mm512_add_ps(a, b); }
  MPSCNN_AVX512 static void store(Number* to, Value value, float taps) {
    cpu::store(All16{}, to, _mm512_mul_ps(value, _mm512_set1_ps(1 / taps)));
  }
};

}  // namespace with_avx512
#endif

/// Return whether each window has a pixel of the source.
bool all_within(i64 start, i64 kernel, i64 stride, i64 size, i64 windows) {
  return start > -kernel && start + (windows - 1) * stride < size;
}

/// Return the taps of a window that an average counts.
i64 counted(i64 start, i64 kernel, i64 size, i64 pad, Edge edge) {
  return edge == Edge::zero ? kernel : span_of(start + pad, kernel, 1, size + 2 * pad).count;
}

template <class Number, class Pool>
void pool(const PoolProblem& problem, const Pool& pool_row) {
  const Tensor src = tensor_of(problem.src), dst = tensor_of(problem.dst);
  const Window& w = problem.window;
  const bool average = problem.type == PoolType::average;
  std::vector<i64> taps_w(static_cast<std::size_t>(average ? dst.w : 0));
  for (i64 x = 0; x < static_cast<i64>(taps_w.size()); ++x)
    taps_w[static_cast<std::size_t>(x)] =
        counted(w.start_w + x * w.stride_w, w.kernel_w, src.w, problem.zero_pad_w, w.edge);
  const int threads = threads_for(dst.size() * w.kernel_h * w.kernel_w, kGrain);
  parallel_ranges(dst.n * dst.h, threads, [&](i64 begin, i64 end) {
    std::vector<float> taps(static_cast<std::size_t>(dst.w));
    for (i64 item = begin; item < end; ++item) {
      const i64 n = item / dst.h, y = item % dst.h, top = w.start_h + y * w.stride_h;
      const Span rows = span_of(top, w.kernel_h, 1, src.h);
      ColumnsCall<Number> call{};
      for (i64 j = 0; j < rows.count; ++j) call.rows[j] = reinterpret_cast<const Number*>(src.at(n, rows.first + j));
      call.row_count = rows.count, call.has_rows_outside = rows.before + rows.after > 0;
      call.outside = average || w.edge == Edge::zero ? 0.0f : -INFINITY;
      call.step = src.w_stride, call.columns = src.w, call.first = w.start_w;
      if (average) {
        const i64 taps_h = counted(top, w.kernel_h, src.h, problem.zero_pad_h, w.edge);
        for (std::size_t x = 0; x < taps.size(); ++x)
          taps[x] = static_cast<float>(std::max<i64>(1, taps_h * taps_w[x]));  // 1: none counts
      }
      call.taps = taps.data(), call.windows = dst.w, call.channels = dst.c;
      call.result = reinterpret_cast<Number*>(dst.at(n, y)), call.result_step = dst.w_stride;
      pool_row(call);
    }
  });
}

}  // namespace

const char* pool_columns(const PoolProblem& problem) {
  const Window& w = problem.window;
  const ImageView &src = problem.src, &dst = problem.dst;
  if (problem.type == PoolType::l2_norm) return "no maxima or averages";
  if (w.kernel_w < 2 || w.kernel_w > 3 || w.stride_w > 2 || w.kernel_h > kMaxRows) return "another window";
  if (w.dilation_h != 1 || w.dilation_w != 1) return "dilation";
  if (!all_within(w.start_h, w.kernel_h, w.stride_h, src.h, dst.h) ||
      !all_within(w.start_w, w.kernel_w, w.stride_w, src.w, dst.w))
    return "windows outside of the source";
  if (src.format != dst.format) return "two formats";
  const i64 kernel = w.kernel_w, stride = w.stride_w;
  if (src.format == Format::float32) {
    const i64 lanes = has_avx512() ? 16 : has_avx2() ? 8 : 4;
    if (dst.c < lanes) return "few channels";
    pool<float>(problem, [&](const ColumnsCall<float>& call) {
      MPSCNN_COPY(pool_float_columns)(call, problem.type, kernel, stride);
    });
    return nullptr;
  }
#if defined(__x86_64__)
  if (src.format == Format::bfloat16 && has_avx512_bfloat16()) {
    using namespace with_avx512;
    if (dst.c < MaxOfBfloats::lanes) return "few channels";
    pool<std::uint16_t>(problem, [&](const ColumnsCall<std::uint16_t>& call) {
      problem.type == PoolType::max ? pool_columns_of<MaxOfBfloats>(call, kernel, stride)
                                    : pool_columns_of<MeanOfBfloats>(call, kernel, stride);
    });
    return nullptr;
  }
#endif
  return "another format";
}

}  // namespace openmps::cpu
