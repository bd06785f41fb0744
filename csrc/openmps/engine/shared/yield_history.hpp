// SPDX-License-Identifier: Apache-2.0
// YieldHistory: whether a waiting thread lets others have its processor.
#pragma once

#include <chrono>

namespace openmps {

/// The yields of one thread. Beside busy programs each costs a time slice (4 ms on Linux at 250 Hz), so they are paused
/// after some long ones in succession. A program that itself waits now and then returns the processor earlier.
class YieldHistory {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr Clock::duration kLong = std::chrono::milliseconds(1);
  static constexpr int kMostLong = 3;
  static constexpr Clock::duration kPause = std::chrono::seconds(1);

  bool are_paused(Clock::time_point at) const noexcept { return at < next_; }

  void add(Clock::time_point begin, Clock::time_point end) noexcept {
    long_ = end - begin > kLong ? long_ + 1 : 0;
    if (long_ < kMostLong) return;
    next_ = end + kPause;
    long_ = kMostLong - 1;  // after the pause, one more is enough
  }

 private:
  int long_ = 0;  ///< in succession
  Clock::time_point next_;
};

}  // namespace openmps
