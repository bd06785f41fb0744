// SPDX-License-Identifier: Apache-2.0
// Parallel loops. Small work stays on the calling thread: waking the others costs microseconds.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/shared/team.hpp"

namespace openmps {

/// Return the number of threads for `work` units with at least `grain` units each.
inline int threads_for(std::int64_t work, std::int64_t grain) {
  if (work < 2 * grain) return 1;
  return static_cast<int>(std::min<std::int64_t>(max_threads(), work / grain));
}

/// Call body(begin, end) over [0, count), one contiguous range per thread. The body must not throw.
template <class Body>
void parallel_ranges(std::int64_t count, int threads, const Body& body) {
  threads = static_cast<int>(std::min<std::int64_t>(threads, count));
  if (threads <= 1) {
    if (count > 0) body(std::int64_t{0}, count);
    return;
  }
  struct Context {
    std::int64_t count;
    const Body& body;
  } context{count, body};
  run_team(
      threads,
      [](void* pointer) {
        const auto& [count, body] = *static_cast<const Context*>(pointer);
        const std::int64_t team = team_size(), me = thread_number();
        const std::int64_t begin = count * me / team, end = count * (me + 1) / team;
        if (begin < end) body(begin, end);
      },
      &context);
}

/// Limits parallel regions of the calling thread (oneDNN's too) to `threads` threads while this lives.
class ThreadLimit {
 public:
  explicit ThreadLimit(int threads) : before_(set_max_threads(threads)) {}
  ~ThreadLimit() { set_max_threads(before_); }
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;

 private:
  const int before_;
};

}  // namespace openmps
