// SPDX-License-Identifier: Apache-2.0
// Gradient of max pooling in one pass. A block computes a tile of pixels: it finds the first max of each window that
// reads the tile and keeps the number of its tap in shared memory; then each thread gathers the gradients of its
// pixels.
#pragma once

#include "engine/cuda/kernels/clusters.hpp"
#include "engine/cuda/kernels/constants.hpp"
#include "engine/cuda/kernels/vectors.hpp"

namespace openmps::cuda::max_pool_gradient {

inline constexpr const char* kFile = "engine/cuda/kernels/max_pool_gradient.hpp";

constexpr int kMaxTaps = 255;       ///< of a window: their numbers, from 1 on, are bytes
constexpr int kWindowsOfTile = 12;  ///< at most, along each axis
constexpr int kVectorsOfTile = 8;   ///< at most, of each pixel: 128 bytes

/// Pixels and windows along one axis. Cell `a` has the pixels from the first tap of window `a` to that of the next one.
/// Windows a - overlap + 1 to a read it.
struct Axis {
  int kernel, stride, start, overlap;
  int size, windows;                   ///< of the source; of diff_dst
  int first, pixels;                   ///< of diff_src in the source
  int first_cell, cells, tile, tiles;  ///< that have pixels of diff_src; cells of a tile; tiles of an image
};

struct Args {
  View diff_dst, src, diff_src;  ///< channels and strides are multiples of 16 bytes; images of src have less than 2 GB
  Axis rows, columns;
  int chunks;         ///< tiles of the channels of a pixel
  int vector_bits;    ///< log2 of the vectors of a pixel in a tile
  bool counts_zeros;  ///< out-of-bounds taps are 0; otherwise they are the nearest pixel

  i64 blocks() const { return src.n * chunks * rows.tiles * columns.tiles; }
  bool is_square(int kernel, int stride) const {
    return rows.kernel == kernel && columns.kernel == kernel && rows.stride == stride && columns.stride == stride;
  }
};

struct TileMemory {
  alignas(16) unsigned char taps[kWindowsOfTile * kWindowsOfTile * kVectorsOfTile * kMostLanes];  ///< 0: no pixel
};

enum class Comparison { equal, less, unordered };  ///< unordered: one of the two is NaN

/// Return 0xffff for each half of two words for which a comparison is true, otherwise 0.
template <Comparison comparison>
MPSCNN_HOST_DEVICE std::uint32_t compare_halves(std::uint32_t a, std::uint32_t b) {
#if MPSCNN_ON_GPU
  std::uint32_t mask;
  if constexpr (comparison == Comparison::equal)
    asm("set.eq.u32.f16x2 %0, %1, %2;" : "=r"(mask) : "r"(a), "r"(b));
  else if constexpr (comparison == Comparison::less)
    asm("set.lt.u32.f16x2 %0, %1, %2;" : "=r"(mask) : "r"(a), "r"(b));
  else
    asm("set.nan.u32.f16x2 %0, %1, %2;" : "=r"(mask) : "r"(a), "r"(b));
  return mask;
#else
  const auto one = [](std::uint32_t x, std::uint32_t y) {
    const float v = half_value(static_cast<std::uint16_t>(x)), w = half_value(static_cast<std::uint16_t>(y));
    const bool is_true = comparison == Comparison::equal  ? v == w
                         : comparison == Comparison::less ? v < w
                                                          : v != v || w != w;
    return is_true ? 0xffffu : 0u;
  };
  return one(a & 0xffff, b & 0xffff) | one(a >> 16, b >> 16) << 16;
#endif
}

/// The source of a pooling that is in memory.
struct PlainSource {
  struct Lanes {
    MPSCNN_HOST_DEVICE Bits<4> operator()(const Bits<4>& values) const { return values; }
  };
  MPSCNN_HOST_DEVICE Lanes lanes(i64 /*channel*/) const { return {}; }
};

/// One window over 16 bytes of channels. kKernel: extents of the window; 0: those of the arguments.
template <int kKernel, class Lanes>
struct Window {
  const Args& args;
  const Lanes& lanes;           ///< finds values of the pooling's source from those of args.src
  const unsigned char* pixels;  ///< the channels of pixel (0, 0) of the image
  int top, left;

  MPSCNN_HOST_DEVICE int height() const { return kKernel ? kKernel : args.rows.kernel; }
  MPSCNN_HOST_DEVICE int width() const { return kKernel ? kKernel : args.columns.kernel; }
  /// Out-of-bounds taps are the nearest pixel, which changes no max.
  MPSCNN_HOST_DEVICE int row(int j) const { return std::clamp(top + j, 0, args.rows.size - 1); }
  MPSCNN_HOST_DEVICE int column(int i) const { return std::clamp(left + i, 0, args.columns.size - 1); }
  MPSCNN_HOST_DEVICE Bits<4> load(int j, int i) const {
    const int size = format_of(args.src) == Format::float16 ? 2 : 4;
    const int down = row(j) * static_cast<int>(args.src.h_stride),
              right = column(i) * static_cast<int>(args.src.w_stride);
    return lanes(load_constant<4>(pixels + (down + right) * size));
  }
  /// Return the number of the tap that has the same pixel and is in bounds.
  MPSCNN_HOST_DEVICE std::uint32_t number(int j, int i) const {
    return static_cast<std::uint32_t>((row(j) - top) * width() + column(i) - left + 1);
  }
  MPSCNN_HOST_DEVICE bool has_zeros() const {
    return args.counts_zeros &&
           (top < 0 || left < 0 || top + height() > args.rows.size || left + width() > args.columns.size);
  }

  /// Return the number of the first max of each channel, as bytes; 0 if a zero is greater. NaN is greater than any
  /// number.
  MPSCNN_HOST_DEVICE Bits<2> first_max_of_halves() const {
    Bits<4> kept[kKernel ? kKernel * kKernel : 1];
    std::uint32_t most[4];
    MPSCNN_UNROLL
    for (int v = 0; v < 4; ++v) most[v] = 0xfc00fc00u;  // -infinity
    MPSCNN_UNROLL
    for (int j = 0; j < height(); ++j) {
      MPSCNN_UNROLL
      for (int i = 0; i < width(); ++i) {
        const Bits<4> tap = load(j, i);
        if constexpr (kKernel > 0) kept[j * kKernel + i] = tap;
        MPSCNN_UNROLL
        for (int v = 0; v < 4; ++v) most[v] = max_of_halves(tap.words[v], most[v]);
      }
    }
    std::uint32_t taps[4] = {};  // numbers of 16 bits
    const auto choose = [&](const auto& mask_of) {
      MPSCNN_UNROLL
      for (int j = height() - 1; j >= 0; --j) {  // so that the first one stays
        MPSCNN_UNROLL
        for (int i = width() - 1; i >= 0; --i) {
          Bits<4> tap;
          if constexpr (kKernel > 0)
            tap = kept[j * kKernel + i];
          else
            tap = load(j, i);
          const std::uint32_t both = number(j, i) * 0x10001u;
          MPSCNN_UNROLL
          for (int v = 0; v < 4; ++v) {
            const std::uint32_t mask = mask_of(tap.words[v], most[v]);
            taps[v] = (taps[v] & ~mask) | (both & mask);
          }
        }
      }
    };
    choose([](std::uint32_t tap, std::uint32_t max) { return compare_halves<Comparison::equal>(tap, max); });
    std::uint32_t has_nan = 0;
    MPSCNN_UNROLL
    for (int v = 0; v < 4; ++v) has_nan |= compare_halves<Comparison::unordered>(most[v], most[v]);
    if (has_nan)
      choose([](std::uint32_t tap, std::uint32_t) { return compare_halves<Comparison::unordered>(tap, tap); });
    if (has_zeros()) {
      MPSCNN_UNROLL
      for (int v = 0; v < 4; ++v) taps[v] &= ~compare_halves<Comparison::less>(most[v], 0);
    }
    Bits<2> bytes;
    MPSCNN_UNROLL
    for (int w = 0; w < 2; ++w) {
      const std::uint32_t low = taps[2 * w] | taps[2 * w] >> 8, high = taps[2 * w + 1] | taps[2 * w + 1] >> 8;
      bytes.words[w] = (low & 0xffff) | high << 16;
    }
    return bytes;
  }
  MPSCNN_HOST_DEVICE Bits<1> first_max_of_floats() const {
    float best[4] = {};
    std::uint32_t taps[4] = {};
    MPSCNN_UNROLL
    for (int j = 0; j < height(); ++j) {
      MPSCNN_UNROLL
      for (int i = 0; i < width(); ++i) {
        const Bits<4> tap = load(j, i);
        const std::uint32_t number = this->number(j, i);
        MPSCNN_UNROLL
        for (int v = 0; v < 4; ++v) {
          const float x = std::bit_cast<float>(tap.words[v]);
          const bool is_better = (j == 0 && i == 0) || x > best[v] || (x != x && best[v] == best[v]);
          best[v] = is_better ? x : best[v];
          taps[v] = is_better ? number : taps[v];
        }
      }
    }
    if (has_zeros()) {
      MPSCNN_UNROLL
      for (int v = 0; v < 4; ++v) taps[v] = best[v] < 0 ? 0 : taps[v];
    }
    return {{taps[0] | taps[1] << 8 | taps[2] << 16 | taps[3] << 24}};
  }
};

/// The gradient of a window, and the numbers of the taps that it goes to.
struct WindowGradient {
  Vector diff;
  Bits<2> taps;  ///< a byte for each channel

  MPSCNN_HOST_DEVICE void add_to(float (&sums)[kMostLanes], const View& view, std::uint32_t number) const {
    const int lanes = lanes_of<true>(view);
    float values[kMostLanes];
    unpack(view, diff, values);
    for (int k = 0; k < lanes; ++k) sums[k] += (taps.words[k / 4] >> (k % 4 * 8) & 0xff) == number ? values[k] : 0.0f;
  }
};

/// Stores the gradient by the source. A sink takes the gradients of 16 bytes of channels of a pixel.
struct StoringSink {
  const View& diff_src;

  MPSCNN_HOST_DEVICE void take(const Place& at, const float (&sums)[kMostLanes]) const {
    store_lanes<true>(diff_src, at, sums);
  }
};

/// kKernel and kStride: those of both axes; with a kernel of 0: those of the arguments.
template <int kKernel, int kStride, class Source, class Sink>
MPSCNN_HOST_DEVICE void compute_tile(const Args& args, i64 index, const Block& block, unsigned char* all_taps,
                                     const Source& source, const Sink& sink) {
  const Axis &rows = args.rows, &columns = args.columns;
  constexpr int kOverlap = kKernel > 0 ? (kKernel + kStride - 1) / kStride : 1;
  const int overlap_h = kKernel ? kOverlap : rows.overlap, overlap_w = kKernel ? kOverlap : columns.overlap;
  const int kernel_h = kKernel ? kKernel : rows.kernel, kernel_w = kKernel ? kKernel : columns.kernel;
  const int stride_h = kKernel ? kStride : rows.stride, stride_w = kKernel ? kStride : columns.stride;
  const int lanes = lanes_of<true>(args.src), size = 16 / lanes, last_vector = (1 << args.vector_bits) - 1;

  const Place tile = place_of(index, rows.tiles, columns.tiles, args.chunks);
  const int y0 = static_cast<int>(tile.y) * rows.tile, x0 = static_cast<int>(tile.x) * columns.tile;
  const int height = std::min(rows.tile, rows.cells - y0), width = std::min(columns.tile, columns.cells - x0);
  const int row = rows.first_cell + y0, column = columns.first_cell + x0;  // first cell
  const int top = row - overlap_h + 1, left = column - overlap_w + 1;      // first window
  const int windows_h = height + overlap_h - 1, windows_w = width + overlap_w - 1;
  const auto channel_of = [&](int item) { return (tile.k << args.vector_bits | (item & last_vector)) * lanes; };
  const auto has_window = [&](int v, int u) {
    return static_cast<unsigned>(v) < static_cast<unsigned>(rows.windows) &&
           static_cast<unsigned>(u) < static_cast<unsigned>(columns.windows);
  };

  block.for_each(i64{windows_h * windows_w} << args.vector_bits, [&](i64 i) {
    const int item = static_cast<int>(i), y = (item >> args.vector_bits) / windows_w;
    const int x = (item >> args.vector_bits) - y * windows_w;
    const i64 k = channel_of(item);
    if (k >= args.src.c) return;
    const auto of_source = source.lanes(k);
    const Window<kKernel, typename Source::Lanes> window{
        args, of_source, args.src.data.get() + args.src.offset(tile.n, 0, 0, k) * size,
        rows.start + (top + y) * stride_h, columns.start + (left + x) * stride_w};
    const bool is_window = has_window(top + y, left + x);
    unsigned char* const to = all_taps + item * lanes;
    if (format_of(args.src) == Format::float16)
      *reinterpret_cast<Bits<2>*>(to) = is_window ? window.first_max_of_halves() : Bits<2>{};
    else
      *reinterpret_cast<Bits<1>*>(to) = is_window ? window.first_max_of_floats() : Bits<1>{};
  });

  block.for_each(i64{height * width} << args.vector_bits, [&](i64 i) {
    const int item = static_cast<int>(i), y = (item >> args.vector_bits) / width;
    const int x = (item >> args.vector_bits) - y * width;
    const i64 k = channel_of(item);
    if (k >= args.src.c) return;
    const unsigned char* const gradients = args.diff_dst.data.get() + args.diff_dst.offset(tile.n, 0, 0, k) * size;
    // Window `v` rows and `u` columns before the one of this cell's number.
    const auto load = [&](int v, int u) {
      const i64 offset = (row + y - v) * args.diff_dst.h_stride + (column + x - u) * args.diff_dst.w_stride;
      const Bits<4> diff = load_constant<4>(gradients + offset * size, has_window(row + y - v, column + x - u));
      const int window = (y + overlap_h - 1 - v) * windows_w + x + overlap_w - 1 - u;
      const unsigned char* const taps = all_taps + (window << args.vector_bits | (item & last_vector)) * lanes;
      WindowGradient result{{{diff.words[0], diff.words[1], diff.words[2], diff.words[3]}}, {}};
      if (format_of(args.src) == Format::float16)
        result.taps = *reinterpret_cast<const Bits<2>*>(taps);
      else
        result.taps.words[0] = *reinterpret_cast<const std::uint32_t*>(taps);
      return result;
    };
    WindowGradient kept[kOverlap][kOverlap];
    if constexpr (kKernel > 0) {
      MPSCNN_UNROLL
      for (int v = 0; v < kOverlap; ++v) {
        MPSCNN_UNROLL
        for (int u = 0; u < kOverlap; ++u) kept[v][u] = load(v, u);
      }
    }
    MPSCNN_UNROLL
    for (int p = 0; p < stride_h; ++p) {
      MPSCNN_UNROLL
      for (int q = 0; q < stride_w; ++q) {
        const int to_y = rows.start + (row + y) * stride_h + p - rows.first;
        const int to_x = columns.start + (column + x) * stride_w + q - columns.first;
        if (static_cast<unsigned>(to_y) >= static_cast<unsigned>(rows.pixels) ||
            static_cast<unsigned>(to_x) >= static_cast<unsigned>(columns.pixels))
          continue;
        float sums[kMostLanes] = {};
        MPSCNN_UNROLL
        for (int v = overlap_h - 1; v >= 0; --v) {
          const int j = p + v * stride_h;
          if (j >= kernel_h) continue;
          float of_row[kMostLanes] = {};
          MPSCNN_UNROLL
          for (int u = overlap_w - 1; u >= 0; --u) {
            const int tap = q + u * stride_w;
            if (tap >= kernel_w) continue;
            const auto number = static_cast<std::uint32_t>(j * kernel_w + tap + 1);
            if constexpr (kKernel > 0)
              kept[v][u].add_to(of_row, args.src, number);
            else
              load(v, u).add_to(of_row, args.src, number);
          }
          for (int l = 0; l < lanes; ++l) sums[l] += of_row[l];
        }
        sink.take({tile.n, to_y, to_x, k}, sums);
      }
    }
  });
}
template <int kKernel, int kStride>
MPSCNN_HOST_DEVICE void store_tile(const Args& args, i64 index, const Block& block) {
  MPSCNN_SHARED(TileMemory, shared, 1);
  compute_tile<kKernel, kStride>(args, index, block, shared.own(0).taps, PlainSource{}, StoringSink{args.diff_src});
}
MPSCNN_BLOCK_KERNEL(max_pool_gradient, Args) { store_tile<0, 1>(args, index, block); }
MPSCNN_BLOCK_KERNEL(max_pool_gradient_2x2, Args, 4) { store_tile<2, 2>(args, index, block); }
MPSCNN_BLOCK_KERNEL(max_pool_gradient_3x3, Args, 4) { store_tile<3, 2>(args, index, block); }

}  // namespace openmps::cuda::max_pool_gradient
