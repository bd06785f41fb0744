// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10, the random bits of dropout (engine/shared/dropout.hpp). Compiles for the host and for a GPU.
#pragma once

#include <cstdint>

#include "engine/shared/neuron.hpp"

namespace openmps {

constexpr int kPhiloxRounds = 10;

/// One round on a counter of four words.
MPSCNN_HOST_DEVICE void philox_round(std::uint32_t key0, std::uint32_t key1, std::uint32_t& c0, std::uint32_t& c1,
                                     std::uint32_t& c2, std::uint32_t& c3) {
  const std::uint64_t even = 0xD2511F53ull * c0, odd = 0xCD9E8D57ull * c2;
  c0 = static_cast<std::uint32_t>(odd >> 32) ^ c1 ^ key0;
  c1 = static_cast<std::uint32_t>(odd);
  c2 = static_cast<std::uint32_t>(even >> 32) ^ c3 ^ key1;
  c3 = static_cast<std::uint32_t>(even);
}
/// Advance the key to the next round.
MPSCNN_HOST_DEVICE void philox_advance(std::uint32_t& key0, std::uint32_t& key1) {
  key0 += 0x9E3779B9u;
  key1 += 0xBB67AE85u;
}

/// One block: four words.
struct Philox {
  std::uint32_t words[4];

  MPSCNN_HOST_DEVICE Philox(std::uint64_t key, std::uint64_t low, std::uint64_t high)
      : words{static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(low >> 32), static_cast<std::uint32_t>(high),
              static_cast<std::uint32_t>(high >> 32)} {
    auto key0 = static_cast<std::uint32_t>(key), key1 = static_cast<std::uint32_t>(key >> 32);
    for (int round = 0; round < kPhiloxRounds; ++round) {
      philox_round(key0, key1, words[0], words[1], words[2], words[3]);
      philox_advance(key0, key1);
    }
  }
};

/// Return the bits of value `index` of an image's dropout mask.
MPSCNN_HOST_DEVICE std::uint32_t dropout_bits_of(std::uint64_t seed, std::uint64_t image, std::int64_t index) {
  const auto i = static_cast<std::uint64_t>(index);
  const Philox block(seed, i / 64 * 16 + i % 16, image);
  const std::uint64_t w = i % 64 / 16;  // selected without an array in memory
  return w == 0 ? block.words[0] : w == 1 ? block.words[1] : w == 2 ? block.words[2] : block.words[3];
}

}  // namespace openmps
