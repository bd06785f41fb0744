// SPDX-License-Identifier: Apache-2.0
// Gradients of first layers by the weights, float16 on tensor cores: 7 x 7 convolutions of 3 channels with a stride of
// 2. The terms of a sum are pixels of diff_dst, 16 per instruction.
//
// A block adds the products of some rows of diff_dst, one after the other; 2 of the 7 rows of the source that a row
// needs are new. The values of a row of the window, in order of pixels and channels, are 12 pairs, and one more if
// windows start at odd values; columns of the product are these pairs.
#pragma once

#include "engine/cuda/kernels/async_copies.hpp"
#include "engine/cuda/kernels/tensor_cores.hpp"

namespace openmps::cuda::product::weights_stem {

inline constexpr const char* kFile = "engine/cuda/kernels/conv_weights_stem.hpp";

constexpr int kKernel = 7, kStride = 2, kInputs = 3;
constexpr int kOwnValues = kKernel * kInputs;          ///< of a row of the window
constexpr int kPairs = 12;                             ///< of a row of the window
constexpr int kTiles = (kKernel * kPairs + 7) / 8;     ///< of 8 pairs: two instructions each
constexpr int kTilesOfWarp = (kTiles + 3) / 4;         ///< half of the warps share a tile
constexpr int kOutputs = 64, kEighths = kOutputs / 8;  ///< of a block
constexpr int kMaxColumns = 112;                       ///< of diff_dst
constexpr int kMaxWidth = 224;                         ///< of the source
constexpr int kFirst = 8;                              ///< pair of a row in memory with its first value
constexpr int kMinStart = -5;                          ///< for which kFirst pairs are enough
constexpr int kPitch = 360;                            ///< pairs of a row in memory
constexpr int kRows = 2 * kKernel;                     ///< in memory
static_assert(kFirst + (kMaxColumns - 1) * kInputs + kPairs <= kPitch);
static_assert(kFirst + kMaxWidth * kInputs / 2 <= kPitch);

struct StemWeightsArgs {
  View diff_dst, src;  ///< float16; diff_dst: vectors. The rows of the source are dense and aligned to 16 bytes
  int start_h = 0, start_w = 0;
  int lines = 0, lines_of_block = 0;  ///< rows of diff_dst, of all images
  i64 weights = 0;                    ///< of a part
  Pointer<float> partials;            ///< [part][outputs][7][7][3]

  /// Return whether windows start at odd values: pairs then start one value before.
  MPSCNN_HOST_DEVICE int is_odd() const { return start_w & 1; }
};

struct Memory {
  Halves8 diff_dst[2][kMaxColumns][kEighths];
  std::uint32_t src[kRows][kPitch];
};
MPSCNN_HOST_DEVICE int place_of_eighth(int pixel, int eighth) { return eighth ^ (pixel & 7); }

/// Sums of a warp: of 32 outputs; the first and the second value of pairs.
struct Sums {
  float v[kTilesOfWarp][2][2][kHeldLanes][4];
};
constexpr int kHeldWarps = kHeldLanes == 1 ? 1 : kWarps;  ///< a host thread has the sums of all warps

/// Start to load a row of diff_dst, and rows `first` and later of the 7 rows of the source that it needs.
MPSCNN_HOST_DEVICE void load(const StemWeightsArgs& args, int line, int first, int base, Memory& to) {
  const View &e = args.diff_dst, &src = args.src;
  const int image = line / static_cast<int>(e.h), y = line - image * static_cast<int>(e.h);
  const int columns = static_cast<int>(e.w), vectors = static_cast<int>(src.w) * kInputs / 8;
  const unsigned char* const gradients = e.data.get() + 2 * e.offset(image, y, 0, 0);
  each_thread([&](int thread) {
    for (int i = thread; i < kMaxColumns * kEighths; i += kThreads) {
      const int x = i / kEighths, eighth = i % kEighths;
      const bool is_inside = x < columns && eighth * 8 < static_cast<int>(e.c);
      copy_async(to.diff_dst[line & 1][x][place_of_eighth(x, eighth)],
                 {gradients + (is_inside ? 2 * (x * e.w_stride + eighth * 8) : 0), is_inside});
    }
    constexpr int kTogether = 2;  // rows
    static_assert(kMaxWidth * kInputs / 8 <= kThreads / kTogether);
    const int vector = thread % (kThreads / kTogether);
    for (int k = first + thread / (kThreads / kTogether); k < kKernel; k += kTogether) {
      if (vector >= vectors) continue;
      const int row = y * kStride + args.start_h + k;
      const bool is_inside = row >= 0 && row < static_cast<int>(src.h);
      auto& pairs = to.src[(base + k) % kRows];
      copy_async(*reinterpret_cast<Halves8*>(&pairs[kFirst + vector * 4]),
                 {src.data.get() + (is_inside ? 2 * src.offset(image, row, 0, 0) + vector * 16 : 0), is_inside});
    }
  });
}

/// Return the pair of a column: row of the window and pair in it.
MPSCNN_HOST_DEVICE int pair_of(int warp, int tile, int lane) { return (warp % 4 + 4 * tile) * 8 + lane / 4; }

/// Add the products of a row of diff_dst to the sums of a warp.
MPSCNN_HOST_DEVICE void multiply(const StemWeightsArgs& args, int line, int base, int warp, const Memory& from,
                                 Sums& sums) {
  const auto& gradients = from.diff_dst[line & 1];
  const int steps = (static_cast<int>(args.diff_dst.w) + 15) / 16;
  int pairs[kTilesOfWarp][kHeldLanes];  // of the first column
  MPSCNN_UNROLL
  for (int tile = 0; tile < kTilesOfWarp; ++tile) {
    MPSCNN_UNROLL
    for (int l = 0; l < kHeldLanes; ++l) {
      const int pair = pair_of(warp, tile, lane_of(l)), known = pair < kKernel * kPairs ? pair : 0;
      pairs[tile][l] = (base + known / kPairs) % kRows * kPitch + known % kPairs + kFirst +
                       (args.start_w * kInputs - args.is_odd()) / 2 + lane_of(l) % 4 * (2 * kInputs);
    }
  }
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    Halves8 low[2][kHeldLanes], high[2][kHeldLanes];
    MPSCNN_UNROLL
    for (int m = 0; m < 2; ++m) {
      std::uint32_t words[kHeldLanes][4];
      load_transposed(words, [&](int row) {
        const int x = step * 16 + row / 16 * 8 + row % 8;
        return &gradients[x][place_of_eighth(x, warp / 4 * 4 + m * 2 + row / 8 % 2)];
      });
      MPSCNN_UNROLL
      for (int l = 0; l < kHeldLanes; ++l) {
        low[m][l].words[0] = words[l][0], high[m][l].words[0] = words[l][1];
        low[m][l].words[1] = words[l][2], high[m][l].words[1] = words[l][3];
      }
    }
    MPSCNN_UNROLL
    for (int tile = 0; tile < kTilesOfWarp; ++tile) {
      Halves8 b[2][kHeldLanes];
      MPSCNN_UNROLL
      for (int l = 0; l < kHeldLanes; ++l) {
        const std::uint32_t* const first = &from.src[0][0] + pairs[tile][l] + step * (16 * kInputs);
        MPSCNN_UNROLL
        for (int i = 0; i < 2; ++i) {  // pixels 2 t and 2 t + 1, then those 8 later
          const std::uint32_t x = first[8 * i * kInputs], y = first[(8 * i + 1) * kInputs];
          b[0][l].words[i] = (x & 0xffffu) | y << 16;
          b[1][l].words[i] = x >> 16 | (y & 0xffff0000u);
        }
      }
      MPSCNN_UNROLL
      for (int value = 0; value < 2; ++value) {
        MPSCNN_UNROLL
        for (int m = 0; m < 2; ++m) multiply_add(sums.v[tile][value][m], low[m], high[m], b[value], 0);
      }
    }
  }
}

MPSCNN_HOST_DEVICE void store(const StemWeightsArgs& args, i64 part, int warp, const Sums& sums) {
  float* const to = args.partials.get() + part * args.weights;
  MPSCNN_UNROLL
  for (int tile = 0; tile < kTilesOfWarp; ++tile) {
    MPSCNN_UNROLL
    for (int l = 0; l < kHeldLanes; ++l) {
      MPSCNN_UNROLL
      for (int d = 0; d < 4; ++d) {
        const int column = (warp % 4 + 4 * tile) * 8 + lane_of(l) % 4 * 2 + d % 2, row = column / kPairs;
        if (row >= kKernel) continue;
        MPSCNN_UNROLL
        for (int m = 0; m < 2; ++m) {
          const int output = warp / 4 * 32 + m * kTileRows + d / 2 * 8 + lane_of(l) / 4;
          if (output >= static_cast<int>(args.diff_dst.c)) continue;
          MPSCNN_UNROLL
          for (int value = 0; value < 2; ++value) {
            const int own = column % kPairs * 2 + value - args.is_odd();
            if (own < 0 || own >= kOwnValues) continue;
            to[(output * kKernel + row) * kOwnValues + own] = sums.v[tile][value][m][l][d];
          }
        }
      }
    }
  }
}

MPSCNN_BLOCK_KERNEL(conv_weights_stem, StemWeightsArgs, 2) {
  MPSCNN_SHARED(Memory, shared, 1);
  Memory& memory = shared.own(0);
  block.for_each(kRows * kPitch, [&](i64 i) { (&memory.src[0][0])[i] = 0; });  // beside the rows
  Sums sums[kHeldWarps] = {};
  const int first = static_cast<int>(index) * args.lines_of_block, height = static_cast<int>(args.diff_dst.h);
  const int end = first + args.lines_of_block < args.lines ? first + args.lines_of_block : args.lines;
  int base = 0;
  load(args, first, 0, base, memory), end_copies();
#pragma unroll 1
  for (int line = first; line < end; ++line) {
    const bool is_last = (line + 1) % height == 0;  // of an image
    wait_for_copies<0>();                           // also for the warps that still use what is loaded next
    if (line + 1 < end)
      load(args, line + 1, is_last ? 0 : kKernel - kStride, base + (is_last ? kKernel : kStride), memory), end_copies();
    each_warp([&](int warp) { multiply(args, line, base, warp, memory, sums[warp % kHeldWarps]); });
    base = (base + (is_last ? kKernel : kStride)) % kRows;
  }
  each_warp([&](int warp) { store(args, index, warp, sums[warp % kHeldWarps]); });
}

}  // namespace openmps::cuda::product::weights_stem
