// SPDX-License-Identifier: Apache-2.0
// Operands read as floats: runs of pixels in place if they are adjacent floats, otherwise copied or converted into a
// small buffer. And the loop over the pixels of a result that the pointwise problems share.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "engine/problem/common.hpp"
#include "engine/shared/parallel.hpp"
#include "engine/shared/rows.hpp"
#include "engine/shared/tensor.hpp"

namespace openmps {

constexpr std::int64_t kOperandChunk = 1024;  ///< values per buffer: three buffers fit the first-level cache

/// An operand that has memory.
struct OperandSource {
  Tensor tensor;
  std::int64_t start_h, start_w;
  bool repeat_h, repeat_w, repeat_c;
  Edge edge;

  explicit OperandSource(const Operand& operand)
      : tensor(tensor_of(operand.view)),
        start_h(operand.start_h),
        start_w(operand.start_w),
        repeat_h(operand.repeat_h),
        repeat_w(operand.repeat_w),
        repeat_c(operand.repeat_c),
        edge(operand.edge) {}

  std::int64_t row(std::int64_t y) const { return start_h + (repeat_h ? 0 : y); }
  bool pixels_are_adjacent() const { return tensor.w == 1 || tensor.w_stride == tensor.c; }
  /// Return whether its pixels are exactly those of the destination.
  bool is_like(const Tensor& dst) const {
    return !repeat_h && !repeat_w && !repeat_c && start_h == 0 && start_w == 0 && tensor.h == dst.h &&
           tensor.w == dst.w;
  }
  /// Return whether in-bounds pixels of a row can be read in place.
  bool is_direct(Format format = Format::float32) const {
    return tensor.format == format && !repeat_w && !repeat_c && pixels_are_adjacent();
  }
  /// Return whether every pixel of `dst` reads an in-bounds pixel.
  bool covers(const Tensor& dst) const {
    const auto inside = [](std::int64_t start, std::int64_t count, std::int64_t size) {
      return start >= 0 && start + count <= size;
    };
    return inside(start_h, repeat_h ? 1 : dst.h, tensor.h) && inside(start_w, repeat_w ? 1 : dst.w, tensor.w);
  }
};

/// Reads runs of pixels of a source as floats, `channels` per pixel, in place or through the buffer, which holds
/// max(kOperandChunk, channels) values. Runs that are not in place have at most kOperandChunk values or one pixel.
class OperandReader {
 public:
  OperandReader(const OperandSource& source, std::int64_t channels, float* buffer)
      : source_(source), tensor_(source.tensor), channels_(channels), buffer_(buffer) {}

  /// Return the values that destination pixels x ... x + pixels - 1 of row y read.
  const float* read(std::int64_t n, std::int64_t y, std::int64_t x, std::int64_t pixels) {
    std::int64_t row = source_.row(y);
    if (source_.edge == Edge::clamp) row = std::clamp<std::int64_t>(row, 0, tensor_.h - 1);
    if (row < 0 || row >= tensor_.h) return zeros(pixels);
    if (source_.repeat_w) return repeated(n, row, pixels);

    const std::int64_t start = source_.start_w + x;
    const std::int64_t first = std::clamp<std::int64_t>(-start, 0, pixels);  // [first, last) are in bounds
    const std::int64_t last = std::clamp<std::int64_t>(tensor_.w - start, first, pixels);
    if (first == 0 && last == pixels && source_.is_direct()) return tensor_.floats(n, row, start);
    border(n, row, 0, 0, first);
    if (first < last) convert(n, row, start + first, last - first, buffer_ + first * channels_);
    border(n, row, tensor_.w - 1, last, pixels);
    return buffer_;
  }

 private:
  const float* zeros(std::int64_t pixels) {
    std::memset(buffer_, 0, static_cast<std::size_t>(pixels * channels_) * 4);
    held_ = 0;
    return buffer_;
  }

  /// Return copies of one pixel; the buffer is kept for the next run of the row.
  const float* repeated(std::int64_t n, std::int64_t row, std::int64_t pixels) {
    if (held_ >= pixels && held_n_ == n && held_row_ == row) return buffer_;
    std::int64_t column = source_.start_w;
    if (source_.edge == Edge::clamp) column = std::clamp<std::int64_t>(column, 0, tensor_.w - 1);
    if (column < 0 || column >= tensor_.w) return zeros(pixels);
    convert(n, row, column, 1, buffer_);
    copies(buffer_, 1, pixels);
    held_ = pixels, held_n_ = n, held_row_ = row;
    return buffer_;
  }

  /// Fill out-of-bounds pixels [begin, end) of the buffer; `nearest` is the column that they clamp to.
  void border(std::int64_t n, std::int64_t row, std::int64_t nearest, std::int64_t begin, std::int64_t end) {
    if (begin == end) return;
    float* const to = buffer_ + begin * channels_;
    if (source_.edge == Edge::zero) {
      std::memset(to, 0, static_cast<std::size_t>((end - begin) * channels_) * 4);
    } else {
      convert(n, row, nearest, 1, to);
      copies(to, 1, end - begin);
    }
  }

  /// Extend `done` pixels to `count` by repeating them.
  void copies(float* pixels, std::int64_t done, std::int64_t count) const {
    while (done < count) {
      const std::int64_t more = std::min(done, count - done);
      std::memcpy(pixels + done * channels_, pixels, static_cast<std::size_t>(more * channels_) * 4);
      done += more;
    }
  }

  /// Convert in-bounds pixels.
  void convert(std::int64_t n, std::int64_t row, std::int64_t column, std::int64_t count, float* to) const {
    const std::byte* const from = tensor_.at(n, row, column);
    const std::int64_t step = tensor_.w_stride * static_cast<std::int64_t>(size_of(tensor_.format));
    if (source_.repeat_c) {
      float values[kOperandChunk];  // one per pixel of a run
      if (tensor_.w_stride == 1 || count == 1) {
        row_to_float(from, tensor_.format, values, count);
      } else {
        for (std::int64_t i = 0; i < count; ++i) row_to_float(from + i * step, tensor_.format, values + i, 1);
      }
      row_repeat(values, to, count, channels_);
    } else if (source_.pixels_are_adjacent()) {
      row_to_float(from, tensor_.format, to, count * channels_);
    } else {
      for (std::int64_t i = 0; i < count; ++i)
        row_to_float(from + i * step, tensor_.format, to + i * channels_, channels_);
    }
  }

  const OperandSource& source_;
  const Tensor& tensor_;
  const std::int64_t channels_;
  float* const buffer_;
  std::int64_t held_ = 0, held_n_ = 0, held_row_ = 0;  ///< repeated pixel in the buffer: number of copies, position
};

/// Store whole pixels of adjacent floats to `to`, in a row of dst.
inline void store_pixels(const float* values, std::byte* to, const Tensor& dst, std::int64_t pixels) {
  if (dst.w_stride == dst.c || pixels == 1) return row_from_float(values, to, dst.format, pixels * dst.c);
  const std::int64_t step = dst.w_stride * static_cast<std::int64_t>(size_of(dst.format));
  for (std::int64_t i = 0; i < pixels; ++i) row_from_float(values + i * dst.c, to + i * step, dst.format, dst.c);
}

/// Sources and result of a loop over pixels, as few lines as possible: one line if there are no gaps between pixels, or
/// one per image; otherwise the rows.
template <std::size_t count>
struct OperandLines {
  std::array<OperandSource, count> sources;
  Tensor dst;
  bool adjacent;  ///< pixels of a line of dst are adjacent
  bool covered;   ///< and each of them reads in-bounds pixels of all sources

  OperandLines(const std::array<const Operand*, count>& operands, const ImageView& view, bool across_images)
      : OperandLines(operands, view, across_images, std::make_index_sequence<count>()) {}

  /// Return whether all values have this format and can be used in place.
  bool are_direct(Format format) const {
    return covered && dst.format == format &&
           all([&](const OperandSource& source) { return source.is_direct(format); });
  }

 private:
  template <std::size_t... i>
  OperandLines(const std::array<const Operand*, count>& operands, const ImageView& view, bool across_images,
               std::index_sequence<i...>)
      : sources{OperandSource(*operands[i])...}, dst(tensor_of(view)) {
    const auto are_like = [&](bool (Tensor::*is_dense)() const) {
      return (dst.*is_dense)() &&
             all([&](const OperandSource& source) { return source.is_like(dst) && (source.tensor.*is_dense)(); });
    };
    if (are_like(&Tensor::images_are_dense)) {
      const bool one_line = across_images && are_like(&Tensor::is_dense);
      for (OperandSource& source : sources) source.tensor.flatten(one_line);
      dst.flatten(one_line);
    }
    adjacent = dst.w == 1 || dst.w_stride == dst.c;
    covered = adjacent && all([&](const OperandSource& source) { return source.covers(dst); });
  }

  template <class Condition>
  bool all(const Condition& condition) const {
    return std::all_of(sources.begin(), sources.end(), condition);
  }
};

/// Call body(sources, dst, first, pixels) for runs of pixels of `view`, threaded. Pointers are to the operands' values
/// and to room for the result's; a run is whole pixels of one image, or of several if `across_images`; `first` counts
/// from the view's first pixel, images over rows over columns. The body must not throw.
template <std::size_t count, class Body>
void for_operands(const std::array<const Operand*, count>& operands, const ImageView& view, std::int64_t grain,
                  bool across_images, const Body& body) {
  const OperandLines<count> lines(operands, view, across_images);
  const Tensor& dst = lines.dst;
  const std::int64_t c = dst.c;
  const bool in_place = lines.adjacent && dst.format == Format::float32;
  const std::int64_t run = lines.are_direct(Format::float32) ? dst.w : std::max<std::int64_t>(1, kOperandChunk / c);
  const std::int64_t buffer = std::max(kOperandChunk, c);

  const int threads = threads_for(dst.size(), grain);
  std::vector<float> wide;  // buffers for pixels with too many channels for the stack
  if (c > kOperandChunk) wide.resize((count + 1) * static_cast<std::size_t>(buffer * threads));
  parallel_ranges(dst.n * dst.h * dst.w, threads, [&](std::int64_t begin, std::int64_t end) {
    float stack[(count + 1) * kOperandChunk];
    float* const buffers = wide.empty() ? stack : wide.data() + (count + 1) * buffer * thread_number();
    const auto readers_of = [&]<std::size_t... i>(std::index_sequence<i...>) {
      return std::array<OperandReader, count>{OperandReader(lines.sources[i], c, buffers + i * buffer)...};
    };
    std::array<OperandReader, count> readers = readers_of(std::make_index_sequence<count>());
    std::array<const float*, count> from;
    std::int64_t line = begin / dst.w, x = begin % dst.w, pixels = 0;
    for (std::int64_t pixel = begin; pixel < end; pixel += pixels, x += pixels) {
      if (x == dst.w) x = 0, ++line;
      pixels = std::min({run, dst.w - x, end - pixel});
      const std::int64_t n = line / dst.h, y = line % dst.h;
      std::byte* const to = dst.at(n, y, x);
      for (std::size_t i = 0; i < count; ++i) from[i] = readers[i].read(n, y, x, pixels);
      float* const values = in_place ? reinterpret_cast<float*>(to) : buffers + count * buffer;
      body(from, values, pixel, pixels);
      if (!in_place) store_pixels(values, to, dst, pixels);
    }
  });
}

/// The same for halves in place; requires lines.are_direct(Format::float16).
template <std::size_t count, class Body>
void for_halves(const OperandLines<count>& lines, std::int64_t grain, const Body& body) {
  const Tensor& dst = lines.dst;
  parallel_ranges(dst.n * dst.h * dst.w, threads_for(dst.size(), grain), [&](std::int64_t begin, std::int64_t end) {
    std::array<const std::uint16_t*, count> from;
    std::int64_t line = begin / dst.w, x = begin % dst.w, pixels = 0;
    for (std::int64_t pixel = begin; pixel < end; pixel += pixels, x += pixels) {
      if (x == dst.w) x = 0, ++line;
      pixels = std::min(dst.w - x, end - pixel);
      const std::int64_t n = line / dst.h, y = line % dst.h;
      for (std::size_t i = 0; i < count; ++i) {
        const OperandSource& source = lines.sources[i];
        from[i] = reinterpret_cast<std::uint16_t*>(source.tensor.at(n, source.row(y), source.start_w + x));
      }
      body(from, reinterpret_cast<std::uint16_t*>(dst.at(n, y, x)), pixel, pixels);
    }
  });
}

}  // namespace openmps
