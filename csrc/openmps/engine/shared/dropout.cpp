// SPDX-License-Identifier: Apache-2.0
#include "engine/shared/dropout.hpp"

#include <algorithm>
#include <cmath>

#include "engine/shared/isa.hpp"
#include "engine/shared/neuron.hpp"

namespace openmps {
namespace {

/// Ten rounds on counters whose four words are given, `count` of them side by side.
template <int count>
MPSCNN_HOST_DEVICE void philox(std::uint64_t key, std::uint32_t (*c)[count]) {
  auto key0 = static_cast<std::uint32_t>(key), key1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
#pragma omp simd
    for (int i = 0; i < count; ++i) {
      const std::uint64_t even = 0xD2511F53ull * c[0][i], odd = 0xCD9E8D57ull * c[2][i];
      const std::uint32_t c1 = c[1][i], c3 = c[3][i];
      c[0][i] = static_cast<std::uint32_t>(odd >> 32) ^ c1 ^ key0;
      c[1][i] = static_cast<std::uint32_t>(odd);
      c[2][i] = static_cast<std::uint32_t>(even >> 32) ^ c3 ^ key1;
      c[3][i] = static_cast<std::uint32_t>(even);
    }
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
}

MPSCNN_CLONES void bits_of_blocks(std::uint64_t seed, std::uint64_t image, std::int64_t first, std::int64_t groups,
                                  std::uint32_t* bits) {
  for (std::int64_t g = 0; g < groups; ++g, bits += 64) {
    std::uint32_t c[4][16];
    for (int i = 0; i < 16; ++i) {
      const auto block = static_cast<std::uint64_t>((first + g) * 16 + i);
      c[0][i] = static_cast<std::uint32_t>(block);
      c[1][i] = static_cast<std::uint32_t>(block >> 32);
      c[2][i] = static_cast<std::uint32_t>(image);
      c[3][i] = static_cast<std::uint32_t>(image >> 32);
    }
    philox<16>(seed, c);
    for (int w = 0; w < 4; ++w)
      for (int i = 0; i < 16; ++i) bits[w * 16 + i] = c[w][i];
  }
}

}  // namespace

Philox::Philox(std::uint64_t key, std::uint64_t low, std::uint64_t high) {
  std::uint32_t c[4][1] = {{static_cast<std::uint32_t>(low)},
                           {static_cast<std::uint32_t>(low >> 32)},
                           {static_cast<std::uint32_t>(high)},
                           {static_cast<std::uint32_t>(high >> 32)}};
  philox<1>(key, c);
  for (int w = 0; w < 4; ++w) words[w] = c[w][0];
}

void dropout_bits(std::uint64_t seed, std::uint64_t image, std::int64_t first, std::int64_t count,
                  std::uint32_t* bits) {
  bits_of_blocks(seed, image, first / 64, (count + 63) / 64, bits);
}

std::uint32_t dropout_threshold(float keep) {
  const double threshold = std::round(static_cast<double>(keep) * 4294967296.0);
  return static_cast<std::uint32_t>(std::clamp(threshold, 0.0, 4294967295.0));
}

void dropout_mask(const DropoutMask& mask, std::uint64_t image, std::uint8_t* kept) {
  constexpr std::int64_t kPart = 1024;
  const std::int64_t count = mask.h * mask.w * mask.c;
  const std::uint32_t threshold = dropout_threshold(mask.keep);
  std::uint32_t bits[kPart];
  for (std::int64_t first = 0; first < count; first += kPart) {
    const std::int64_t part = std::min(kPart, count - first);
    dropout_bits(mask.seed, image, first, part, bits);
    for (std::int64_t i = 0; i < part; ++i) kept[first + i] = bits[i] < threshold;
  }
}

}  // namespace openmps
