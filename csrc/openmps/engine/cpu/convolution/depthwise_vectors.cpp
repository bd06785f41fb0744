// SPDX-License-Identifier: Apache-2.0
// Depth-wise convolution in registers: the vectors of a row of results, 16 channels at a time, stay in registers while
// the window's taps are added. For AVX-512.
#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "engine/cpu/convolution/convolution.hpp"
#include "engine/cpu/convolution/depthwise.hpp"
#include "engine/cpu/pointwise/elementwise.hpp"
#include "engine/cpu/pointwise/vectors.hpp"
#include "engine/cpu/runtime.hpp"
#include "engine/shared/parallel.hpp"

namespace openmps::cpu {

#if defined(__x86_64__)

namespace {

using i64 = std::int64_t;

constexpr i64 kLanes = 16;
constexpr i64 kGrain = 64 * 1024;      // min multiplications per thread
constexpr int kWide = 7, kNarrow = 3;  // results side by side: widths of networks are often multiples of 7

/// Filters by blocks of kLanes channels, zeros after the last channel: [block][tap][lane]. And the biases.
struct PackedFilters {
  std::vector<float> taps, bias;

  explicit PackedFilters(const ConvWeights& weights) {
    const i64 c = weights.out_channels, count = weights.kernel_h * weights.kernel_w;
    const i64 blocks = (c + kLanes - 1) / kLanes;
    taps.resize(static_cast<std::size_t>(blocks * count * kLanes));
    bias.resize(static_cast<std::size_t>(blocks * kLanes));
    const float* const values = weights.values.data();
    for (i64 k = 0; k < c; ++k) {
      for (i64 t = 0; t < count; ++t)
        taps[static_cast<std::size_t>((k / kLanes * count + t) * kLanes + k % kLanes)] = values[k * count + t];
      if (!weights.bias.empty()) bias[static_cast<std::size_t>(k)] = weights.bias[static_cast<std::size_t>(k)];
    }
  }

  static std::shared_ptr<const PackedFilters> of(const ConvWeights& weights) {
    const std::lock_guard lock(weights.cache.mutex);
    std::shared_ptr<void>& entry = weights.cache.entries["depthwise"];
    if (!entry) entry = std::make_shared<PackedFilters>(weights);
    return std::static_pointer_cast<const PackedFilters>(entry);
  }
};

/// Arguments of all results of one row and one block of channels. Steps count values.
template <int kernel>
struct RowCall {
  std::array<const float*, kernel> rows;  ///< of the source, at column 0 and the block's channels; null: zeros
  i64 step, columns;
  float* dst;  ///< at column 0
  i64 dst_step;
  const float *taps, *bias;
  const Activation* activation;
  __mmask16 lanes;
};

/// Compute `count` results from `x` on, which read columns from `first` on. `is_inside`: all of them are in the source.
template <int kernel, int stride, int count, bool is_inside>
MPSCNN_AVX512 void results(const RowCall<kernel>& call, i64 x, i64 first) {
  const Activation activation = *call.activation;
  const i64 step = call.step;
  __m512 sums[count];
  const __m512 bias = _mm512_loadu_ps(call.bias);
#pragma GCC unroll 8
  for (int i = 0; i < count; ++i) sums[i] = bias;
  for (int p = 0; p < kernel; ++p) {
    const float* const row = call.rows[static_cast<std::size_t>(p)];
    if (!row) continue;
    const float* from = row + first * step;
    __m512 taps[kernel];
#pragma GCC unroll 8
    for (int q = 0; q < kernel; ++q) taps[q] = _mm512_loadu_ps(call.taps + (p * kernel + q) * kLanes);
#pragma GCC unroll 32
    for (int j = 0; j < (count - 1) * stride + kernel; ++j, from += step) {
      if (!is_inside && (first + j < 0 || first + j >= call.columns)) continue;
      const __m512 pixel = load(call.lanes, from);
#pragma GCC unroll 8
      for (int q = 0; q < kernel; ++q) {
        const int i = (j - q) / stride;
        if (j >= q && (j - q) % stride == 0 && i < count) sums[i] = _mm512_fmadd_ps(pixel, taps[q], sums[i]);
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < count; ++i) store(call.lanes, call.dst + (x + i) * call.dst_step, activate(activation, sums[i]));
}

template <int kernel, int stride, int count>
i64 results_from(const RowCall<kernel>& call, i64 x, i64 first) {
  constexpr int reach = (count - 1) * stride + kernel;
  if (first >= 0 && first + reach <= call.columns)
    results<kernel, stride, count, true>(call, x, first);
  else
    results<kernel, stride, count, false>(call, x, first);
  return x + count;
}

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
        for (i64 x = 0; x < dst.w;) {
          const i64 first = w.start_w + x * stride;
          if (x + kWide <= dst.w)
            x = results_from<kernel, stride, kWide>(row, x, first);
          else if (x + kNarrow <= dst.w)
            x = results_from<kernel, stride, kNarrow>(row, x, first);
          else
            x = results_from<kernel, stride, 1>(row, x, first);
        }
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
