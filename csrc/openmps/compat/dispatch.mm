// SPDX-License-Identifier: Apache-2.0
// libdispatch's semaphores, dispatch_once, queues and groups; see include/dispatch/dispatch.h.

#import "compat/include/dispatch/dispatch.h"

#import "metal/MTLEventOnEngine.hh"
#include "metal/block.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

namespace {

using Block = openmps::Block<dispatch_block_t>;
using Clock = std::chrono::steady_clock;

Clock::time_point point_of(dispatch_time_t time) { return Clock::time_point(std::chrono::nanoseconds(time)); }

dispatch_time_t now() {
  return static_cast<dispatch_time_t>(std::chrono::nanoseconds(Clock::now().time_since_epoch()).count());
}

/// Wait on `changed` until `ready`, which the mutex of `lock` guards. Return false after the timeout.
template <class Ready>
bool wait_until(std::condition_variable &changed, std::unique_lock<std::mutex> &lock, dispatch_time_t timeout,
                const Ready &ready) {
  if (timeout == DISPATCH_TIME_FOREVER) {
    changed.wait(lock, ready);
    return true;
  }
  return changed.wait_until(lock, timeout == DISPATCH_TIME_NOW ? Clock::now() : point_of(timeout), ready);
}

void call(const Block &block) {
  openmps::in_pool([](void *context) { static_cast<const Block *>(context)->get()(); }, const_cast<Block *>(&block));
}

template <class Body>
void on_a_thread(Body body) {
  std::thread([body] {
    openmps::thread_begin();
    body();
    openmps::thread_end();
  }).detach();
}

}  // namespace

struct dispatch_semaphore_s {
  std::mutex mutex;
  std::condition_variable changed;
  intptr_t value, waiting = 0;
};

struct dispatch_group_s {
  std::mutex mutex;
  std::condition_variable changed;
  intptr_t inside = 0;
};

struct dispatch_queue_s {
  enum Kind { serial, concurrent, main_thread } kind;
  std::mutex mutex;
  std::condition_variable changed;  ///< a block was added
  std::deque<Block> blocks;
  bool running = false;  ///< a serial queue has a thread while it has blocks

  explicit dispatch_queue_s(Kind k) : kind(k) {}

  void add(const Block &block) {
    if (kind == concurrent) return on_a_thread([block] { call(block); });
    const std::lock_guard<std::mutex> lock(mutex);
    blocks.push_back(block);
    changed.notify_one();
    if (kind == serial && !running) {
      running = true;
      on_a_thread([this] {
        while (run_next(false)) {
        }
      });
    }
  }

  /// Call the next block. Return false if there is none; with `wait`, wait for one.
  bool run_next(bool wait) {
    Block block;
    {
      std::unique_lock<std::mutex> lock(mutex);
      if (wait) changed.wait(lock, [this] { return !blocks.empty(); });
      if (blocks.empty()) return running = false;
      block = blocks.front();
      blocks.pop_front();
    }
    call(block);
    return true;
  }
};

void dispatch_once(dispatch_once_t *token, dispatch_block_t block) {
  constexpr dispatch_once_t kRunning = 1, kDone = 2;
  const std::atomic_ref<dispatch_once_t> state(*token);
  dispatch_once_t before = 0;
  if (state.load() == kDone) return;
  if (state.compare_exchange_strong(before, kRunning)) {
    block();
    state.store(kDone);
    state.notify_all();
  } else {
    while (state.load() == kRunning) state.wait(kRunning);
  }
}

dispatch_time_t dispatch_time(dispatch_time_t when, int64_t delta) {
  if (when == DISPATCH_TIME_FOREVER) return when;
  const dispatch_time_t from = when == DISPATCH_TIME_NOW ? now() : when;
  if (delta < 0) {
    const dispatch_time_t back = -static_cast<dispatch_time_t>(delta);
    return from > back ? from - back : 1;  // 0 is DISPATCH_TIME_NOW
  }
  // std::chrono counts in 63 bits.
  const dispatch_time_t limit = static_cast<dispatch_time_t>(INT64_MAX);
  return static_cast<dispatch_time_t>(delta) > limit - from ? DISPATCH_TIME_FOREVER
                                                            : from + static_cast<dispatch_time_t>(delta);
}

dispatch_semaphore_t dispatch_semaphore_create(intptr_t value) {
  if (value < 0) return nullptr;
  auto *semaphore = new dispatch_semaphore_s;
  semaphore->value = value;
  return semaphore;
}

intptr_t dispatch_semaphore_wait(dispatch_semaphore_t semaphore, dispatch_time_t timeout) {
  std::unique_lock<std::mutex> lock(semaphore->mutex);
  ++semaphore->waiting;
  const bool ready = wait_until(semaphore->changed, lock, timeout, [semaphore] { return semaphore->value > 0; });
  --semaphore->waiting;
  if (ready) --semaphore->value;
  return !ready;
}

intptr_t dispatch_semaphore_signal(dispatch_semaphore_t semaphore) {
  const std::lock_guard<std::mutex> lock(semaphore->mutex);
  ++semaphore->value;
  semaphore->changed.notify_one();
  return semaphore->waiting > 0;
}

dispatch_queue_t dispatch_get_main_queue(void) {
  static auto *const queue = new dispatch_queue_s(dispatch_queue_s::main_thread);
  return queue;
}

dispatch_queue_t dispatch_get_global_queue(intptr_t, uintptr_t) {
  static auto *const queue = new dispatch_queue_s(dispatch_queue_s::concurrent);
  return queue;
}

dispatch_queue_t dispatch_queue_create(const char *, dispatch_queue_attr_t attributes) {
  return new dispatch_queue_s(attributes == DISPATCH_QUEUE_SERIAL ? dispatch_queue_s::serial
                                                                  : dispatch_queue_s::concurrent);
}

void dispatch_async(dispatch_queue_t queue, dispatch_block_t block) { queue->add(Block(block)); }

void dispatch_sync(dispatch_queue_t queue, dispatch_block_t block) {
  if (queue->kind == dispatch_queue_s::concurrent) return call(Block(block));
  dispatch_semaphore_s done;
  done.value = 0;
  dispatch_semaphore_s *const signal = &done;
  queue->add(Block(^{
    block();
    dispatch_semaphore_signal(signal);
  }));
  dispatch_semaphore_wait(&done, DISPATCH_TIME_FOREVER);
  const std::lock_guard<std::mutex> lock(done.mutex);  // wait until the other thread has left signal()
}

void dispatch_after(dispatch_time_t when, dispatch_queue_t queue, dispatch_block_t block) {
  if (when == DISPATCH_TIME_FOREVER) return;
  const Block copy(block);
  on_a_thread([when, queue, copy] {
    if (when != DISPATCH_TIME_NOW) std::this_thread::sleep_until(point_of(when));
    queue->add(copy);
  });
}

void dispatch_main(void) {
  for (;;) dispatch_get_main_queue()->run_next(true);
}

dispatch_group_t dispatch_group_create(void) { return new dispatch_group_s; }

void dispatch_group_enter(dispatch_group_t group) {
  const std::lock_guard<std::mutex> lock(group->mutex);
  ++group->inside;
}

void dispatch_group_leave(dispatch_group_t group) {
  const std::lock_guard<std::mutex> lock(group->mutex);
  --group->inside;
  group->changed.notify_all();
}

void dispatch_group_async(dispatch_group_t group, dispatch_queue_t queue, dispatch_block_t block) {
  dispatch_group_enter(group);
  const Block copy(block);
  queue->add(Block(^{
    copy.get()();
    dispatch_group_leave(group);
  }));
}

intptr_t dispatch_group_wait(dispatch_group_t group, dispatch_time_t timeout) {
  std::unique_lock<std::mutex> lock(group->mutex);
  return !wait_until(group->changed, lock, timeout, [group] { return group->inside <= 0; });
}
