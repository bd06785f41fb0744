// SPDX-License-Identifier: Apache-2.0
// The number behind an MTLEvent or MTLSharedEvent.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

namespace openmps {

/// Safe from any thread.
class EventValue {
 public:
  std::uint64_t value() const;
  /// Sets the value (from the CPU: to anything) and runs the listeners that have waited for it.
  void set(std::uint64_t value);
  /// Sets the value unless it is higher already (from a command buffer).
  void raise(std::uint64_t value);
  /// Blocks until the value is at least that.
  void wait(std::uint64_t value);
  /// Runs the action once the value is at least that: at once, or by the thread that sets it.
  void listen(std::uint64_t value, std::function<void()> action);

 private:
  void store(std::uint64_t value, bool only_up);

  struct Listener {
    std::uint64_t value;
    std::function<void()> action;
  };
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t value_ = 0;
  std::vector<Listener> listeners_;
};

}  // namespace openmps
