// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/product/multiply.hpp"

#include <array>
#include <new>
#include <stdexcept>
#include <string>
#include <unordered_map>

#include <dnnl.hpp>

#include "engine/cpu/convolution/onednn/compiled.hpp"
#include "engine/cpu/primitive_cache.hpp"
#include "engine/cpu/runtime.hpp"
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

namespace {

struct Product {
  dnnl::primitive primitive;
  dnnl::memory::desc a, b, c, scratchpad;
};

dnnl::memory::desc matrix_desc(std::int64_t rows, std::int64_t columns, const BfloatMatrix& matrix) {
  const std::int64_t step = matrix.stride;
  return {{rows, columns},
          dnnl::memory::data_type::bf16,
          matrix.is_transposed ? dnnl::memory::dims{1, step} : dnnl::memory::dims{step, 1}};
}

}  // namespace

bool multiply(const BfloatMatrix& a, const BfloatMatrix& b, std::int64_t rows, std::int64_t columns, std::int64_t inner,
              float* c, std::int64_t c_stride, bool adds) {
  using Key = std::array<std::int64_t, 7>;
  const int threads = threads_for(rows * columns * inner, kMultiplyGrain);
  const std::int64_t flags = threads << 3 | (a.is_transposed ? 1 : 0) | (b.is_transposed ? 2 : 0) | (adds ? 4 : 0);
  const Key key = {flags, rows, columns, inner, a.stride, b.stride, c_stride};
  const ThreadLimit limit(threads);
  const auto product = PrimitiveCache<Key, Product>::instance().find(key, [&]() -> std::shared_ptr<const Product> {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (adds) {
      dnnl::post_ops sum;
      sum.append_sum();
      attributes.set_post_ops(sum);
    }
    const dnnl::memory::desc result({rows, columns}, dnnl::memory::data_type::f32, dnnl::memory::dims{c_stride, 1});
    const dnnl::matmul::primitive_desc pd(onednn_engine(), matrix_desc(rows, inner, a), matrix_desc(inner, columns, b),
                                          result, attributes, true);
    if (!pd || is_reference(pd)) return nullptr;
    return std::make_shared<Product>(
        Product{dnnl::matmul(pd), pd.src_desc(), pd.weights_desc(), pd.dst_desc(), pd.scratchpad_desc()});
  });
  if (!product) return false;
  const Scratch scratchpad(product->scratchpad.get_size());
  const auto memory = [](const dnnl::memory::desc& desc, const void* data) {
    return dnnl::memory(desc, onednn_engine(), const_cast<void*>(data));
  };
  std::unordered_map<int, dnnl::memory> given = {{DNNL_ARG_SRC, memory(product->a, a.data)},
                                                 {DNNL_ARG_WEIGHTS, memory(product->b, b.data)},
                                                 {DNNL_ARG_DST, memory(product->c, c)}};
  if (scratchpad.data()) given.emplace(DNNL_ARG_SCRATCHPAD, memory(product->scratchpad, scratchpad.data()));
  dnnl::stream stream(onednn_engine());
  product->primitive.execute(stream, given);
  stream.wait();
  return true;
}

}  // namespace openmps::cpu
