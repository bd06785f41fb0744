// SPDX-License-Identifier: Apache-2.0
#include "metal/host.hpp"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <limits>
#include <mutex>
#include <new>
#include <thread>

#include "engine/engine.hpp"

namespace openmps {

bool try_allocate(const std::shared_ptr<Memory>& memory) noexcept {
  try {
    memory->address();
    return true;
  } catch (...) {
    return false;
  }
}

void clear_memory(const std::shared_ptr<Memory>& memory) noexcept {
  try {
    memory->clear();
  } catch (...) {  // every later command buffer fails with the reason
  }
}

namespace {

/// Return what `make` returns; if it throws, an empty result and the reason.
template <class Make>
auto made_or_reason(const Make& make, std::string* failure) noexcept -> decltype(make()) {
  try {
    return make();
  } catch (const std::exception& error) {
    *failure = error.what();
  } catch (...) {
    *failure = "unknown reason.";
  }
  return {};
}

}  // namespace

std::vector<std::string> try_engine_names(bool all, std::string* failure) noexcept {
  return made_or_reason([&] { return engine_names(all); }, failure);
}

std::shared_ptr<Engine> try_engine(const std::string& name, std::string* failure) noexcept {
  return made_or_reason([&] { return engine_of(name); }, failure);
}

Failure failure_of(const std::function<void()>& action) noexcept {
  Failure failure;
  try {
    action();
  } catch (const std::bad_alloc& error) {
    failure = {FailureCode::out_of_memory, sentence_of(error)};
  } catch (const std::exception& error) {
    failure = {FailureCode::internal, error.what()};
  }
  return failure;
}

std::optional<std::uint64_t> product(std::initializer_list<std::uint64_t> factors) noexcept {
  std::uint64_t result = 1;
  bool overflow = false;
  for (const std::uint64_t factor : factors) {
    if (factor == 0) return 0;
    overflow |= __builtin_mul_overflow(result, factor, &result);
  }
  if (overflow || result > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return {};
  return result;
}

double now_seconds() noexcept {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::byte* cpu_data(const std::shared_ptr<Memory>& memory) noexcept {
  try {
    return memory->cpu_data();
  } catch (...) {
    return nullptr;
  }
}

namespace {

struct Notifier {
  std::mutex mutex;
  std::condition_variable wake;
  std::deque<std::function<void()>> actions;
};

}  // namespace

void notify_later(std::function<void()> action, void (*thread_begin)(), void (*in_pool)(void (*)(void*), void*)) {
  // Never destroyed: its thread sleeps on it while the process exits.
  static Notifier* const notifier = [&] {
    auto* made = new Notifier;
    std::thread([made, thread_begin, in_pool] {
      thread_begin();
      for (;;) {
        std::function<void()> next;
        {
          std::unique_lock<std::mutex> lock(made->mutex);
          made->wake.wait(lock, [made] { return !made->actions.empty(); });
          next = std::move(made->actions.front());
          made->actions.pop_front();
        }
        try {
          in_pool(
              [](void* context) {
                auto& run = *static_cast<std::function<void()>*>(context);
                run();
                run = nullptr;
              },
              &next);
        } catch (...) {  // a block that throws must not end the process
        }
      }
    }).detach();
    return made;
  }();
  {
    std::lock_guard<std::mutex> lock(notifier->mutex);
    notifier->actions.push_back(std::move(action));
  }
  notifier->wake.notify_one();
}

}  // namespace openmps
