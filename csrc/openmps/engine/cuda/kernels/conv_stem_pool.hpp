// SPDX-License-Identifier: Apache-2.0
// First layers of residual networks on tensor cores: a 7 x 7 convolution of 3 channels with a stride of 2, a rectifier
// and max pooling of 3 x 3 with a stride of 2, float16. The result of the convolution stays in shared memory: with 64
// outputs, it would be 5 times the bytes of source and result together, written and read.
//
// A block computes up to 7 x 8 pixels of the result: it loads the pixels below into shared memory, convolves 15 x 17
// pixels, and pools them. The terms of a sum are the 7 rows of the window, with 12 pairs of values each; a pair starts
// before the window if windows start at odd values. Weights stay in registers: a warp has half of the outputs.
#pragma once

#include "engine/cuda/kernels/tensor_cores.hpp"

namespace openmps::cuda::product::stem_pool {

inline constexpr const char* kFile = "engine/cuda/kernels/conv_stem_pool.hpp";

constexpr int kKernel = 7, kOwnTerms = 3 * kKernel;  ///< of a row of the window
constexpr int kQuads = 3 * kKernel;                  ///< of pairs; 3 in a row: each lane of 4 has a pair
constexpr int kWords = (kQuads + 3) / 4;             ///< of 4 quads, two instructions
constexpr int kMaxRows = 7, kColumns = 8;            ///< of the result
constexpr int kConvColumns = 2 * kColumns + 1;       ///< of the convolution's result
constexpr int kPitch = 3 * (kConvColumns - 1) + 12;  ///< pairs in a row of the source
constexpr int kSourceRows = 4 * kMaxRows + kKernel;
constexpr int kPixels = ((2 * kMaxRows + 1) * kConvColumns + kTileRows - 1) / kTileRows * kTileRows;
constexpr int kHalves = 2;  ///< of the outputs

/// Weights of a warp: word i of [s] is that of quad 4 s + i.
struct HeldWeights {
  Halves8 v[kWords][kColumnTiles][kHeldLanes];
};
constexpr int kHeldWarps = kHeldLanes == 1 ? 1 : kWarps;  ///< a host thread has the weights of all warps

struct PackArgs {
  Pointer<const float> from;  ///< [outputs][7][7][3]
  Pointer<Halves8> to;        ///< [half][s][column tile][lane]
  i64 outputs;
  bool is_odd;  ///< windows start at odd values
};
constexpr i64 kPackedVectors = kHalves * kWords * kColumnTiles * 32;
MPSCNN_VALUE_KERNEL(pack_stem_weights, PackArgs) {
  const int lane = static_cast<int>(index % 32), tile = static_cast<int>(index / 32 % kColumnTiles);
  const int s = static_cast<int>(index / (32 * kColumnTiles) % kWords);
  const i64 output = index / (32 * kColumnTiles * kWords) * kOutputs + output_of(lane, tile);
  Halves8 halves;
  for (int i = 0; i < 4; ++i) {
    const int quad = 4 * s + i, row = quad / 3;
    float values[2];
    for (int j = 0; j < 2; ++j) {
      const int term = quad % 3 * 8 + lane % 4 * 2 + j - (args.is_odd ? 1 : 0);
      const bool is_own = output < args.outputs && row < kKernel && term >= 0 && term < kOwnTerms;
      values[j] = is_own ? args.from[(output * kKernel + row) * kOwnTerms + term] : 0.0f;
    }
    halves.words[i] = half_pair(values[0], values[1]);
  }
  args.to[index] = halves;
}

struct StemPoolArgs {
  View src, dst;                   ///< float16; 3 channels, and at most 64
  Pointer<const Halves8> weights;  ///< packed
  Pointer<const float> bias;       ///< null: none
  int start_h = 0, start_w = 0;    ///< of the convolution
  int conv_h = 1, conv_w = 1;      ///< extents of its result
  int pool_h = 0, pool_w = 0;      ///< start of the pooling
  int rows = kMaxRows;             ///< of a tile
  int tiles_h = 1, tiles_w = 1;    ///< of an image
  i64 tiles = 1, blocks = 1;       ///< in all; blocks that compute them in turn
  bool loads_pairs = true;         ///< the source has no gaps in its rows, of even numbers of values aligned to 4 bytes
  bool stores_vectors = true;      ///< pixels of dst are aligned to 16 bytes
  Activation neuron;               ///< one of Clip, with min 0
};

struct TileMemory {
  std::uint32_t pairs[kSourceRows][kPitch];
  Halves8 pixels[kPixels][8];  ///< of the convolution; 8 channels at `place`
};
/// Return where 8 channels of a pixel are: the lanes of a warp that store or load at once use different banks.
MPSCNN_HOST_DEVICE int place_of_channels(int pixel, int eighth) { return eighth ^ (pixel & 1) << 2; }

/// A tile: pixels (y, x) of the result of image n, from which pixels of the convolution and of the source follow.
struct Tile {
  i64 n, y, x;
  int conv_y, conv_x, src_y, src_x;

  MPSCNN_HOST_DEVICE Tile(const StemPoolArgs& args, i64 index) {
    const i64 line = index / args.tiles_w, image = line / args.tiles_h;
    n = image, y = (line - image * args.tiles_h) * args.rows, x = (index - line * args.tiles_w) * kColumns;
    conv_y = static_cast<int>(2 * y) + args.pool_h, conv_x = static_cast<int>(2 * x) + args.pool_w;
    src_y = 2 * conv_y + args.start_h, src_x = 2 * conv_x + args.start_w;
  }
};

/// Return a pair of values of a row of the source, zeros outside.
MPSCNN_HOST_DEVICE std::uint32_t load_pair(const StemPoolArgs& args, i64 n, int y, int value) {
  const View& src = args.src;
  const int width = static_cast<int>(src.w) * 3;
  const bool has_row = static_cast<unsigned>(y) < static_cast<unsigned>(src.h);
  const unsigned char* const row = src.data.get() + 2 * (n * src.n_stride + y * src.h_stride);
  const auto is_inside = [&](int i) { return has_row && static_cast<unsigned>(i) < static_cast<unsigned>(width); };
  if (args.loads_pairs) return load_constant<1>(row + 2 * value, is_inside(value)).words[0];
  const auto load_one = [&](int i) -> std::uint32_t {
    if (!is_inside(i)) return 0;
    return reinterpret_cast<const std::uint16_t*>(row)[i / 3 * src.w_stride + i % 3];
  };
  return load_one(value) | load_one(value + 1) << 16;
}

/// Convolve 16 pixels of the tile, from pixel 16 * tile on.
MPSCNN_HOST_DEVICE void convolve(const StemPoolArgs& args, const Tile& at, int tile, int half, const HeldWeights& b,
                                 TileMemory& memory) {
  const int count = (2 * args.rows + 1) * kConvColumns, is_odd = args.start_w & 1;
  Sums<1, 1> sums;
  int base[2][kHeldLanes];
  MPSCNN_UNROLL
  for (int l = 0; l < kHeldLanes; ++l) {
    const i64 channel = half * kOutputs + lane_of(l) % 4 * 8;
    const bool has_bias = args.bias && channel < args.dst.c;
    MPSCNN_UNROLL
    for (int v = 0; v < 8; v += 4) {
      const Bits<4> bias = load_constant<4>(args.bias.get() + channel + v, has_bias);
      MPSCNN_UNROLL
      for (int d = 0; d < 4; ++d) {
        sums.v[0][v / 2][l][d] = std::bit_cast<float>(bias.words[d % 2]);
        sums.v[0][v / 2 + 1][l][d] = std::bit_cast<float>(bias.words[2 + d % 2]);
      }
    }
    MPSCNN_UNROLL
    for (int i = 0; i < 2; ++i) {
      int pixel = tile * kTileRows + 8 * i + lane_of(l) / 4;
      pixel = pixel < count ? pixel : count - 1;
      base[i][l] = pixel / kConvColumns * (2 * kPitch) + pixel % kConvColumns * 3 + lane_of(l) % 4;
    }
  }
  MPSCNN_UNROLL
  for (int s = 0; s < kWords; ++s) {
    Halves8 a[2][kHeldLanes];
    MPSCNN_UNROLL
    for (int l = 0; l < kHeldLanes; ++l) {
      // Values beside the window have a weight of 0, and may be infinite.
      const int t = lane_of(l) % 4;
      const std::uint32_t first = is_odd && t == 0 ? 0xffff0000u : ~0u;
      const std::uint32_t last = t == 3 ? 0u : t == 2 && !is_odd ? 0xffffu : ~0u;
      MPSCNN_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int quad = 4 * s + i;
        const std::uint32_t mask = quad % 3 == 0 ? first : quad % 3 == 2 ? last : ~0u;
        MPSCNN_UNROLL
        for (int h = 0; h < 2; ++h)
          a[h][l].words[i] =
              quad < kQuads ? (&memory.pairs[0][0])[base[h][l] + quad / 3 * kPitch + quad % 3 * 4] & mask : 0u;
      }
    }
    MPSCNN_UNROLL
    for (int step = 0; step < (4 * s + 2 < kQuads ? 2 : 1); ++step) {
      MPSCNN_UNROLL
      for (int j = 0; j < kColumnTiles; ++j) multiply_add(sums.v[0][j], a[0], a[1], b.v[s][j], step);
    }
  }
  const Clip clip(args.neuron);
  MPSCNN_UNROLL
  for (int l = 0; l < kHeldLanes; ++l) {
    MPSCNN_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int pixel = tile * kTileRows + 8 * i + lane_of(l) / 4;
      const int y = at.conv_y + pixel / kConvColumns, x = at.conv_x + pixel % kConvColumns;
      const bool is_inside = static_cast<unsigned>(y) < static_cast<unsigned>(args.conv_h) &&
                             static_cast<unsigned>(x) < static_cast<unsigned>(args.conv_w);
      Halves8 result;
      MPSCNN_UNROLL
      for (int v = 0; v < 4; ++v) {
        const std::uint32_t pair =
            half_pair(clip(sum_of(sums, 0, i, 0, l, 2 * v)), clip(sum_of(sums, 0, i, 0, l, 2 * v + 1)));
        result.words[v] = is_inside ? pair : 0u;  // which changes no max of rectified values
      }
      memory.pixels[pixel][place_of_channels(pixel, half * 4 + lane_of(l) % 4)] = result;
    }
  }
}

/// Store the max of 9 pixels: 8 channels of one pixel of the result.
MPSCNN_HOST_DEVICE void pool(const StemPoolArgs& args, const Tile& at, int item, const TileMemory& memory) {
  const int eighth = item % 8, x = item / 8 % kColumns, y = item / (8 * kColumns);
  const i64 channel = eighth * 8;
  if (at.y + y >= args.dst.h || at.x + x >= args.dst.w || channel >= args.dst.c) return;
  Halves8 most{};
  MPSCNN_UNROLL
  for (int j = 0; j < 3; ++j) {
    MPSCNN_UNROLL
    for (int i = 0; i < 3; ++i) {
      const int pixel = (2 * y + j) * kConvColumns + 2 * x + i;
      const Halves8 tap = memory.pixels[pixel][place_of_channels(pixel, eighth)];
      MPSCNN_UNROLL
      for (int v = 0; v < 4; ++v) most.words[v] = max_of_halves(tap.words[v], most.words[v]);
    }
  }
  unsigned char* const to = args.dst.data.get() + 2 * args.dst.offset(at.n, at.y + y, at.x + x, channel);
  if (args.stores_vectors) {
    *reinterpret_cast<Halves8*>(to) = most;
  } else {
    for (int v = 0; v < 8; ++v)
      if (channel + v < args.dst.c)
        reinterpret_cast<std::uint16_t*>(to)[v] = static_cast<std::uint16_t>(most.words[v / 2] >> (v % 2 * 16));
  }
}

MPSCNN_BLOCK_KERNEL(conv_stem_pool, StemPoolArgs, 2) {
  MPSCNN_SHARED(TileMemory, shared, 1);
  TileMemory& memory = shared.own(0);
  const Cluster<1> threads;
  HeldWeights held[kHeldWarps];
  threads.each_warp([&](int, int warp) {
    const Halves8* const from = args.weights.get() + warp % kHalves * (kPackedVectors / kHalves);
    MPSCNN_UNROLL
    for (int s = 0; s < kWords; ++s) {
      MPSCNN_UNROLL
      for (int j = 0; j < kColumnTiles; ++j) {
        MPSCNN_UNROLL
        for (int l = 0; l < kHeldLanes; ++l)
          held[warp % kHeldWarps].v[s][j][l] = load_constant<4>(from + (s * kColumnTiles + j) * 32 + lane_of(l));
      }
    }
  });
  const int pixel_tiles = ((2 * args.rows + 1) * kConvColumns + kTileRows - 1) / kTileRows;
#pragma unroll 1
  for (i64 tile = index; tile < args.tiles; tile += args.blocks) {
    const Tile at(args, tile);
    block.for_each((4 * args.rows + kKernel) * kPitch, [&](i64 i) {
      const int row = static_cast<int>(i) / kPitch, pair = static_cast<int>(i) % kPitch;
      memory.pairs[row][pair] = load_pair(args, at.n, at.src_y + row, at.src_x * 3 - (args.start_w & 1) + 2 * pair);
    });
    threads.each_warp([&](int, int warp) {
#pragma unroll 1
      for (int i = warp / kHalves; i < pixel_tiles; i += kWarps / kHalves)
        convolve(args, at, i, warp % kHalves, held[warp % kHeldWarps], memory);
    });
    block.for_each(args.rows * kColumns * 8, [&](i64 i) { pool(args, at, static_cast<int>(i), memory); });
  }
}

}  // namespace openmps::cuda::product::stem_pool
