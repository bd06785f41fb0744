// SPDX-License-Identifier: Apache-2.0
#include "core/device/forked.hpp"

#include <pthread.h>

#include <atomic>

#include <mpscnn/error.hpp>

namespace mpscnn {
namespace {

constexpr int kUnused = -1;
std::atomic<int> forks{0};
std::atomic<int> used_after{kUnused};  ///< value of `forks` at the first use of the device

const int registered = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });

}  // namespace

void note_device_use() noexcept {
  int unused = kUnused;
  used_after.compare_exchange_strong(unused, forks.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

void check_not_forked() {
  const int used = used_after.load(std::memory_order_relaxed);
  check<std::runtime_error>(used == kUnused || used == forks.load(std::memory_order_relaxed),
                            "the device was in use when this process was forked, and works in the parent process "
                            "only: start processes with spawn, or before the first call.");
}

}  // namespace mpscnn
