// SPDX-License-Identifier: Apache-2.0
#include "metal/event.hpp"

#include <algorithm>
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

std::shared_ptr<Marker> EventValue::wait_or_marker(std::uint64_t value) {
  std::shared_ptr<Marker> marker;
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] {
    if (value_ >= value) return true;
    const auto found = std::ranges::find_if(announced_, [&](const auto& one) { return one.first >= value; });
    if (found != announced_.end()) marker = found->second;
    return marker != nullptr;
  });
  return marker;
}

void EventValue::announce(std::uint64_t value, std::shared_ptr<Marker> marker) {
  std::vector<std::shared_ptr<Marker>> passed;  // destroyed without the lock
  {
    std::lock_guard<std::mutex> lock(mutex_);
    std::erase_if(announced_, [&](auto& one) {
      if (one.first > value_) return false;
      passed.push_back(std::move(one.second));
      return true;
    });
    if (value > value_) announced_.emplace_back(value, std::move(marker));
  }
  changed_.notify_all();
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
