// SPDX-License-Identifier: Apache-2.0
#include "metal/queue.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>
#include <utility>

#include "engine/engine.hpp"
#include "engine/shared/parallel.hpp"
#include "metal/host.hpp"
#include "metal/process_end.hpp"

namespace openmps {
namespace {

// Waking a sleeping thread costs about 50 us on a virtual machine; two threads that alternate on small command buffers
// meet within this time.
constexpr auto kSpin = std::chrono::microseconds(40);

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Return true as soon as the condition holds, false after kSpin. Yields the processor after the first microseconds:
/// the awaited thread may need it.
template <class Condition>
bool spin_until(Condition condition) {
  for (int i = 0; i < 64; ++i) {
    if (condition()) return true;
    relax();
  }
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    std::this_thread::yield();
    if (condition()) return true;
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

std::size_t this_thread_id() { return std::hash<std::thread::id>{}(std::this_thread::get_id()) | 1; }

void swallow(const std::function<void()>& action) noexcept {
  try {
    if (action) action();
  } catch (...) {  // a handler's exception must not end the process
  }
}

}  // namespace

void Submission::wait_for(Stage wanted) const noexcept {
  ProcessEnd::instance().allow_work();
  if (spin_until([&] { return stage.load(std::memory_order_acquire) >= wanted; })) return;
  for (int seen = stage.load(std::memory_order_acquire); seen < wanted; seen = stage.load(std::memory_order_acquire)) {
    stage.wait(seen, std::memory_order_acquire);
  }
}

void Queue::enqueue(const std::shared_ptr<Submission>& submission) {
  std::lock_guard<std::mutex> lock(mutex_);
  places_.push_back(submission);
  submission->completion->progress.store(Progress::enqueued, std::memory_order_release);
}

void Queue::start() {
  auto& process_end = ProcessEnd::instance();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!has_thread_) {
      std::thread([self = shared_from_this()] { self->run(); }).detach();
      has_thread_ = true;
      generation_.store(process_end.generation());
    }
  }
  if (is_begun_.load(std::memory_order_acquire)) return;
  // Without the mutex: while the process ends, the thread begins only after the one inside exit() calls allow_work().
  is_begun_.wait(false, std::memory_order_acquire);
  process_end.watch_again();
}

bool Queue::commit(const std::shared_ptr<Submission>& submission) noexcept {
  ProcessEnd::instance().allow_work();
  if (submission->repeated && submission->repeated->starts_at_once() && start_here(submission)) return true;
  try {
    start();
    std::lock_guard<std::mutex> lock(mutex_);
    if (submission->completion->progress.load(std::memory_order_relaxed) == Progress::not_enqueued) {
      places_.push_back(submission);
    }
    accept(*submission);
    call_thread();
  } catch (...) {
    return false;
  }
  return true;
}

bool Queue::start_here(const std::shared_ptr<Submission>& submission) noexcept {
  if (is_running_thread()) return false;
  auto& process_end = ProcessEnd::instance();
  {
    const std::lock_guard lock(mutex_);
    // The finisher is there once a list has run before. Handlers of a scheduled list run on the queue's thread.
    if (!has_finisher_ || finisher_is_closing_ || is_starting_ || is_claimed_ || !places_.empty() ||
        running_count_ == running_.size() || submission->on_scheduled ||
        submission->completion->progress.load(std::memory_order_relaxed) != Progress::not_enqueued)
      return false;
    is_claimed_ = true;
    accept(*submission);
  }
  process_end.begin_work();
  hand_over(*submission);
  {
    const std::lock_guard lock(mutex_);
    is_claimed_ = false;
    add_running(submission);
    if (!places_.empty()) call_thread();
  }
  process_end.end_work();
  return true;
}

void Queue::add_running(const std::shared_ptr<Submission>& submission) noexcept {
  running_[running_count_++] = submission;
  ProcessEnd::instance().hand_over_work();
  is_behind_others_.store(true, std::memory_order_relaxed);
  turn_.notify_all();
}

void Queue::wait_for_engine(const Submission& submission) noexcept {
  std::shared_ptr<Run> run;
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < running_count_; ++i)
      if (running_[i].get() == &submission) run = submission.run;
  }
  swallow([&] {
    if (run) run->wait();
  });
}

bool Queue::claim(const std::shared_ptr<Submission>& submission) noexcept {
  auto& process_end = ProcessEnd::instance();
  process_end.allow_work();
  std::lock_guard<std::mutex> lock(mutex_);
  const bool idle = places_.empty() && in_flight_ == 0;
  const bool enqueued = submission->completion->progress.load(std::memory_order_relaxed) != Progress::not_enqueued;
  if (!idle || enqueued) return false;
  generation_.store(process_end.generation());
  is_claimed_ = true;
  submission->claimant.store(this_thread_id(), std::memory_order_relaxed);
  accept(*submission);
  return true;
}

void Queue::accept(Submission& submission) noexcept {
  if (!rules_.counts_open_command_buffers) ++in_flight_;
  submission.kernel_start = now_seconds();
  submission.completion->progress.store(Progress::committed, std::memory_order_release);
  submission.stage.store(Submission::running, std::memory_order_release);
}

bool Queue::run_claimed(Submission& submission) noexcept {
  if (submission.claimant.load(std::memory_order_relaxed) != this_thread_id()) return false;
  submission.claimant.store(0, std::memory_order_relaxed);
  auto& process_end = ProcessEnd::instance();
  process_end.allow_work();
  process_end.begin_work();
  in_pool(&Queue::process_awaited, runner_, submission);
  finish(submission, /*was_claimed=*/true);
  process_end.end_work();
  return true;
}

void Queue::withdraw(const std::shared_ptr<Submission>& submission) noexcept {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    std::erase(places_, submission);
    call_thread();  // the places after it may run now
  }
  submission->completion->progress.store(Progress::error, std::memory_order_release);
  if (rules_.counts_open_command_buffers) give_place();
}

void Queue::take_place() noexcept {
  if (is_orphan()) return;
  ProcessEnd::instance().allow_work();
  std::unique_lock<std::mutex> lock(mutex_);
  if (!is_running_thread()) room_.wait(lock, [this] { return in_flight_ < max_in_flight_; });
  if (rules_.counts_open_command_buffers) ++in_flight_;
}

void Queue::give_place(bool was_claimed) noexcept {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    --in_flight_;
    if (was_claimed) {
      // Not later: once the queue is idle, another thread may claim it, and would run beside the queue's own.
      is_claimed_ = false;
      if (!places_.empty()) call_thread();
    }
  }
  room_.notify_all();
}

bool Queue::is_idle() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return in_flight_ == 0;
}

bool Queue::is_running_thread() const noexcept {
  const std::size_t self = this_thread_id();
  return runner_.load(std::memory_order_relaxed) == self || finisher_.load(std::memory_order_relaxed) == self;
}

bool Queue::is_orphan() const noexcept {
  const int generation = generation_.load();
  return generation != kUnused && generation != ProcessEnd::instance().generation();
}

void Queue::close() noexcept {
  if (is_orphan()) return;  // a thread of the parent process may hold the mutex
  ProcessEnd::instance().allow_work();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!has_thread_) return;
    closing_ = true;
    call_thread();
  }
  if (is_running_thread()) return;
  // A detached thread and a flag rather than a join: the last release may come from a handler.
  while (!ended_.load(std::memory_order_acquire)) ended_.wait(false, std::memory_order_acquire);
}

void Queue::call_thread() noexcept {
  calls_.fetch_add(1, std::memory_order_release);
  if (sleeping_) wake_.notify_one();
}

std::shared_ptr<Submission> Queue::next() noexcept {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto is_ready = [this] {
    return !is_claimed_ && !places_.empty() && places_.front()->completion->is_committed();
  };
  for (;;) {
    is_starting_ = false;
    if (is_ready()) {
      auto submission = std::move(places_.front());
      places_.pop_front();
      is_starting_ = true;
      return submission;
    }
    if (closing_) return nullptr;
    const int calls = calls_.load(std::memory_order_acquire);
    lock.unlock();
    const bool called = spin_until([&] { return calls_.load(std::memory_order_acquire) != calls; });
    lock.lock();
    if (called) continue;
    sleeping_ = true;
    wake_.wait(lock, [&] { return calls_.load(std::memory_order_acquire) != calls; });
    sleeping_ = false;
  }
}

void Queue::hand_over(Submission& submission) noexcept {
  submission.completion->progress.store(Progress::scheduled, std::memory_order_release);
  submission.stage.store(Submission::scheduled, std::memory_order_release);
  submission.stage.notify_all();
  submission.kernel_end = now_seconds();
  swallow(submission.on_scheduled);

  submission.gpu_start = now_seconds();
  const ThreadLimit limit(std::min(threads_, process_threads()));
  if (submission.repeated) {
    submission.execution = Execution::start(*submission.engine, *submission.repeated, submission.operands, stream_);
  } else if (!submission.commands.empty()) {
    submission.execution = Execution::start(*submission.engine, submission.commands, stream_);
    submission.execution.hold_weights(submission.commands, stream_.get());
  }
  submission.run = submission.execution.run();
}

void Queue::complete(Submission& submission) noexcept {
  submission.failure = submission.execution.wait();
  submission.gpu_start = std::max(submission.gpu_start, last_gpu_end_);  // handed over while another list ran
  last_gpu_end_ = submission.gpu_end = now_seconds();
  if (submission.run)
    if (const auto seconds = submission.run->device_seconds()) submission.gpu_start = submission.gpu_end - *seconds;
  submission.commands.clear();  // before the stage changes: owners of memory may wait for it
  submission.repeated = nullptr;
  submission.operands.clear();
  for (const auto& action : submission.at_completion) swallow(action);
  submission.at_completion.clear();

  const Progress result = submission.failure ? Progress::error : Progress::completed;
  submission.completion->progress.store(result, std::memory_order_release);
  submission.on_scheduled = nullptr;
  if (rules_.calls_handlers_apart) return;
  swallow(submission.on_completed);
  submission.on_completed = nullptr;
}

/// On the process's notification thread.
void Queue::call_handlers_apart(std::function<void()> handlers) noexcept {
  swallow([&] {
    notify_later(
        [handlers = std::move(handlers)]() mutable {
          ProcessEnd::instance().begin_work();
          swallow(handlers);
          handlers = nullptr;
          ProcessEnd::instance().end_work();
        },
        hooks_.begin, hooks_.in_pool);
  });
}

void Queue::process(Submission& submission) noexcept {
  hand_over(submission);
  if (submission.execution.is_done() && !is_behind_others_.load(std::memory_order_relaxed)) complete(submission);
}

void Queue::process_awaited(Submission& submission) noexcept {
  hand_over(submission);
  complete(submission);
}

void Queue::in_pool(Step step, std::atomic<std::size_t>& runner, Submission& submission) noexcept {
  runner.store(this_thread_id(), std::memory_order_relaxed);
  struct Context {
    Queue* queue;
    Step step;
    Submission* submission;
  } context{this, step, &submission};
  hooks_.in_pool(
      [](void* pointer) {
        const auto& all = *static_cast<Context*>(pointer);
        (all.queue->*all.step)(*all.submission);
      },
      &context);
  runner.store(0, std::memory_order_relaxed);
}

void Queue::finish(Submission& submission, bool was_claimed) noexcept {
  auto handlers = std::exchange(submission.on_completed, nullptr);
  submission.stage.store(Submission::finished, std::memory_order_release);
  submission.stage.notify_all();
  if (handlers) call_handlers_apart(std::move(handlers));
  give_place(was_claimed);
}

void Queue::run_next(const std::shared_ptr<Submission>& submission) noexcept {
  wait_for_turn();
  in_pool(&Queue::process, runner_, *submission);
  if (submission->completion->is_done()) return finish(*submission);
  {
    const std::lock_guard lock(mutex_);
    if (start_finisher()) return add_running(submission);
  }
  in_pool(&Queue::complete, runner_, *submission);
  finish(*submission);
}

void Queue::wait_for_turn() noexcept {
  std::unique_lock lock(mutex_);
  if (running_count_ < running_.size()) return;
  const WorkPause pause;
  turn_.wait(lock, [this] { return running_count_ < running_.size(); });
  lock.unlock();  // before the pause ends
}

bool Queue::start_finisher() noexcept {
  if (has_finisher_) return true;
  try {
    std::thread([self = shared_from_this()] { self->run_finisher(); }).detach();
    has_finisher_ = true;
  } catch (...) {  // no second thread: the queue's own waits
  }
  return has_finisher_;
}

void Queue::run_finisher() noexcept {
  auto& process_end = ProcessEnd::instance();
  hooks_.begin();  // counts as work already: the first list is under way
  std::unique_lock lock(mutex_);
  for (;;) {
    turn_.wait(lock, [this] { return running_count_ > 0 || finisher_is_closing_; });
    if (running_count_ == 0) break;
    std::shared_ptr<Submission> first = running_.front();
    lock.unlock();
    process_end.continue_work();
    in_pool(&Queue::complete, finisher_, *first);
    finish(*first);
    first.reset();
    process_end.end_work();
    lock.lock();
    std::move(running_.begin() + 1, running_.end(), running_.begin());
    running_.back().reset();
    is_behind_others_.store(--running_count_ > 0, std::memory_order_relaxed);
    turn_.notify_all();
  }
  lock.unlock();
  process_end.begin_work();
  hooks_.end();
  process_end.end_work();
  lock.lock();
  has_finisher_ = false;
  turn_.notify_all();
}

void Queue::run() noexcept {
  auto& process_end = ProcessEnd::instance();
  // Registering and unregistering the thread is work too: exit handlers of the Objective-C runtime walk the same lists.
  process_end.begin_work();
  hooks_.begin();
  process_end.end_work();
  is_begun_.store(true, std::memory_order_release);
  is_begun_.notify_all();
  while (auto submission = next()) {
    process_end.begin_work();
    run_next(submission);
    submission.reset();
    process_end.end_work();
  }
  {
    std::unique_lock lock(mutex_);
    finisher_is_closing_ = true;
    turn_.notify_all();
    turn_.wait(lock, [this] { return !has_finisher_; });
  }
  process_end.begin_work();
  hooks_.end();
  process_end.end_work();
  ended_.store(true, std::memory_order_release);
  ended_.notify_all();
}

}  // namespace openmps
