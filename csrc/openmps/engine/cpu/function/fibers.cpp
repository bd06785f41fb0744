// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/function/fibers.hpp"

#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstring>
#include <iterator>
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
    group.exchange = [](unsigned call, const void* value, unsigned bytes, unsigned* lane) {
      return running->exchange(call, value, bytes, lane);
    };
    group.enter = [](unsigned call) { running->current_->calls.push_back(call); };
    group.leave = [] { running->current_->calls.pop_back(); };
    thread_ = thread, group_ = &group, next_ = 0;
    bool has_memory = true;
    while (next_ < count && has_memory) {
      end_ = std::min(count, next_ + function_abi::kSimdWidth);
      while (next_ < end_ && (has_memory = start())) {
      }
      if (has_memory) settle();
    }
    // All threads wait, or have ended: go on behind the barrier.
    while (has_memory && !waiting_.empty()) {
      released_.swap(waiting_);
      for (std::size_t i = 0; i < released_.size();) {
        const unsigned simdgroup = released_[i]->thread / function_abi::kSimdWidth;
        for (; i < released_.size() && released_[i]->thread / function_abi::kSimdWidth == simdgroup; ++i)
          resume(*released_[i]);
        settle();
      }
      released_.clear();
    }
    waiting_.clear();
    exchanging_.clear();
    running = before;
    return has_memory;
  }

 private:
  struct Fiber {
    ucontext_t context;
    void* stack;
    [[no_unique_address]] Shadow shadow;
    bool has_ended = true;
    unsigned thread = 0;          ///< that runs or waits
    std::vector<unsigned> calls;  ///< of functions in which it is; at last that in which it waits for its SIMD group
    const void* value = nullptr;  ///< that it gives there
    unsigned bytes = 0;
  };

  /// Run the threads of a SIMD group until each one waits at a barrier or has ended. Of threads that wait in different
  /// calls, those in the first call of the source go on: they may still come to the others, as at the end of a loop.
  void settle() {
    while (!exchanging_.empty()) {
      const auto calls = (*std::ranges::min_element(exchanging_, {}, &Fiber::calls))->calls;
      std::ranges::copy_if(exchanging_, std::back_inserter(active_),
                           [&](Fiber* fiber) { return fiber->calls == calls; });
      std::erase_if(exchanging_, [&](Fiber* fiber) { return fiber->calls == calls; });
      lanes_.mask = 0;
      for (const Fiber* fiber : active_) {
        const unsigned lane = fiber->thread % function_abi::kSimdWidth;
        lanes_.mask |= 1u << lane;
        if (fiber->bytes > 0) std::memcpy(lanes_.values[lane], fiber->value, fiber->bytes);
      }
      for (Fiber* fiber : active_) resume(*fiber);
      active_.clear();
    }
  }

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
    fiber->calls.clear();
    resume(*fiber);
    return true;
  }
  Fiber* free_fiber() {
    // Fibers that wait are the first ones: they are started in order, and end in order.
    const std::size_t waiting = waiting_.size() + exchanging_.size();
    if (waiting < fibers_.size()) {
      for (std::size_t i = waiting; i < fibers_.size(); ++i)
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
    while (next_ < end_) {
      current_->thread = next_++;
      thread_(group_, current_->thread);
    }
    current_->has_ended = true;
    main_shadow_.enter();
    ::setcontext(&main_);
  }
  void wait() {
    waiting_.push_back(current_);
    suspend();
  }
  const function_abi::Lanes* exchange(unsigned call, const void* value, unsigned bytes, unsigned* lane) {
    Fiber* const fiber = current_;
    fiber->calls.push_back(call), fiber->value = value, fiber->bytes = bytes;
    *lane = fiber->thread % function_abi::kSimdWidth;
    exchanging_.push_back(fiber);
    suspend();
    fiber->calls.pop_back();
    return &lanes_;
  }
  void suspend() {
    Fiber* const fiber = current_;
    main_shadow_.enter();
    ::swapcontext(&fiber->context, &main_);
  }

  ucontext_t main_;
  [[no_unique_address]] Shadow main_shadow_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> waiting_, released_;   ///< at a barrier; before it
  std::vector<Fiber*> exchanging_, active_;  ///< in functions of SIMD groups; those that go on
  function_abi::Lanes lanes_;
  Fiber* current_ = nullptr;
  function::HostCode::Thread* thread_ = nullptr;
  function_abi::Group* group_ = nullptr;
  unsigned next_ = 0, end_ = 0;  ///< threads to start, of one SIMD group
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
