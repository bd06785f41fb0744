// SPDX-License-Identifier: Apache-2.0
// Behaviour of queues at exit() and fork().
#pragma once

#include <atomic>
#include <mutex>
#include <thread>

namespace openmps {

/// exit() runs exit handlers and destroys static objects of the program and its libraries while queue threads may still
/// use them. The first command buffer registers an exit handler: once it runs, no thread begins a command buffer, and
/// it waits for those under way. Exit handlers that run later may use the device again.
class ProcessEnd {
 public:
  static ProcessEnd& instance();

  /// Call before any use of a queue. A no-op after the first time, except on the thread inside exit(): there the queues
  /// can work again until the current exit handler returns.
  void allow_work() noexcept;
  /// Call when the first thread of a queue has begun, which may have made the Objective-C runtime register exit
  /// handlers: ours has to run before those.
  void watch_again() noexcept;

  /// Bracket the work on a command buffer, on its thread. begin_work() blocks while the process ends.
  void begin_work() noexcept;
  void end_work() noexcept;
  /// Within work: count a list that the engine still runs until a thread that has called continue_work() calls
  /// end_work(). exit() waits for it, too.
  void hand_over_work() noexcept { under_way_.fetch_add(1); }
  void continue_work() noexcept;

  /// Number of forks between the process that loaded this library and the calling one. Only the thread that calls
  /// fork() survives in the child.
  int generation() const noexcept { return generation_.load(std::memory_order_relaxed); }

 private:
  ProcessEnd();
  void watch() noexcept;
  void halt() noexcept;

  std::once_flag watched_, watched_again_;
  std::atomic<bool> ending_{false};
  std::atomic<std::thread::id> ender_{};
  std::atomic<int> under_way_{0};
  std::atomic<int> generation_{0};
};

/// Interruption of the work on a command buffer: exit() does not wait for one that waits for an event.
class WorkPause {
 public:
  WorkPause() { ProcessEnd::instance().end_work(); }
  ~WorkPause() { ProcessEnd::instance().begin_work(); }
  WorkPause(const WorkPause&) = delete;
  WorkPause& operator=(const WorkPause&) = delete;
};

}  // namespace openmps
