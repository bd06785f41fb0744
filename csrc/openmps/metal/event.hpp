// SPDX-License-Identifier: Apache-2.0
// The value of an MTLEvent or MTLSharedEvent.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/engine.hpp"

namespace openmps {

/// Thread-safe.
class EventValue {
 public:
  std::uint64_t value() const;
  /// Set the value (the CPU may set any) and run the listeners that wait for it.
  void set(std::uint64_t value);
  /// Set the value unless it is higher already (from a command buffer).
  void raise(std::uint64_t value);
  /// Block until the current value is at least `value`.
  void wait(std::uint64_t value);
  /// The same, or until announce(): return the marker of the announced work, null if the value has been reached.
  std::shared_ptr<Marker> wait_or_marker(std::uint64_t value);
  /// State that the work before the marker raises the value to `value` when it is done.
  void announce(std::uint64_t value, std::shared_ptr<Marker> marker);
  /// Run the action once the current value is at least `value`: at once, or on the thread that sets it.
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
  /// Raises that are under way. They outlive raise(): it may run on a thread that must not destroy a marker.
  std::vector<std::pair<std::uint64_t, std::shared_ptr<Marker>>> announced_;
};

}  // namespace openmps
