// SPDX-License-Identifier: Apache-2.0
// First layers of residual networks on tensor cores: a 7 x 7 convolution of 3 channels with a stride of 2, a rectifier
// and max pooling of 3 x 3 with a stride of 2, float16, or float32 in products of tf32. The result of the convolution
// stays in shared memory: with 64 outputs, it would be 5 times the bytes of source and result together, written and
// read.
//
// A block computes up to kMaxRows x 8 pixels of the result: it loads the pixels below into shared memory, convolves
// them, and pools. A word of the source is a pair of float16 or a float32, and the terms of a sum are the 7 rows of the
// window, each in quads of words, one for each lane of 4. A pair starts before the window if windows start at odd
// values. Weights stay in registers: a warp has some of the outputs.
#pragma once

#include "engine/cuda/kernels/tensor_cores.hpp"

namespace openmps::cuda::product::stem_pool {

inline constexpr const char* kFile = "engine/cuda/kernels/conv_stem_pool.hpp";

constexpr int kKernel = 7, kOwnTerms = 3 * kKernel;  ///< of a row of the window
constexpr int kColumns = 8;                          ///< of the result
constexpr int kConvColumns = 2 * kColumns + 1;       ///< of the convolution's result
constexpr int kMaxOutputs = 64;

/// Float16, two values in a word.
struct Pairs {
  static constexpr int kValues = 2, kMaxRows = 7, kParts = 2;  ///< of a word; of the result; of the outputs
  /// Return the word of lane t of 4 of a quad in a row.
  static MPSCNN_HOST_DEVICE int word_of(int quad, int t) { return 4 * quad + t; }
  static MPSCNN_HOST_DEVICE std::uint32_t word(float first, float second) { return half_pair(first, second); }
  template <class Sum, class Operand>
  static MPSCNN_HOST_DEVICE void multiply_add(Sum& sums, const Operand& low, const Operand& high, const Operand& b,
                                              int step) {
    product::multiply_add(sums, low, high, b, step);
  }
};

/// Float32, one value in a word. The quads of a row are interleaved: the 8 pixels x 4 words that a warp loads at once
/// are then in different banks, or the same word.
struct Singles {
  static constexpr int kValues = 1, kMaxRows = 3, kParts = 4;
  static MPSCNN_HOST_DEVICE int word_of(int quad, int t) { return quad + 6 * t; }
  /// Return the value rounded to tf32.
  static MPSCNN_HOST_DEVICE std::uint32_t word(float value, float = 0) {
#if MPSCNN_ON_GPU && __CUDA_ARCH__ >= 800
    std::uint32_t bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
    return bits;
#else
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const bool is_finite = (bits >> 23 & 0xff) != 0xff;
    return is_finite ? (bits + 0x1000u) & ~0x1fffu : bits | (bits << 9 ? 0x400000u : 0u);
#endif
  }
  template <class Sum, class Operand>
  static MPSCNN_HOST_DEVICE void multiply_add(Sum& sums, const Operand& low, const Operand& high, const Operand& b,
                                              int step) {
#if !MPSCNN_ON_GPU
    const auto value = [&](const Halves8& lane, int word) { return std::bit_cast<float>(lane.words[2 * step + word]); };
    for (int lane = 0; lane < 32; ++lane)
      for (int d = 0; d < 4; ++d)
        for (int t = 0; t < 4; ++t)
          for (int word = 0; word < 2; ++word)
            sums[lane][d] +=
                value((d < 2 ? low : high)[lane / 4 * 4 + t], word) * value(b[(lane % 4 * 2 + d % 2) * 4 + t], word);
#elif __CUDA_ARCH__ >= 800
    float (&d)[4] = sums[0];
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(low[0].words[2 * step]), "r"(high[0].words[2 * step]), "r"(low[0].words[2 * step + 1]),
          "r"(high[0].words[2 * step + 1]), "r"(b[0].words[2 * step]), "r"(b[0].words[2 * step + 1]));
#else
    asm volatile("trap;");  // such GPUs have no tf32: the kernel is not launched
#endif
  }
};

template <class Word>
struct Shape {
  static constexpr int kRowQuads = 6 / Word::kValues;            ///< of a row of the window
  static constexpr int kQuads = kKernel * kRowQuads;             ///< of a sum
  static constexpr int kVectors = (kQuads + 3) / 4;              ///< of 4 quads, two instructions
  static constexpr int kTiles = kMaxOutputs / 8 / Word::kParts;  ///< of columns; of a warp
  static constexpr int kOwn = 2 * kTiles;                        ///< adjacent outputs of a lane: 16 bytes
  static constexpr int kSlots = kMaxOutputs / kOwn;              ///< of a pixel
  static constexpr int kColumnWords = 6 / Word::kValues;         ///< from a window to the next
  static constexpr int kPitch = kColumnWords * (kConvColumns - 1) + 4 * kRowQuads;  ///< words in a row of the source
  static constexpr int kSourceRows = 4 * Word::kMaxRows + kKernel;
  static constexpr int kPixels = ((2 * Word::kMaxRows + 1) * kConvColumns + kTileRows - 1) / kTileRows * kTileRows;
  static constexpr int kPart = kVectors * kTiles * 32;  ///< vectors of packed weights
  static constexpr i64 kPackedVectors = Word::kParts * kPart;
};

/// Weights of a warp: word i of [s] is that of quad 4 s + i.
template <class Word>
struct HeldWeights {
  Halves8 v[Shape<Word>::kVectors][Shape<Word>::kTiles][kHeldLanes];
};
constexpr int kHeldWarps = kHeldLanes == 1 ? 1 : kWarps;  ///< a host thread has the weights of all warps

struct PackArgs {
  Pointer<const float> from;  ///< [outputs][7][7][3]
  Pointer<Halves8> to;        ///< [part][s][column tile][lane]
  i64 outputs;
  bool is_odd;  ///< windows start at odd values
};
template <class Word>
MPSCNN_HOST_DEVICE void pack(const PackArgs& args, i64 index) {
  using S = Shape<Word>;
  const int lane = static_cast<int>(index % 32), tile = static_cast<int>(index / 32 % S::kTiles);
  const int s = static_cast<int>(index / (32 * S::kTiles) % S::kVectors);
  const i64 part = index / S::kPart;
  const i64 output = part * (kMaxOutputs / Word::kParts) + lane / 8 * S::kOwn + tile * 2 + lane / 4 % 2;
  Halves8 words;
  for (int i = 0; i < 4; ++i) {
    const int quad = 4 * s + i, row = quad / S::kRowQuads;
    float values[2] = {};
    for (int j = 0; j < Word::kValues; ++j) {
      const int term = Word::word_of(quad % S::kRowQuads, lane % 4) * Word::kValues + j - (args.is_odd ? 1 : 0);
      const bool is_own = output < args.outputs && row < kKernel && term >= 0 && term < kOwnTerms;
      values[j] = is_own ? args.from[(output * kKernel + row) * kOwnTerms + term] : 0.0f;
    }
    words.words[i] = Word::word(values[0], values[1]);
  }
  args.to[index] = words;
}
MPSCNN_VALUE_KERNEL(pack_stem_weights, PackArgs) { pack<Pairs>(args, index); }
MPSCNN_VALUE_KERNEL(pack_stem_weights_tf32, PackArgs) { pack<Singles>(args, index); }

struct StemPoolArgs {
  View src, dst;                   ///< 3 channels, and at most 64
  Pointer<const Halves8> weights;  ///< packed
  Pointer<const float> bias;       ///< null: none
  int start_h = 0, start_w = 0;    ///< of the convolution
  int conv_h = 1, conv_w = 1;      ///< extents of its result
  int pool_h = 0, pool_w = 0;      ///< start of the pooling
  int rows = 1;                    ///< of a tile
  int tiles_h = 1, tiles_w = 1;    ///< of an image
  i64 tiles = 1, blocks = 1;       ///< in all; blocks that compute them in turn
  bool loads_words = true;         ///< the source has no gaps in its rows, of whole words that are aligned
  bool stores_vectors = true;      ///< pixels of dst are aligned to 16 bytes
  Activation neuron;               ///< one of Clip, with min 0
};

template <class Word>
struct TileMemory {
  std::uint32_t words[Shape<Word>::kSourceRows][Shape<Word>::kPitch];
  Halves8 pixels[Shape<Word>::kPixels][Shape<Word>::kSlots];  ///< of the convolution; channels at `place`
};
/// Return where a slot of channels of a pixel is: the lanes of a warp that store or load at once use different banks.
MPSCNN_HOST_DEVICE int place_of_channels(int pixel, int slot) { return slot ^ (pixel & 1) << 2; }

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

/// Return a word of a row of the source, from `value` on; zeros outside.
template <class Word>
MPSCNN_HOST_DEVICE std::uint32_t load_word(const StemPoolArgs& args, i64 n, int y, int value) {
  const View& src = args.src;
  const int width = static_cast<int>(src.w) * 3;
  const bool has_row = static_cast<unsigned>(y) < static_cast<unsigned>(src.h);
  const unsigned char* const row = src.data.get() + 4 / Word::kValues * (n * src.n_stride + y * src.h_stride);
  const auto is_inside = [&](int i) { return has_row && static_cast<unsigned>(i) < static_cast<unsigned>(width); };
  if constexpr (Word::kValues == 1) {
    const i64 at = args.loads_words ? value : value / 3 * src.w_stride + value % 3;
    return Word::word(std::bit_cast<float>(load_constant<1>(row + 4 * at, is_inside(value)).words[0]));
  } else {
    if (args.loads_words) return load_constant<1>(row + 2 * value, is_inside(value)).words[0];
    const auto load_one = [&](int i) -> std::uint32_t {
      if (!is_inside(i)) return 0;
      return reinterpret_cast<const std::uint16_t*>(row)[i / 3 * src.w_stride + i % 3];
    };
    return load_one(value) | load_one(value + 1) << 16;
  }
}

/// Return the bits of a word of quad `quad` in a row that belong to the window of lane t. Values beside it have a
/// weight of 0, and may be infinite.
template <class Word>
MPSCNN_HOST_DEVICE std::uint32_t mask_of(int quad, int t, bool is_odd) {
  if constexpr (Word::kValues == 1) return t == 3 && quad >= 3 ? 0u : ~0u;
  if (quad == 0) return is_odd && t == 0 ? 0xffff0000u : ~0u;
  if (quad == 2) return t == 3 ? 0u : t == 2 && !is_odd ? 0xffffu : ~0u;
  return ~0u;
}

/// Convolve 16 pixels of the tile, from pixel 16 * tile on.
template <class Word>
MPSCNN_HOST_DEVICE void convolve(const StemPoolArgs& args, const Tile& at, int tile, int part,
                                 const HeldWeights<Word>& b, TileMemory<Word>& memory) {
  using S = Shape<Word>;
  const int count = (2 * args.rows + 1) * kConvColumns;
  const bool is_odd = args.start_w & 1;
  float sums[S::kTiles][kHeldLanes][4];
  int base[2][kHeldLanes];
  MPSCNN_UNROLL
  for (int l = 0; l < kHeldLanes; ++l) {
    const i64 channel = part * (kMaxOutputs / Word::kParts) + lane_of(l) % 4 * S::kOwn;
    const bool has_bias = args.bias && channel < args.dst.c;
    MPSCNN_UNROLL
    for (int v = 0; v < S::kOwn; v += 4) {
      const Bits<4> bias = load_constant<4>(args.bias.get() + channel + v, has_bias);
      MPSCNN_UNROLL
      for (int d = 0; d < 4; ++d) {
        sums[v / 2][l][d] = std::bit_cast<float>(bias.words[d % 2]);
        sums[v / 2 + 1][l][d] = std::bit_cast<float>(bias.words[2 + d % 2]);
      }
    }
    MPSCNN_UNROLL
    for (int i = 0; i < 2; ++i) {
      int pixel = tile * kTileRows + 8 * i + lane_of(l) / 4;
      pixel = pixel < count ? pixel : count - 1;
      base[i][l] = pixel / kConvColumns * (2 * S::kPitch) + pixel % kConvColumns * S::kColumnWords +
                   Word::word_of(0, lane_of(l) % 4);
    }
  }
  MPSCNN_UNROLL
  for (int s = 0; s < S::kVectors; ++s) {
    Halves8 a[2][kHeldLanes];
    MPSCNN_UNROLL
    for (int l = 0; l < kHeldLanes; ++l) {
      MPSCNN_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int quad = 4 * s + i, in_row = quad % S::kRowQuads;
        const std::uint32_t mask = mask_of<Word>(in_row, lane_of(l) % 4, is_odd);
        const int offset = quad / S::kRowQuads * S::kPitch + Word::word_of(in_row, 0);
        MPSCNN_UNROLL
        for (int h = 0; h < 2; ++h)
          a[h][l].words[i] = quad < S::kQuads ? (&memory.words[0][0])[base[h][l] + offset] & mask : 0u;
      }
    }
    MPSCNN_UNROLL
    for (int step = 0; step < (4 * s + 2 < S::kQuads ? 2 : 1); ++step) {
      MPSCNN_UNROLL
      for (int j = 0; j < S::kTiles; ++j) Word::multiply_add(sums[j], a[0], a[1], b.v[s][j], step);
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
        std::uint32_t word = 0;
        if constexpr (Word::kValues == 1)
          word = std::bit_cast<std::uint32_t>(clip(sums[v / 2][l][2 * i + v % 2]));
        else
          word = half_pair(clip(sums[v][l][2 * i]), clip(sums[v][l][2 * i + 1]));
        result.words[v] = is_inside ? word : 0u;  // which changes no max of rectified values
      }
      memory.pixels[pixel][place_of_channels(pixel, part * 4 + lane_of(l) % 4)] = result;
    }
  }
}

/// Return the max of each value of two words; NaN is greater than any number.
template <class Word>
MPSCNN_HOST_DEVICE std::uint32_t max_of_words(std::uint32_t a, std::uint32_t b) {
  if constexpr (Word::kValues == 2) {
    return max_of_halves(a, b);
  } else {
    const float x = std::bit_cast<float>(a), y = std::bit_cast<float>(b);
    return x > y || x != x ? a : b;
  }
}

/// Store the max of 9 pixels: some channels of one pixel of the result.
template <class Word>
MPSCNN_HOST_DEVICE void pool(const StemPoolArgs& args, const Tile& at, int item, const TileMemory<Word>& memory) {
  using S = Shape<Word>;
  const int slot = item % S::kSlots, x = item / S::kSlots % kColumns, y = item / (S::kSlots * kColumns);
  const i64 channel = slot * S::kOwn;
  if (at.y + y >= args.dst.h || at.x + x >= args.dst.w || channel >= args.dst.c) return;
  Halves8 most{};
  MPSCNN_UNROLL
  for (int j = 0; j < 3; ++j) {
    MPSCNN_UNROLL
    for (int i = 0; i < 3; ++i) {
      const int pixel = (2 * y + j) * kConvColumns + 2 * x + i;
      const Halves8 tap = memory.pixels[pixel][place_of_channels(pixel, slot)];
      MPSCNN_UNROLL
      for (int v = 0; v < 4; ++v) most.words[v] = max_of_words<Word>(tap.words[v], most.words[v]);
    }
  }
  unsigned char* const to =
      args.dst.data.get() + 4 / Word::kValues * args.dst.offset(at.n, at.y + y, at.x + x, channel);
  if (args.stores_vectors) {
    *reinterpret_cast<Halves8*>(to) = most;
  } else if constexpr (Word::kValues == 1) {
    for (int v = 0; v < 4; ++v)
      if (channel + v < args.dst.c) reinterpret_cast<std::uint32_t*>(to)[v] = most.words[v];
  } else {
    for (int v = 0; v < 8; ++v)
      if (channel + v < args.dst.c)
        reinterpret_cast<std::uint16_t*>(to)[v] = static_cast<std::uint16_t>(most.words[v / 2] >> (v % 2 * 16));
  }
}

template <class Word>
MPSCNN_HOST_DEVICE void compute_tiles(const StemPoolArgs& args, i64 index, const Block& block,
                                      TileMemory<Word>& memory) {
  using S = Shape<Word>;
  const Cluster<1> threads;
  HeldWeights<Word> held[kHeldWarps];
  threads.each_warp([&](int, int warp) {
    const Halves8* const from = args.weights.get() + warp % Word::kParts * S::kPart;
    MPSCNN_UNROLL
    for (int s = 0; s < S::kVectors; ++s) {
      MPSCNN_UNROLL
      for (int j = 0; j < S::kTiles; ++j) {
        MPSCNN_UNROLL
        for (int l = 0; l < kHeldLanes; ++l)
          held[warp % kHeldWarps].v[s][j][l] = load_constant<4>(from + (s * S::kTiles + j) * 32 + lane_of(l));
      }
    }
  });
  const int pixel_tiles = ((2 * args.rows + 1) * kConvColumns + kTileRows - 1) / kTileRows;
  const int before = Word::kValues == 2 ? args.start_w & 1 : 0;
#pragma unroll 1
  for (i64 tile = index; tile < args.tiles; tile += args.blocks) {
    const Tile at(args, tile);
    block.for_each((4 * args.rows + kKernel) * S::kPitch, [&](i64 i) {
      const int row = static_cast<int>(i) / S::kPitch, word = static_cast<int>(i) % S::kPitch;
      memory.words[row][word] =
          load_word<Word>(args, at.n, at.src_y + row, at.src_x * 3 - before + Word::kValues * word);
    });
    threads.each_warp([&](int, int warp) {
#pragma unroll 1
      for (int i = warp / Word::kParts; i < pixel_tiles; i += kWarps / Word::kParts)
        convolve<Word>(args, at, i, warp % Word::kParts, held[warp % kHeldWarps], memory);
    });
    block.for_each(args.rows * kColumns * S::kSlots, [&](i64 i) { pool<Word>(args, at, static_cast<int>(i), memory); });
  }
}

MPSCNN_BLOCK_KERNEL(conv_stem_pool, StemPoolArgs, 2) {
  MPSCNN_SHARED(TileMemory<Pairs>, shared, 1);
  compute_tiles<Pairs>(args, index, block, shared.own(0));
}
MPSCNN_BLOCK_KERNEL(conv_stem_pool_tf32, StemPoolArgs, 2) {
  MPSCNN_SHARED(TileMemory<Singles>, shared, 1);
  compute_tiles<Singles>(args, index, block, shared.own(0));
}

}  // namespace openmps::cuda::product::stem_pool
