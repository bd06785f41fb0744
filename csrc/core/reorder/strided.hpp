// SPDX-License-Identifier: Apache-2.0
// Copies a row of pixels between an array of any strides and dense memory, for arrays that MPS's transfers cannot
// address.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mpscnn {

/// Row of `columns` x `channels` elements of `size` bytes: steps in bytes on the strided side, dense with channels
/// fastest on the other.
struct StridedRow {
  std::byte* data;
  std::int64_t columns, channels;
  std::int64_t column_step, channel_step;
  std::size_t size;
};

void gather_row(const StridedRow& row, std::byte* dense);
void scatter_row(const StridedRow& row, const std::byte* dense);

}  // namespace mpscnn
