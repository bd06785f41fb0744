// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/pooling/pooling.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/shared/float_rows.hpp"
#include "engine/shared/implementations.hpp"
#include "engine/shared/isa.hpp"
#include "engine/shared/operands.hpp"
#include "engine/shared/parallel.hpp"
#include "engine/shared/taps.hpp"

namespace openmps::cpu {
namespace {

constexpr std::int64_t kGrain = 64 * 1024;  // min taps per thread
constexpr std::int64_t kBlock = 32;         // channels whose results stay in registers
constexpr std::int64_t kHalfBlock = kBlock / 2;
// Min columns and channels of a window for which longer runs of memory pay.
constexpr std::int64_t kManyColumns = 6, kWideBlock = 64;

/// Return the number of taps within the source grown by `grown` pixels on both sides.
std::int64_t taps_within(std::int64_t start, std::int64_t kernel, std::int64_t dilation, std::int64_t size,
                         std::int64_t grown) {
  return span_of(start + grown, kernel, dilation, size + 2 * grown).count;
}

/// Sixteen floats, in as many registers as the instruction set needs.
typedef float Floats __attribute__((vector_size(64)));
typedef std::int32_t Flags __attribute__((vector_size(64)));
typedef float FloatsAnywhere __attribute__((vector_size(64), aligned(4)));

#define MPSCNN_LOAD(pointer) (*reinterpret_cast<const FloatsAnywhere*>(pointer))
#define MPSCNN_STORE(pointer, value) (*reinterpret_cast<FloatsAnywhere*>(pointer) = (value))

/// Max of one window: rows[j] + columns[i] is a pixel. NaN stays NaN; it is tested separately, because a comparison
/// that propagates NaN is not a single instruction.
MPSCNN_CLONES void max_of(const float* const* rows, std::int64_t row_count, const std::int64_t* columns,
                          std::int64_t column_count, float initial, float* result, std::int64_t channels) {
  std::int64_t c = 0;
  for (; c + kBlock <= channels; c += kBlock) {
    Floats a = initial - Floats{}, b = a;
    Flags a_nan{}, b_nan{};
    for (std::int64_t j = 0; j < row_count; ++j) {
      for (std::int64_t i = 0; i < column_count; ++i) {
        const float* pixel = rows[j] + columns[i] + c;
        const Floats x = MPSCNN_LOAD(pixel), y = MPSCNN_LOAD(pixel + 16);
        a = x > a ? x : a;
        b = y > b ? y : b;
        a_nan |= x != x;
        b_nan |= y != y;
      }
    }
    const Floats nan = NAN - Floats{};
    MPSCNN_STORE(result + c, a_nan ? nan : a);
    MPSCNN_STORE(result + c + 16, b_nan ? nan : b);
  }
  for (; c + kHalfBlock <= channels; c += kHalfBlock) {
    Floats a = initial - Floats{};
    Flags a_nan{};
    for (std::int64_t j = 0; j < row_count; ++j) {
      for (std::int64_t i = 0; i < column_count; ++i) {
        const Floats x = MPSCNN_LOAD(rows[j] + columns[i] + c);
        a = x > a ? x : a;
        a_nan |= x != x;
      }
    }
    MPSCNN_STORE(result + c, a_nan ? NAN - Floats{} : a);
  }
  if (c == channels) return;
  const std::int64_t rest = channels - c;
  float a[kHalfBlock];
  std::int32_t is_nan[kHalfBlock] = {};
  std::fill_n(a, rest, initial);
  for (std::int64_t j = 0; j < row_count; ++j) {
    for (std::int64_t i = 0; i < column_count; ++i) {
      const float* const pixel = rows[j] + columns[i] + c;
#pragma omp simd
      for (std::int64_t k = 0; k < rest; ++k) {
        const float x = pixel[k];
        a[k] = x > a[k] ? x : a[k];
        is_nan[k] |= x != x;
      }
    }
  }
  for (std::int64_t k = 0; k < rest; ++k) result[c + k] = is_nan[k] ? NAN : a[k];
}

/// Mean of one window, for channels from `first` on. Each row is summed first: the error then grows with the extents of
/// the window, not with their product.
MPSCNN_CLONES void mean_of(const float* const* rows, std::int64_t row_count, const std::int64_t* columns,
                           std::int64_t column_count, float divisor, float* result, std::int64_t first,
                           std::int64_t channels) {
  std::int64_t c = first;
  for (; c + kBlock <= channels; c += kBlock) {
    Floats a{}, b{};
    for (std::int64_t j = 0; j < row_count; ++j) {
      Floats x{}, y{};
      for (std::int64_t i = 0; i < column_count; ++i) {
        const float* pixel = rows[j] + columns[i] + c;
        x += MPSCNN_LOAD(pixel);
        y += MPSCNN_LOAD(pixel + 16);
      }
      a += x, b += y;
    }
    MPSCNN_STORE(result + c, a / divisor);
    MPSCNN_STORE(result + c + 16, b / divisor);
  }
  if (c == channels) return;
  float sums[kBlock] = {};
  const std::int64_t rest = channels - c;
  for (std::int64_t j = 0; j < row_count; ++j) {
    float row[kBlock] = {};
    for (std::int64_t i = 0; i < column_count; ++i) {
      const float* pixel = rows[j] + columns[i] + c;
#pragma omp simd
      for (std::int64_t k = 0; k < rest; ++k) row[k] += pixel[k];
    }
#pragma omp simd
    for (std::int64_t k = 0; k < rest; ++k) sums[k] += row[k];
  }
  for (std::int64_t k = 0; k < rest; ++k) result[c + k] = sums[k] / divisor;
}

/// The same with blocks twice as wide, which read longer runs of memory.
MPSCNN_CLONES void mean_of_many(const float* const* rows, std::int64_t row_count, const std::int64_t* columns,
                                std::int64_t column_count, float divisor, float* result, std::int64_t channels) {
  for (std::int64_t first = 0; first + kWideBlock <= channels; first += kWideBlock) {
    Floats a{}, b{}, c{}, d{};
    for (std::int64_t j = 0; j < row_count; ++j) {
      Floats x{}, y{}, z{}, u{};
      for (std::int64_t i = 0; i < column_count; ++i) {
        const float* pixel = rows[j] + columns[i] + first;
        x += MPSCNN_LOAD(pixel), y += MPSCNN_LOAD(pixel + 16);
        z += MPSCNN_LOAD(pixel + 32), u += MPSCNN_LOAD(pixel + 48);
      }
      a += x, b += y, c += z, d += u;
    }
    MPSCNN_STORE(result + first, a / divisor);
    MPSCNN_STORE(result + first + 16, b / divisor);
    MPSCNN_STORE(result + first + 32, c / divisor);
    MPSCNN_STORE(result + first + 48, d / divisor);
  }
}

MPSCNN_CLONES void norm_of(const float* const* rows, const float* row_times, std::int64_t row_count,
                           const std::int64_t* columns, const float* column_times, std::int64_t column_count,
                           float* result, std::int64_t channels) {
  std::int64_t c = 0;
  for (; c + kBlock <= channels; c += kBlock) {
    Floats a{}, b{};
    for (std::int64_t j = 0; j < row_count; ++j) {
      Floats x{}, y{};
      for (std::int64_t i = 0; i < column_count; ++i) {
        const float* pixel = rows[j] + columns[i] + c;
        const Floats u = MPSCNN_LOAD(pixel), v = MPSCNN_LOAD(pixel + 16);
        x += column_times[i] * (u * u);
        y += column_times[i] * (v * v);
      }
      a += row_times[j] * x, b += row_times[j] * y;
    }
    MPSCNN_STORE(result + c, a);
    MPSCNN_STORE(result + c + 16, b);
  }
  const std::int64_t rest = channels - c;
  float sums[kBlock] = {};
  for (std::int64_t j = 0; j < row_count && rest > 0; ++j) {
    float row[kBlock] = {};
    for (std::int64_t i = 0; i < column_count; ++i) {
      const float* pixel = rows[j] + columns[i] + c;
      const float times = column_times[i];
#pragma omp simd
      for (std::int64_t k = 0; k < rest; ++k) row[k] += times * (pixel[k] * pixel[k]);
    }
#pragma omp simd
    for (std::int64_t k = 0; k < rest; ++k) sums[k] += row_times[j] * row[k];
  }
  std::copy(sums, sums + rest, result + c);
#pragma omp simd
  for (std::int64_t k = 0; k < channels; ++k) result[k] = std::sqrt(result[k]);
}

/// Buffers of one thread.
struct Scratch {
  FloatRows source;
  Taps rows, columns;
  std::vector<const float*> row_pointers;
  std::vector<float> result;
};

/// Pool all windows. `wide`: averages read wide blocks if the window has enough columns.
void pool(const PoolProblem& problem, bool wide) {
  const Tensor src = tensor_of(problem.src), dst = tensor_of(problem.dst);
  const Window& w = problem.window;
  const bool average = problem.type == PoolType::average;
  const bool zero = w.edge == Edge::zero, clamp = !zero && !average;
  const std::int64_t most_h = std::min(w.kernel_h, src.h), most_w = std::min(w.kernel_w, src.w);
  const std::int64_t c = dst.c, rows_of_work = dst.n * dst.h;

  const int threads = threads_for(dst.size() * most_h * most_w, kGrain);
  // Few large windows (global pooling): threads split the channels.
  std::int64_t parts = 1;
  if (rows_of_work < threads && src.format == Format::float32)
    parts = std::clamp<std::int64_t>(threads / rows_of_work, 1, std::max<std::int64_t>(1, c / kBlock));
  const std::int64_t part = (c / parts + kBlock - 1) / kBlock * kBlock;

  const bool direct = dst.format == Format::float32;
  const std::int64_t reach = (most_h - 1) * std::min(w.dilation_h, src.h) + 1;
  std::vector<Scratch> scratch(static_cast<std::size_t>(std::max(threads, 1)),
                               {FloatRows(src, std::min(reach, src.h)), Taps(most_h), Taps(most_w),
                                std::vector<const float*>(static_cast<std::size_t>(most_h) + 2),
                                std::vector<float>(static_cast<std::size_t>(direct ? 0 : dst.w * c))});

  parallel_ranges(rows_of_work * parts, threads, [&](std::int64_t begin, std::int64_t end) {
    Scratch& my = scratch[static_cast<std::size_t>(thread_number())];
    const std::int64_t step = my.source.pixel_stride();
    for (std::int64_t item = begin; item < end; ++item) {
      const std::int64_t n = item / parts / dst.h, y = item / parts % dst.h;
      const std::int64_t c0 = item % parts * part, channels = std::min(part, c - c0);
      if (channels <= 0) continue;
      const std::int64_t top = w.start_h + y * w.stride_h;
      const Span vertical = span_of(top, w.kernel_h, w.dilation_h, src.h);
      my.rows.fill(vertical, w.dilation_h, src.h, clamp);
      const auto row_count = static_cast<std::int64_t>(my.rows.at.size());
      for (std::int64_t j = 0; j < row_count; ++j)
        my.row_pointers[static_cast<std::size_t>(j)] = my.source.row(n, my.rows.at[static_cast<std::size_t>(j)]) + c0;
      const std::int64_t taps_h =
          zero ? w.kernel_h : taps_within(top, w.kernel_h, w.dilation_h, src.h, problem.zero_pad_h);
      for (std::int64_t x = 0; x < dst.w; ++x) {
        const std::int64_t left = w.start_w + x * w.stride_w;
        const Span horizontal = span_of(left, w.kernel_w, w.dilation_w, src.w);
        my.columns.fill(horizontal, w.dilation_w, src.w, clamp);
        for (auto& at : my.columns.at) at *= step;
        const auto column_count = static_cast<std::int64_t>(my.columns.at.size());
        float* const result = direct ? dst.floats(n, y, x) + c0 : my.result.data() + x * c;
        switch (problem.type) {
          case PoolType::max: {
            const bool outside = vertical.before + vertical.after + horizontal.before + horizontal.after > 0;
            max_of(my.row_pointers.data(), row_count, my.columns.at.data(), column_count,
                   zero && outside ? 0.0f : -INFINITY, result, channels);
            break;
          }
          case PoolType::average: {
            const std::int64_t taps_w =
                zero ? w.kernel_w : taps_within(left, w.kernel_w, w.dilation_w, src.w, problem.zero_pad_w);
            // 0 if no tap counts.
            const float divisor = std::max(1.0f, static_cast<float>(taps_h) * static_cast<float>(taps_w));
            const std::int64_t first = wide && column_count >= kManyColumns ? channels / kWideBlock * kWideBlock : 0;
            if (first > 0)
              mean_of_many(my.row_pointers.data(), row_count, my.columns.at.data(), column_count, divisor, result,
                           first);
            mean_of(my.row_pointers.data(), row_count, my.columns.at.data(), column_count, divisor, result, first,
                    channels);
            break;
          }
          case PoolType::l2_norm:
            norm_of(my.row_pointers.data(), my.rows.times.data(), row_count, my.columns.at.data(),
                    my.columns.times.data(), column_count, result, channels);
            break;
        }
      }
      if (!direct) store_pixels(my.result.data(), dst.at(n, y), dst, dst.w);
    }
  });
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

const char* pool_wide_blocks(const PoolProblem& problem) {
  if (problem.type != PoolType::average) return "no averages";
  if (std::min(problem.window.kernel_w, problem.src.w) < kManyColumns) return "windows of few columns";
  if (problem.dst.c < kWideBlock) return "few channels";
  pool(problem, true);
  return nullptr;
}

const char* pool_blocks(const PoolProblem& problem) {
  pool(problem, false);
  return nullptr;
}

constexpr Implementation<PoolProblem> kPools[] = {
    {"pool_bytes", pool_bytes},
    {"pool_wide_blocks", pool_wide_blocks},
    {"pool_blocks", pool_blocks},
};
const ImplementationNames kPoolNames(kPools);

}  // namespace

void run(const PoolProblem& problem) { run_first("pool", kPools, problem); }

}  // namespace openmps::cpu
