// SPDX-License-Identifier: Apache-2.0
#include "engine/shared/dropout.hpp"

#include <algorithm>
#include <cmath>

#include "engine/shared/isa.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace openmps {
namespace {

/// Run the ten rounds on 16 counters of four words, side by side.
MPSCNN_HOST_DEVICE void philox(std::uint64_t key, std::uint32_t (*c)[16]) {
  auto key0 = static_cast<std::uint32_t>(key), key1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
#pragma omp simd
    for (int i = 0; i < 16; ++i) philox_round(key0, key1, c[0][i], c[1][i], c[2][i], c[3][i]);
    philox_advance(key0, key1);
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
    philox(seed, c);
    for (int w = 0; w < 4; ++w)
      for (int i = 0; i < 16; ++i) bits[w * 16 + i] = c[w][i];
  }
}

#if defined(__x86_64__)
/// bits_of_blocks() with 32 x 32 -> 64 bit products, which compilers do not find. Each word is in the lower half of 64
/// bits; the upper halves of c1 and c3, and their results, are never used.
__attribute__((target("avx2"))) void bits_of_blocks_avx2(std::uint64_t seed, std::uint64_t image, std::int64_t first,
                                                         std::int64_t groups, std::uint32_t* bits) {
  const __m256i even_factor = _mm256_set1_epi64x(0xD2511F53), odd_factor = _mm256_set1_epi64x(0xCD9E8D57);
  const __m256i lower_halves = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
  for (std::int64_t eight = 0; eight < 2 * groups; ++eight) {
    std::uint32_t* const to = bits + eight / 2 * 64 + eight % 2 * 8;
    __m256i c[4][2];
    for (int i = 0; i < 2; ++i) {
      const auto block = static_cast<long long>((2 * first + eight) * 8 + 4 * i);
      c[0][i] = _mm256_add_epi64(_mm256_set1_epi64x(block), _mm256_setr_epi64x(0, 1, 2, 3));
      c[1][i] = _mm256_srli_epi64(c[0][i], 32);
      c[2][i] = _mm256_set1_epi64x(static_cast<long long>(image));
      c[3][i] = _mm256_srli_epi64(c[2][i], 32);
    }
    auto key0 = static_cast<std::uint32_t>(seed), key1 = static_cast<std::uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round, key0 += 0x9E3779B9u, key1 += 0xBB67AE85u) {
      const __m256i k0 = _mm256_set1_epi64x(key0), k1 = _mm256_set1_epi64x(key1);
      for (int i = 0; i < 2; ++i) {
        const __m256i even = _mm256_mul_epu32(c[0][i], even_factor), odd = _mm256_mul_epu32(c[2][i], odd_factor);
        c[0][i] = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(odd, 32), c[1][i]), k0);
        c[1][i] = odd;
        c[2][i] = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(even, 32), c[3][i]), k1);
        c[3][i] = even;
      }
    }
    for (int w = 0; w < 4; ++w) {
      const __m256i low = _mm256_permutevar8x32_epi32(c[w][0], lower_halves);
      const __m256i high = _mm256_permutevar8x32_epi32(c[w][1], lower_halves);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 16 * w), _mm256_permute2x128_si256(low, high, 0x20));
    }
  }
}

/// The same, eight words at a time; kTogether groups are interleaved to hide the latency of products.
template <int kTogether>
__attribute__((target("avx512f"))) void groups_avx512(std::uint64_t seed, std::uint64_t image, std::int64_t group,
                                                      std::uint32_t* bits) {
  constexpr int kRegisters = 2 * kTogether, kXor = 0x96;  // ternary logic: a ^ b ^ c
  constexpr __mmask8 kAll = 0xFF;                         // without a mask, GCC 12 warns of its own header
  const __m512i even_factor = _mm512_set1_epi64(0xD2511F53), odd_factor = _mm512_set1_epi64(0xCD9E8D57);
  __m512i c[4][kRegisters];
  for (int i = 0; i < kRegisters; ++i) {
    const auto block = static_cast<long long>(16 * group + 8 * i);
    c[0][i] = _mm512_add_epi64(_mm512_set1_epi64(block), _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7));
    c[1][i] = _mm512_maskz_srli_epi64(kAll, c[0][i], 32);
    c[2][i] = _mm512_set1_epi64(static_cast<long long>(image));
    c[3][i] = _mm512_maskz_srli_epi64(kAll, c[2][i], 32);
  }
  auto key0 = static_cast<std::uint32_t>(seed), key1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round, key0 += 0x9E3779B9u, key1 += 0xBB67AE85u) {
    const __m512i k0 = _mm512_set1_epi64(key0), k1 = _mm512_set1_epi64(key1);
    for (int i = 0; i < kRegisters; ++i) {
      const __m512i even = _mm512_maskz_mul_epu32(kAll, c[0][i], even_factor),
                    odd = _mm512_maskz_mul_epu32(kAll, c[2][i], odd_factor);
      c[0][i] = _mm512_ternarylogic_epi64(_mm512_maskz_srli_epi64(kAll, odd, 32), c[1][i], k0, kXor);
      c[1][i] = odd;
      c[2][i] = _mm512_ternarylogic_epi64(_mm512_maskz_srli_epi64(kAll, even, 32), c[3][i], k1, kXor);
      c[3][i] = even;
    }
  }
  for (int i = 0; i < kRegisters; ++i)
    for (int w = 0; w < 4; ++w)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(bits + i / 2 * 64 + 16 * w + i % 2 * 8),
                          _mm512_maskz_cvtepi64_epi32(kAll, c[w][i]));
}

__attribute__((target("avx512f"))) void bits_of_blocks_avx512(std::uint64_t seed, std::uint64_t image,
                                                              std::int64_t first, std::int64_t groups,
                                                              std::uint32_t* bits) {
  std::int64_t g = 0;
  for (; g + 2 <= groups; g += 2) groups_avx512<2>(seed, image, first + g, bits + 64 * g);
  if (g < groups) groups_avx512<1>(seed, image, first + g, bits + 64 * g);
}
#endif

}  // namespace

void dropout_bits(std::uint64_t seed, std::uint64_t image, std::int64_t first, std::int64_t count,
                  std::uint32_t* bits) {
  const std::int64_t groups = (count + 63) / 64;
#if defined(__x86_64__)
  static const bool has_avx512 = MPSCNN_HAS_CLONES && __builtin_cpu_supports("avx512f");
  if (has_avx512) return bits_of_blocks_avx512(seed, image, first / 64, groups, bits);
  static const bool has_avx2 = MPSCNN_HAS_CLONES && __builtin_cpu_supports("avx2");
  if (has_avx2) return bits_of_blocks_avx2(seed, image, first / 64, groups, bits);
#endif
  bits_of_blocks(seed, image, first / 64, groups, bits);
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
