// SPDX-License-Identifier: Apache-2.0
// Depth-wise convolution in registers, for AVX-512 and AVX2.
#include <optional>
#include <utility>

#include "engine/cpu/convolution/convolution.hpp"
#include "engine/cpu/convolution/depthwise.hpp"
#include "engine/cpu/convolution/depthwise_rows.hpp"
#include "engine/cpu/pointwise/elementwise.hpp"
#include "engine/cpu/runtime.hpp"
#include "engine/shared/parallel.hpp"

namespace openmps::cpu {

#if defined(__x86_64__)

namespace {

using depthwise::i64;

constexpr i64 kGrain = 64 * 1024;  // min multiplications per thread

namespace with_avx512 {
using namespace depthwise::with_avx512;
}
namespace with_avx2 {
using namespace depthwise::with_avx2;
}
#define MPSCNN_LOOPS "engine/cpu/convolution/depthwise_vectors.inc"
#include "engine/cpu/pointwise/vector_copies.inc"

}  // namespace

const char* conv_depthwise_vectors(const ConvCall& call) {
  const ConvWeights& weights = *call.weights;
  const Window& w = call.window;
  if (weights.in_channels_per_group != 1 || weights.groups != weights.out_channels || weights.groups == 1)
    return "not depth-wise";
  if (!has_avx512() && !has_avx2()) return "the processor has no AVX2";
  if (call.adds()) return "something is added";
  if (w.kernel_h != w.kernel_w || (w.kernel_h != 3 && w.kernel_h != 5)) return "the window is neither 3 x 3 nor 5 x 5";
  if (w.stride_h != w.stride_w || w.stride_h > 2) return "other strides than 1 and 2";
  if (w.dilation_h != 1 || w.dilation_w != 1) return "dilation";
  if (w.edge != Edge::zero) return "edges are clamped";
  const std::optional<Activation> activation = activation_of(*call.neuron);
  if (!activation) return "a neuron without vectors";
  if (call.reduced_precision && call.src.format == Format::bfloat16 && call.dst.format == Format::bfloat16 &&
      has_avx512_bfloat16()) {
    convolve_depthwise_pairs(call, *activation);
    return nullptr;
  }
  ConvCall floats = call;  // equal sums for all formats
  Scratch src_memory, dst_memory;
  if (call.src.format != Format::float32) floats.src = dense(call.src, Format::float32, src_memory);
  if (call.dst.format != Format::float32) {
    ScratchTensor result(call.dst.n, call.dst.h, call.dst.w, call.dst.c);
    floats.dst = result.tensor, dst_memory = std::move(result.memory);
  }
  has_avx512() ? with_avx512::convolve(floats, *activation) : with_avx2::convolve(floats, *activation);
  if (floats.dst.data != call.dst.data) copy(floats.dst, call.dst);
  return nullptr;
}

#else

const char* conv_depthwise_vectors(const ConvCall&) { return "not for this processor"; }

#endif

}  // namespace openmps::cpu
