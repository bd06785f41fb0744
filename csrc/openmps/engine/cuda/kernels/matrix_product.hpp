// SPDX-License-Identifier: Apache-2.0
// Products of matrices, for any format and strides.
#pragma once

#include "engine/cuda/kernels/device.hpp"

namespace openmps::cuda::matrix_product {

inline constexpr const char* kFile = "engine/cuda/kernels/matrix_product.hpp";

struct ProductArgs {
  View a, b, c, dst;
  bool transpose_a, transpose_b, symmetric_b;
  float alpha, beta;
  i64 terms;
};

/// Return the value in a row and a column of image `n`: the rows are its pixels.
MPSCNN_HOST_DEVICE float element(const View& view, i64 n, i64 row, i64 column) {
  const i64 y = view.h == 1 ? 0 : row / view.w;
  return load(view, n, y, row - y * view.w, column);
}

/// Return term `i` of the value in a row and a column.
MPSCNN_HOST_DEVICE float term(const ProductArgs& args, i64 n, i64 row, i64 column, i64 i) {
  const float left = args.transpose_a ? element(args.a, n, i, row) : element(args.a, n, row, i);
  float right = args.transpose_b ? element(args.b, n, column, i) : element(args.b, n, i, column);
  if (args.symmetric_b) right += element(args.b, n, column, i);
  return left * right;
}

MPSCNN_HOST_DEVICE void store_product(const ProductArgs& args, const Place& at, double sum) {
  double value = args.alpha * sum;
  if (args.c) value += args.beta * double{load(args.c, at)};
  store(args.dst, at, static_cast<float>(value));
}

MPSCNN_VALUE_KERNEL(matrix_product_values, ProductArgs) {
  constexpr i64 kRun = 64;  // terms that are added as floats
  const Place at = place_of(index, args.dst);
  const i64 row = at.y * args.dst.w + at.x;
  double sum = 0;
  for (i64 first = 0; first < args.terms; first += kRun) {
    const i64 end = first + kRun < args.terms ? first + kRun : args.terms;
    float part = 0;
    for (i64 i = first; i < end; ++i) part += term(args, at.n, row, at.k, i);
    sum += part;
  }
  store_product(args, at, sum);
}

// One block per value.
MPSCNN_BLOCK_KERNEL(matrix_product_by_blocks, ProductArgs) {
  const Place at = place_of(index, args.dst);
  const i64 row = at.y * args.dst.w + at.x;
  const double sum = block.reduce(
      args.terms, 0.0, [&](i64 i) -> double { return term(args, at.n, row, at.k, i); },
      [](double a, double b) { return a + b; });
  block.for_each(1, [&](i64) { store_product(args, at, sum); });
}

}  // namespace openmps::cuda::matrix_product
