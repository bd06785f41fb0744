// SPDX-License-Identifier: Apache-2.0
// Windows along one axis of a source: the positions that a window reads, and the windows that read a position.
#pragma once

#include "engine/cuda/kernels/device.hpp"
#include "engine/shared/span.hpp"

namespace openmps::cuda {

/// Positions that a window reads, in increasing order, and how often it reads each.
class WindowTaps {
 public:
  /// `clamps`: out-of-bounds taps read the first or last position; otherwise they read none.
  MPSCNN_HOST_DEVICE WindowTaps(const Span& span, i64 dilation, i64 size, bool clamps)
      : span_(span), dilation_(dilation), size_(size), before_(clamps && span.before > 0 ? 1 : 0) {
    count_ = before_ + span.count + (clamps && span.after > 0 ? 1 : 0);
  }
  MPSCNN_HOST_DEVICE i64 count() const { return count_; }
  MPSCNN_HOST_DEVICE i64 at(i64 i) const {
    i -= before_;
    return i < 0 ? 0 : i < span_.count ? span_.first + i * dilation_ : size_ - 1;
  }
  MPSCNN_HOST_DEVICE i64 times(i64 i) const {
    i -= before_;
    return i < 0 ? span_.before : i < span_.count ? 1 : span_.after;
  }
  MPSCNN_HOST_DEVICE bool is_outside() const { return span_.before + span_.after > 0; }

 private:
  Span span_;
  i64 dilation_, size_, before_, count_;
};

/// All windows of an axis.
struct WindowAxis {
  i64 start, kernel, stride, dilation, size, windows;
  bool clamps;

  MPSCNN_HOST_DEVICE WindowTaps taps(i64 window) const {
    return WindowTaps(span_of(start + window * stride, kernel, dilation, size), dilation, size, clamps);
  }
  /// Find the range of the windows that may read a position; times() is 0 for those that do not.
  MPSCNN_HOST_DEVICE void find_readers(i64 at, i64& first, i64& last) const {
    const i64 reach = at - start - (kernel - 1) * dilation;
    first = reach <= 0 || (clamps && at == 0) ? 0 : quotient(reach + stride - 1, stride);
    last = at < start ? -1 : quotient(at - start, stride);
    if (last >= windows || (clamps && at == size - 1)) last = windows - 1;
    if (at < 0 || at >= size) last = -1;
  }
  /// Return how often a window reads a position.
  MPSCNN_HOST_DEVICE i64 times(i64 window, i64 at) const {
    const i64 begin = start + window * stride, distance = at - begin;
    const i64 tap = distance < 0 ? kernel : quotient(distance, dilation);
    i64 count = tap < kernel && tap * dilation == distance ? 1 : 0;
    if (clamps && (at == 0 || at == size - 1)) {
      const Span span = span_of(begin, kernel, dilation, size);
      count += (at == 0 ? span.before : 0) + (at == size - 1 ? span.after : 0);
    }
    return count;
  }
};

}  // namespace openmps::cuda
