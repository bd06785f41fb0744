// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/function/fibers.hpp"

#include <sys/mman.h>
#include <ucontext.h>

#include <memory>
#include <new>
#include <vector>

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace openmps::cpu {
namespace {

constexpr std::size_t kStackBytes = 256 << 10;

class Scheduler;
thread_local Scheduler* running = nullptr;

/// ThreadSanitizer's state of a stack: it does not see how contexts switch.
class Shadow {
 public:
#if defined(__SANITIZE_THREAD__)
  ~Shadow() { forget(); }
  /// The stack of the calling thread.
  void adopt() { state_ = __tsan_get_current_fiber(); }
  /// A new stack, in place of the one before.
  void create() {
    forget();
    state_ = owned_ = __tsan_create_fiber(0);
  }
  /// Call before each switch to the stack.
  void enter() const { __tsan_switch_to_fiber(state_, 0); }

 private:
  void forget() {
    if (owned_) __tsan_destroy_fiber(owned_);
  }
  void *state_ = nullptr, *owned_ = nullptr;
#else
  void adopt() {}
  void create() {}
  void enter() const {}
#endif
};

class Scheduler {
 public:
  ~Scheduler() {
    for (const auto& fiber : fibers_) ::munmap(fiber->stack, kStackBytes);
  }

  bool run(function::HostCode::Thread* thread, function_abi::Group& group, unsigned count) {
    Scheduler* const before = running;
    running = this;
    main_shadow_.adopt();
    group.wait = [] { running->wait(); };
    thread_ = thread, group_ = &group, count_ = count, next_ = 0;
    bool has_memory = true;
    while (next_ < count_ && (has_memory = start())) {
    }
    // All threads wait, or have ended: go on behind the barrier.
    while (has_memory && !waiting_.empty()) {
      released_.swap(waiting_);
      for (Fiber* fiber : released_) resume(*fiber);
      released_.clear();
    }
    waiting_.clear();
    running = before;
    return has_memory;
  }

 private:
  struct Fiber {
    ucontext_t context;
    void* stack;
    [[no_unique_address]] Shadow shadow;
    bool has_ended = true;
  };

  /// Run a fiber over the next threads, until one of them waits.
  bool start() {
    Fiber* fiber = free_fiber();
    if (!fiber) return false;
    ::getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->stack;
    fiber->context.uc_stack.ss_size = kStackBytes;
    fiber->context.uc_link = nullptr;
    ::makecontext(&fiber->context, [] { running->run_threads(); }, 0);
    fiber->shadow.create();
    fiber->has_ended = false;
    resume(*fiber);
    return true;
  }
  Fiber* free_fiber() {
    // Fibers that wait are the first ones: they are started in order, and end in order.
    if (waiting_.size() < fibers_.size()) {
      for (std::size_t i = waiting_.size(); i < fibers_.size(); ++i)
        if (fibers_[i]->has_ended) return fibers_[i].get();
      for (const auto& fiber : fibers_)
        if (fiber->has_ended) return fiber.get();
    }
    void* const stack = ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (stack == MAP_FAILED) return nullptr;
    auto fiber = std::make_unique<Fiber>();
    fiber->stack = stack;
    fibers_.push_back(std::move(fiber));
    return fibers_.back().get();
  }
  void resume(Fiber& fiber) {
    current_ = &fiber;
    fiber.shadow.enter();
    ::swapcontext(&main_, &fiber.context);
  }
  void run_threads() {
    while (next_ < count_) {
      const unsigned index = next_++;
      thread_(group_, index);
    }
    current_->has_ended = true;
    main_shadow_.enter();
    ::setcontext(&main_);
  }
  void wait() {
    Fiber* const fiber = current_;
    waiting_.push_back(fiber);
    main_shadow_.enter();
    ::swapcontext(&fiber->context, &main_);
  }

  ucontext_t main_;
  [[no_unique_address]] Shadow main_shadow_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> waiting_, released_;
  Fiber* current_ = nullptr;
  function::HostCode::Thread* thread_ = nullptr;
  function_abi::Group* group_ = nullptr;
  unsigned count_ = 0, next_ = 0;
};

}  // namespace

bool run_group(function::HostCode::Thread* thread, function_abi::Group& group, unsigned count) {
  thread_local Scheduler scheduler;
  try {
    return scheduler.run(thread, group, count);
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace openmps::cpu
