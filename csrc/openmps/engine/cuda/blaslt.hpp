// SPDX-License-Identifier: Apache-2.0
// Matrix products of cuBLASLt, for convolutions of 1 x 1. Names and values are those of cuBLASLt
// [docs.nvidia.com/cuda/cublas, cublasLt].
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/cuda/work.hpp"

namespace openmps::cuda {

/// d[m][n] = relu(sum_k a[m][k] * b[n][k] + bias[n] + c[m][n]), rows of n, k and n values that are `stride` apart; c
/// and relu are optional. Products of float16 are summed in float32.
struct Product {
  Format format = Format::float32;
  bool reduced_precision = false;  ///< tf32 products of float32
  std::int64_t m = 1, n = 1, k = 1;
  std::int64_t a_stride = 1, b_stride = 1, c_stride = 0, d_stride = 1;  ///< in values; c_stride 0: no c
  bool has_bias = false, has_relu = false;
  /// d[m][n] = sum_k a[k][m] * b[k][n] instead, rows of m and n values that are `stride` apart; d is float32. No bias,
  /// c and relu.
  bool sums_rows = false;

  std::string key() const;
};

struct ProductAddresses {
  Address a = 0, b = 0, bias = 0, c = 0, d = 0;  ///< the bias has the format of the matrices
};

class ProductPlan {
 public:
  virtual ~ProductPlan() = default;
  virtual std::size_t workspace_bytes() const = 0;
  virtual void run(Work& work, const ProductAddresses& at, Address workspace) const = 0;
  virtual std::string saved() const = 0;
};

bool has_cublaslt(const Gpu& gpu);
std::string cublaslt_version();

/// Return up to `count` plans that the heuristic recommends, the best first.
std::vector<std::shared_ptr<const ProductPlan>> product_plans(const Gpu& gpu, const Product& product,
                                                              std::size_t count);
std::shared_ptr<const ProductPlan> restore_product(const Gpu& gpu, const Product& product, const std::string& saved);

}  // namespace openmps::cuda
