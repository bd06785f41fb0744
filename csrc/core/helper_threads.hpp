// SPDX-License-Identifier: Apache-2.0
// Threads that help the calling one with memory work.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace mpscnn {

constexpr std::int64_t kBytesPerThread = 512 << 10;  // below, waking a thread costs more than it saves

/// How many threads `bytes` are worth, at most `threads` (0: as many as OpenMP has).
int threads_for(std::int64_t bytes, int threads);

/// work(context) here and on up to `count` helpers at once; returns when all that began have ended.
void run_with_helpers(void (*work)(void* context), void* context, int count);

/// body(begin, end) over [0, count) in chunks, handed out as threads get to them.
template <class Body>
void in_parallel(std::int64_t count, int threads, const Body& body) {
  if (threads <= 1 || count <= 1) return body(std::int64_t{0}, count);
  struct Shared {
    const Body& body;
    const std::int64_t count, chunk;
    std::atomic<std::int64_t> next{0};
  } shared{body, count, std::max<std::int64_t>(1, count / (16 * threads))};
  const auto work = [](void* context) {
    auto& job = *static_cast<Shared*>(context);
    for (;;) {
      const std::int64_t begin = job.next.fetch_add(job.chunk, std::memory_order_relaxed);
      if (begin >= job.count) return;
      job.body(begin, std::min(job.count, begin + job.chunk));
    }
  };
  run_with_helpers(work, &shared, static_cast<int>(std::min<std::int64_t>(threads, count)) - 1);
}

}  // namespace mpscnn
