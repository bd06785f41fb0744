// SPDX-License-Identifier: Apache-2.0
#include "metal/event.hpp"

#include <utility>

namespace openmps {

std::uint64_t EventValue::value() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return value_;
}

void EventValue::set(std::uint64_t value) { store(value, false); }
void EventValue::raise(std::uint64_t value) { store(value, true); }

void EventValue::store(std::uint64_t value, bool only_up) {
  std::vector<std::function<void()>> due;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (only_up && value <= value_) return;
    value_ = value;
    std::erase_if(listeners_, [&](Listener& listener) {
      if (listener.value > value) return false;
      due.push_back(std::move(listener.action));
      return true;
    });
  }
  changed_.notify_all();
  for (const auto& action : due) action();
}

void EventValue::wait(std::uint64_t value) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return value_ >= value; });
}

void EventValue::listen(std::uint64_t value, std::function<void()> action) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (value_ < value) {
      listeners_.push_back({value, std::move(action)});
      return;
    }
  }
  action();
}

}  // namespace openmps
