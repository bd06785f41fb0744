// SPDX-License-Identifier: Apache-2.0
// First layers on tensor cores: 3 dense channels, an even stride. Warps load the windows from global memory, or a block
// loads its part of the source once.
#pragma once

#include "engine/cuda/kernels/tensor_cores.hpp"

namespace openmps::cuda::product::stem {

inline constexpr const char* kFile = "engine/cuda/kernels/conv_stem.hpp";

struct StemArgs {
  ProductArgs product;  ///< its src is the whole source: dense rows of 3 channels, an even number of values
  int start_h = 0, start_w = 0;
  int stride_h = 1, stride_w = 1;  ///< stride_w is even: all windows start at even values, or all at odd ones
};

/// Rows of a convolution of 3 channels: the values below the window, in pairs. If windows start at odd values, a pair
/// starts before the window.
template <int kKernel>
class Windows {
 public:
  static constexpr int kPairs = (3 * kKernel + 1) / 2;  ///< of a row of the window; one value is not part of it
  using Args = StemArgs;
  struct Row {
    i64 image;
    int y, x;
  };
  struct Terms {
    struct {
      int y, x;
      std::uint32_t mask;  ///< the value that the window does not have may be infinite, and its weight is 0
    } pairs[4];
  };

  MPSCNN_HOST_DEVICE explicit Windows(const StemArgs& args)
      : args_(args),
        src_(args.product.src.data.get()),
        h_stride_(static_cast<int>(args.product.src.h_stride)),
        height_(static_cast<int>(args.product.src.h)),
        width_(static_cast<int>(args.product.src.w) * 3),
        is_odd_(args.start_w & 1) {}
  MPSCNN_HOST_DEVICE Row row(const Place& at, int) const {
    return {at.n * args_.product.src.n_stride, static_cast<int>(at.y) * args_.stride_h + args_.start_h,
            (static_cast<int>(at.x) * args_.stride_w + args_.start_w) * 3 - is_odd_};
  }
  MPSCNN_HOST_DEVICE Terms terms(int chunk, int lane) const {
    Terms terms;
    MPSCNN_UNROLL
    for (int j = 0; j < 4; ++j) {
      const int pair = (kTerms * chunk + term_of(lane, 2 * j)) / 2;
      const int p = pair / kPairs, x = pair - p * kPairs;
      terms.pairs[j] = {p, 2 * x, is_odd_ ? x == 0 ? 0xffff0000u : ~0u : x == kPairs - 1 ? 0xffffu : ~0u};
    }
    return terms;
  }
  MPSCNN_HOST_DEVICE Halves8 load(const Row& row, const Terms& terms) const {
    Halves8 result;
    MPSCNN_UNROLL
    for (int j = 0; j < 4; ++j) {
      const auto& pair = terms.pairs[j];
      const int y = row.y + pair.y, x = row.x + pair.x;
      const bool is_inside = pair.y < kKernel && static_cast<unsigned>(y) < static_cast<unsigned>(height_) &&
                             static_cast<unsigned>(x) < static_cast<unsigned>(width_);
      const i64 offset = row.image + static_cast<i64>(y) * h_stride_ + x;
      result.words[j] = load_constant<1>(src_ + 2 * offset, is_inside).words[0] & pair.mask;
    }
    return result;
  }

 private:
  const StemArgs& args_;
  const unsigned char* const src_;
  const int h_stride_, height_, width_, is_odd_;
};

MPSCNN_WARP_KERNEL(conv_stem_3x3, StemArgs, 4) { compute<Windows<3>, 1, 1>(args, index); }
MPSCNN_WARP_KERNEL(conv_stem_7x7, StemArgs, 2) { compute<Windows<7>, 2, 2>(args, index); }

// ------------------------------------------------------------------------------------------------ in shared memory

/// 7 x 7 with strides of 2. A block computes kTile x kTile pixels of the result, a warp two rows of them.
struct StemTileArgs {
  ProductArgs product;  ///< as in StemArgs
  int start_h = 0, start_w = 0;
  i64 tiles_h = 0, tiles_w = 0;
};

constexpr int kTile = 2 * kWarps, kTileKernel = 7, kTileStride = 2;
static_assert(kTile == kTileRows);  // a row of a tile is one of an instruction

/// The pairs of values that a block reads. Two pixels of a row are kStep words apart. Pair q of a window, counted
/// through its rows, is in bank q plus that of the window's first pair: lanes that read different pairs use different
/// banks.
struct TileOfSource {
  static constexpr int kPairs = Windows<kTileKernel>::kPairs, kStep = kTileStride * 3 / 2;
  static constexpr int kRows = (kTile - 1) * kTileStride + kTileKernel, kWords = (kTile - 1) * kStep + kPairs;
  static constexpr int kPitch = 2 * 32 + kPairs;
  static_assert(kPitch >= kWords);
  std::uint32_t of[kRows * kPitch];
};

/// Pairs of a lane in a chunk.
struct PairsOfLane {
  int words[4];            ///< from the window's first pair on
  std::uint32_t masks[4];  ///< as in Windows::Terms; 0 beyond the window

  MPSCNN_HOST_DEVICE PairsOfLane(int chunk, int lane, int is_odd) {
    constexpr int kPairs = TileOfSource::kPairs;
    MPSCNN_UNROLL
    for (int j = 0; j < 4; ++j) {
      const int pair = (kTerms * chunk + term_of(lane, 2 * j)) / 2, p = pair / kPairs, x = pair - p * kPairs;
      const bool is_inside = p < kTileKernel;
      words[j] = is_inside ? p * TileOfSource::kPitch + x : 0;
      masks[j] = !is_inside ? 0 : is_odd ? x == 0 ? 0xffff0000u : ~0u : x == kPairs - 1 ? 0xffffu : ~0u;
    }
  }
};

MPSCNN_BLOCK_KERNEL(conv_stem_tile_7x7, StemTileArgs, 2) {
  constexpr int kGroups = 2;
  const ProductArgs& product = args.product;
  const auto tiles = static_cast<std::uint32_t>(product.tiles), tiles_w = static_cast<std::uint32_t>(args.tiles_w),
             tiles_h = static_cast<std::uint32_t>(args.tiles_h);
  const std::uint32_t tile = static_cast<std::uint32_t>(index) / tiles, row = tile / tiles_w, image = row / tiles_h;
  const i64 first_group = static_cast<i64>(static_cast<std::uint32_t>(index) - tile * tiles) * kGroups;
  const int first_y = static_cast<int>(row - image * tiles_h) * kTile;
  const int first_x = static_cast<int>(tile - row * tiles_w) * kTile;
  const int is_odd = args.start_w & 1;
  const View& src = product.src;
  MPSCNN_SHARED(TileOfSource, shared, 1);
  std::uint32_t* const words = shared.own(0).of;

  const int values = static_cast<int>(src.w) * 3, top = first_y * kTileStride + args.start_h;
  const int left = (first_x * kTileStride + args.start_w) * 3 - is_odd;
  const unsigned char* const from = src.data.get() + 2 * static_cast<i64>(image) * src.n_stride;
  block.for_each(kThreads, [&](i64 thread) {
    constexpr int kCount = TileOfSource::kRows * TileOfSource::kWords, kLoads = (kCount + kThreads - 1) / kThreads;
    const auto row_of_tile = [&](int load) {
      return (static_cast<int>(thread) + load * kThreads) / TileOfSource::kWords;
    };
    const auto word_of_row = [&](int load) {
      return static_cast<int>(thread) + load * kThreads - row_of_tile(load) * TileOfSource::kWords;
    };
    std::uint32_t loaded[kLoads];  // all are under way at a time
    MPSCNN_UNROLL
    for (int j = 0; j < kLoads; ++j) {
      const int y = top + row_of_tile(j), x = left + 2 * word_of_row(j);
      const bool is_inside = static_cast<unsigned>(y) < static_cast<unsigned>(src.h) &&
                             static_cast<unsigned>(x) < static_cast<unsigned>(values);
      const i64 offset = is_inside ? 2 * (y * src.h_stride + x) : 0;
      loaded[j] = load_constant<1>(from + offset, is_inside).words[0];
    }
    MPSCNN_UNROLL
    for (int j = 0; j < kLoads; ++j)
      if (row_of_tile(j) < TileOfSource::kRows)
        words[row_of_tile(j) * TileOfSource::kPitch + word_of_row(j)] = loaded[j];
  });

  Cluster<1>().each_warp([&](int, int warp) {
    if (first_y + 2 * warp >= static_cast<int>(product.dst.h)) return;
    Sums<2, kGroups> sums;
    start(product, first_group, sums);
    const int chunks = static_cast<int>(product.chunks);
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; ++chunk) {
      Chunk<2> a;
      MPSCNN_UNROLL
      for (int l = 0; l < kHeldLanes; ++l) {
        const PairsOfLane pairs(chunk, lane_of(l), is_odd);
        const std::uint32_t* const window =
            words + 2 * warp * kTileStride * TileOfSource::kPitch + lane_of(l) / 4 * TileOfSource::kStep;
        MPSCNN_UNROLL
        for (int i = 0; i < 2; ++i) {
          MPSCNN_UNROLL
          for (int half = 0; half < 2; ++half) {
            const int to_pixel = i * kTileStride * TileOfSource::kPitch + half * 8 * TileOfSource::kStep;
            MPSCNN_UNROLL
            for (int j = 0; j < 4; ++j) a.v[i][half][l].words[j] = window[pairs.words[j] + to_pixel] & pairs.masks[j];
          }
        }
      }
      add_chunk(product, first_group, chunk, a, sums);
    }
    const Results<false> results(product);
    MPSCNN_UNROLL
    for (int l = 0; l < kHeldLanes; ++l) {
      MPSCNN_UNROLL
      for (int i = 0; i < 2; ++i) {
        MPSCNN_UNROLL
        for (int half = 0; half < 2; ++half) {
          const int y = first_y + 2 * warp + i, x = first_x + half * 8 + lane_of(l) / 4;
          if (y >= static_cast<int>(product.dst.h) || x >= static_cast<int>(product.dst.w)) continue;
          const Place pixel{image, y, x, 0};
          MPSCNN_UNROLL
          for (int q = 0; q < kGroups; ++q) {
            const i64 channel = channel_of(first_group + q, lane_of(l));
            if (channel >= product.dst.c) continue;
            float results_of_lane[8];
            MPSCNN_UNROLL
            for (int v = 0; v < 8; ++v) results_of_lane[v] = sum_of(sums, i, half, q, l, v);
            results.store(offset_of(product.dst, pixel), offset_of(product.addend, pixel), channel, results_of_lane);
          }
        }
      }
    }
  });
}

}  // namespace openmps::cuda::product::stem
