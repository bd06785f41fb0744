// SPDX-License-Identifier: Apache-2.0
// Copies of single words and short rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#define MPSCNN_INLINE inline __attribute__((always_inline))

namespace mpscnn {

template <int kWord>
struct WordOf;
template <>
struct WordOf<1> {
  using type = std::uint8_t;
};
template <>
struct WordOf<2> {
  using type = std::uint16_t;
};
template <>
struct WordOf<4> {
  using type = std::uint32_t;
};
template <>
struct WordOf<8> {
  using type = std::uint64_t;
};

template <int kWord>
MPSCNN_INLINE void move_word(char* dst, const char* src) {
  typename WordOf<kWord>::type word;  // memcpy: arrays of other libraries may be unaligned
  std::memcpy(&word, src, kWord);
  std::memcpy(dst, &word, kWord);
}

template <int kWord>
inline void plain_words(const char* src, std::int64_t src_p, char* dst, std::int64_t dst_q, std::int64_t np,
                        std::int64_t nq) {
  if (np <= nq) {
    for (std::int64_t p = 0; p < np; ++p)
      for (std::int64_t q = 0; q < nq; ++q) move_word<kWord>(dst + q * dst_q + p * kWord, src + p * src_p + q * kWord);
  } else {
    for (std::int64_t q = 0; q < nq; ++q)
      for (std::int64_t p = 0; p < np; ++p) move_word<kWord>(dst + q * dst_q + p * kWord, src + p * src_p + q * kWord);
  }
}

/// Copy up to 16 bytes inline, with two overlapping words.
MPSCNN_INLINE void copy_short(char* dst, const char* src, std::int64_t bytes) {
  if (bytes >= 8) {
    move_word<8>(dst, src);
    move_word<8>(dst + bytes - 8, src + bytes - 8);
  } else if (bytes >= 4) {
    move_word<4>(dst, src);
    move_word<4>(dst + bytes - 4, src + bytes - 4);
  } else if (bytes >= 2) {
    move_word<2>(dst, src);
    move_word<2>(dst + bytes - 2, src + bytes - 2);
  } else if (bytes == 1) {
    *dst = *src;
  }
}

/// Copy a row of a few dozen bytes with overlapping 16-byte moves.
MPSCNN_INLINE void copy_row(char* dst, const char* src, std::int64_t bytes) {
  struct Block {
    char bytes[16];
  };
  if (bytes < 16) return copy_short(dst, src, bytes);
  if (bytes > 512) {
    std::memcpy(dst, src, static_cast<std::size_t>(bytes));
    return;
  }
  Block last;
  std::memcpy(&last, src + bytes - 16, 16);
  for (std::int64_t i = 0; i + 16 < bytes; i += 16) {
    Block block;
    std::memcpy(&block, src + i, 16);
    std::memcpy(dst + i, &block, 16);
  }
  std::memcpy(dst + bytes - 16, &last, 16);
}

}  // namespace mpscnn
