// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/resampling/adjoint.hpp"

#include <cstring>

#include "engine/cpu/pointwise/vectors.hpp"
#include "engine/shared/isa.hpp"

namespace openmps::cpu {
namespace {

using i64 = std::int64_t;

constexpr std::int64_t kGrain = 32 * 1024;  // min values per thread
constexpr std::int64_t kBlock = 32;         // min channels per range

/// Pixels of a row.
struct ColumnTerms {
  PixelRow row;
  const Shares::Share* shares;
  float weight(i64 i) const { return shares[i].weight; }
  const float* from(i64 i) const { return row.data + shares[i].result * row.step; }
};

struct RowTerms {
  const float* const* rows;
  const float* weights;
  float weight(i64 i) const { return weights[i]; }
  const float* from(i64 i) const { return rows[i]; }
};

#define MPSCNN_LOOPS "engine/cpu/resampling/weighted_sums.inc"
#define MPSCNN_ANY_PROCESSOR
#include "engine/cpu/pointwise/vector_copies.inc"

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
  MPSCNN_COPY(weighted_columns)(row, columns.all(), columns.begins(), count, dst, channels);
}

void gather_rows(const float* const* rows, const float* weights, std::int64_t count, float* dst, std::int64_t length) {
  MPSCNN_COPY(weighted_rows)(rows, weights, count, dst, length);
}

void multiply_pixels(PixelRow factors, float* dst, std::int64_t step, std::int64_t pixels, std::int64_t channels) {
  if (factors.step == channels && step == channels) return multiply_row(factors.data, dst, pixels * channels);
  for (std::int64_t x = 0; x < pixels; ++x) multiply_row(factors.data + x * factors.step, dst + x * step, channels);
}

}  // namespace openmps::cpu
