// SPDX-License-Identifier: Apache-2.0
#include <mpscnn/profile.hpp>

#include <atomic>
#include <chrono>

#include <mpscnn/error.hpp>

namespace mpscnn {
namespace {

std::mutex current_mutex;
std::atomic<bool> is_on = false;  // checked before every command buffer

std::shared_ptr<Profile>& current_profile() {
  static auto* one = new std::shared_ptr<Profile>;
  return *one;
}

}  // namespace

std::uint64_t Profile::next_buffer() {
  const std::scoped_lock lock(mutex_);
  return ++buffers_;
}

void Profile::add(ProfileEvent event) {
  const std::scoped_lock lock(mutex_);
  events_.push_back(std::move(event));
}

std::vector<ProfileEvent> Profile::events() const {
  const std::scoped_lock lock(mutex_);
  return events_;
}

std::shared_ptr<Profile> Profile::current() {
  if (!is_on) return nullptr;
  const std::scoped_lock lock(current_mutex);
  return current_profile();
}

void Profile::start() {
  const std::scoped_lock lock(current_mutex);
  check<std::runtime_error>(!current_profile(), "profile: another profile collects already; there is one at a time.");
  current_profile() = shared_from_this();
  is_on = true;
}

void Profile::stop() {
  const std::scoped_lock lock(current_mutex);
  if (current_profile().get() != this) return;
  is_on = false;
  current_profile().reset();
}

double profile_clock() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace mpscnn
