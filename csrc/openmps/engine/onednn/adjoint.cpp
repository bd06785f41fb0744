// SPDX-License-Identifier: Apache-2.0
#include "engine/onednn/adjoint.hpp"

#include <cstring>

#include "engine/shared/isa.hpp"

namespace openmps::onednn {
namespace {

constexpr std::int64_t kGrain = 32 * 1024;  // values that are worth a thread
constexpr std::int64_t kBlock = 32;         // channels that are worth a part of their own

/// Sixteen floats, in as many registers as the instruction set takes for them.
typedef float Floats __attribute__((vector_size(64)));
typedef float FloatsAnywhere __attribute__((vector_size(64), aligned(4)));

#define MPSCNN_LOAD(pointer) (*reinterpret_cast<const FloatsAnywhere*>(pointer))
#define MPSCNN_STORE(pointer, value) (*reinterpret_cast<FloatsAnywhere*>(pointer) = (value))

MPSCNN_CLONES void weighted_pixels(const float* row, std::int64_t step, const Shares::Share* shares, std::int64_t count,
                                   float* dst, std::int64_t channels) {
  std::int64_t k = 0;
  for (; k + 16 <= channels; k += 16) {
    Floats sum = shares[0].weight * MPSCNN_LOAD(row + shares[0].result * step + k);
    for (std::int64_t i = 1; i < count; ++i) sum += shares[i].weight * MPSCNN_LOAD(row + shares[i].result * step + k);
    MPSCNN_STORE(dst + k, sum);
  }
  for (; k < channels; ++k) {
    float sum = 0;
    for (std::int64_t i = 0; i < count; ++i) sum += shares[i].weight * row[shares[i].result * step + k];
    dst[k] = sum;
  }
}

MPSCNN_CLONES void weighted_rows(const float* const* rows, const float* weights, std::int64_t count, float* dst,
                                 std::int64_t length) {
  std::int64_t k = 0;
  for (; k + 16 <= length; k += 16) {
    Floats sum = weights[0] * MPSCNN_LOAD(rows[0] + k);
    for (std::int64_t i = 1; i < count; ++i) sum += weights[i] * MPSCNN_LOAD(rows[i] + k);
    MPSCNN_STORE(dst + k, sum);
  }
  for (; k < length; ++k) {
    float sum = 0;
    for (std::int64_t i = 0; i < count; ++i) sum += weights[i] * rows[i][k];
    dst[k] = sum;
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
  // Shared images cost `reach` rows for each thread but the first.
  const bool is_cheap = diff_src.n % work.threads == 0 || reach * work.threads * 8 <= lines;
  if (work.threads > 1 && !is_cheap && splits && c >= work.threads * kBlock) {
    work.part = (c / work.threads + kBlock - 1) / kBlock * kBlock;
    work.parts = (c + work.part - 1) / work.part;
  }
  return work;
}

void gather_columns(PixelRow row, const Shares& columns, std::int64_t count, std::int64_t channels, float* dst) {
  for (std::int64_t x = 0; x < count; ++x, dst += channels) {
    const auto shares = columns.of(x);
    if (shares.empty()) {
      std::memset(dst, 0, static_cast<std::size_t>(channels) * 4);
    } else {
      weighted_pixels(row.data, row.step, shares.data(), static_cast<std::int64_t>(shares.size()), dst, channels);
    }
  }
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

}  // namespace openmps::onednn
