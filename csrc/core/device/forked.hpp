// SPDX-License-Identifier: Apache-2.0
// fork(): the child inherits mutexes that other threads held, without the threads that would unlock them.
#pragma once

namespace mpscnn {

/// Record that work is about to be submitted: a child forked from now on cannot use the device.
void note_device_use() noexcept;
/// Throw std::runtime_error in such a child.
void check_not_forked();

/// A mutex that throws in such a child, where lock() might never return.
template <class Mutex>
struct ForkChecked : Mutex {
  void lock() {
    check_not_forked();
    Mutex::lock();
  }
  bool try_lock() {
    check_not_forked();
    return Mutex::try_lock();
  }
};

}  // namespace mpscnn
