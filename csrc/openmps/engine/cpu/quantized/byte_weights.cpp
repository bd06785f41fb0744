// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <span>

#include "engine/cpu/quantized/quantized.hpp"

namespace openmps::cpu {
namespace {

constexpr int kMin = -128, kMax = 127;
// Dequantized weights are products, rounded once or twice: relative to the max, 2^-22.
constexpr float kError = 4e-7f;

/// Return the largest step of which all values are whole multiples from -128 to 127; 0 if there is none.
float step_of(std::span<const float> values) {
  if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); })) return 0;
  float max = 0;
  for (const float value : values) max = std::max(max, std::abs(value));
  if (max == 0) return 1;
  for (int count = 1; count <= -kMin; ++count) {
    const float step = max / static_cast<float>(count);
    const float error = kError * max;
    const bool fits = std::ranges::all_of(values, [&](float value) {
      const float number = std::nearbyint(value / step);
      return std::abs(value - number * step) <= error && number >= kMin && number <= kMax;
    });
    if (fits) return step;
  }
  return 0;
}

std::shared_ptr<const ByteWeights> make(const ConvWeights& weights) {
  auto bytes = std::make_shared<ByteWeights>();
  const auto outputs = static_cast<std::size_t>(weights.out_channels);
  const std::size_t each = weights.values.size() / outputs;
  const float* const values = weights.values.data();
  bytes->values.reserve(weights.values.size());
  for (std::size_t o = 0; o < outputs; ++o) {
    const std::span<const float> own(values + o * each, each);
    const float step = step_of(own);
    if (step == 0) return nullptr;
    bytes->steps.push_back(step);
    for (const float value : own) bytes->values.push_back(static_cast<std::int8_t>(std::nearbyint(value / step)));
  }
  return bytes;
}

}  // namespace

std::shared_ptr<const ByteWeights> ByteWeights::of(const ConvWeights& weights) {
  struct Kept {
    std::shared_ptr<const ByteWeights> bytes;  ///< null: there are none
  };
  return weights.derived<const Kept>("bytes", [&] { return std::make_shared<const Kept>(make(weights)); })->bytes;
}

}  // namespace openmps::cpu
