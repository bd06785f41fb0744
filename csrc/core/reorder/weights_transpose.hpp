// SPDX-License-Identifier: Apache-2.0
// Two-dimensional transposes of tiles with the processor's widest vectors, and stores that bypass the caches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace mpscnn {

/// Two-dimensional transpose: copies word (p, q) from src + p * src_p + q * word to dst + q * dst_q + p * word.
struct Tile {
  const char* src;
  const char* src_end;  ///< end of the source's memory, up to which full vectors may be read
  char* dst;
  std::int64_t p, q, src_p, dst_q;
  bool prefetch;  ///< the rows are dense and come from beyond the second-level cache
};

using Transpose = void (*)(const Tile&);

/// Return the fastest transpose for tiles of np x nq words of `word` bytes; `stream`: aligned lines bypass the caches;
/// `dense`: rows of nq words without gaps.
Transpose choose_transpose(int word, std::int64_t np, std::int64_t nq, bool stream, bool dense);

/// Return the number of 16-byte lanes of the processor's widest vectors; 0 without vectors.
int widest_lanes();

/// memcpy for targets that will not be read soon. Call stream_fence() after the last one.
void stream_copy(char* dst, const char* src, std::size_t bytes);
void stream_fence();

/// Return the min size (of one side) for stores that bypass the caches. Below, both sides fit a last-level cache of
/// 32 MB: bypassing it is faster for weights in memory (1.2 times a memcpy's speed against 0.95), but three times
/// slower for cached weights, and the next reader finds the result in the cache.
constexpr std::int64_t stream_threshold() {
#if defined(__x86_64__)
  return std::int64_t{16} << 20;
#else
  return std::numeric_limits<std::int64_t>::max() / 8;
#endif
}

}  // namespace mpscnn
