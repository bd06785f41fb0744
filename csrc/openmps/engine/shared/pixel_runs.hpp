// SPDX-License-Identifier: Apache-2.0
// Runs of pixels of operands as floats, and the loop over them of everything that works pixel by pixel: any placement,
// any format, threaded. Rows of floats are used where they lie; the rest passes through small buffers.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "engine/shared/parallel.hpp"
#include "engine/shared/rows.hpp"
#include "engine/shared/tensor.hpp"

namespace openmps::pixel_runs {

constexpr std::int64_t kChunk = 1024;  // values of a buffer: three of them fit the first-level cache

/// An operand whose memory is there.
struct Source {
  Tensor tensor;
  std::int64_t start_h = 0, start_w = 0;
  bool repeat_h = false, repeat_w = false, repeat_c = false;
  Edge edge = Edge::zero;

  Source() = default;
  explicit Source(const Operand& operand)
      : tensor(tensor_of(operand.view)),
        start_h(operand.start_h),
        start_w(operand.start_w),
        repeat_h(operand.repeat_h),
        repeat_w(operand.repeat_w),
        repeat_c(operand.repeat_c),
        edge(operand.edge) {}

  bool pixels_are_adjacent() const { return tensor.w == 1 || tensor.w_stride == tensor.c; }
  /// The same pixels as the destination's, those of an image one after the other.
  bool is_like(const Tensor& dst) const {
    return !repeat_h && !repeat_w && !repeat_c && start_h == 0 && start_w == 0 && tensor.h == dst.h &&
           tensor.w == dst.w && tensor.images_are_dense();
  }
  /// Pixels of a row can be used where they are, if there are any.
  bool is_direct() const { return tensor.format == Format::float32 && !repeat_w && !repeat_c && pixels_are_adjacent(); }
  /// Every pixel of such a destination sees a pixel of the source.
  bool covers(const Tensor& dst) const {
    const auto inside = [](std::int64_t start, std::int64_t count, std::int64_t size) {
      return start >= 0 && start + count <= size;
    };
    return inside(start_h, repeat_h ? 1 : dst.h, tensor.h) && inside(start_w, repeat_w ? 1 : dst.w, tensor.w);
  }
};

/// Runs of pixels of a source as floats, `channels` in each pixel, in place or in a buffer.
class Reader {
 public:
  Reader(const Source& source, std::int64_t channels, float* buffer)
      : source_(source), tensor_(source.tensor), channels_(channels), buffer_(buffer) {}

  /// What destination pixels x ... x + pixels - 1 of row y see.
  const float* read(std::int64_t n, std::int64_t y, std::int64_t x, std::int64_t pixels) {
    std::int64_t row = source_.start_h + (source_.repeat_h ? 0 : y);
    if (source_.edge == Edge::clamp) row = std::clamp<std::int64_t>(row, 0, tensor_.h - 1);
    if (row < 0 || row >= tensor_.h) return zeros(pixels);
    if (source_.repeat_w) return repeated(n, row, pixels);

    const std::int64_t start = source_.start_w + x;
    const std::int64_t first = std::clamp<std::int64_t>(-start, 0, pixels);  // [first, last) lie in the source
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

  /// The same pixel over and over; kept for the next run of the row.
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

  /// Pixels [begin, end) of the buffer, which lie beyond the source's pixel `nearest`.
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

  /// Makes `count` pixels out of the `done` ones that are there.
  void copies(float* pixels, std::int64_t done, std::int64_t count) const {
    while (done < count) {
      const std::int64_t more = std::min(done, count - done);
      std::memcpy(pixels + done * channels_, pixels, static_cast<std::size_t>(more * channels_) * 4);
      done += more;
    }
  }

  /// Pixels of the source that are there.
  void convert(std::int64_t n, std::int64_t row, std::int64_t column, std::int64_t count, float* to) const {
    const std::byte* const from = tensor_.at(n, row, column);
    const std::int64_t step = tensor_.w_stride * static_cast<std::int64_t>(size_of(tensor_.format));
    if (source_.repeat_c) {
      float values[kChunk];  // one for each pixel of a run
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

  const Source& source_;
  const Tensor& tensor_;
  const std::int64_t channels_;
  float* const buffer_;
  std::int64_t held_ = 0, held_n_ = 0, held_row_ = 0;  ///< copies of a repeated pixel in the buffer, and which pixel
};

}  // namespace openmps::pixel_runs

namespace openmps {

/// body(n, from, to, count): `count` values, whole pixels of image n of dst, from one run of each operand. The body
/// runs on several threads when each has at least `grain` values; it must not throw. from may be a buffer, and so may
/// `to`, but they do not overlap unless the views do.
template <std::size_t N, class Body>
void for_pixel_runs(const std::array<Operand, N>& operands, const ImageView& view, std::int64_t grain,
                    const Body& body) {
  using namespace pixel_runs;
  std::array<Source, N> sources;
  for (std::size_t i = 0; i < N; ++i) sources[i] = Source(operands[i]);
  Tensor dst = tensor_of(view);
  const std::int64_t c = dst.c, element = static_cast<std::int64_t>(size_of(dst.format));
  // One line of pixels for each image where nothing lies between them, else its rows.
  bool flat = dst.images_are_dense();
  for (const Source& source : sources) flat = flat && source.is_like(dst);
  if (flat) {
    for (Source& source : sources) source.tensor.flatten_images();
    dst.flatten_images();
  }
  const bool adjacent = dst.w == 1 || dst.w_stride == c;
  const bool in_place = adjacent && dst.format == Format::float32;
  bool unbuffered = in_place;
  for (const Source& source : sources) unbuffered = unbuffered && source.is_direct() && source.covers(dst);
  const std::int64_t run = unbuffered ? dst.w : std::max<std::int64_t>(1, kChunk / c);
  const std::int64_t buffer = std::max(kChunk, c);

  const int threads = threads_for(dst.size(), grain);
  std::vector<float> wide;  // pixels of more channels than a buffer on the stack has
  if (c > kChunk) wide.resize((N + 1) * static_cast<std::size_t>(buffer * threads));
  parallel_ranges(dst.n * dst.h * dst.w, threads, [&](std::int64_t begin, std::int64_t end) {
    float stack[(N + 1) * kChunk];
    float* const buffers =
        wide.empty() ? stack : wide.data() + static_cast<std::int64_t>(N + 1) * buffer * omp_get_thread_num();
    const auto readers = [&]<std::size_t... I>(std::index_sequence<I...>) {
      return std::array<Reader, N>{Reader(sources[I], c, buffers + static_cast<std::int64_t>(I) * buffer)...};
    };
    std::array<Reader, N> reader = readers(std::make_index_sequence<N>());
    std::array<const float*, N> from;
    std::int64_t line = begin / dst.w, x = begin % dst.w, count = 0;
    for (std::int64_t pixel = begin; pixel < end; pixel += count, x += count) {
      if (x == dst.w) x = 0, ++line;
      count = std::min({run, dst.w - x, end - pixel});
      const std::int64_t n = line / dst.h, y = line % dst.h;
      for (std::size_t i = 0; i < N; ++i) from[i] = reader[i].read(n, y, x, count);
      std::byte* const to = dst.at(n, y, x);
      if (in_place) {
        body(n, from, reinterpret_cast<float*>(to), count * c);
        continue;
      }
      float* const values = buffers + static_cast<std::int64_t>(N) * buffer;
      body(n, from, values, count * c);
      if (adjacent) {
        row_from_float(values, to, dst.format, count * c);
      } else {
        for (std::int64_t i = 0; i < count; ++i)
          row_from_float(values + i * c, to + i * dst.w_stride * element, dst.format, c);
      }
    }
  });
}

}  // namespace openmps
