// SPDX-License-Identifier: Apache-2.0
// Two-dimensional transposes of tiles with the widest vectors the processor has, and stores past the caches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace mpscnn {

/// Two-dimensional transpose: word (p, q) stands at src + p * src_p + q * word and goes to dst + q * dst_q + p * word.
struct Tile {
  const char* src;
  const char* src_end;  ///< end of the source's memory: full vectors may be read up to here
  char* dst;
  std::int64_t p, q, src_p, dst_q;
  bool prefetch;  ///< the rows are dense and come from beyond the second-level cache
};

using Transpose = void (*)(const Tile&);

/// The fastest transpose for tiles of np x nq words of `word` bytes; `stream`: aligned lines bypass the caches;
/// `dense`: rows of nq words without gaps.
Transpose choose_transpose(int word, std::int64_t np, std::int64_t nq, bool stream, bool dense);

/// 16-byte lanes of the widest vectors this processor has; 0 without vectors.
int widest_lanes();

/// memcpy for targets that will not be read soon; stream_fence() follows the last one.
void stream_copy(char* dst, const char* src, std::size_t bytes);
void stream_fence();

/// From this size on (of one side) stores that bypass the caches win. Below, both sides fit a last-level cache of 32
/// MB: weights that come from memory would still move faster past it (1.2 times a memcpy's speed against 0.95), but
/// those that a cache holds three times more slowly, and whoever reads the result finds it there.
constexpr std::int64_t stream_threshold() {
#if defined(__x86_64__)
  return std::int64_t{16} << 20;
#else
  return std::numeric_limits<std::int64_t>::max() / 8;
#endif
}

}  // namespace mpscnn
