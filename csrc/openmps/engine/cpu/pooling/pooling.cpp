// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/pooling/pooling.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/cpu/pointwise/vectors.hpp"
#include "engine/cpu/pooling/pool_columns.hpp"
#include "engine/shared/float_rows.hpp"
#include "engine/shared/implementations.hpp"
#include "engine/shared/isa.hpp"
#include "engine/shared/operands.hpp"
#include "engine/shared/parallel.hpp"
#include "engine/shared/taps.hpp"

namespace openmps::cpu {
namespace {

using i64 = std::int64_t;

constexpr std::int64_t kGrain = 64 * 1024;  // min taps per thread
constexpr std::int64_t kBlock = 32;         // min channels per range
constexpr std::size_t kManyColumns = 6;

/// Return the number of taps within the source grown by `grown` pixels on both sides.
std::int64_t taps_within(std::int64_t start, std::int64_t kernel, std::int64_t dilation, std::int64_t size,
                         std::int64_t grown) {
  return span_of(start + grown, kernel, dilation, size + 2 * grown).count;
}

/// A row of windows. rows[j] + columns[i] is a pixel of window v, for begins[v] <= i < begins[v + 1].
struct PoolRow {
  const float* const* rows;
  const float* row_times;  ///< how often each row counts; norms
  i64 row_count;
  const i64* columns;
  const float* column_times;
  const std::size_t* begins;
  const float* numbers;  ///< of each window; max: the start, average: the divisor
  i64 windows, channels;
  float* result;
  i64 result_step;
};

#define MPSCNN_LOOPS "engine/cpu/pooling/pool_row.inc"
#define MPSCNN_ANY_PROCESSOR
#include "engine/cpu/pointwise/vector_copies.inc"

MPSCNN_CLONES void take_roots(float* values, i64 count) {
#pragma omp simd
  for (i64 k = 0; k < count; ++k) values[k] = std::sqrt(values[k]);
}

/// Columns that the windows of each row read.
struct Columns {
  std::vector<i64> at;  ///< in floats
  std::vector<float> times;
  std::vector<std::size_t> begins{0};
  std::vector<float> taps;       ///< divisors of averages
  std::vector<char> is_outside;  ///< whether the window has out-of-bounds taps

  Columns(const PoolProblem& problem, i64 step) {
    const Window& w = problem.window;
    const i64 size = problem.src.w;
    const bool zero = w.edge == Edge::zero, clamp = !zero && problem.type != PoolType::average;
    Taps seen(std::min(w.kernel_w, size));
    for (i64 x = 0, left = w.start_w; x < problem.dst.w; ++x, left += w.stride_w) {
      const Span span = span_of(left, w.kernel_w, w.dilation_w, size);
      seen.fill(span, w.dilation_w, size, clamp);
      for (const i64 column : seen.at) at.push_back(column * step);
      times.insert(times.end(), seen.times.begin(), seen.times.end());
      begins.push_back(at.size());
      const i64 count = zero ? w.kernel_w : taps_within(left, w.kernel_w, w.dilation_w, size, problem.zero_pad_w);
      taps.push_back(static_cast<float>(count));
      is_outside.push_back(span.before + span.after > 0);
    }
  }
};

/// Buffers of one thread.
struct Scratch {
  FloatRows source;
  Taps rows;
  std::vector<const float*> row_pointers;
  std::vector<float> numbers, result;
};

const char* pool_blocks(const PoolProblem& problem) {
  const Tensor src = tensor_of(problem.src), dst = tensor_of(problem.dst);
  const Window& w = problem.window;
  const bool average = problem.type == PoolType::average;
  const bool zero = w.edge == Edge::zero, clamp = !zero && !average;
  const i64 most_h = std::min(w.kernel_h, src.h), most_w = std::min(w.kernel_w, src.w);
  const i64 c = dst.c, rows_of_work = dst.n * dst.h;

  const int threads = threads_for(dst.size() * most_h * most_w, kGrain);
  // Few large windows (global pooling): threads split the channels.
  i64 parts = 1;
  if (rows_of_work < threads && src.format == Format::float32)
    parts = std::clamp<i64>(threads / rows_of_work, 1, std::max<i64>(1, c / kBlock));
  const i64 part = (c / parts + kBlock - 1) / kBlock * kBlock;

  const bool direct = dst.format == Format::float32;
  const i64 reach = (most_h - 1) * std::min(w.dilation_h, src.h) + 1;
  std::vector<Scratch> scratch(static_cast<std::size_t>(std::max(threads, 1)),
                               {FloatRows(src, std::min(reach, src.h)), Taps(most_h),
                                std::vector<const float*>(static_cast<std::size_t>(most_h) + 2),
                                std::vector<float>(static_cast<std::size_t>(dst.w)),
                                std::vector<float>(static_cast<std::size_t>(direct ? 0 : dst.w * c))});
  const Columns columns(problem, scratch.front().source.pixel_stride());

  parallel_ranges(rows_of_work * parts, threads, [&](i64 begin, i64 end) {
    Scratch& my = scratch[static_cast<std::size_t>(thread_number())];
    for (i64 item = begin; item < end; ++item) {
      const i64 n = item / parts / dst.h, y = item / parts % dst.h;
      const i64 c0 = item % parts * part, channels = std::min(part, c - c0);
      if (channels <= 0) continue;
      const i64 top = w.start_h + y * w.stride_h;
      const Span vertical = span_of(top, w.kernel_h, w.dilation_h, src.h);
      my.rows.fill(vertical, w.dilation_h, src.h, clamp);
      for (std::size_t j = 0; j < my.rows.at.size(); ++j) my.row_pointers[j] = my.source.row(n, my.rows.at[j]) + c0;
      const i64 taps_h = zero ? w.kernel_h : taps_within(top, w.kernel_h, w.dilation_h, src.h, problem.zero_pad_h);
      for (std::size_t x = 0; x < my.numbers.size(); ++x) {
        const bool is_outside = vertical.before + vertical.after > 0 || columns.is_outside[x];
        my.numbers[x] = average ? std::max(1.0f, static_cast<float>(taps_h) * columns.taps[x])  // 1: none counts
                        : zero && is_outside ? 0.0f
                                             : -INFINITY;
      }
      float* const result = direct ? dst.floats(n, y) + c0 : my.result.data() + c0;
      const i64 result_step = direct ? dst.w_stride : c;
      MPSCNN_COPY(pool_row)
      ({my.row_pointers.data(), my.rows.times.data(), static_cast<i64>(my.rows.at.size()), columns.at.data(),
        columns.times.data(), columns.begins.data(), my.numbers.data(), dst.w, channels, result, result_step},
       problem.type);
      if (problem.type == PoolType::l2_norm)
        for (i64 x = 0; x < dst.w; ++x) take_roots(result + x * result_step, channels);
      if (!direct) store_pixels(my.result.data(), dst.at(n, y), dst, dst.w);
    }
  });
  return nullptr;
}

MPSCNN_CLONES void max_of_bytes(const std::uint8_t* pixel, std::uint8_t* result, std::int64_t channels) {
#pragma omp simd
  for (std::int64_t i = 0; i < channels; ++i) result[i] = pixel[i] > result[i] ? pixel[i] : result[i];
}

/// Maxima of whole numbers, without their conversion.
const char* pool_bytes(const PoolProblem& problem) {
  if (problem.type != PoolType::max) return "no maxima";
  if (problem.src.format != Format::unorm8 || problem.dst.format != Format::unorm8) return "not unorm8";
  const Tensor src = tensor_of(problem.src), dst = tensor_of(problem.dst);
  const Window& w = problem.window;
  const std::int64_t most_h = std::min(w.kernel_h, src.h), most_w = std::min(w.kernel_w, src.w);
  const int threads = threads_for(dst.size() * most_h * most_w, kGrain);
  parallel_ranges(dst.n * dst.h, threads, [&](std::int64_t begin, std::int64_t end) {
    Taps rows(most_h), columns(most_w);
    for (std::int64_t item = begin; item < end; ++item) {
      const std::int64_t n = item / dst.h, y = item % dst.h;
      rows.fill(span_of(w.start_h + y * w.stride_h, w.kernel_h, w.dilation_h, src.h), w.dilation_h, src.h,
                w.edge == Edge::clamp);
      for (std::int64_t x = 0; x < dst.w; ++x) {
        columns.fill(span_of(w.start_w + x * w.stride_w, w.kernel_w, w.dilation_w, src.w), w.dilation_w, src.w,
                     w.edge == Edge::clamp);
        auto* const result = reinterpret_cast<std::uint8_t*>(dst.at(n, y, x));
        std::fill_n(result, dst.c, std::uint8_t{0});
        for (const std::int64_t row : rows.at)
          for (const std::int64_t column : columns.at)
            max_of_bytes(reinterpret_cast<const std::uint8_t*>(src.at(n, row, column)), result, dst.c);
      }
    }
  });
  return nullptr;
}

constexpr Implementation<PoolProblem> kPools[] = {
    {"pool_bytes", pool_bytes},
    {"pool_columns", pool_columns},
    {"pool_blocks", pool_blocks},
};
const ImplementationNames kPoolNames(kPools);

}  // namespace

void run(const PoolProblem& problem) { run_first("pool", kPools, problem); }

}  // namespace openmps::cpu
