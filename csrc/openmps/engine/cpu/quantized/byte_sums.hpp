// SPDX-License-Identifier: Apache-2.0
// Sums of products of bytes for 64 or 32 channels at once, and how they become numbers; with AVX-512 VNNI.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "engine/cpu/quantized/byte_vectors.hpp"
#include "engine/cpu/quantized/quantized.hpp"

#if defined(__x86_64__)

namespace openmps::cpu {

constexpr std::int64_t kLane = 16;  // bytes of the part of a register within which instructions interleave

#define MPSCNN_VECTOR Wide
#define MPSCNN_REGISTER __m512i
#define MPSCNN_MASK __mmask64
#define MPSCNN_I(name) _mm512_##name
#include "engine/cpu/quantized/byte_vectors.inc"
#undef MPSCNN_VECTOR
#undef MPSCNN_REGISTER
#undef MPSCNN_MASK
#undef MPSCNN_I

#define MPSCNN_VECTOR Narrow
#define MPSCNN_REGISTER __m256i
#define MPSCNN_MASK __mmask32
#define MPSCNN_I(name) _mm256_##name
#include "engine/cpu/quantized/byte_vectors.inc"
#undef MPSCNN_VECTOR
#undef MPSCNN_REGISTER
#undef MPSCNN_MASK
#undef MPSCNN_I

/// Return the channel, within a vector, of a lane of the sums in register `part`.
inline std::int64_t channel_of(std::int64_t part, std::int64_t lane) { return lane / 4 * kLane + 4 * part + lane % 4; }

/// Channels in blocks of 64, and one of 32 if so few are left.
struct ChannelBlocks {
  std::int64_t wide, narrow;

  explicit ChannelBlocks(std::int64_t count)
      : wide(count % 64 == 0 || count % 64 > 32 ? (count + 63) / 64 : count / 64), narrow(wide * 64 < count ? 1 : 0) {}
  std::int64_t size() const { return wide + narrow; }
  std::int64_t channels(std::int64_t block) const { return block < wide ? 64 : 32; }
};

/// How sums become numbers: they begin at `starts`; sum * factors + shifts, from `low` to `high`. By the order of
/// channel_of().
struct Scaling {
  std::vector<std::int32_t> starts;
  std::vector<float> factors, shifts;
  int zero, low, high;          ///< of numbers
  float low_value, high_value;  ///< of values, if these are stored

  /// `sums`: of each channel's weights.
  Scaling(const QuantizedConvProblem& problem, const ByteWeights& bytes, const std::vector<std::int32_t>& sums) {
    const ConvWeights& weights = *problem.weights;
    const Quantization &from = problem.src_steps, &to = problem.dst_steps;
    const double step = to.scale == 0 ? 1 : double{to.scale};  // of what sums become
    const std::int64_t count = weights.out_channels, padded = (count + 63) / 64 * 64;
    for (std::vector<float>* const each : {&factors, &shifts}) each->resize(static_cast<std::size_t>(padded));
    starts.resize(static_cast<std::size_t>(padded));
    const ChannelBlocks blocks(count);
    for (std::int64_t block = 0; block < blocks.size(); ++block) {
      const std::int64_t channels = blocks.channels(block), first = 64 * block;
      for (std::int64_t part = 0; part < 4; ++part)
        for (std::int64_t lane = 0; lane < channels / 4; ++lane) {
          const std::int64_t k = first + channel_of(part, lane);
          if (k >= count) continue;
          const auto at = static_cast<std::size_t>(first + part * (channels / 4) + lane);
          const auto own = static_cast<std::size_t>(k);
          starts[at] = -from.zero * sums[own];
          factors[at] = static_cast<float>(double{from.scale} * double{bytes.steps[own]} / step);
          if (!weights.bias.empty()) shifts[at] = static_cast<float>(double{weights.bias[own]} / step);
        }
    }
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    low_value = problem.neuron.type == NeuronType::none ? -kInfinity : 0;
    high_value = problem.neuron.type == NeuronType::relun ? problem.neuron.b : kInfinity;
    zero = to.zero;
    const auto number = [&](float value) {
      return static_cast<int>(std::clamp(std::nearbyint(value / to.scale) + static_cast<float>(zero), 0.0f, 255.0f));
    };
    low = problem.neuron.type == NeuronType::none ? 0 : zero;
    high = to.scale != 0 && problem.neuron.type == NeuronType::relun ? number(problem.neuron.b) : 255;
  }
};

/// Where the results of a block of channels go, and how.
template <class Vector>
struct BlockResult {
  const std::int32_t* starts;
  const float *factors, *shifts;
  const Scaling* scaling;
  std::int64_t left;  ///< channels that are left
  typename Vector::Mask lanes;

  BlockResult(const Scaling& given, std::int64_t channel, std::int64_t channels)
      : starts(given.starts.data() + channel),
        factors(given.factors.data() + channel),
        shifts(given.shifts.data() + channel),
        scaling(&given),
        left(std::min(Vector::kChannels, channels - channel)),
        lanes(static_cast<typename Vector::Mask>(left >= Vector::kChannels ? ~std::uint64_t{0}
                                                                           : (std::uint64_t{1} << left) - 1)) {}

  MPSCNN_AVX512_BYTES Vector start(int part) const { return Vector::load(starts + part * kQuarter); }
  MPSCNN_AVX512_BYTES Vector number(const Vector& sum, int part) const {
    constexpr float kMost = 1 << 20;  // steps, so that the number is an integer of 32 bits
    return sum.scaled(factors + part * kQuarter, shifts + part * kQuarter, kMost);
  }
  MPSCNN_AVX512_BYTES void store(const Vector* whole, std::uint8_t* to) const {
    packed(whole, scaling->zero).clamped(scaling->low, scaling->high).store(lanes, to);
  }
  MPSCNN_AVX512_BYTES void store_values(const Vector& sum, int part, float* to) const {
    sum.store_values(factors + part * kQuarter, shifts + part * kQuarter, scaling->low_value, scaling->high_value,
                     to + 4 * part, left - 4 * part);
  }
  /// The same of all four registers of sums.
  MPSCNN_AVX512_BYTES void store_numbers(const Vector* sums, std::uint8_t* to) const {
    const Vector whole[4] = {number(sums[0], 0), number(sums[1], 1), number(sums[2], 2), number(sums[3], 3)};
    store(whole, to);
  }
  MPSCNN_AVX512_BYTES void store_values(const Vector* sums, float* to) const {
#pragma GCC unroll 4
    for (int part = 0; part < 4; ++part) store_values(sums[part], part, to);
  }

 private:
  static constexpr std::int64_t kQuarter = Vector::kChannels / 4;
};

}  // namespace openmps::cpu

#endif
