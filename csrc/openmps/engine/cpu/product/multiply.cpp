// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/product/multiply.hpp"

#include <new>
#include <stdexcept>
#include <string>

#include <dnnl.h>

#include "engine/shared/parallel.hpp"

namespace openmps::cpu {

/// Multiplications below which a second thread costs more than it saves.
constexpr std::int64_t kMultiplyGrain = 200 * 1000;

void multiply(const FloatMatrix& a, const FloatMatrix& b, std::int64_t rows, std::int64_t columns, std::int64_t inner,
              float* c, std::int64_t c_stride, float alpha, float beta) {
  const ThreadLimit limit(threads_for(rows * columns * inner, kMultiplyGrain));
  const dnnl_status_t status = dnnl_sgemm(a.is_transposed ? 'T' : 'N', b.is_transposed ? 'T' : 'N', rows, columns,
                                          inner, alpha, a.data, a.stride, b.data, b.stride, beta, c, c_stride);
  if (status == dnnl_out_of_memory) throw std::bad_alloc();
  if (status != dnnl_success)
    throw std::runtime_error("oneDNN could not multiply matrices (status " + std::to_string(status) + ").");
}

}  // namespace openmps::cpu
