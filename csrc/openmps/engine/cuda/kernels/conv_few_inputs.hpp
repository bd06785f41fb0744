// SPDX-License-Identifier: Apache-2.0
// Convolutions of few dense channels on tensor cores, without strides: a row of the window is a run of adjacent values.
// A block loads its rows of the source once. A window starts at an even or an odd value, and pairs of values are words
// of shared memory: so the rows are stored twice, the second time from their second value on.
#pragma once

#include "engine/cuda/kernels/tensor_cores.hpp"

namespace openmps::cuda::product::few_inputs {

inline constexpr const char* kFile = "engine/cuda/kernels/conv_few_inputs.hpp";

constexpr int kMaxKernelH = 11, kMaxRun = 32;  ///< kMaxRun: values of a row of the window
constexpr int kMaxChannels = 4;

// A block: kTileH rows of kTileW pixels of the result, of kWarpW by a warp.
constexpr int kRowTiles = 2, kWarpW = kRowTiles * kTileRows, kTileW = 2 * kWarpW, kTileH = kWarps / 2;

struct FewInputsArgs {
  ProductArgs product;  ///< its src is the whole source, whose pixels have no gaps between them
  int start_h = 0, start_w = 0, kernel_h = 1;
  int run = 0;        ///< values of a row of the window
  int row_terms = 8;  ///< `run`, rounded up to 8: a power of two or 24
  i64 tiles_h = 0, tiles_w = 0;
};

/// Rows of the source that a block reads, as pairs of values.
struct SourceRows {
  static constexpr int kRows = kTileH + kMaxKernelH - 1;
  static constexpr int kPitch = 152;  ///< words; 24 mod 32, so that lanes that read four rows use different banks
  static constexpr int kCopy = kRows * kPitch + 20;  ///< 4 mod 32, likewise for odd and even pixels
  static_assert(2 * kPitch >= (kTileW - 1) * kMaxChannels + kMaxRun + 2);
  std::uint32_t of[2 * kCopy];
};

/// Terms of a lane in a chunk: 8 adjacent values of a row of the window.
struct RunPart {
  int word;                ///< of the first row and pixel
  std::uint32_t masks[4];  ///< values that the window does not have may be infinite, and their weights are 0

  MPSCNN_HOST_DEVICE RunPart(const FewInputsArgs& args, int chunk, int lane) {
    const int term = chunk * kTerms + term_of(lane, 0), p = term / args.row_terms, first = term - p * args.row_terms;
    const int known = p < args.kernel_h ? args.run - first : 0;
    word = (p < args.kernel_h ? p * SourceRows::kPitch : 0) + first / 2;
    MPSCNN_UNROLL
    for (int j = 0; j < 4; ++j) masks[j] = known >= 2 * j + 2 ? ~0u : known == 2 * j + 1 ? 0xffffu : 0;
  }
};

template <int kGroups>
MPSCNN_HOST_DEVICE void convolve_tile(const FewInputsArgs& args, i64 index, const Block& block) {
  const ProductArgs& product = args.product;
  const auto tiles = static_cast<std::uint32_t>(product.tiles), tiles_w = static_cast<std::uint32_t>(args.tiles_w),
             tiles_h = static_cast<std::uint32_t>(args.tiles_h);
  const std::uint32_t tile = static_cast<std::uint32_t>(index) / tiles, row = tile / tiles_w, image = row / tiles_h;
  const i64 first_group = static_cast<i64>(static_cast<std::uint32_t>(index) - tile * tiles) * kGroups;
  const int first_y = static_cast<int>(row - image * tiles_h) * kTileH;
  const int first_x = static_cast<int>(tile - row * tiles_w) * kTileW;
  const View& src = product.src;
  const int channels = static_cast<int>(src.c), values = static_cast<int>(src.w) * channels;
  MPSCNN_SHARED(SourceRows, shared, 1);
  SourceRows& rows = shared.own(0);

  const int count = ((kTileW - 1) * channels + kMaxRun) / 2 + 1;  // words of a row
  const auto* const from = reinterpret_cast<const std::uint16_t*>(src.data.get()) + image * src.n_stride;
  block.for_each((kTileH + args.kernel_h - 1) * count, [&](i64 i) {
    const int of_tile = static_cast<int>(i) / count, word = static_cast<int>(i) - of_tile * count;
    const int y = first_y + of_tile + args.start_h, first = (first_x + args.start_w) * channels + 2 * word;
    std::uint32_t value[3];
    MPSCNN_UNROLL
    for (int j = 0; j < 3; ++j)
      value[j] = static_cast<unsigned>(y) < static_cast<unsigned>(src.h) &&
                         static_cast<unsigned>(first + j) < static_cast<unsigned>(values)
                     ? from[y * src.h_stride + first + j]
                     : 0;
    std::uint32_t* const to = rows.of + of_tile * SourceRows::kPitch + word;
    to[0] = value[0] | value[1] << 16;
    to[SourceRows::kCopy] = value[1] | value[2] << 16;
  });

  Cluster<1>().each_warp([&](int, int warp) {
    const int of_tile = warp / 2, x = warp % 2 * kWarpW, y = first_y + of_tile;
    if (y >= static_cast<int>(product.dst.h)) return;
    const auto first_word = [&](int i, int half, int lane) {
      const int first = (x + i * kTileRows + half * 8 + lane / 4) * channels;
      return of_tile * SourceRows::kPitch + first / 2 + (first & 1) * SourceRows::kCopy;
    };
    Sums<kRowTiles, kGroups> sums;
    start(product, first_group, sums);
    const int chunks = static_cast<int>(product.chunks);
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; ++chunk) {
      Chunk<kRowTiles> a;
      MPSCNN_UNROLL
      for (int l = 0; l < kHeldLanes; ++l) {
        const RunPart part(args, chunk, lane_of(l));
        MPSCNN_UNROLL
        for (int i = 0; i < kRowTiles; ++i) {
          MPSCNN_UNROLL
          for (int half = 0; half < 2; ++half) {
            const std::uint32_t* const words = rows.of + first_word(i, half, lane_of(l)) + part.word;
            MPSCNN_UNROLL
            for (int j = 0; j < 4; ++j) a.v[i][half][l].words[j] = words[j] & part.masks[j];
          }
        }
      }
      add_chunk(product, first_group, chunk, a, sums);
    }
    const Results<false> results(product);
    MPSCNN_UNROLL
    for (int l = 0; l < kHeldLanes; ++l) {
      MPSCNN_UNROLL
      for (int i = 0; i < kRowTiles; ++i) {
        MPSCNN_UNROLL
        for (int half = 0; half < 2; ++half) {
          const int at = first_x + x + i * kTileRows + half * 8 + lane_of(l) / 4;
          if (at >= static_cast<int>(product.dst.w)) continue;
          const Place pixel{image, y, at, 0};
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

// Outputs of a tile.
MPSCNN_BLOCK_KERNEL(conv_few_inputs_32, FewInputsArgs, 3) { convolve_tile<1>(args, index, block); }
MPSCNN_BLOCK_KERNEL(conv_few_inputs_64, FewInputsArgs, 2) { convolve_tile<2>(args, index, block); }

}  // namespace openmps::cuda::product::few_inputs
