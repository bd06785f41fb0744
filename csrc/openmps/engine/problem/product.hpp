// SPDX-License-Identifier: Apache-2.0
// Products of matrices.
#pragma once

#include "engine/problem/fields.hpp"

namespace openmps {

/// dst = alpha * op(a) * op(b) + beta * c for each image. An image is a matrix: its pixels are the rows, row by row of
/// the image, and its channels are the columns.
struct ProductProblem {
  ImageView a, b;
  ImageView c;    ///< no memory: 0. Otherwise the same view as dst, or one that shares no memory with it
  ImageView dst;  ///< shares no memory with a and b
  bool transpose_a = false, transpose_b = false;
  bool symmetric_b = false;  ///< b is square, and b + transposed(b) replaces it
  float alpha = 1, beta = 0;

  static constexpr auto fields() {
    using P = ProductProblem;
    using namespace roles;
    return std::tuple(in("a", &P::a), in("b", &P::b), in("c", &P::c), out("dst", &P::dst),
                      shape("transpose_a", &P::transpose_a), shape("transpose_b", &P::transpose_b),
                      shape("symmetric_b", &P::symmetric_b), value("alpha", &P::alpha), value("beta", &P::beta));
  }

  /// Return the number of terms of each sum.
  std::int64_t terms() const { return transpose_a ? a.h * a.w : a.c; }
};

}  // namespace openmps
