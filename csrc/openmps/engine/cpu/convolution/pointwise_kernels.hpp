// SPDX-License-Identifier: Apache-2.0
// Products of pixels and weights for AVX-512: the sums of eight pixels and up to 48 outputs stay in registers until the
// activation.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "engine/cpu/convolution/bfloat16.hpp"
#include "engine/cpu/convolution/convolution.hpp"
#include "engine/cpu/pointwise/vectors.hpp"
#include "engine/cpu/runtime.hpp"
#include "engine/shared/parallel.hpp"

#if defined(__x86_64__)

namespace openmps::cpu::pointwise {

using i64 = std::int64_t;

constexpr i64 kLanes = 16;
constexpr i64 kVectors = 3, kPixels = 8;  // of sums in registers
constexpr i64 kChunk = 14 * kPixels;      // pixels that stay in the first caches for all panels
constexpr i64 kGrain = 64 * 1024;         // min multiplications per thread

/// Inputs that one product of a lane takes: two numbers of bfloat16, or one of float32.
template <class Value>
constexpr i64 kInputs = sizeof(float) / sizeof(Value);

inline float value_of(float value, float) { return value; }
inline std::uint16_t value_of(float value, std::uint16_t) { return bfloat16_of(value); }

/// Vectors of outputs by panels of at most kVectors. More than one: an even number of panels of nearly equal widths, so
/// that two threads have equal shares.
struct PanelWidths {
  i64 vectors, panels;

  explicit PanelWidths(i64 outputs) : vectors((outputs + kLanes - 1) / kLanes), panels(panels_of(vectors)) {}
  i64 first(i64 panel) const { return vectors * panel / panels; }  ///< vector
  i64 width(i64 panel) const { return first(panel + 1) - first(panel); }

 private:
  static i64 panels_of(i64 vectors) {
    const i64 least = (vectors + kVectors - 1) / kVectors;
    return least == 1 ? 1 : (least + 1) / 2 * 2;
  }
};

/// Weights by panels, zeros after the last output: [panel][inputs / kInputs][lane][kInputs]. And biases.
template <class Value>
struct Panels : PanelWidths {
  Scratch values;
  std::vector<float> biases;
  i64 inputs;

  explicit Panels(const ConvWeights& weights)
      : PanelWidths(weights.out_channels),
        values(Scratch::to_keep(static_cast<std::uint64_t>(vectors * kLanes * weights.in_channels_per_group) *
                                sizeof(Value))),
        biases(static_cast<std::size_t>(vectors * kLanes)),
        inputs(weights.in_channels_per_group) {
    if (!weights.bias.empty()) std::copy_n(weights.bias.data(), weights.out_channels, biases.begin());
    const i64 parts = (inputs + kPacked - 1) / kPacked;
    parallel_ranges(panels * parts, threads_for(weights.out_channels * inputs, kPackGrain), [&](i64 begin, i64 end) {
      for (i64 task = begin; task < end; ++task) pack(weights, task / parts, task % parts * kPacked);
    });
  }

  Value* panel(i64 p) const { return reinterpret_cast<Value*>(values.data()) + first(p) * kLanes * inputs; }
  const float* bias(i64 p) const { return biases.data() + first(p) * kLanes; }

  static std::shared_ptr<const Panels> of(const ConvWeights& weights) {
    return weights.derived<const Panels>(kInputs<Value> == 1 ? "pointwise" : "pointwise, bfloat16",
                                         [&] { return std::make_shared<const Panels>(weights); });
  }

 private:
  static constexpr i64 kPacked = 16;            // inputs that are packed together, in the first-level cache
  static constexpr i64 kPackGrain = 16 * 1024;  // min values per thread

  /// Pack up to kPacked inputs of a panel, from `start` on.
  void pack(const ConvWeights& weights, i64 p, i64 start) const {
    constexpr i64 k = kInputs<Value>;
    const i64 output = first(p) * kLanes, lanes = width(p) * kLanes, count = std::min(kPacked, inputs - start);
    const i64 outputs = std::min(lanes, weights.out_channels - output);
    const float* const from = weights.values.data() + output * inputs + start;
    std::array<Value, static_cast<std::size_t>(kPacked * kVectors * kLanes)> packed{};
    for (i64 o = 0; o < outputs; ++o)
      for (i64 i = 0; i < count; ++i)
        packed[static_cast<std::size_t>(i / k * k * lanes + o * k + i % k)] = value_of(from[o * inputs + i], Value());
    std::copy_n(packed.begin(), count * lanes, panel(p) + start * lanes);
  }
};

/// Arguments of the results of some pixels and one panel. Steps count values.
template <class Value, class Result = Value>
struct BlockCall {
  const Value* src;
  i64 src_step, inputs;
  const Value* panel;
  const float* bias;
  Result* dst;
  i64 dst_step, outputs;  ///< from the panel's first one on
  const Activation* activation;
  const Result* addend = nullptr;  ///< if not null: dst = after(activation(...) + addend)
  i64 addend_step = 0;
  const Activation* after = nullptr;
};

/// The instances for float32 have no instructions for bfloat16.
template <class Value, class Result, int vectors, int pixels>
MPSCNN_AVX512_BF16 void results(const BlockCall<Value, Result>& call) {
  constexpr bool is_float = kInputs<Value> == 1;
  const Activation activation = *call.activation;
  __m512 sums[pixels][vectors];
#pragma GCC unroll 8
  for (int p = 0; p < pixels; ++p)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) sums[p][v] = _mm512_loadu_ps(call.bias + v * kLanes);
  const Value* weights = call.panel;
  for (i64 i = 0; i < call.inputs; i += kInputs<Value>, weights += kInputs<Value> * vectors * kLanes) {
    __m512i columns[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) columns[v] = _mm512_loadu_si512(weights + v * kInputs<Value> * kLanes);
#pragma GCC unroll 8
    for (int p = 0; p < pixels; ++p) {
      int input;
      std::memcpy(&input, call.src + p * call.src_step + i, sizeof input);
      const __m512i row = _mm512_set1_epi32(input);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v)
        if constexpr (is_float)
          sums[p][v] = _mm512_fmadd_ps(_mm512_castsi512_ps(row), _mm512_castsi512_ps(columns[v]), sums[p][v]);
        else
          sums[p][v] = _mm512_dpbf16_ps(sums[p][v], (__m512bh)row, (__m512bh)columns[v]);
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) {
    const i64 left = call.outputs - v * kLanes;
    if (left <= 0) break;
    const auto lanes = static_cast<__mmask16>(left >= kLanes ? 0xffff : (1 << left) - 1);
#pragma GCC unroll 8
    for (int p = 0; p < pixels; ++p) {
      __m512 result = is_float ? activate(activation, sums[p][v]) : activate_roughly(activation, sums[p][v]);
      if (call.addend) {
        result = _mm512_add_ps(result, load(lanes, call.addend + p * call.addend_step + v * kLanes));
        result = activate(*call.after, result);
      }
      store(lanes, call.dst + p * call.dst_step + v * kLanes, result);
    }
  }
}

/// Compute the results of `count` pixels and one panel, whose number of vectors is `width`.
template <class Value, class Result>
void panel_results(BlockCall<Value, Result> call, i64 width, i64 count) {
  constexpr auto kOfWidth = []<int width, int... counts>(std::integer_sequence<int, counts...>) {
    return std::array{&results<Value, Result, width, counts + 1>...};
  };
  constexpr auto kPixelCounts = std::make_integer_sequence<int, int{kPixels}>();
  constexpr std::array kResults = {kOfWidth.template operator()<1>(kPixelCounts),
                                   kOfWidth.template operator()<2>(kPixelCounts),
                                   kOfWidth.template operator()<3>(kPixelCounts)};
  const auto& of_width = kResults[static_cast<std::size_t>(width - 1)];
  const i64 blocks = (count + kPixels - 1) / kPixels;
  for (i64 b = 0; b < blocks; ++b) {
    const i64 pixels = count * (b + 1) / blocks - count * b / blocks;
    of_width[static_cast<std::size_t>(pixels - 1)](call);
    call.src += pixels * call.src_step, call.dst += pixels * call.dst_step;
    if (call.addend) call.addend += pixels * call.addend_step;
  }
}

/// Return whether pixels follow each other at one distance.
inline bool is_one_row(const Tensor& image) {
  return (image.h == 1 || image.h_stride == image.w * image.w_stride) &&
         (image.n == 1 || image.n_stride == image.h * image.w * image.w_stride);
}

/// Return whether images that may be in one place share bytes.
inline bool overlap(const Tensor& a, const Tensor& b) {
  const auto end = [](const Tensor& image) {
    return image.at(image.n - 1, image.h - 1, image.w - 1) + image.c * static_cast<i64>(size_of(image.format));
  };
  return a.data < end(b) && b.data < end(a);
}

inline bool same_pixels(const ImageView& a, const ImageView& b) {
  return a.memory == b.memory && a.offset == b.offset && a.n == b.n && a.h == b.h && a.w == b.w && a.c == b.c &&
         a.n_stride == b.n_stride && a.h_stride == b.h_stride && a.w_stride == b.w_stride;
}

/// Return whether the window is one pixel of all channels.
inline bool is_one_pixel(const ConvProblem& conv) {
  const Window& w = conv.window;
  return w.kernel_h == 1 && w.kernel_w == 1 && w.stride_h == 1 && w.stride_w == 1 && w.start_h == 0 && w.start_w == 0 &&
         conv.weights->groups == 1 && conv.subpixel <= 1 && conv.dst.h == conv.src.h && conv.dst.w == conv.src.w;
}

/// Return whether products are of pairs of bfloat16, if an option allows them. Those of tiles are faster.
inline bool multiplies_pairs() { return has_avx512_bfloat16() && multiplies_bfloat16() && !multiplies_tiles(); }

/// Return whether the convolution may be computed together with others here: of float32 or, in a plan, an image that
/// may become one of bfloat16; with a neuron that has vectors; and with weights that are packed once.
inline bool may_be_fused(const ConvProblem& conv) {
  const bool is_float = conv.src.format == Format::float32 && conv.dst.format == Format::float32;
  const bool is_bfloat = conv.src.format == Format::bfloat16 && conv.dst.format == Format::bfloat16;
  const bool is_reduced = conv.reduced_precision && multiplies_bfloat16();
  return (is_float || (is_bfloat && is_reduced)) && !conv.weights->in_place && (!is_reduced || multiplies_pairs()) &&
         activation_of(conv.neuron);
}

/// Return whether it is such a convolution of one pixel, which may add another image.
inline bool may_fuse(const ConvProblem& conv) {
  return may_be_fused(conv) && is_one_pixel(conv) &&
         (!conv.addend.memory || (conv.addend.format == conv.dst.format && activation_of(conv.after)));
}

/// Compute all pixels of the source, which is_one_row(), as are the result and the addend.
template <class Value>
void convolve(const ConvCall& call, const Panels<Value>& weights, const Activation& activation,
              const Activation& after) {
  const Tensor &src = call.src, &dst = call.dst, &addend = call.addend;
  const i64 pixels = dst.n * dst.h * dst.w, chunks = (pixels + kChunk - 1) / kChunk;
  parallel_ranges(chunks * weights.panels, threads_for(dst.size() * src.c, kGrain), [&](i64 begin, i64 end) {
    for (i64 task = begin; task < end; ++task) {
      // Threads that share one chunk have different panels.
      const i64 chunk = task / weights.panels, panel = task % weights.panels;
      const i64 from = pixels * chunk / chunks, first = weights.first(panel) * kLanes;
      BlockCall<Value> block;
      block.src = reinterpret_cast<const Value*>(src.data) + from * src.w_stride;
      block.src_step = src.w_stride, block.inputs = src.c;
      block.panel = weights.panel(panel), block.bias = weights.bias(panel);
      block.dst = reinterpret_cast<Value*>(dst.data) + from * dst.w_stride + first;
      block.dst_step = dst.w_stride, block.outputs = dst.c - first;
      block.activation = &activation;
      if (addend.data) {
        block.addend = reinterpret_cast<const Value*>(addend.data) + from * addend.w_stride + first;
        block.addend_step = addend.w_stride, block.after = &after;
      }
      panel_results(block, weights.width(panel), pixels * (chunk + 1) / chunks - from);
    }
  });
}

}  // namespace openmps::cpu::pointwise

#endif
