// SPDX-License-Identifier: Apache-2.0
// Threads that help the caller with memory-bound work.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace mpscnn {

constexpr std::int64_t kBytesPerThread = 256 << 10;  ///< below, handing work over costs more than it saves

/// Return the number of threads for moving `bytes`, at most `threads` (0: available_threads()).
int threads_for(std::int64_t bytes, int threads);

constexpr int kMaxThreads = 64;

/// Run work(context, thread) here as thread 0 and on up to `count` helpers as threads 1, 2, ...; return when all that
/// began have ended.
void run_with_helpers(void (*work)(void* context, int thread), void* context, int count);

/// Run body(begin, end) over [0, count) in chunks. Each thread begins with its own part, the same one in every call, so
/// that its cache is warm; then it takes chunks from slower threads.
template <class Body>
void in_parallel(std::int64_t count, int threads, const Body& body) {
  const int parts = static_cast<int>(std::min<std::int64_t>({threads, count, kMaxThreads}));
  if (parts <= 1) return body(std::int64_t{0}, count);
  struct alignas(64) Part {
    std::atomic<std::int64_t> next;
    std::int64_t end;
    std::atomic<bool> begun;  ///< by its own thread, which then finishes it
  };
  struct Shared {
    const Body& body;
    const int parts;
    const std::int64_t chunk;
    Part part[kMaxThreads];
  } shared{body, parts, std::max<std::int64_t>(1, count / (16 * parts)), {}};
  for (int i = 0; i < parts; ++i) {
    shared.part[i].next.store(count * i / parts, std::memory_order_relaxed);
    shared.part[i].end = count * (i + 1) / parts;
  }
  const auto work = [](void* context, int thread) {
    auto& job = *static_cast<Shared*>(context);
    for (int i = 0; i < job.parts; ++i) {
      Part& part = job.part[(thread + i) % job.parts];
      if (i == 0) part.begun.store(true, std::memory_order_relaxed);
      for (;;) {
        // Fetching the rest of a nearly finished part from another core's cache costs more than waiting for it.
        const bool near_end = part.end - part.next.load(std::memory_order_relaxed) <= 3 * job.chunk;
        if (i > 0 && near_end && part.begun.load(std::memory_order_relaxed)) break;
        const std::int64_t begin = part.next.fetch_add(job.chunk, std::memory_order_relaxed);
        if (begin >= part.end) break;
        job.body(begin, std::min(part.end, begin + job.chunk));
      }
    }
  };
  run_with_helpers(work, &shared, parts - 1);
}

}  // namespace mpscnn
