// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/resampling/adjoint.hpp"

#include <cstring>

#include "engine/shared/isa.hpp"

namespace openmps::cpu {
namespace {

constexpr std::int64_t kGrain = 32 * 1024;  // min values per thread
constexpr std::int64_t kBlock = 32;         // min channels per range

/// Sixteen floats, in as many registers as the instruction set needs.
typedef float Floats __attribute__((vector_size(64)));
typedef float FloatsAnywhere __attribute__((vector_size(64), aligned(4)));

#define MPSCNN_LOAD(pointer) (*reinterpret_cast<const FloatsAnywhere*>(pointer))
#define MPSCNN_STORE(pointer, value) (*reinterpret_cast<FloatsAnywhere*>(pointer) = (value))

/// dst[0] ... dst[length - 1], sixteen at a time: sums of weight(i) * from(i)[k] over i < count, a constant in usual
/// cases. A macro, because GCC has no constants for vectors in functions that it inlines into clones.
#define MPSCNN_SUM(count, weight, from)                                                                             \
  for (; k + 16 <= length; k += 16) {                                                                               \
    Floats sum = weight(0) * MPSCNN_LOAD(from(0) + k);                                                              \
    _Pragma("GCC unroll 4") for (std::int64_t i = 1; i < (count); ++i) sum += weight(i) * MPSCNN_LOAD(from(i) + k); \
    MPSCNN_STORE(dst + k, sum);                                                                                     \
  }                                                                                                                 \
  for (; k < length; ++k) {                                                                                         \
    float sum = 0;                                                                                                  \
    for (std::int64_t i = 0; i < (count); ++i) sum += weight(i) * from(i)[k];                                       \
    dst[k] = sum;                                                                                                   \
  }

MPSCNN_CLONES void weighted_columns(PixelRow row, const Shares::Share* all, const std::size_t* begins,
                                    std::int64_t columns, float* dst, std::int64_t length) {
  for (std::int64_t x = 0; x < columns; ++x, dst += length) {
    const Shares::Share* const shares = all + begins[x];
    const auto count = static_cast<std::int64_t>(begins[x + 1] - begins[x]);
    const auto weight = [&](std::int64_t i) __attribute__((always_inline)) { return shares[i].weight; };
    const auto from = [&](std::int64_t i)
                          __attribute__((always_inline)) { return row.data + shares[i].result * row.step; };
    std::int64_t k = 0;
    switch (count) {
      case 0: std::memset(dst, 0, static_cast<std::size_t>(length) * 4); break;
      case 1: MPSCNN_SUM(1, weight, from) break;
      case 2: MPSCNN_SUM(2, weight, from) break;
      case 3: MPSCNN_SUM(3, weight, from) break;
      default: MPSCNN_SUM(count, weight, from)
    }
  }
}

MPSCNN_CLONES void weighted_rows(const float* const* rows, const float* weights, std::int64_t count, float* dst,
                                 std::int64_t length) {
  const auto weight = [&](std::int64_t i) __attribute__((always_inline)) { return weights[i]; };
  const auto from = [&](std::int64_t i) __attribute__((always_inline)) { return rows[i]; };
  std::int64_t k = 0;
  switch (count) {
    case 1: MPSCNN_SUM(1, weight, from) break;
    case 2: MPSCNN_SUM(2, weight, from) break;
    case 3: MPSCNN_SUM(3, weight, from) break;
    default: MPSCNN_SUM(count, weight, from)
  }
}

MPSCNN_CLONES void multiply_row(const float* factors, float* dst, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) dst[i] *= factors[i];
}

}  // namespace

Partition partition(const Tensor& diff_src, std::int64_t reach, bool splits) {
  const std::int64_t lines = diff_src.n * diff_src.h, c = diff_src.c;
  Partition work{threads_for(diff_src.size(), kGrain), 1, c};
  // Splitting an image costs `reach` rows for each thread but the first.
  const bool is_cheap = diff_src.n % work.threads == 0 || reach * work.threads * 8 <= lines;
  if (work.threads > 1 && !is_cheap && splits && c >= work.threads * kBlock) {
    work.part = (c / work.threads + kBlock - 1) / kBlock * kBlock;
    work.parts = (c + work.part - 1) / work.part;
  }
  return work;
}

void gather_columns(PixelRow row, const Shares& columns, std::int64_t count, std::int64_t channels, float* dst) {
  weighted_columns(row, columns.all(), columns.begins(), count, dst, channels);
}

void gather_rows(const float* const* rows, const float* weights, std::int64_t count, float* dst, std::int64_t length) {
  if (count == 0) {
    std::memset(dst, 0, static_cast<std::size_t>(length) * 4);
  } else {
    weighted_rows(rows, weights, count, dst, length);
  }
}

void multiply_pixels(PixelRow factors, float* dst, std::int64_t step, std::int64_t pixels, std::int64_t channels) {
  if (factors.step == channels && step == channels) return multiply_row(factors.data, dst, pixels * channels);
  for (std::int64_t x = 0; x < pixels; ++x) multiply_row(factors.data + x * factors.step, dst + x * step, channels);
}

}  // namespace openmps::cpu
