// SPDX-License-Identifier: Apache-2.0
#include "engine/shared/pixels.hpp"

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "common/available_threads.hpp"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace openmps {
namespace {

// Below this, a second thread costs more than it saves.
constexpr std::size_t kBytesPerThread = std::size_t{4} << 20;

/// Call work(first, last) for ranges of [0, count), on several threads if the total of `bytes` is worth it.
template <class Work>
void in_parts(std::size_t count, std::size_t bytes, const Work& work) {
  const auto available = static_cast<std::size_t>(mpscnn::available_threads());
  const std::size_t parts = std::min({available, count, bytes / kBytesPerThread});
  if (parts < 2) {
    work(std::size_t{0}, count);
    return;
  }
  std::vector<std::thread> threads;
  std::size_t done = 0;
  try {
    threads.reserve(parts - 1);
    for (std::size_t part = 0; part + 1 < parts; ++part) {
      const std::size_t last = count * (part + 1) / parts;
      threads.emplace_back([&work, first = done, last] { work(first, last); });
      done = last;
    }
  } catch (...) {  // no more threads: the rest is done here
  }
  work(done, count);
  for (std::thread& thread : threads) thread.join();
}

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <class T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

#if defined(__SSE2__)

inline __m128i load_row(const std::byte* from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); }
inline void store_row(std::byte* to, __m128i row) { _mm_storeu_si128(reinterpret_cast<__m128i*>(to), row); }

/// dst[i][j] = src[j][i] of one tile; steps in bytes.
inline void transpose_tile_32(std::byte* dst, std::size_t dst_step, const std::byte* src, std::size_t src_step) {
  const __m128i a = load_row(src), b = load_row(src + src_step);
  const __m128i c = load_row(src + 2 * src_step), d = load_row(src + 3 * src_step);
  const __m128i ab_low = _mm_unpacklo_epi32(a, b), ab_high = _mm_unpackhi_epi32(a, b);
  const __m128i cd_low = _mm_unpacklo_epi32(c, d), cd_high = _mm_unpackhi_epi32(c, d);
  store_row(dst, _mm_unpacklo_epi64(ab_low, cd_low));
  store_row(dst + dst_step, _mm_unpackhi_epi64(ab_low, cd_low));
  store_row(dst + 2 * dst_step, _mm_unpacklo_epi64(ab_high, cd_high));
  store_row(dst + 3 * dst_step, _mm_unpackhi_epi64(ab_high, cd_high));
}

inline void transpose_tile_16(std::byte* dst, std::size_t dst_step, const std::byte* src, std::size_t src_step) {
  __m128i pairs[8], fours[8];
  for (int i = 0; i < 4; ++i) {
    const __m128i upper = load_row(src + (2 * i) * src_step), lower = load_row(src + (2 * i + 1) * src_step);
    pairs[2 * i] = _mm_unpacklo_epi16(upper, lower);
    pairs[2 * i + 1] = _mm_unpackhi_epi16(upper, lower);
  }
  for (int i = 0; i < 2; ++i) {
    for (int half = 0; half < 2; ++half) {
      const __m128i upper = pairs[4 * i + half], lower = pairs[4 * i + 2 + half];
      fours[4 * i + 2 * half] = _mm_unpacklo_epi32(upper, lower);
      fours[4 * i + 2 * half + 1] = _mm_unpackhi_epi32(upper, lower);
    }
  }
  for (int i = 0; i < 4; ++i) {
    store_row(dst + (2 * i) * dst_step, _mm_unpacklo_epi64(fours[i], fours[4 + i]));
    store_row(dst + (2 * i + 1) * dst_step, _mm_unpackhi_epi64(fours[i], fours[4 + i]));
  }
}

/// Lanes w, x of a and y, z of b.
template <int w, int x, int y, int z>
inline __m128 lanes(__m128 a, __m128 b) {
  return _mm_shuffle_ps(a, b, _MM_SHUFFLE(z, y, x, w));
}
inline __m128 load_lanes(const std::byte* from) { return _mm_loadu_ps(reinterpret_cast<const float*>(from)); }
inline void store_lanes(std::byte* to, __m128 row) { _mm_storeu_ps(reinterpret_cast<float*>(to), row); }

/// Move as many of `count` adjacent pixels of three elements of 4 bytes as fit into vectors; return how many.
inline std::size_t join_planes_of_3(std::byte* dst, const std::byte* src, std::size_t plane, std::size_t count) {
  std::size_t i = 0;
  for (; i + 4 <= count; i += 4, dst += 48, src += 16) {
    const __m128 a = load_lanes(src), b = load_lanes(src + plane), c = load_lanes(src + 2 * plane);
    const __m128 first = _mm_unpacklo_ps(a, b), last = _mm_unpackhi_ps(a, b);  // a0 b0 a1 b1, a2 b2 a3 b3
    const __m128 end = lanes<2, 3, 2, 3>(c, last);                             // c2 c3 a3 b3
    store_lanes(dst, lanes<0, 1, 0, 2>(first, lanes<0, 0, 1, 1>(c, a)));       // a0 b0 c0 a1
    store_lanes(dst + 16, lanes<0, 2, 0, 1>(lanes<1, 1, 1, 1>(b, c), last));   // b1 c1 a2 b2
    store_lanes(dst + 32, lanes<0, 2, 3, 1>(end, end));                        // c2 a3 b3 c3
  }
  return i;
}

/// The reverse.
inline std::size_t split_planes_of_3(std::byte* dst, std::size_t plane, const std::byte* src, std::size_t count) {
  std::size_t i = 0;
  for (; i + 4 <= count; i += 4, dst += 16, src += 48) {
    const __m128 p = load_lanes(src), q = load_lanes(src + 16), r = load_lanes(src + 32);
    store_lanes(dst, lanes<0, 3, 0, 2>(p, lanes<2, 2, 1, 1>(q, r)));
    store_lanes(dst + plane, lanes<0, 2, 0, 2>(lanes<1, 1, 0, 0>(p, q), lanes<3, 3, 2, 2>(q, r)));
    store_lanes(dst + 2 * plane, lanes<0, 2, 0, 3>(lanes<2, 2, 1, 1>(p, q), r));
  }
  return i;
}

#endif

/// dst[i][j] = src[j][i] for i < rows, j < columns; the inner index steps by one element in dst and the outer index of
/// src by src_step.
template <class T>
void transpose(std::byte* dst, std::size_t dst_step, const std::byte* src, std::size_t src_step, std::size_t rows,
               std::size_t columns) {
  std::size_t i = 0;
#if defined(__SSE2__)
  if constexpr (sizeof(T) > 1) {
    constexpr std::size_t kTile = 16 / sizeof(T);
    // The last tiles overlap the ones before, if rows or columns are not a multiple.
    const auto next = [](std::size_t at, std::size_t end) {
      return at + kTile < end ? std::min(at + kTile, end - kTile) : end;
    };
    if (columns >= kTile && rows >= kTile) {
      for (; i < rows; i = next(i, rows)) {
        for (std::size_t j = 0; j < columns; j = next(j, columns)) {
          std::byte* to = dst + i * dst_step + j * sizeof(T);
          const std::byte* from = src + j * src_step + i * sizeof(T);
          if constexpr (sizeof(T) == 4) transpose_tile_32(to, dst_step, from, src_step);
          if constexpr (sizeof(T) == 2) transpose_tile_16(to, dst_step, from, src_step);
        }
      }
    }
  }
#endif
  for (; i < rows; ++i) {
    std::byte* to = dst + i * dst_step;
    const std::byte* from = src + i * sizeof(T);
    for (std::size_t j = 0; j < columns; ++j) store(to + j * sizeof(T), load<T>(from + j * src_step));
  }
}

// Columns per tile of the transposition: with 64, both sides stay in the first-level cache.
constexpr std::size_t kBlock = 64;

template <class T>
void to_planes(const Planes& dst, const Pixels& src, std::size_t y0, std::size_t y1, std::size_t width,
               std::size_t channels) {
  for (std::size_t y = y0; y < y1; ++y) {
    std::size_t x = 0;
    if (channels == 1 && dst.element == sizeof(T) && src.pixel == sizeof(T)) {
      std::memcpy(dst.data + y * dst.row, src.data + y * src.row, width * sizeof(T));
      continue;
    }
#if defined(__SSE2__)
    if (sizeof(T) == 4 && channels == 3 && dst.element == 4 && src.pixel == 12)
      x = split_planes_of_3(dst.data + y * dst.row, dst.plane, src.data + y * src.row, width);
#endif
    for (; x < width; x += kBlock) {
      const std::size_t columns = std::min(kBlock, width - x);
      const std::byte* from = src.data + y * src.row + x * src.pixel;
      std::byte* to = dst.data + y * dst.row + x * dst.element;
      if (dst.element == sizeof(T)) {
        transpose<T>(to, dst.plane, from, src.pixel, channels, columns);
        continue;
      }
      for (std::size_t c = 0; c < channels; ++c) {
        for (std::size_t i = 0; i < columns; ++i) {
          store(to + c * dst.plane + i * dst.element, load<T>(from + i * src.pixel + c * sizeof(T)));
        }
      }
    }
  }
}

template <class T>
void to_pixels(const Pixels& dst, const Planes& src, std::size_t y0, std::size_t y1, std::size_t width,
               std::size_t channels) {
  for (std::size_t y = y0; y < y1; ++y) {
    std::size_t x = 0;
    if (channels == 1 && src.element == sizeof(T) && dst.pixel == sizeof(T)) {
      std::memcpy(dst.data + y * dst.row, src.data + y * src.row, width * sizeof(T));
      continue;
    }
#if defined(__SSE2__)
    if (sizeof(T) == 4 && channels == 3 && src.element == 4 && dst.pixel == 12)
      x = join_planes_of_3(dst.data + y * dst.row, src.data + y * src.row, src.plane, width);
#endif
    for (; x < width; x += kBlock) {
      const std::size_t columns = std::min(kBlock, width - x);
      const std::byte* from = src.data + y * src.row + x * src.element;
      std::byte* to = dst.data + y * dst.row + x * dst.pixel;
      if (src.element == sizeof(T)) {
        transpose<T>(to, dst.pixel, from, src.plane, columns, channels);
        continue;
      }
      for (std::size_t i = 0; i < columns; ++i) {
        for (std::size_t c = 0; c < channels; ++c) {
          store(to + i * dst.pixel + c * sizeof(T), load<T>(from + c * src.plane + i * src.element));
        }
      }
    }
  }
}

/// Call `part(y0, y1, x0, x1)` on several threads, for ranges of rows or of a single row's pixels.
template <class Part>
void in_regions(std::size_t height, std::size_t width, std::size_t pixel_bytes, const Part& part) {
  const std::size_t bytes = height * width * pixel_bytes;
  if (height == 1) {
    in_parts(width, bytes, [&](std::size_t x0, std::size_t x1) { part(0, 1, x0, x1); });
  } else {
    in_parts(height, bytes, [&](std::size_t y0, std::size_t y1) { part(y0, y1, 0, width); });
  }
}

/// Make adjacent rows one row of height * width pixels, so that a single tall column (a fully connected layer's image,
/// a 1 x N row) can be split too.
bool join_rows(std::size_t& height, std::size_t& width, std::size_t pixel, std::size_t row, std::size_t element,
               std::size_t plane_row) {
  if (height == 1 || row != width * pixel || plane_row != width * element) return false;
  width *= height;
  height = 1;
  return true;
}

}  // namespace

void copy_pixels(const Pixels& dst, const Pixels& src, std::size_t height, std::size_t width, std::size_t bytes) {
  const std::size_t row_bytes = width * bytes;
  const bool whole_rows = width == 1 || (dst.pixel == bytes && src.pixel == bytes);
  if (whole_rows && (height == 1 || (dst.row == row_bytes && src.row == row_bytes))) {
    in_parts(height * row_bytes, height * row_bytes, [&](std::size_t first, std::size_t last) {
      std::memcpy(dst.data + first, src.data + first, last - first);
    });
    return;
  }
  in_parts(height, height * row_bytes, [&](std::size_t y0, std::size_t y1) {
    for (std::size_t y = y0; y < y1; ++y) {
      std::byte* to = dst.data + y * dst.row;
      const std::byte* from = src.data + y * src.row;
      if (whole_rows) {
        std::memcpy(to, from, row_bytes);
        continue;
      }
      for (std::size_t x = 0; x < width; ++x) std::memcpy(to + x * dst.pixel, from + x * src.pixel, bytes);
    }
  });
}

void copy_pixels(const PixelCopyProblem& problem) {
  const auto pixels_of = [](const PixelRows& rows) {
    return Pixels{rows.memory->data() + rows.offset, rows.pixel_stride, rows.row_stride};
  };
  const Pixels dst = pixels_of(problem.dst);
  const auto h = static_cast<std::size_t>(problem.h), w = static_cast<std::size_t>(problem.w);
  copy_pixels(dst, pixels_of(problem.src), h, w, problem.bytes);
  constexpr std::byte kZero{0};
  if (problem.zeros) fill_elements(dst, h, w, problem.bytes, problem.zeros, &kZero, 1);
}

void fill_elements(const Pixels& dst, std::size_t height, std::size_t width, std::size_t first, std::size_t count,
                   const void* value, std::size_t size) {
  for (std::size_t y = 0; y < height; ++y) {
    for (std::size_t x = 0; x < width; ++x) {
      std::byte* to = dst.data + y * dst.row + x * dst.pixel + first * size;
      for (std::size_t i = 0; i < count; ++i) std::memcpy(to + i * size, value, size);
    }
  }
}

void pixels_to_planes(const Planes& dst, const Pixels& src, std::size_t height, std::size_t width, std::size_t channels,
                      std::size_t size) {
  join_rows(height, width, src.pixel, src.row, dst.element, dst.row);
  const auto part = [&](std::size_t y0, std::size_t y1, std::size_t x0, std::size_t x1) {
    Planes to = dst;
    Pixels from = src;
    to.data += x0 * dst.element;
    from.data += x0 * src.pixel;
    if (size == 1) to_planes<std::uint8_t>(to, from, y0, y1, x1 - x0, channels);
    if (size == 2) to_planes<std::uint16_t>(to, from, y0, y1, x1 - x0, channels);
    if (size == 4) to_planes<std::uint32_t>(to, from, y0, y1, x1 - x0, channels);
  };
  in_regions(height, width, channels * size, part);
}

void planes_to_pixels(const Pixels& dst, const Planes& src, std::size_t height, std::size_t width, std::size_t channels,
                      std::size_t size) {
  join_rows(height, width, dst.pixel, dst.row, src.element, src.row);
  const auto part = [&](std::size_t y0, std::size_t y1, std::size_t x0, std::size_t x1) {
    Pixels to = dst;
    Planes from = src;
    to.data += x0 * dst.pixel;
    from.data += x0 * src.element;
    if (size == 1) to_pixels<std::uint8_t>(to, from, y0, y1, x1 - x0, channels);
    if (size == 2) to_pixels<std::uint16_t>(to, from, y0, y1, x1 - x0, channels);
    if (size == 4) to_pixels<std::uint32_t>(to, from, y0, y1, x1 - x0, channels);
  };
  in_regions(height, width, channels * size, part);
}

}  // namespace openmps
