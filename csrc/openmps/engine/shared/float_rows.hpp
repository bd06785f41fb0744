// SPDX-License-Identifier: Apache-2.0
// Rows of an image as floats: in place if the image stores floats, otherwise converted, each row once while the window
// that reads it moves on. One object per thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/shared/rows.hpp"
#include "engine/shared/tensor.hpp"

namespace openmps {

class FloatRows {
 public:
  /// At most `window` adjacent rows are in use at the same time. Throws std::bad_alloc.
  FloatRows(const Tensor& src, std::int64_t window) : src_(src) {
    if (src.format == Format::float32) return;
    const std::int64_t slots = std::min(window, src.h);
    row_of_slot_.assign(static_cast<std::size_t>(slots), -1);
    values_.resize(static_cast<std::size_t>(slots * src.w * src.c));
  }

  /// Distance in floats between a pixel and its right neighbour.
  std::int64_t pixel_stride() const { return src_.format == Format::float32 ? src_.w_stride : src_.c; }

  const float* row(std::int64_t n, std::int64_t y) {
    if (src_.format == Format::float32) return src_.floats(n, y);
    const std::int64_t row = n * src_.h + y, length = src_.w * src_.c;
    const std::int64_t slot = y % static_cast<std::int64_t>(row_of_slot_.size());
    float* const values = values_.data() + slot * length;
    if (std::exchange(row_of_slot_[static_cast<std::size_t>(slot)], row) != row) {
      if (src_.w_stride == src_.c) {
        row_to_float(src_.at(n, y), src_.format, values, length);
      } else {
        for (std::int64_t x = 0; x < src_.w; ++x)
          row_to_float(src_.at(n, y, x), src_.format, values + x * src_.c, src_.c);
      }
    }
    return values;
  }

 private:
  Tensor src_;
  std::vector<std::int64_t> row_of_slot_;
  std::vector<float> values_;
};

}  // namespace openmps
