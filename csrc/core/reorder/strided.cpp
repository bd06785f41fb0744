// SPDX-License-Identifier: Apache-2.0
#include "core/reorder/strided.hpp"

#include <cstring>
#include <type_traits>

namespace mpscnn {
namespace {

template <class Element, bool gather>
void move_row(const StridedRow& row, std::byte* dense) {
  for (std::int64_t x = 0; x < row.columns; ++x) {
    std::byte* pixel = row.data + x * row.column_step;
    for (std::int64_t c = 0; c < row.channels; ++c, dense += sizeof(Element)) {
      std::byte* element = pixel + c * row.channel_step;
      std::memcpy(gather ? dense : element, gather ? element : dense, sizeof(Element));
    }
  }
}

template <bool gather>
void move_row(const StridedRow& row, std::byte* dense) {
  switch (row.size) {
    case 1: return move_row<std::uint8_t, gather>(row, dense);
    case 2: return move_row<std::uint16_t, gather>(row, dense);
    default: return move_row<std::uint32_t, gather>(row, dense);
  }
}

}  // namespace

void gather_row(const StridedRow& row, std::byte* dense) { move_row<true>(row, dense); }

void scatter_row(const StridedRow& row, const std::byte* dense) { move_row<false>(row, const_cast<std::byte*>(dense)); }

}  // namespace mpscnn
