// SPDX-License-Identifier: Apache-2.0
// Loops over the machine's threads. Small work stays on the calling thread: waking the others costs microseconds.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace openmps {

/// Threads for `work` units when a thread should have at least `grain` of them.
inline int threads_for(std::int64_t work, std::int64_t grain) {
  if (work < 2 * grain) return 1;
  return static_cast<int>(std::min<std::int64_t>(omp_get_max_threads(), work / grain));
}

/// body(begin, end) over [0, count) in one contiguous part per thread. The body must not throw.
template <class Body>
void parallel_ranges(std::int64_t count, int threads, const Body& body) {
  threads = static_cast<int>(std::min<std::int64_t>(threads, count));
  if (threads <= 1) {
    if (count > 0) body(std::int64_t{0}, count);
    return;
  }
#pragma omp parallel num_threads(threads)
  {
    const std::int64_t team = omp_get_num_threads(), me = omp_get_thread_num();
    const std::int64_t begin = count * me / team, end = count * (me + 1) / team;
    if (begin < end) body(begin, end);
  }
}

/// The calling thread's parallel regions (oneDNN's too) have at most `threads` threads while this lives.
class ThreadLimit {
 public:
  explicit ThreadLimit(int threads) : before_(omp_get_max_threads()) {
    if (threads != before_) omp_set_num_threads(threads);
  }
  ~ThreadLimit() { omp_set_num_threads(before_); }
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;

 private:
  const int before_;
};

}  // namespace openmps
