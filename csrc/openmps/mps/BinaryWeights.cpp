// SPDX-License-Identifier: Apache-2.0
#include "mps/BinaryWeights.hpp"

#include <bit>
#include <exception>

namespace openmps {
namespace {

/// Return weights of +-1 times the scale of their output.
std::shared_ptr<const ConvWeights> signs_of(const BinaryWeights &bits) {
  auto signs = std::make_shared<ConvWeights>();
  signs->out_channels = bits.out_channels;
  signs->kernel_h = bits.kernel_h;
  signs->kernel_w = bits.kernel_w;
  signs->in_channels_per_group = bits.in_channels;
  const std::int64_t taps = bits.kernel_h * bits.kernel_w, words = bits.words_per_pixel();
  signs->values.own().resize(static_cast<std::size_t>(bits.out_channels * taps * bits.in_channels));
  float *to = signs->values.own().data();
  const std::uint32_t *word = bits.words.data();
  for (std::int64_t o = 0; o < bits.out_channels; ++o) {
    const float one = bits.scale.empty() ? 1.0f : bits.scale[static_cast<std::size_t>(o)];
    for (std::int64_t tap = 0; tap < taps; ++tap, word += words)
      for (std::int64_t i = 0; i < bits.in_channels; ++i) *to++ = word[i / 32] >> (i % 32) & 1 ? one : -one;
  }
  if (!bits.uses_beta) signs->bias = bits.bias;
  return signs;
}

void transpose(BinaryWeights &bits) {
  constexpr std::int64_t kLanes = BinaryWeights::kLanes;
  const std::int64_t length = bits.kernel_h * bits.kernel_w * bits.words_per_pixel();
  const std::int64_t step = (bits.out_channels + kLanes - 1) / kLanes * kLanes;
  bits.by_word.assign(static_cast<std::size_t>(length * step), 0);
  bits.ones.assign(static_cast<std::size_t>(step), 0);
  for (std::int64_t o = 0; o < bits.out_channels; ++o) {
    for (std::int64_t i = 0; i < length; ++i) {
      const std::uint32_t word = bits.words[static_cast<std::size_t>(o * length + i)];
      bits.by_word[static_cast<std::size_t>(i * step + o)] = word;
      bits.ones[static_cast<std::size_t>(o)] += std::popcount(word);
    }
  }
}

}  // namespace

std::string finish_binary_weights(std::shared_ptr<BinaryWeights> weights,
                                  std::shared_ptr<const BinaryWeights> &result) noexcept {
  try {
    const auto outputs = static_cast<std::size_t>(weights->out_channels);
    const auto inputs = static_cast<std::size_t>(weights->in_channels);
    const std::size_t per_pixel = static_cast<std::size_t>(weights->words_per_pixel());
    const std::size_t words = outputs * static_cast<std::size_t>(weights->kernel_h * weights->kernel_w) * per_pixel;
    const auto has = [](const std::vector<float> &values, std::size_t count) {
      return values.empty() || values.size() == count;
    };
    if (weights->words.size() != words || !has(weights->scale, outputs) || !has(weights->bias, outputs) ||
        !has(weights->input_scale, inputs) || !has(weights->input_bias, inputs))
      return "The numbers of weights, scales and biases are not those of the descriptor.";
    if (const int used = static_cast<int>(inputs % 32); used != 0)
      for (std::size_t i = per_pixel - 1; i < words; i += per_pixel) weights->words[i] &= (1u << used) - 1;
    if (weights->type == BinaryConvType::binary_weights)
      weights->signs = signs_of(*weights);
    else
      transpose(*weights);
    result = std::move(weights);
    return {};
  } catch (const std::exception &) {
    return "There is not enough memory for the weights.";
  }
}

}  // namespace openmps
