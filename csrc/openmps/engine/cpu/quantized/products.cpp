// SPDX-License-Identifier: Apache-2.0
// Convolutions of 8-bit numbers with AVX-512 VNNI: an instruction adds the products of four inputs in each of its
// channels. The sums of six pixels and of 64 or 32 channels stay in registers; for each four inputs, the weights are
// read once and the numbers of each pixel are repeated.
#include <array>
#include <memory>
#include <mutex>
#include <utility>

#include "engine/cpu/quantized/byte_sums.hpp"
#include "engine/cpu/quantized/quantized.hpp"
#include "engine/cpu/runtime.hpp"
#include "engine/shared/parallel.hpp"

namespace openmps::cpu {

#if defined(__x86_64__)

namespace {

using i64 = std::int64_t;
using Byte = std::uint8_t;

constexpr i64 kGrain = 1024 * 1024;  // min multiplications per thread
constexpr i64 kInputs = 4;           // of an instruction
constexpr int kPixels = 6;           // with four registers of sums each, and five for operands
constexpr i64 kChunk = 16 * kPixels;
constexpr i64 kShort = 12;  // pixels of a row, with which oneDNN is faster

/// Weights of blocks of channels. A block has, for each tap, each four inputs and register of sums, four weights per
/// channel.
struct PackedWeights {
  std::vector<std::int8_t> values;
  std::vector<std::int32_t> sums;  ///< of a channel's weights

  explicit PackedWeights(const ConvWeights& weights, const ByteWeights& bytes) {
    const i64 each = weights.kernel_h * weights.kernel_w * weights.in_channels_per_group;
    const ChannelBlocks blocks(weights.out_channels);
    values.resize(static_cast<std::size_t>((64 * blocks.wide + 32 * blocks.narrow) * each));
    for (i64 block = 0; block < blocks.size(); ++block) {
      const i64 channels = blocks.channels(block);
      std::int8_t* to = values.data() + 64 * block * each;
      for (i64 first = 0; first < each; first += kInputs)
        for (i64 part = 0; part < 4; ++part)
          for (i64 lane = 0; lane < channels / 4; ++lane, to += kInputs) {
            const i64 k = 64 * block + channel_of(part, lane);
            if (k < weights.out_channels) std::memcpy(to, bytes.values.data() + k * each + first, kInputs);
          }
    }
    for (i64 k = 0; k < weights.out_channels; ++k) {
      std::int32_t sum = 0;
      for (i64 i = 0; i < each; ++i) sum += bytes.values[static_cast<std::size_t>(k * each + i)];
      sums.push_back(sum);
    }
  }

  static std::shared_ptr<const PackedWeights> of(const ConvWeights& weights, const ByteWeights& bytes) {
    return weights.derived<const PackedWeights>("byte products",
                                                [&] { return std::make_shared<const PackedWeights>(weights, bytes); });
  }
};

/// Results of pixels that lie side by side, of a block of channels.
struct Pixels {
  const Byte* src;
  i64 src_step;                  ///< bytes from the window of a pixel to that of the next
  const std::vector<i64>& taps;  ///< distances from the first one in bytes, and one more that is not used
  i64 groups, steps;             ///< of four inputs: of a tap, and of all taps
  const std::int8_t* weights;
  Byte* dst;  ///< numbers, or null
  float* values;
  i64 dst_step;
};

/// Compute `count` results from `first` on. Sums are plain registers: GCC keeps arrays of structs in memory.
template <class Vector, int count>
MPSCNN_AVX512_BYTES void results(const Pixels& pixels, i64 first, const BlockResult<Vector>& result) {
  typename Vector::Register sums[count][4];
#pragma GCC unroll 8
  for (int i = 0; i < count; ++i)
#pragma GCC unroll 4
    for (int part = 0; part < 4; ++part) sums[i][part] = result.start(part).v;
  const std::int8_t* weights = pixels.weights;
  const Byte* const begin = pixels.src + first * pixels.src_step;
  const i64* tap = pixels.taps.data();
  const Byte* from = begin + *tap;
  // One loop: GCC copies the sums around an inner one.
  for (i64 left = pixels.groups, steps = pixels.steps; steps > 0; --steps, weights += 4 * Vector::kChannels) {
    typename Vector::Register own[4];
#pragma GCC unroll 4
    for (int part = 0; part < 4; ++part) own[part] = Vector::load(weights + part * Vector::kChannels).v;
#pragma GCC unroll 8
    for (int i = 0; i < count; ++i) {
      const auto numbers = Vector::repeat(from + i * pixels.src_step).v;
#pragma GCC unroll 4
      for (int part = 0; part < 4; ++part) sums[i][part] = Vector::add_products(sums[i][part], numbers, own[part]);
    }
    from += kInputs;
    if (--left == 0) left = pixels.groups, from = begin + *++tap;
  }
#pragma GCC unroll 8
  for (int i = 0; i < count; ++i) {
    const Vector own[4] = {{sums[i][0]}, {sums[i][1]}, {sums[i][2]}, {sums[i][3]}};
    if (pixels.values)
      result.store_values(own, pixels.values + (first + i) * pixels.dst_step);
    else
      result.store_numbers(own, pixels.dst + (first + i) * pixels.dst_step);
  }
}

/// Compute results in blocks of nearly equal size.
template <class Vector>
void convolve(const Pixels& pixels, i64 first, i64 end, const Scaling& scaling, i64 channel, i64 channels) {
  constexpr auto kResults = []<int... counts>(std::integer_sequence<int, counts...>) {
    return std::array{&results<Vector, counts + 1>...};
  }(std::make_integer_sequence<int, kPixels>());
  const BlockResult<Vector> result(scaling, channel, channels);
  const i64 count = end - first, blocks = (count + kPixels - 1) / kPixels;
  for (i64 b = 0; b < blocks; ++b) {
    const i64 from = count * b / blocks, next = count * (b + 1) / blocks;
    kResults[static_cast<std::size_t>(next - from - 1)](pixels, first + from, result);
  }
}

}  // namespace

const char* quantized_conv_products(const QuantizedConvCall& call) {
  const QuantizedConvProblem& problem = call.problem;
  const ConvWeights& weights = *problem.weights;
  const Tensor &src = call.src, &dst = call.dst;
  const Window& w = problem.window;
  if (weights.groups > 1) return "groups";
  if (!multiplies_bytes()) return "the processor does not multiply bytes";
  if (multiplies_tiles()) return "oneDNN multiplies tiles";
  if (weights.in_channels_per_group % kInputs) return "the inputs are no multiple of 4";
  if (!is_exact_on_sums(problem.neuron)) return "the activation is neither ReLU nor ReLU6";
  if (dst.c <= 16) return "most channels of a vector are wasted";
  if (w.start_h < 0 || w.start_w < 0 || w.start_h + (dst.h - 1) * w.stride_h + reach_h(w) > src.h ||
      w.start_w + (dst.w - 1) * w.stride_w + reach_w(w) > src.w)
    return "taps out of bounds";
  const auto bytes = ByteWeights::of(weights);
  if (!bytes) return "the weights are no whole multiples of a step";
  const auto packed = PackedWeights::of(weights, *bytes);
  const Scaling scaling(problem, *bytes, packed->sums);
  const ChannelBlocks blocks(dst.c);
  const i64 inputs = weights.in_channels_per_group, each = w.kernel_h * w.kernel_w * inputs;
  std::vector<i64> taps;
  for (i64 p = 0; p < w.kernel_h; ++p)
    for (i64 q = 0; q < w.kernel_w; ++q)
      taps.push_back(p * w.dilation_h * src.h_stride + q * w.dilation_w * src.w_stride);
  taps.push_back(0);
  // Runs of pixels whose windows have a constant distance: the whole batch, or rows.
  const bool is_one_run = each == inputs && w.stride_h == 1 && w.stride_w == 1 && src.h == dst.h && src.w == dst.w;
  if (!is_one_run && dst.w < kShort) return "short rows read the weights too often";
  const i64 run = is_one_run ? dst.n * dst.h * dst.w : dst.w, runs = dst.n * dst.h * dst.w / run;
  const i64 chunks = (run + kChunk - 1) / kChunk, tasks = runs * chunks;
  parallel_ranges(blocks.size() * tasks, threads_for(dst.size() * each, kGrain), [&](i64 begin, i64 end) {
    for (i64 task = begin; task < end; ++task) {
      const i64 block = task / tasks, row = task % tasks / chunks, first = task % chunks * kChunk;
      const i64 n = is_one_run ? 0 : row / dst.h, y = is_one_run ? 0 : row % dst.h;
      const bool has_values = dst.format == Format::float32;
      Pixels pixels{
          .src = reinterpret_cast<const Byte*>(src.at(n, w.start_h + y * w.stride_h)) + w.start_w * src.w_stride,
          .src_step = w.stride_w * src.w_stride,
          .taps = taps,
          .groups = inputs / kInputs,
          .steps = each / kInputs,
          .weights = packed->values.data() + 64 * block * each,
          .dst = has_values ? nullptr : reinterpret_cast<Byte*>(dst.at(n, y)) + 64 * block,
          .values = has_values ? dst.floats(n, y) + 64 * block : nullptr,
          .dst_step = dst.w_stride};
      const auto convolved = blocks.channels(block) == 64 ? convolve<Wide> : convolve<Narrow>;
      convolved(pixels, first, std::min(run, first + kChunk), scaling, 64 * block, dst.c);
    }
  });
  return nullptr;
}

#else

const char* quantized_conv_products(const QuantizedConvCall&) { return "not for this processor"; }

#endif

}  // namespace openmps::cpu
