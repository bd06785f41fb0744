// SPDX-License-Identifier: Apache-2.0
// Convolution of one pixel as a product of matrices, for AVX-512: the sums of eight pixels and 48 outputs stay in
// registers until the activation.
#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "engine/cpu/convolution/bfloat16.hpp"
#include "engine/cpu/convolution/convolution.hpp"
#include "engine/cpu/pointwise/vectors.hpp"
#include "engine/shared/implementations.hpp"
#include "engine/shared/parallel.hpp"

namespace openmps::cpu {

#if defined(__x86_64__)

namespace {

using i64 = std::int64_t;

constexpr i64 kLanes = 16;
constexpr int kVectors = 3, kPixels = 8;  // of sums in registers
constexpr i64 kPanel = kVectors * kLanes;
constexpr i64 kChunk = 14 * kPixels;  // pixels that stay in the first caches for all panels
constexpr i64 kGrain = 64 * 1024;     // min multiplications per thread

/// Inputs that one product of a lane takes: two numbers of bfloat16, or one of float32.
template <class Value>
constexpr i64 kInputs = sizeof(float) / sizeof(Value);

float value_of(float value, float) { return value; }
std::uint16_t value_of(float value, std::uint16_t) { return bfloat16_of(value); }

/// Weights by panels of kPanel outputs, zeros after the last one: [panel][inputs / kInputs][lane][kInputs]. And biases.
template <class Value>
struct Panels {
  std::vector<Value> values;
  std::vector<float> bias;

  explicit Panels(const ConvWeights& weights) {
    constexpr i64 k = kInputs<Value>;
    const i64 outputs = weights.out_channels, inputs = weights.in_channels_per_group;
    const i64 panels = (outputs + kPanel - 1) / kPanel;
    values.resize(static_cast<std::size_t>(panels * kPanel * inputs));
    bias.resize(static_cast<std::size_t>(panels * kPanel));
    if (!weights.bias.empty()) std::copy_n(weights.bias.data(), outputs, bias.begin());
    for (i64 o = 0; o < outputs; ++o)
      for (i64 i = 0; i < inputs; ++i)
        values[static_cast<std::size_t>((o / kPanel * inputs + i / k * k) * kPanel + o % kPanel * k + i % k)] =
            value_of(weights.values.data()[o * inputs + i], Value());
  }

  static std::shared_ptr<const Panels> of(const ConvWeights& weights) {
    const std::lock_guard lock(weights.cache.mutex);
    std::shared_ptr<void>& entry = weights.cache.entries[kInputs<Value> == 1 ? "pointwise" : "pointwise, bfloat16"];
    if (!entry) entry = std::make_shared<Panels>(weights);
    return std::static_pointer_cast<const Panels>(entry);
  }
};

/// Arguments of the results of some pixels and one panel. Steps count values.
template <class Value>
struct BlockCall {
  const Value* src;
  i64 src_step, inputs;
  const Value* panel;
  const float* bias;
  Value* dst;
  i64 dst_step, outputs;  ///< from the panel's first one on
  const Activation* activation;
};

/// The instance for float32 has no instructions for bfloat16.
template <class Value, int pixels>
MPSCNN_AVX512_BF16 void results(const BlockCall<Value>& call) {
  constexpr bool is_float = kInputs<Value> == 1;
  const Activation activation = *call.activation;
  __m512 sums[pixels][kVectors];
#pragma GCC unroll 8
  for (int p = 0; p < pixels; ++p)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sums[p][v] = _mm512_loadu_ps(call.bias + v * kLanes);
  const Value* weights = call.panel;
  for (i64 i = 0; i < call.inputs; i += kInputs<Value>, weights += kInputs<Value> * kPanel) {
    __m512i columns[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) columns[v] = _mm512_loadu_si512(weights + v * kInputs<Value> * kLanes);
#pragma GCC unroll 8
    for (int p = 0; p < pixels; ++p) {
      int input;
      std::memcpy(&input, call.src + p * call.src_step + i, sizeof input);
      const __m512i row = _mm512_set1_epi32(input);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v)
        if constexpr (is_float)
          sums[p][v] = _mm512_fmadd_ps(_mm512_castsi512_ps(row), _mm512_castsi512_ps(columns[v]), sums[p][v]);
        else
          sums[p][v] = _mm512_dpbf16_ps(sums[p][v], (__m512bh)row, (__m512bh)columns[v]);
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    const i64 left = call.outputs - v * kLanes;
    if (left <= 0) break;
    const auto lanes = static_cast<__mmask16>(left >= kLanes ? 0xffff : (1 << left) - 1);
#pragma GCC unroll 8
    for (int p = 0; p < pixels; ++p)
      store(lanes, call.dst + p * call.dst_step + v * kLanes,
            is_float ? activate(activation, sums[p][v]) : activate_roughly(activation, sums[p][v]));
  }
}

template <class Value>
void convolve(const ConvCall& call, const Activation& activation) {
  constexpr auto kResults = []<int... counts>(std::integer_sequence<int, counts...>) {
    return std::array{&results<Value, counts + 1>...};
  }(std::make_integer_sequence<int, kPixels>());
  const Tensor &src = call.src, &dst = call.dst;
  const auto weights = Panels<Value>::of(*call.weights);
  const i64 pixels = dst.n * dst.h * dst.w, panels = (dst.c + kPanel - 1) / kPanel;
  const i64 chunks = (pixels + kChunk - 1) / kChunk;
  parallel_ranges(chunks * panels, threads_for(dst.size() * src.c, kGrain), [&](i64 begin, i64 end) {
    for (i64 task = begin; task < end; ++task) {
      const i64 chunk = task / panels, panel = task % panels;
      const i64 from = pixels * chunk / chunks, count = pixels * (chunk + 1) / chunks - from;
      const i64 blocks = (count + kPixels - 1) / kPixels;
      BlockCall<Value> block;
      block.src_step = src.w_stride, block.inputs = src.c;
      block.panel = weights->values.data() + panel * kPanel * src.c;
      block.bias = weights->bias.data() + panel * kPanel;
      block.dst_step = dst.w_stride, block.outputs = dst.c - panel * kPanel;
      block.activation = &activation;
      for (i64 b = 0; b < blocks; ++b) {
        const i64 first = count * b / blocks, next = count * (b + 1) / blocks;
        block.src = reinterpret_cast<const Value*>(src.data) + (from + first) * src.w_stride;
        block.dst = reinterpret_cast<Value*>(dst.data) + (from + first) * dst.w_stride + panel * kPanel;
        kResults[static_cast<std::size_t>(next - first - 1)](block);
      }
    }
  });
}

/// Return whether this is faster than oneDNN, which computes swish more slowly than both of ours. Else it is where few
/// sums of the last panel are wasted, and a panel of weights fits the first-level cache; measured on Zen 4 alone.
bool pays(const ConvWeights& weights, const Activation& activation) {
  const i64 outputs = weights.out_channels, sums = (outputs + kPanel - 1) / kPanel * kPanel;
  if (activation.gate == Activation::sigmoid) return 3 * sums <= 4 * outputs;
  return is_zen4() && weights.in_channels_per_group <= 384 && 10 * sums <= 11 * outputs;
}

/// Return whether pixels follow each other at one distance.
bool is_one_row(const Tensor& image) {
  return (image.h == 1 || image.h_stride == image.w * image.w_stride) &&
         (image.n == 1 || image.n_stride == image.h * image.w * image.w_stride);
}

}  // namespace

const char* conv_pointwise(const ConvCall& call) {
  const ConvWeights& weights = *call.weights;
  const Window& w = call.window;
  const bool is_float = call.src.format == Format::float32, is_bfloat = call.src.format == Format::bfloat16;
  if (call.src.format != call.dst.format || !(is_float || is_bfloat)) return "images are of other formats";
  if (is_float && call.reduced_precision) return "products of bfloat16 are faster";
  if (is_bfloat && !call.reduced_precision) return "weights would be rounded";
  if (!(is_bfloat ? has_avx512_bfloat16() : has_avx512())) return "the processor has no such products";
  if (is_bfloat && multiplies_tiles()) return "products of tiles are faster";
  if (w.kernel_h != 1 || w.kernel_w != 1 || w.stride_h != 1 || w.stride_w != 1 || w.start_h != 0 || w.start_w != 0 ||
      call.dst.h != call.src.h || call.dst.w != call.src.w)
    return "the window is not one pixel";
  if (weights.groups != 1) return "groups";
  if (is_bfloat && weights.in_channels_per_group % 2 != 0) return "an odd number of inputs";
  if (weights.in_place) return "weights would be packed at each call";
  if (call.adds()) return "something is added";
  if (!is_one_row(call.src) || !is_one_row(call.dst)) return "gaps between rows";
  const std::optional<Activation> activation = activation_of(*call.neuron);
  if (!activation) return "a neuron without vectors";
  if (!pays(weights, *activation) && !is_forced("pointwise")) return "oneDNN is as fast";
  is_float ? convolve<float>(call, *activation) : convolve<std::uint16_t>(call, *activation);
  return nullptr;
}

#else

const char* conv_pointwise(const ConvCall&) { return "not for this processor"; }

#endif

}  // namespace openmps::cpu
