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

using Desc = dnnl::memory::desc;

/// A product of matrices, compiled.
struct Product {
  dnnl::primitive primitive;
  Desc a, b, c, scratchpad;

  void run(const void* a_data, const void* b_data, float* c_data) const {
    const Scratch scratch(scratchpad.get_size());
    const auto memory = [](const Desc& desc, const void* data) {
      return dnnl::memory(desc, onednn_engine(), const_cast<void*>(data));
    };
    std::unordered_map<int, dnnl::memory> given = {
        {DNNL_ARG_SRC, memory(a, a_data)}, {DNNL_ARG_WEIGHTS, memory(b, b_data)}, {DNNL_ARG_DST, memory(c, c_data)}};
    if (scratch.data()) given.emplace(DNNL_ARG_SCRATCHPAD, memory(scratchpad, scratch.data()));
    dnnl::stream stream(onednn_engine());
    primitive.execute(stream, given);
    stream.wait();
  }
};

/// Return null if oneDNN has only its reference.
std::shared_ptr<const Product> compiled(const Desc& a, const Desc& b, const Desc& c, bool adds) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (adds) {
    dnnl::post_ops sum;
    sum.append_sum();
    attributes.set_post_ops(sum);
  }
  const dnnl::matmul::primitive_desc pd(onednn_engine(), a, b, c, attributes, true);
  if (!pd || is_reference(pd)) return nullptr;
  return std::make_shared<Product>(
      Product{dnnl::matmul(pd), pd.src_desc(), pd.weights_desc(), pd.dst_desc(), pd.scratchpad_desc()});
}

Desc matrix_desc(std::int64_t rows, std::int64_t columns, const BfloatMatrix& matrix) {
  const std::int64_t step = matrix.stride;
  return {{rows, columns},
          dnnl::memory::data_type::bf16,
          matrix.is_transposed ? dnnl::memory::dims{1, step} : dnnl::memory::dims{step, 1}};
}

}  // namespace

bool multiply(const FloatMatrices& a, const FloatMatrices& b, std::int64_t count, std::int64_t rows,
              std::int64_t columns, std::int64_t inner, float* c, std::int64_t c_step, std::int64_t c_stride) {
  using Key = std::array<std::int64_t, 11>;
  const int threads = threads_for(count * rows * columns * inner, kMultiplyGrain);
  const Key key = {threads, count, rows, columns, inner, a.step, a.stride, b.step, b.stride, c_step, c_stride};
  const ThreadLimit limit(threads);
  const auto product = PrimitiveCache<Key, Product>::instance().find(key, [&] {
    const auto desc = [&](std::int64_t h, std::int64_t w, std::int64_t step, std::int64_t stride) {
      return Desc({count, h, w}, dnnl::memory::data_type::f32, dnnl::memory::dims{step, stride, 1});
    };
    return compiled(desc(rows, inner, a.step, a.stride), desc(inner, columns, b.step, b.stride),
                    desc(rows, columns, c_step, c_stride), false);
  });
  if (product) product->run(a.data, b.data, c);
  return product != nullptr;
}

bool multiply(const BfloatMatrix& a, const BfloatMatrix& b, std::int64_t rows, std::int64_t columns, std::int64_t inner,
              float* c, std::int64_t c_stride, bool adds) {
  using Key = std::array<std::int64_t, 7>;
  const int threads = threads_for(rows * columns * inner, kMultiplyGrain);
  const std::int64_t flags = threads << 3 | (a.is_transposed ? 1 : 0) | (b.is_transposed ? 2 : 0) | (adds ? 4 : 0);
  const Key key = {flags, rows, columns, inner, a.stride, b.stride, c_stride};
  const ThreadLimit limit(threads);
  const auto product = PrimitiveCache<Key, Product>::instance().find(key, [&] {
    const Desc result({rows, columns}, dnnl::memory::data_type::f32, dnnl::memory::dims{c_stride, 1});
    return compiled(matrix_desc(rows, inner, a), matrix_desc(inner, columns, b), result, adds);
  });
  if (product) product->run(a.data, b.data, c);
  return product != nullptr;
}

}  // namespace openmps::cpu
