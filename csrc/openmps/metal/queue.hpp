// SPDX-License-Identifier: Apache-2.0
// Implementation of MTLCommandQueue. Runs committed command buffers in the order of their places, on its own thread or,
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

/// A command buffer in a queue. Filled in before commit; then the queue's until it is finished.
struct Submission {
  Execution execution;       ///< from hand_over() to complete()
  std::shared_ptr<Run> run;  ///< of the execution
  std::shared_ptr<Engine> engine;
  std::shared_ptr<Completion> completion;
  std::vector<Command> commands;
  std::shared_ptr<RepeatedList> repeated;  ///< instead of commands
  RepeatedList::Operands operands;         ///< of that list
  std::vector<std::function<void()>> at_completion;
  std::function<void()> on_scheduled, on_completed;  ///< handlers; calls_handlers_apart is about the latter

  /// Progress that waiting threads observe.
  enum Stage : int { recording = 0, running, scheduled, finished };
  std::atomic<int> stage{recording};
  void wait_for(Stage wanted) const noexcept;

  /// The thread that claimed it and has to run it; 0: the queue's own.
  std::atomic<std::size_t> claimant{0};

  /// Valid once the work is done.
  Failure failure;
  double kernel_start = 0, kernel_end = 0, gpu_start = 0, gpu_end = 0;  ///< seconds, monotonic clock
};

/// Objective-C functions that the queue's threads need.
struct ThreadHooks {
  void (*begin)();
  void (*end)();
  void (*in_pool)(void (*body)(void*), void* context);
};

class Queue : public std::enable_shared_from_this<Queue> {
 public:
  Queue(ThreadHooks hooks, std::size_t max_in_flight, const DeviceRules& rules)
      : hooks_(hooks), max_in_flight_(max_in_flight), rules_(rules) {}

  /// Set the max number of threads that compute a list, 0 for all that the process may use. Before the first commit.
  void set_threads(int threads) noexcept { threads_ = threads; }
  /// Return whether no committed submission is unfinished.
  bool is_idle() noexcept;

  /// Admit a new submission: block until fewer than max_in_flight are unfinished, except on the running thread. Whether
  /// uncommitted submissions count depends on the rules.
  void take_place() noexcept;

  /// Take the next place. Once per submission.
  void enqueue(const std::shared_ptr<Submission>& submission);
  /// Let the submission run in its place, the next one if it has none. Start the thread if needed. Once per submission.
  /// Return false, with nothing changed, if the thread could not be started. A list that starts at once is started by
  /// the calling thread, unless others are to start before it.
  [[nodiscard]] bool commit(const std::shared_ptr<Submission>& submission) noexcept;
  /// Alternative to commit() for a thread whose next call is run_claimed(): an idle queue leaves the work to that
  /// thread, which saves two thread switches. Return false, with nothing changed, if commit() has to be called.
  [[nodiscard]] bool claim(const std::shared_ptr<Submission>& submission) noexcept;
  /// Run the submission if this thread has claimed it; return whether it has.
  bool run_claimed(Submission& submission) noexcept;
  /// Wait for the end of the engine's work, if it has been started; the submission may not be finished then.
  void wait_for_engine(const Submission& submission) noexcept;
  /// Give up its place (a command buffer that is dropped without commit).
  void withdraw(const std::shared_ptr<Submission>& submission) noexcept;
  /// Return whether the calling thread runs a command buffer now, that is, calls a handler.
  bool is_running_thread() const noexcept;
  /// Return whether the process was forked after the queue was used: work committed here never runs.
  bool is_orphan() const noexcept;
  /// Run the committed work, then end the thread. In a handler, do not wait for that.
  void close() noexcept;

 private:
  /// Start the thread unless it has been started; return when it is ready for work.
  void start();
  void run() noexcept;
  /// Make the thread check places_ again. With the mutex: the thread may be the last to use the queue, and end.
  void call_thread() noexcept;
  std::shared_ptr<Submission> next() noexcept;
  void accept(Submission& submission) noexcept;
  void give_place(bool was_claimed = false) noexcept;
  using Step = void (Queue::*)(Submission&) noexcept;
  /// Run `step` in an autorelease pool; `runner` holds the thread's id meanwhile.
  void in_pool(Step step, std::atomic<std::size_t>& runner, Submission& submission) noexcept;
  /// Hand the work over to the engine.
  void hand_over(Submission& submission) noexcept;
  /// Wait for the engine, and call handlers.
  void complete(Submission& submission) noexcept;
  /// Both; the second only if the engine has finished and no earlier command buffer runs.
  void process(Submission& submission) noexcept;
  void process_awaited(Submission& submission) noexcept;
  /// Wake the threads that wait for the submission.
  void finish(Submission& submission, bool was_claimed = false) noexcept;
  void run_next(const std::shared_ptr<Submission>& submission) noexcept;
  /// Wait until another list may be handed over. is_starting_ keeps start_here() from taking its place.
  void wait_for_turn() noexcept;
  /// Start the submission on the calling thread. Return false, with nothing changed, if commands have to start first.
  bool start_here(const std::shared_ptr<Submission>& submission) noexcept;
  /// Let the finisher wait for it. With the mutex.
  void add_running(const std::shared_ptr<Submission>& submission) noexcept;
  bool start_finisher() noexcept;
  void run_finisher() noexcept;
  void call_handlers_apart(std::function<void()> handlers) noexcept;

  static constexpr int kUnused = -1;

  const ThreadHooks hooks_;
  const std::size_t max_in_flight_;
  const DeviceRules& rules_;
  int threads_ = 0;

  std::mutex mutex_;
  std::condition_variable wake_, room_;
  std::deque<std::shared_ptr<Submission>> places_;
  std::size_t in_flight_ = 0;
  bool has_thread_ = false, closing_ = false, sleeping_ = false;
  bool is_claimed_ = false;       ///< a thread has claimed work; no other work may begin
  bool is_starting_ = false;      ///< the queue's thread has taken work that is not among running_ yet
  std::shared_ptr<void> stream_;  ///< of the engine
  std::atomic<int> calls_{0};     ///< number of commits, withdrawals and closes; the idle thread watches it
  /// Lists handed over to the engine, in order; a second thread, the finisher, waits for the first. One runs, another
  /// is ready, a third is being handed over.
  std::array<std::shared_ptr<Submission>, 3> running_;
  std::size_t running_count_ = 0;
  std::atomic<bool> is_behind_others_{false};  ///< running_count_ > 0
  std::condition_variable turn_;               ///< notified when any of these changes
  bool has_finisher_ = false, finisher_is_closing_ = false;
  double last_gpu_end_ = 0;                           ///< used by the completing thread only
  std::atomic<std::size_t> runner_{0}, finisher_{0};  ///< threads that may be in a handler now
  std::atomic<int> generation_{kUnused};              ///< of the process that uses the queue
  std::atomic<bool> is_begun_{false}, ended_{false};
};

}  // namespace openmps
