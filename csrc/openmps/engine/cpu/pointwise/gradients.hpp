// SPDX-License-Identifier: Apache-2.0
// Loops for gradients of kernels whose results each read one source pixel.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "engine/shared/operands.hpp"
#include "engine/shared/results_axis.hpp"

namespace openmps::cpu {

inline ResultsAxis result_rows(const ClampedSource& source, const Operand& diff_dst) {
  return {source.start_h, source.start_h - diff_dst.start_h, source.h, diff_dst.view.h};
}
inline ResultsAxis result_columns(const ClampedSource& source, const Operand& diff_dst) {
  return {source.start_w, source.start_w - diff_dst.start_w, source.w, diff_dst.view.w};
}
/// All results read the same position.
inline ResultsAxis repeated_results(std::int64_t count) { return {0, 0, 1, count}; }

/// Return the operand, shifted by (rows, columns).
inline Operand moved(Operand operand, std::int64_t rows, std::int64_t columns) {
  if (!operand.repeat_h) operand.start_h += rows;
  if (!operand.repeat_w) operand.start_w += columns;
  return operand;
}

/// Like for_operands(), but over the pixels of a forward kernel's result, of `c` channels, which the operands read; a
/// pixel of diff_src is the sum over the results that read it, and over their channels if it has only one.
template <std::size_t count, class Body>
void for_results(const std::array<Operand, count>& operands, const ResultsAxis& rows, const ResultsAxis& columns,
                 std::int64_t c, const ImageView& diff_src, std::int64_t grain, const Body& body) {
  const auto make = [&]<std::size_t... i>(std::index_sequence<i...>) {
    return std::array<OperandSource, count>{OperandSource(operands[i])...};
  };
  const std::array<OperandSource, count> sources = make(std::make_index_sequence<count>());
  const Tensor dst = tensor_of(diff_src);
  const std::int64_t run = std::max<std::int64_t>(1, kOperandChunk / c), room = std::max(kOperandChunk, c);
  const int threads = threads_for(std::max(dst.size(), dst.n * rows.count * columns.count * c), grain);
  std::vector<float> buffers((count + 1) * static_cast<std::size_t>(room * threads));
  std::vector<double> all_sums(static_cast<std::size_t>(c * threads));
  parallel_ranges(dst.n * dst.h * dst.w, threads, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t thread = thread_number();
    float* const buffer = buffers.data() + static_cast<std::int64_t>(count + 1) * room * thread;
    float* const values = buffer + static_cast<std::int64_t>(count) * room;
    double* const sums = all_sums.data() + c * thread;
    const auto readers_of = [&]<std::size_t... i>(std::index_sequence<i...>) {
      return std::array<OperandReader, count>{
          OperandReader(sources[i], c, buffer + static_cast<std::int64_t>(i) * room)...};
    };
    std::array<OperandReader, count> readers = readers_of(std::make_index_sequence<count>());
    std::array<const float*, count> from;
    for (std::int64_t pixel = begin; pixel < end; ++pixel) {
      const std::int64_t x = pixel % dst.w, line = pixel / dst.w, y = line % dst.h, n = line / dst.h;
      const Seers v = rows.of(y), u = columns.of(x);
      std::fill(sums, sums + c, 0.0);
      for (std::int64_t row = v.first; row <= v.last; ++row) {
        for (std::int64_t column = u.first, pixels; column <= u.last; column += pixels) {
          pixels = std::min(run, u.last + 1 - column);
          for (std::size_t i = 0; i < count; ++i) from[i] = readers[i].read(n, row, column, pixels);
          body(from, values, (n * rows.count + row) * columns.count + column, pixels);
          for (std::int64_t i = 0; i < pixels * c; i += c)
            for (std::int64_t k = 0; k < c; ++k) sums[k] += values[i + k];
        }
      }
      if (dst.c == 1)
        for (std::int64_t k = 1; k < c; ++k) sums[0] += sums[k];
      std::copy_n(sums, dst.c, values);
      row_from_float(values, dst.at(n, y, x), dst.format, dst.c);
    }
  });
}

/// for_operands() over the gradient of a result and its forward source, except that a source pixel gets the sum over
/// all result pixels that read it, and that pixels of diff_src beyond the source are 0.
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
      float* const mine = buffers.data() + room * thread_number();
      float *const values = mine + 2 * c, *const gradient = mine, *const to = mine + c;
      double* const sum = sums.data() + c * thread_number();
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

}  // namespace openmps::cpu
