// SPDX-License-Identifier: Apache-2.0
// What queues do about exit() and fork().
#pragma once

#include <atomic>
#include <mutex>
#include <thread>

namespace openmps {

/// exit() runs exit handlers and destroys static objects, the program's and the libraries', while queue threads may
/// still be computing with them. So no thread begins a command buffer after exit() has come to the handler that the
/// first command buffer registers, and exit() waits there for those under way. Exit handlers that come later may use
/// the device again.
class ProcessEnd {
 public:
  static ProcessEnd& instance();

  /// Before anything that counts on a queue. Does nothing after the first time but for the thread that is inside of
  /// exit(), which lets the queues work again until the exit handler it is in returns.
  void allow_work() noexcept;
  /// After the first thread of a queue has begun, which may have made the Objective-C runtime register exit handlers:
  /// those have to come after ours.
  void watch_again() noexcept;

  /// Around the work on a command buffer, by the thread that does it. Begins when the process is not ending.
  void begin_work() noexcept;
  void end_work() noexcept;
  /// Within work: count a list that an engine goes on with, until a thread that has called continue_work() calls
  /// end_work(). exit() waits for it, too.
  void hand_over_work() noexcept { under_way_.fetch_add(1); }
  void continue_work() noexcept;

  /// How many forks lie between the process that loaded this library and the calling one: only the thread that calls
  /// fork() lives on in the child.
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

/// Interrupts the work on a command buffer: whoever waits for an event is not waited for.
class WorkPause {
 public:
  WorkPause() { ProcessEnd::instance().end_work(); }
  ~WorkPause() { ProcessEnd::instance().begin_work(); }
  WorkPause(const WorkPause&) = delete;
  WorkPause& operator=(const WorkPause&) = delete;
};

}  // namespace openmps
