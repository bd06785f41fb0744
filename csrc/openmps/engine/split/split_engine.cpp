// SPDX-License-Identifier: Apache-2.0
#include "engine/split/split_engine.hpp"

#include <pthread.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "engine/plan/staging.hpp"
#include "engine/plan/steps.hpp"
#include "engine/shared/block_allocator.hpp"
#include "engine/shared/machine.hpp"

namespace openmps {
namespace {

/// Bit set in device addresses: they are then not canonical, so the processor faults on access [Intel SDM volume 1,
/// 3.3.7.1].
constexpr std::uintptr_t kDeviceBit = std::uintptr_t{1} << 52;

std::byte* device_address(std::byte* block) {
  return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(block) | kDeviceBit);
}
std::byte* block_at(const std::byte* device) {
  return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(device) & ~kDeviceBit);
}

/// A thread that runs tasks in order. Never destroyed: it sleeps while the process exits.
class Worker {
 public:
  Worker() {
    std::thread([this] { run(); }).detach();
  }

  void add(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
      ++added_;
    }
    changed_.notify_all();
  }
  /// Wait until all tasks added so far have ended.
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this, last = added_] { return ended_ >= last; });
  }

 private:
  [[noreturn]] void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return !tasks_.empty(); });
      std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      task = nullptr;
      lock.lock();
      ++ended_;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  std::uint64_t added_ = 0, ended_ = 0;
};

/// One per process: a forked child has none of its parent's threads.
Worker*& worker_of_process() {
  static Worker* worker = nullptr;
  return worker;
}

Worker& worker() {
  static std::mutex mutex;
  static const int registered = pthread_atfork(nullptr, nullptr, [] { worker_of_process() = nullptr; });
  (void)registered;
  const std::lock_guard lock(mutex);
  Worker*& made = worker_of_process();
  if (!made) made = new Worker;
  return *made;
}

class SplitRun final : public Run {
 public:
  struct State {
    std::mutex mutex;
    std::condition_variable ended;
    std::size_t pending = 0;
    std::size_t failed_step = 0;
    std::exception_ptr failure;
  };

  /// Queue a copy of the problem; it is skipped if an earlier one fails.
  void add(Engine& engine, const Problem& problem, std::size_t step) {
    {
      const std::lock_guard lock(state_->mutex);
      ++state_->pending;
    }
    worker().add([&engine, copy = std::make_shared<Problem>(problem), step, state = state_]() mutable {
      if (!has_failed(*state)) {
        try {
          if (!engine.try_run(*copy)) run_on_processor(*copy);
        } catch (...) {
          const std::lock_guard lock(state->mutex);
          state->failure = std::current_exception();
          state->failed_step = step;
        }
      }
      copy = nullptr;  // its memory belongs to the list, which may end after wait()
      const std::lock_guard lock(state->mutex);
      --state->pending;
      state->ended.notify_all();
    });
  }
  bool has_failed() const { return has_failed(*state_); }

  void wait() override {
    std::unique_lock lock(state_->mutex);
    state_->ended.wait(lock, [this] { return state_->pending == 0; });
    if (state_->failure) std::rethrow_exception(state_->failure);
  }
  std::size_t failed_step() const override { return state_->failed_step; }

 private:
  static bool has_failed(State& state) {
    const std::lock_guard lock(state.mutex);
    return state.failure != nullptr;
  }

  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

class SplitEngine final : public Engine {
 public:
  const char* name() const override { return "split"; }
  std::string device_name() const override { return "split device"; }
  std::uint64_t working_set_limit() const override { return machine_memory_bytes(); }
  Storage image_storage() const override { return Storage::device; }

  std::byte* allocate(std::size_t bytes, Storage storage) override {
    std::byte* const block = allocator_.allocate(bytes);
    return storage == Storage::device ? device_address(block) : block;
  }
  void deallocate(std::byte* address, std::size_t bytes, Storage) noexcept override {
    allocator_.deallocate(block_at(address), bytes);
  }
  MemoryUse memory_use() const override { return memory_use_of(allocator_); }
  void reset_peak_bytes() override { allocator_.reset_peak_bytes(); }
  void free_cached_bytes() override { allocator_.trim(0); }
  void download(void* to, const std::byte* from, std::size_t bytes) override { std::memcpy(to, block_at(from), bytes); }
  void upload(std::byte* to, const void* from, std::size_t bytes) override { std::memcpy(block_at(to), from, bytes); }

  bool try_run(const Problem& problem) override {
    if (problem.index() % 2 == 1) return false;
    return processor_engine()->try_run(with_memory(problem, [](const std::shared_ptr<Memory>& memory) {
      if (memory->storage() == Storage::host) return memory;
      return Memory::wrap(block_at(memory->address()), memory->size(), [memory] {});
    }));
  }
  void synchronize() override { worker().wait(); }

  std::unique_ptr<Run> start(Steps& steps, std::shared_ptr<void>& stream) override {
    if (traces_steps()) return Engine::start(steps, stream);  // step by step
    auto run = std::make_unique<SplitRun>();
    for (std::size_t i = 0; i < steps.size() && !run->has_failed(); ++i) {
      const Problem& problem = steps.problem(i);
      if (std::holds_alternative<HostTask>(problem)) {
        synchronize();
        if (!run->has_failed()) run_problem(*this, problem);
      } else {
        run->add(*this, problem, i);
      }
    }
    if (steps.kept()) *steps.kept() = std::make_unique<Kept>();
    return run;
  }

  bool keeps_lists() const override { return true; }

 private:
  struct Kept final : Steps::Kept {
    bool starts_at_once() const override { return true; }
  };
  BlockAllocator allocator_{machine_memory_bytes(), 64u << 20};
};

}  // namespace

std::shared_ptr<Engine> make_split_engine() { return std::make_shared<SplitEngine>(); }

}  // namespace openmps
