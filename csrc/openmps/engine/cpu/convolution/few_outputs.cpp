// SPDX-License-Identifier: Apache-2.0
// Convolutions to at most four channels, as networks have that end in an image: vectors hold 16 inputs of a pixel
// instead of 16 outputs, most of which would be empty. The lanes are summed at the end. For AVX-512.
#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "engine/cpu/convolution/convolution.hpp"
#include "engine/cpu/pointwise/elementwise.hpp"
#include "engine/cpu/pointwise/vectors.hpp"
#include "engine/cpu/runtime.hpp"
#include "engine/shared/parallel.hpp"

namespace openmps::cpu {

#if defined(__x86_64__)

namespace {

using i64 = std::int64_t;

constexpr i64 kLanes = 16;
constexpr i64 kMostOutputs = 4;
constexpr i64 kGrain = 200 * 1000;  // min multiplications per thread

/// Weights by vectors of inputs, zeros after the last input: [tap][vector][output][lane].
struct Packed {
  std::vector<float> values;

  explicit Packed(const ConvWeights& weights) {
    const i64 outputs = weights.out_channels, inputs = weights.in_channels_per_group;
    const i64 taps = weights.kernel_h * weights.kernel_w, vectors = (inputs + kLanes - 1) / kLanes;
    values.resize(static_cast<std::size_t>(taps * vectors * outputs * kLanes));
    const float* from = weights.values.data();
    for (i64 o = 0; o < outputs; ++o)
      for (i64 t = 0; t < taps; ++t)
        for (i64 i = 0; i < inputs; ++i, ++from)
          values[static_cast<std::size_t>(((t * vectors + i / kLanes) * outputs + o) * kLanes + i % kLanes)] = *from;
  }

  static std::shared_ptr<const Packed> of(const ConvWeights& weights) {
    if (weights.in_place) return std::make_shared<Packed>(weights);
    const std::lock_guard lock(weights.cache.mutex);
    std::shared_ptr<void>& entry = weights.cache.entries["few_outputs"];
    if (!entry) entry = std::make_shared<Packed>(weights);
    return std::static_pointer_cast<const Packed>(entry);
  }
};

/// Results side by side, whose sums stay in registers together.
template <int outputs>
constexpr int kPixels = outputs == 4 ? 6 : 8;

/// Store `count` results of row `y` from column `x` on; `is_inside`: all columns of their windows are in the source.
template <int outputs, int count, bool is_inside>
MPSCNN_AVX512 void results(const ConvCall& call, const float* packed, const Activation& f, i64 n, i64 y, i64 x) {
  const Tensor &src = call.src, &dst = call.dst;
  const Window& w = call.window;
  const i64 vectors = (src.c + kLanes - 1) / kLanes, step = w.stride_w * src.w_stride;
  __m512 sums[count][outputs];
#pragma GCC unroll 8
  for (int i = 0; i < count; ++i)
#pragma GCC unroll 4
    for (int o = 0; o < outputs; ++o) sums[i][o] = _mm512_setzero_ps();
  for (i64 p = 0; p < w.kernel_h; ++p) {
    const i64 row = w.start_h + y * w.stride_h + p * w.dilation_h;
    if (row < 0 || row >= src.h) continue;
    const float* taps = packed + p * w.kernel_w * vectors * outputs * kLanes;
    for (i64 q = 0; q < w.kernel_w; ++q) {
      const i64 column = w.start_w + x * w.stride_w + q * w.dilation_w;
      const float* from = src.floats() + n * src.n_stride + row * src.h_stride + column * src.w_stride;
      for (i64 c = 0; c < src.c; c += kLanes, from += kLanes, taps += outputs * kLanes) {
        const auto lanes = static_cast<__mmask16>(src.c - c >= kLanes ? 0xffff : (1 << (src.c - c)) - 1);
        __m512 weights[outputs];
#pragma GCC unroll 4
        for (int o = 0; o < outputs; ++o) weights[o] = _mm512_loadu_ps(taps + o * kLanes);
#pragma GCC unroll 8
        for (int i = 0; i < count; ++i) {
          if (!is_inside && (column + i * w.stride_w < 0 || column + i * w.stride_w >= src.w)) continue;
          const __m512 pixel = _mm512_maskz_loadu_ps(lanes, from + i * step);
#pragma GCC unroll 4
          for (int o = 0; o < outputs; ++o) sums[i][o] = _mm512_fmadd_ps(pixel, weights[o], sums[i][o]);
        }
      }
    }
  }
  alignas(64) float values[2 * kLanes] = {};
  const float* const bias = bias_of(call);
#pragma GCC unroll 8
  for (int i = 0; i < count; ++i)
#pragma GCC unroll 4
    for (int o = 0; o < outputs; ++o)
      values[i * outputs + o] = _mm512_reduce_add_ps(sums[i][o]) + (bias ? bias[o] : 0.0f);
  for (i64 i = 0; i < count * outputs; i += kLanes)
    _mm512_store_ps(values + i, activate(f, _mm512_load_ps(values + i)));
  for (i64 i = 0; i < count; ++i)
    for (i64 o = 0; o < outputs; ++o) dst.floats(n, y, x + i)[o] = values[i * outputs + o];
}

template <int outputs, int count>
void results_from(const ConvCall& call, const float* packed, const Activation& f, i64 n, i64 y, i64 x) {
  const Window& w = call.window;
  const i64 first = w.start_w + x * w.stride_w;
  if (first >= 0 && first + (count - 1) * w.stride_w + reach_w(w) <= call.src.w)
    results<outputs, count, true>(call, packed, f, n, y, x);
  else
    results<outputs, count, false>(call, packed, f, n, y, x);
}

template <int outputs>
void convolve(const ConvCall& call, const Activation& f) {
  const Tensor& dst = call.dst;
  const auto packed = Packed::of(*call.weights);
  const i64 work = dst.size() * call.window.kernel_h * call.window.kernel_w * call.src.c;
  parallel_ranges(dst.n * dst.h, threads_for(work, kGrain), [&](i64 begin, i64 end) {
    for (i64 row = begin; row < end; ++row) {
      i64 x = 0;
      for (; x + kPixels<outputs> <= dst.w; x += kPixels<outputs>)
        results_from<outputs, kPixels<outputs>>(call, packed->values.data(), f, row / dst.h, row % dst.h, x);
      for (; x < dst.w; ++x) results_from<outputs, 1>(call, packed->values.data(), f, row / dst.h, row % dst.h, x);
    }
  });
}

}  // namespace

const char* conv_few_outputs(const ConvCall& call) {
  const ConvWeights& weights = *call.weights;
  if (weights.out_channels > kMostOutputs) return "more than four outputs";
  if (weights.groups != 1) return "groups";
  if (weights.in_channels_per_group < kLanes) return "fewer than 16 inputs";
  if (!has_avx512()) return "the processor has no AVX-512";
  if (call.adds()) return "something is added";
  if (call.window.edge != Edge::zero) return "edges are clamped";
  if (call.reduced_precision) return "products of bfloat16 are faster";
  const std::optional<Activation> neuron = activation_of(*call.neuron);
  Scratch src_memory, dst_memory;
  ConvCall floats = call;
  if (call.src.format != Format::float32) floats.src = dense(call.src, Format::float32, src_memory);
  if (call.dst.format != Format::float32) {
    ScratchTensor result(call.dst.n, call.dst.h, call.dst.w, call.dst.c);
    floats.dst = result.tensor, dst_memory = std::move(result.memory);
  }
  const Activation f = neuron.value_or(Activation());
  switch (weights.out_channels) {
    case 1: convolve<1>(floats, f); break;
    case 2: convolve<2>(floats, f); break;
    case 3: convolve<3>(floats, f); break;
    default: convolve<4>(floats, f);
  }
  if (!neuron)
    activate(floats.dst, call.dst, *call.neuron);
  else if (floats.dst.data != call.dst.data)
    copy(floats.dst, call.dst);
  return nullptr;
}

#else

const char* conv_few_outputs(const ConvCall&) { return "not for this processor"; }

#endif

}  // namespace openmps::cpu
