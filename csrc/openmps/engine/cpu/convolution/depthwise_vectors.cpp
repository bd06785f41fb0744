// SPDX-License-Identifier: Apache-2.0
// Depth-wise convolution in registers, for AVX-512.
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

using depthwise::i64, depthwise::kLanes, depthwise::PackedFilters, depthwise::RowCall;

constexpr i64 kGrain = 64 * 1024;  // min multiplications per thread

template <int kernel, int stride>
void convolve(const ConvCall& call, const PackedFilters& filters, const Activation& activation) {
  const Tensor &src = call.src, &dst = call.dst;
  const Window& w = call.window;
  constexpr i64 taps = kernel * kernel;
  const i64 blocks = (dst.c + kLanes - 1) / kLanes;
  const int threads = threads_for(dst.size() * taps, kGrain);
  const i64 parts = depthwise_parts(call, blocks, threads);
  parallel_ranges(dst.n * parts * blocks, threads, [&](i64 begin, i64 end) {
    for (i64 task = begin; task < end; ++task) {
      const i64 block = task % blocks, part = task / blocks % parts, n = task / blocks / parts;
      const i64 channel = block * kLanes, left = dst.c - channel;
      RowCall<kernel> row;
      row.step = src.w_stride, row.columns = src.w, row.dst_step = dst.w_stride;
      row.taps = filters.taps.data() + block * taps * kLanes, row.bias = filters.bias.data() + channel;
      row.activation = &activation;
      row.lanes = static_cast<__mmask16>(left >= kLanes ? 0xffff : (1 << left) - 1);
      for (i64 y = dst.h * part / parts; y < dst.h * (part + 1) / parts; ++y) {
        for (i64 p = 0; p < kernel; ++p) {
          const i64 at = w.start_h + y * stride + p;
          row.rows[static_cast<std::size_t>(p)] =
              at < 0 || at >= src.h ? nullptr : reinterpret_cast<const float*>(src.at(n, at)) + channel;
        }
        row.dst = reinterpret_cast<float*>(dst.at(n, y)) + channel;
        depthwise::row_results<kernel, stride>(row, w.start_w, dst.w);
      }
    }
  });
}

void convolve(const ConvCall& call, const PackedFilters& filters, const Activation& activation) {
  const bool is_strided = call.window.stride_h == 2;
  if (call.window.kernel_h == 3)
    is_strided ? convolve<3, 2>(call, filters, activation) : convolve<3, 1>(call, filters, activation);
  else
    is_strided ? convolve<5, 2>(call, filters, activation) : convolve<5, 1>(call, filters, activation);
}

}  // namespace

const char* conv_depthwise_vectors(const ConvCall& call) {
  const ConvWeights& weights = *call.weights;
  const Window& w = call.window;
  if (weights.in_channels_per_group != 1 || weights.groups != weights.out_channels || weights.groups == 1)
    return "not depth-wise";
  if (!has_avx512()) return "the processor has no AVX-512";
  if (call.adds()) return "something is added";
  if (w.kernel_h != w.kernel_w || (w.kernel_h != 3 && w.kernel_h != 5)) return "the window is neither 3 x 3 nor 5 x 5";
  if (w.stride_h != w.stride_w || w.stride_h > 2) return "other strides than 1 and 2";
  if (w.dilation_h != 1 || w.dilation_w != 1) return "dilation";
  if (w.edge != Edge::zero) return "edges are clamped";
  const std::optional<Activation> activation = activation_of(*call.neuron);
  if (!activation) return "a neuron without vectors";
  const auto filters = PackedFilters::of(weights);
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
  convolve(floats, *filters, *activation);
  if (floats.dst.data != call.dst.data) copy(floats.dst, call.dst);
  return nullptr;
}

#else

const char* conv_depthwise_vectors(const ConvCall&) { return "not for this processor"; }

#endif

}  // namespace openmps::cpu
