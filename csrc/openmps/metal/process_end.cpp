// SPDX-License-Identifier: Apache-2.0
#include "metal/process_end.hpp"

#include <pthread.h>

#include <chrono>
#include <cstdlib>

namespace openmps {
namespace {

thread_local bool works = false;

}  // namespace

ProcessEnd& ProcessEnd::instance() {
  static auto* const end = new ProcessEnd;  // threads use it until the process has ended
  return *end;
}

ProcessEnd::ProcessEnd() {
  pthread_atfork(nullptr, nullptr, [] {
    auto& end = instance();
    end.under_way_.store(works ? 1 : 0);
    end.generation_.fetch_add(1, std::memory_order_relaxed);
  });
}

void ProcessEnd::watch() noexcept {
  std::atexit([] { instance().halt(); });
}

void ProcessEnd::allow_work() noexcept {
  std::call_once(watched_, [this] { watch(); });
  if (!ending_.load() || ender_.load() != std::this_thread::get_id()) return;
  watch();  // exit() next calls a handler that an exit handler registers
  ending_.store(false);
  ending_.notify_all();
}

void ProcessEnd::watch_again() noexcept {
  std::call_once(watched_again_, [this] { watch(); });
}

void ProcessEnd::begin_work() noexcept {
  for (;;) {
    under_way_.fetch_add(1);
    if (!ending_.load()) break;
    under_way_.fetch_sub(1);
    ending_.wait(true);
  }
  works = true;
}

void ProcessEnd::continue_work() noexcept { works = true; }

void ProcessEnd::end_work() noexcept {
  works = false;
  under_way_.fetch_sub(1);
}

void ProcessEnd::halt() noexcept {
  ender_.store(std::this_thread::get_id());
  ending_.store(true);
  const int own = works ? 1 : 0;  // 1 if a command buffer's handler calls exit()
  // A handler may wait for something that never comes.
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (under_way_.load() > own && std::chrono::steady_clock::now() < limit)
    std::this_thread::sleep_for(std::chrono::microseconds(50));
}

}  // namespace openmps
