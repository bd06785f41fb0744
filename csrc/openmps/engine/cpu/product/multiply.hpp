// SPDX-License-Identifier: Apache-2.0
// Products of matrices by oneDNN.
#pragma once

#include <cstdint>

namespace openmps::cpu {

/// A row-major matrix, rows `stride` floats apart.
struct FloatMatrix {
  const float* data;
  std::int64_t stride;
  bool is_transposed = false;
};

/// c = alpha * a * b + beta * c, where a has rows x inner values and b inner x columns, after transposition; c is not
/// read if beta is 0. Throws std::bad_alloc and std::runtime_error.
void multiply(const FloatMatrix& a, const FloatMatrix& b, std::int64_t rows, std::int64_t columns, std::int64_t inner,
              float* c, std::int64_t c_stride, float alpha = 1, float beta = 0);

/// Row-major matrices `step` floats apart, their rows `stride` floats apart.
struct FloatMatrices {
  const float* data;
  std::int64_t step, stride;
};

/// c[i] = a[i] * b[i], where `count` matrices of a have rows x inner values, and those of b inner x columns. Returns
/// false and does nothing if oneDNN has only its reference. Throws std::bad_alloc.
bool multiply(const FloatMatrices& a, const FloatMatrices& b, std::int64_t count, std::int64_t rows,
              std::int64_t columns, std::int64_t inner, float* c, std::int64_t c_step, std::int64_t c_stride);

/// The first of bfloat16.
struct BfloatMatrix {
  const std::uint16_t* data;
  std::int64_t stride;
  bool is_transposed = false;
};

/// c = a * b, or += if `adds`; sums are of float32. Returns false and does nothing if oneDNN has only
/// its reference.
bool multiply(const BfloatMatrix& a, const BfloatMatrix& b, std::int64_t rows, std::int64_t columns, std::int64_t inner,
              float* c, std::int64_t c_stride, bool adds);

}  // namespace openmps::cpu
