// SPDX-License-Identifier: Apache-2.0
#include "core/reorder/weights_transpose.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "core/reorder/weights_words.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace mpscnn {

int widest_lanes() {
#if defined(__x86_64__)
  static const int lanes = [] {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
      return 4;
    return __builtin_cpu_supports("avx2") ? 2 : 1;
  }();
  return lanes;
#elif defined(__aarch64__)
  return 1;
#else
  return 0;
#endif
}

namespace {

#if defined(__x86_64__)

namespace lanes1 {
using Reg = __m128i;
constexpr int kLanes = 1;
#define MPSCNN_TARGET
MPSCNN_INLINE Reg load(const char* at) { return _mm_loadu_si128(reinterpret_cast<const Reg*>(at)); }
MPSCNN_INLINE Reg gather(const char* at, std::int64_t) { return load(at); }
MPSCNN_INLINE void store(char* at, Reg r) { _mm_storeu_si128(reinterpret_cast<Reg*>(at), r); }
[[maybe_unused]] MPSCNN_INLINE void stream(char* at, Reg r) { store(at, r); }
template <int kWord>
MPSCNN_INLINE Reg zip_low(Reg a, Reg b) {
  if constexpr (kWord == 1)
    return _mm_unpacklo_epi8(a, b);
  else if constexpr (kWord == 2)
    return _mm_unpacklo_epi16(a, b);
  else if constexpr (kWord == 4)
    return _mm_unpacklo_epi32(a, b);
  else
    return _mm_unpacklo_epi64(a, b);
}
template <int kWord>
MPSCNN_INLINE Reg zip_high(Reg a, Reg b) {
  if constexpr (kWord == 1)
    return _mm_unpackhi_epi8(a, b);
  else if constexpr (kWord == 2)
    return _mm_unpackhi_epi16(a, b);
  else if constexpr (kWord == 4)
    return _mm_unpackhi_epi32(a, b);
  else
    return _mm_unpackhi_epi64(a, b);
}
template <int n>
MPSCNN_INLINE void store_lanes(const Reg* r, char* dst, std::int64_t step) {
#pragma GCC unroll 16
  for (int j = 0; j < n; ++j) store(dst + j * step, r[j]);
}
#include "core/reorder/weights_tiles.inc"
#undef MPSCNN_TARGET
}  // namespace lanes1

namespace lanes2 {
using Reg = __m256i;
constexpr int kLanes = 2;
#define MPSCNN_TARGET __attribute__((target("avx2")))
MPSCNN_TARGET MPSCNN_INLINE Reg load(const char* at) { return _mm256_loadu_si256(reinterpret_cast<const Reg*>(at)); }
MPSCNN_TARGET MPSCNN_INLINE Reg gather(const char* at, std::int64_t step) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(lanes1::load(at)), lanes1::load(at + step), 1);
}
MPSCNN_TARGET MPSCNN_INLINE void store(char* at, Reg r) { _mm256_storeu_si256(reinterpret_cast<Reg*>(at), r); }
MPSCNN_TARGET MPSCNN_INLINE void stream(char* at, Reg r) { store(at, r); }
template <int kWord>
MPSCNN_TARGET MPSCNN_INLINE Reg zip_low(Reg a, Reg b) {
  if constexpr (kWord == 1)
    return _mm256_unpacklo_epi8(a, b);
  else if constexpr (kWord == 2)
    return _mm256_unpacklo_epi16(a, b);
  else if constexpr (kWord == 4)
    return _mm256_unpacklo_epi32(a, b);
  else
    return _mm256_unpacklo_epi64(a, b);
}
template <int kWord>
MPSCNN_TARGET MPSCNN_INLINE Reg zip_high(Reg a, Reg b) {
  if constexpr (kWord == 1)
    return _mm256_unpackhi_epi8(a, b);
  else if constexpr (kWord == 2)
    return _mm256_unpackhi_epi16(a, b);
  else if constexpr (kWord == 4)
    return _mm256_unpackhi_epi32(a, b);
  else
    return _mm256_unpackhi_epi64(a, b);
}
template <int n>
MPSCNN_TARGET MPSCNN_INLINE void store_lanes(const Reg* r, char* dst, std::int64_t step) {
#pragma GCC unroll 16
  for (int j = 0; j < n; ++j) lanes1::store(dst + j * step, _mm256_castsi256_si128(r[j]));
#pragma GCC unroll 16
  for (int j = 0; j < n; ++j) lanes1::store(dst + (n + j) * step, _mm256_extracti128_si256(r[j], 1));
}
#include "core/reorder/weights_tiles.inc"
#undef MPSCNN_TARGET
}  // namespace lanes2

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // false positive in GCC's header: _mm_undefined_si128
#endif
namespace lanes4 {
using Reg = __m512i;
constexpr int kLanes = 4;
#define MPSCNN_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,prefer-vector-width=512")))
MPSCNN_TARGET MPSCNN_INLINE Reg load(const char* at) { return _mm512_loadu_si512(at); }
MPSCNN_TARGET MPSCNN_INLINE Reg gather(const char* at, std::int64_t step) {
  // Masked broadcasts load from memory and keep the shuffle unit free for the transpose.
  Reg r = _mm512_castsi128_si512(lanes1::load(at));
  r = _mm512_mask_broadcast_i32x4(r, 0x00f0, lanes1::load(at + step));
  r = _mm512_mask_broadcast_i32x4(r, 0x0f00, lanes1::load(at + 2 * step));
  return _mm512_mask_broadcast_i32x4(r, 0xf000, lanes1::load(at + 3 * step));
}
MPSCNN_TARGET MPSCNN_INLINE void store(char* at, Reg r) { _mm512_storeu_si512(at, r); }
MPSCNN_TARGET MPSCNN_INLINE void stream(char* at, Reg r) { _mm512_stream_si512(reinterpret_cast<Reg*>(at), r); }
template <int kWord>
MPSCNN_TARGET MPSCNN_INLINE Reg zip_low(Reg a, Reg b) {
  if constexpr (kWord == 1)
    return _mm512_unpacklo_epi8(a, b);
  else if constexpr (kWord == 2)
    return _mm512_unpacklo_epi16(a, b);
  else if constexpr (kWord == 4)
    return _mm512_unpacklo_epi32(a, b);
  else
    return _mm512_unpacklo_epi64(a, b);
}
template <int kWord>
MPSCNN_TARGET MPSCNN_INLINE Reg zip_high(Reg a, Reg b) {
  if constexpr (kWord == 1)
    return _mm512_unpackhi_epi8(a, b);
  else if constexpr (kWord == 2)
    return _mm512_unpackhi_epi16(a, b);
  else if constexpr (kWord == 4)
    return _mm512_unpackhi_epi32(a, b);
  else
    return _mm512_unpackhi_epi64(a, b);
}
template <int n>
MPSCNN_TARGET MPSCNN_INLINE void store_lanes(const Reg* r, char* dst, std::int64_t step) {
#pragma GCC unroll 16
  for (int j = 0; j < n; ++j) lanes1::store(dst + j * step, _mm512_castsi512_si128(r[j]));
#pragma GCC unroll 16
  for (int j = 0; j < n; ++j) lanes1::store(dst + (n + j) * step, _mm512_extracti32x4_epi32(r[j], 1));
#pragma GCC unroll 16
  for (int j = 0; j < n; ++j) lanes1::store(dst + (2 * n + j) * step, _mm512_extracti32x4_epi32(r[j], 2));
#pragma GCC unroll 16
  for (int j = 0; j < n; ++j) lanes1::store(dst + (3 * n + j) * step, _mm512_extracti32x4_epi32(r[j], 3));
}
#include "core/reorder/weights_tiles.inc"
#include "core/reorder/weights_window.inc"
#undef MPSCNN_TARGET
}  // namespace lanes4
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#elif defined(__aarch64__)

namespace lanes1 {
using Reg = uint8x16_t;
constexpr int kLanes = 1;
#define MPSCNN_TARGET
MPSCNN_INLINE Reg load(const char* at) { return vld1q_u8(reinterpret_cast<const std::uint8_t*>(at)); }
MPSCNN_INLINE Reg gather(const char* at, std::int64_t) { return load(at); }
MPSCNN_INLINE void store(char* at, Reg r) { vst1q_u8(reinterpret_cast<std::uint8_t*>(at), r); }
[[maybe_unused]] MPSCNN_INLINE void stream(char* at, Reg r) { store(at, r); }
template <int kWord>
MPSCNN_INLINE Reg zip_low(Reg a, Reg b) {
  if constexpr (kWord == 1)
    return vzip1q_u8(a, b);
  else if constexpr (kWord == 2)
    return vreinterpretq_u8_u16(vzip1q_u16(vreinterpretq_u16_u8(a), vreinterpretq_u16_u8(b)));
  else if constexpr (kWord == 4)
    return vreinterpretq_u8_u32(vzip1q_u32(vreinterpretq_u32_u8(a), vreinterpretq_u32_u8(b)));
  else
    return vreinterpretq_u8_u64(vzip1q_u64(vreinterpretq_u64_u8(a), vreinterpretq_u64_u8(b)));
}
template <int kWord>
MPSCNN_INLINE Reg zip_high(Reg a, Reg b) {
  if constexpr (kWord == 1)
    return vzip2q_u8(a, b);
  else if constexpr (kWord == 2)
    return vreinterpretq_u8_u16(vzip2q_u16(vreinterpretq_u16_u8(a), vreinterpretq_u16_u8(b)));
  else if constexpr (kWord == 4)
    return vreinterpretq_u8_u32(vzip2q_u32(vreinterpretq_u32_u8(a), vreinterpretq_u32_u8(b)));
  else
    return vreinterpretq_u8_u64(vzip2q_u64(vreinterpretq_u64_u8(a), vreinterpretq_u64_u8(b)));
}
template <int n>
MPSCNN_INLINE void store_lanes(const Reg* r, char* dst, std::int64_t step) {
#pragma GCC unroll 16
  for (int j = 0; j < n; ++j) store(dst + j * step, r[j]);
}
#include "core/reorder/weights_tiles.inc"
#undef MPSCNN_TARGET
}  // namespace lanes1

#endif

template <int kWord>
void transpose_plain(const Tile& t) {
  plain_words<kWord>(t.src, t.src_p, t.dst, t.dst_q, t.p, t.q);
}

/// Return whether the processor supports weights_window.inc.
[[maybe_unused]] bool has_windows() {
#if defined(__x86_64__)
  static const bool has = widest_lanes() == 4 && __builtin_cpu_supports("avx512vbmi");
  return has;
#else
  return false;
#endif
}

/// Return the fastest transpose for tiles of np x nq words; `dense`: rows of nq words without gaps.
template <int kWord>
Transpose choose_transpose(std::int64_t np, std::int64_t nq, bool stream, bool dense) {
  constexpr std::int64_t n = 16 / kWord;
  [[maybe_unused]] const int lanes = widest_lanes();
#if defined(__x86_64__)
  if constexpr (kWord <= 4) {
    if (dense && np >= 4 * n && has_windows()) {
      if (nq == 9) return stream ? lanes4::window<kWord, 9, true> : lanes4::window<kWord, 9, false>;
      if (nq == 25) return stream ? lanes4::window<kWord, 25, true> : lanes4::window<kWord, 25, false>;
    }
  }
  if (lanes == 4 && np >= 4 * n) return stream ? lanes4::along_p<kWord, true> : lanes4::along_p<kWord, false>;
  if (lanes == 4 && nq >= 4 * n && np < 2 * n) return lanes4::along_q<kWord>;
  if (lanes >= 2 && np >= 2 * n) return lanes2::along_p<kWord, false>;
  if (lanes == 4 && nq >= 4 * n) return lanes4::along_q<kWord>;
  if (lanes >= 2 && nq >= 2 * n) return lanes2::along_q<kWord>;
#endif
#if defined(__x86_64__) || defined(__aarch64__)
  if (np >= n) return lanes1::along_p<kWord, false>;
  if (nq >= n) return lanes1::along_q<kWord>;
#endif
  (void)np, (void)nq, (void)stream, (void)dense;
  return transpose_plain<kWord>;
}

// ---- stores that bypass the caches

#if defined(__x86_64__)
__attribute__((target("avx512f"))) void stream_lines4(char* dst, const char* src, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += 64)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(dst + i), _mm512_loadu_si512(src + i));
}
void stream_lines1(char* dst, const char* src, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += 64) {
    for (std::size_t k = 0; k < 64; k += 16) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(dst + i + k),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(src + i + k)));
    }
  }
}
#endif

}  // namespace

Transpose choose_transpose(int word, std::int64_t np, std::int64_t nq, bool stream, bool dense) {
  switch (word) {
    case 1: return choose_transpose<1>(np, nq, stream, dense);
    case 2: return choose_transpose<2>(np, nq, stream, dense);
    case 4: return choose_transpose<4>(np, nq, stream, dense);
    default: return choose_transpose<8>(np, nq, stream, dense);
  }
}

void stream_copy(char* dst, const char* src, std::size_t bytes) {
#if defined(__x86_64__)
  const std::size_t head = std::min(bytes, (64 - (reinterpret_cast<std::uintptr_t>(dst) & 63)) & 63);
  std::memcpy(dst, src, head);
  const std::size_t lines = (bytes - head) & ~std::size_t{63};
  (widest_lanes() == 4 ? stream_lines4 : stream_lines1)(dst + head, src + head, lines);
  std::memcpy(dst + head + lines, src + head + lines, bytes - head - lines);
#else
  std::memcpy(dst, src, bytes);
#endif
}

void stream_fence() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

}  // namespace mpscnn
