// SPDX-License-Identifier: Apache-2.0
// YieldHistory: whether a waiting thread lets others have its processor.
#pragma once

#include <chrono>

namespace openmps {

/// The yields of one thread. Beside a busy program, two or three in succession cost a time slice (4 ms on Linux at 250
/// Hz), as the scheduler lets a thread that had less than its part of the processor go on at first. So they are paused
/// after a series of them. Beside a program that itself waits now and then, most yields are short.
class YieldHistory {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr Clock::duration kLong = std::chrono::milliseconds(1);
  static constexpr int kMostShort = 3;  ///< before a long one; more end the series
  static constexpr int kMostLong = 32;
  static constexpr Clock::duration kPause = std::chrono::seconds(4);

  bool are_paused(Clock::time_point at) const noexcept { return at < next_; }

  void add(Clock::time_point begin, Clock::time_point end) noexcept {
    if (end - begin <= kLong) {
      if (++short_ > kMostShort) long_ = 0;
      return;
    }
    short_ = 0;
    if (++long_ < kMostLong) return;
    long_ = 0;
    next_ = end + kPause;
  }

 private:
  int short_ = 0;  ///< since the last long one
  int long_ = 0;   ///< of the series
  Clock::time_point next_;
};

}  // namespace openmps
