// SPDX-License-Identifier: Apache-2.0
// Fully connected layers of a few images, as classifiers and the gates of channels have: a matrix times a vector. Each
// weight is read once, where it is. oneDNN's inner product has a copy of the weights and takes 1.3 to 2 times as long
// for small matrices. For AVX-512 and AVX2. Weights that training changes are also multiplied where they are for more
// images: each copy would be used once.
#include "engine/cpu/convolution/convolution.hpp"
#include "engine/cpu/pointwise/elementwise.hpp"
#include "engine/cpu/pointwise/vectors.hpp"
#include "engine/cpu/product/multiply.hpp"
#include "engine/cpu/runtime.hpp"
#include "engine/shared/parallel.hpp"
#include "engine/shared/rows.hpp"

#if defined(__x86_64__)

namespace openmps::cpu::matrix_vector {

using i64 = std::int64_t;

constexpr i64 kMaxImages = 4;
constexpr i64 kGrain = 32 * 1024;  // min multiplications per thread
/// Max multiplications for which products of bfloat16 are not faster: the call of a primitive takes as long.
constexpr i64 kFewProducts = 32 * 1024;

/// dst[n][o] = sum over i of weights[o][i] * src[n][i].
struct Product {
  const float *weights, *src;
  float* dst;
  i64 images, outputs, inputs;
};

#define MPSCNN_LOOPS "engine/cpu/convolution/matrix_vector.inc"
#include "engine/cpu/pointwise/vector_copies.inc"

void multiply(const Product& product) {
  parallel_ranges(
      product.outputs, threads_for(product.images * product.outputs * product.inputs, kGrain), [&](i64 begin, i64 end) {
        has_avx512() ? with_avx512::multiply(product, begin, end) : with_avx2::multiply(product, begin, end);
      });
}

}  // namespace openmps::cpu::matrix_vector

#endif

namespace openmps::cpu {

#if defined(__x86_64__)

const char* conv_matrix_vector(const ConvCall& call) {
  if (!is_fully_connected(call)) return "the window is not the whole source, or there is more than one pixel of result";
  const bool are_many = call.dst.n > matrix_vector::kMaxImages;
  if (are_many && !call.weights->in_place) return "more than four images";
  if (!has_avx512() && !has_avx2()) return "the processor has no AVX2";
  if (call.adds()) return "something is added";
  const ConvWeights& weights = *call.weights;
  if (call.reduced_precision &&
      call.dst.n * static_cast<std::int64_t>(weights.values.size()) > matrix_vector::kFewProducts)
    return "products of bfloat16 are faster";
  Scratch src_memory;
  const Tensor src = dense(call.src, Format::float32, src_memory), &dst = call.dst;
  const ScratchTensor result(dst.n, 1, 1, dst.c);
  const std::int64_t inputs = weights.kernel_h * weights.kernel_w * weights.in_channels_per_group;
  if (are_many)
    multiply({src.floats(), inputs}, {weights.values.data(), inputs, /*is_transposed=*/true}, dst.n, dst.c, inputs,
             result.tensor.floats(), dst.c);
  else
    matrix_vector::multiply({weights.values.data(), src.floats(), result.tensor.floats(), dst.n, dst.c, inputs});
  const float* const bias = bias_of(call);
  for (std::int64_t n = 0; n < dst.n; ++n) {
    float* const values = result.tensor.floats(n, 0);
    row_neuron(*call.neuron, values, values, dst.c, dst.c, bias);
    row_from_float(values, dst.at(n, 0), dst.format, dst.c);
  }
  return nullptr;
}

#else

const char* conv_matrix_vector(const ConvCall&) { return "not for this processor"; }

#endif

}  // namespace openmps::cpu
