// SPDX-License-Identifier: Apache-2.0
// The loop that the gradients of kernels share whose results see one pixel of the source each.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "engine/shared/operands.hpp"

namespace openmps::onednn {

/// Positions [first, last] of a result along an axis that saw position `at` of a clamped source of `size`, result 0
/// having looked for position `start`.
struct Seers {
  std::int64_t first, last;
  Seers(std::int64_t at, std::int64_t start, std::int64_t size, std::int64_t results, bool clamp)
      : first(clamp && at == 0 ? 0 : std::max<std::int64_t>(0, at - start)),
        last(clamp && at == size - 1 ? results - 1 : std::min(results - 1, at - start)) {
    if (at < 0 || at >= size) first = 0, last = -1;
  }
};

/// for_operands() over the gradient of a result and the source it was made of, except that a pixel of the source gets
/// what all pixels of the result that saw it give back, and that pixels of diff_src beyond the source are 0.
template <class Body>
void for_gradients(const Operand& diff_dst, const Operand& src, const ImageView& diff_src, std::int64_t grain,
                   bool across_images, const Body& body) {
  const std::int64_t c = diff_src.c, h = src.view.h, w = src.view.w;
  const std::int64_t start_h = src.start_h - diff_dst.start_h, start_w = src.start_w - diff_dst.start_w;
  const bool is_seen_twice = src.edge == Edge::clamp && (start_h < 0 || start_h + diff_dst.view.h > h || start_w < 0 ||
                                                         start_w + diff_dst.view.w > w);
  const Tensor result = tensor_of(diff_src);
  if (!is_seen_twice) {
    for_operands<2>({&diff_dst, &src}, diff_src, grain, across_images, body);
  } else {
    const OperandSource g(diff_dst), x(src);
    const int threads = threads_for(result.size(), grain);
    const std::int64_t room = 2 * std::max(kOperandChunk, c) + 2 * c;
    std::vector<float> buffers(static_cast<std::size_t>(room * threads));
    std::vector<double> sums(static_cast<std::size_t>(c * threads));
    parallel_ranges(result.n * result.h * result.w, threads, [&](std::int64_t begin, std::int64_t end) {
      float* const mine = buffers.data() + room * omp_get_thread_num();
      float *const values = mine + 2 * c, *const gradient = mine, *const to = mine + c;
      double* const sum = sums.data() + c * omp_get_thread_num();
      OperandReader sources(x, c, values + std::max(kOperandChunk, c));
      for (std::int64_t pixel = begin; pixel < end; ++pixel) {
        const std::int64_t column = pixel % result.w, line = pixel / result.w, y = line % result.h, n = line / result.h;
        const Seers rows(src.start_h + y, start_h, h, g.tensor.h, true);
        const Seers columns(src.start_w + column, start_w, w, g.tensor.w, true);
        std::fill(sum, sum + c, 0.0);
        for (std::int64_t v = rows.first; v <= rows.last; ++v) {
          for (std::int64_t u = columns.first; u <= columns.last; ++u) {
            row_to_float(g.tensor.at(n, v, u), g.tensor.format, values, c);
            for (std::int64_t k = 0; k < c; ++k) sum[k] += values[k];
          }
        }
        for (std::int64_t k = 0; k < c; ++k) gradient[k] = static_cast<float>(sum[k]);
        body(std::array<const float*, 2>{gradient, sources.read(n, y, column, 1)}, to, pixel, 1);
        row_from_float(to, result.at(n, y, column), result.format, c);
      }
    });
  }

  const std::int64_t first_row = std::clamp<std::int64_t>(-src.start_h, 0, result.h);
  const std::int64_t last_row = std::clamp<std::int64_t>(h - src.start_h, first_row, result.h);
  const std::int64_t first = std::clamp<std::int64_t>(-src.start_w, 0, result.w);
  const std::int64_t last = std::clamp<std::int64_t>(w - src.start_w, first, result.w);
  if (last_row - first_row == result.h && last - first == result.w) return;
  const auto bytes = static_cast<std::size_t>(c) * size_of(result.format);
  for (std::int64_t line = 0; line < result.n * result.h; ++line) {
    const std::int64_t n = line / result.h, y = line % result.h;
    const bool is_inside = y >= first_row && y < last_row;
    for (std::int64_t column = 0; column < result.w; ++column)
      if (!is_inside || column < first || column >= last) std::memset(result.at(n, y, column), 0, bytes);
  }
}

}  // namespace openmps::onednn
