// SPDX-License-Identifier: Apache-2.0
// Behind an MTLCommandQueue: runs committed command buffers in the order of their places, on a thread of its own or,
// when the queue is idle, on the thread that waits for them.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/plan/execution.hpp"
#include "engine/problem/problem.hpp"
#include "metal/device_rules.hpp"
#include "metal/recording.hpp"

namespace openmps {

/// A command buffer on its way through a queue. Filled in before commit, afterwards the queue's until it is finished.
struct Submission {
  Execution execution;  ///< between the two phases
  std::shared_ptr<Engine> engine;
  std::shared_ptr<Completion> completion;
  std::vector<Command> commands;
  std::vector<std::function<void()>> at_completion;
  std::function<void()> on_scheduled, on_completed;  ///< handlers; by the rules, the latter are called apart

  /// How far waiting threads may go.
  enum Stage : int { recording = 0, running, scheduled, finished };
  std::atomic<int> stage{recording};
  void wait_for(Stage wanted) const noexcept;

  /// The thread that has to run it when it waits for it; 0 for the queue's.
  std::atomic<std::size_t> claimant{0};

  /// Valid once the work is done.
  Failure failure;
  double kernel_start = 0, kernel_end = 0, gpu_start = 0, gpu_end = 0;  ///< seconds, monotonic clock
};

/// What the thread needs of Objective-C.
struct ThreadHooks {
  void (*begin)();
  void (*end)();
  void (*in_pool)(void (*body)(void*), void* context);
};

class Queue : public std::enable_shared_from_this<Queue> {
 public:
  Queue(ThreadHooks hooks, std::size_t max_in_flight, const DeviceRules& rules)
      : hooks_(hooks), max_in_flight_(max_in_flight), rules_(rules) {}

  /// For a new submission: returns when fewer than max_in_flight are unfinished; at once on the running thread. Which
  /// ones count, uncommitted or committed ones, is a matter of the rules.
  void take_place() noexcept;

  /// Takes the next place. Once per submission.
  void enqueue(const std::shared_ptr<Submission>& submission);
  /// Lets it run, in its place; takes one if it has none. Starts the thread if need be. Once per submission. False:
  /// the thread could not be started, and nothing has changed.
  [[nodiscard]] bool commit(const std::shared_ptr<Submission>& submission) noexcept;
  /// Instead of commit(), by a thread whose next call is run_claimed(): an idle queue leaves the work to that thread,
  /// which saves handing it over and back. False: nothing has changed, and commit() is the way.
  [[nodiscard]] bool claim(const std::shared_ptr<Submission>& submission) noexcept;
  /// Runs what this thread has claimed; false if it has not.
  bool run_claimed(Submission& submission) noexcept;
  /// Gives its place up (a command buffer that is dropped without commit).
  void withdraw(const std::shared_ptr<Submission>& submission) noexcept;
  /// Whether the calling thread is the one that runs a command buffer now: it is in a handler.
  bool is_running_thread() const noexcept;
  /// Whether the queue was in use when the process was forked: then nothing that is committed here ever runs.
  bool is_orphan() const noexcept;
  /// Runs what has been committed, then ends the thread. From a handler it does not wait for that.
  void close() noexcept;

 private:
  /// Starts the thread, unless it has been, and returns when it is ready for work.
  void start();
  void run() noexcept;
  /// Let the thread look at places_ again. With the mutex: the thread may be the last to use the queue, and end.
  void call_thread() noexcept;
  std::shared_ptr<Submission> next() noexcept;
  void accept(Submission& submission) noexcept;
  void give_place() noexcept;
  using Step = void (Queue::*)(Submission&) noexcept;
  /// Run `step` in an autorelease pool; `runner` holds the thread's number meanwhile.
  void in_pool(Step step, std::atomic<std::size_t>& runner, Submission& submission) noexcept;
  /// Hand the work over to the engine.
  void hand_over(Submission& submission) noexcept;
  /// Wait for the engine, and call handlers.
  void complete(Submission& submission) noexcept;
  /// Both; the second if the engine has ended already and no earlier command buffer runs.
  void process(Submission& submission) noexcept;
  void process_awaited(Submission& submission) noexcept;
  /// Let everyone go on who waits for the submission.
  void finish(Submission& submission) noexcept;
  void run_next(const std::shared_ptr<Submission>& submission) noexcept;
  bool start_finisher() noexcept;
  void run_finisher() noexcept;
  void call_handlers_apart(std::function<void()> handlers) noexcept;

  static constexpr int kUnused = -1;

  const ThreadHooks hooks_;
  const std::size_t max_in_flight_;
  const DeviceRules& rules_;

  std::mutex mutex_;
  std::condition_variable wake_, room_;
  std::deque<std::shared_ptr<Submission>> places_;
  std::size_t in_flight_ = 0;
  bool has_thread_ = false, closing_ = false, sleeping_ = false;
  bool is_claimed_ = false;    ///< some thread has work of this queue; nothing else may begin
  std::atomic<int> calls_{0};  ///< rises with each commit and close: what the idle thread watches
  /// Handed over to the engine, in order; a second thread, the finisher, waits for the first. While it runs, another is
  /// ready and a third is handed over.
  std::array<std::shared_ptr<Submission>, 3> running_;
  std::size_t running_count_ = 0;
  std::atomic<bool> is_behind_others_{false};  ///< running_count_ > 0
  std::condition_variable turn_;               ///< when any of these changes
  bool has_finisher_ = false, finisher_is_closing_ = false;
  double last_gpu_end_ = 0;                           ///< of the thread that completes command buffers, one at a time
  std::atomic<std::size_t> runner_{0}, finisher_{0};  ///< threads that are in a handler now, or may be
  std::atomic<int> generation_{kUnused};              ///< the process that uses the queue, counted in forks
  std::atomic<bool> is_begun_{false}, ended_{false};
};

}  // namespace openmps
