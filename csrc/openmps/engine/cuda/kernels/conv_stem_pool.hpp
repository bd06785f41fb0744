// SPDX-License-Identifier: Apache-2.0
// First layers of residual networks on tensor cores: a 7 x 7 convolution of 3 channels with a stride of 2, a rectifier
// and max pooling of 3 x 3 with a stride of 2, float16, or float32 in products of tf32. The result of the convolution
// stays in registers: with 64 outputs, it would be 5 times the bytes of source and result together, written and read.
//
// A warp computes some of the outputs of 7 columns of the result, from 16 columns of the convolution, and walks down
// the rows. Its weights stay in registers, and so do the sums of 4 rows of the convolution: all that a row of the
// source has products with, so that a warp loads each value once. A lane has columns 2 x and 2 x + 1 of the
// convolution: the max of three rows needs no other lane, that of three columns one shuffle. The warps of a block, with
// all outputs of adjacent columns, share rows of the source in shared memory.
//
// A word of the source is a pair of float16 or a float32. The terms of a row of the window are quads of words, one for
// each lane of 4. Pairs start one value before the window.
#pragma once

#include "engine/cuda/kernels/async_copies.hpp"
#include "engine/cuda/kernels/tensor_cores.hpp"

namespace openmps::cuda::product::stem_pool {

inline constexpr const char* kFile = "engine/cuda/kernels/conv_stem_pool.hpp";

constexpr int kKernel = 7, kOwnTerms = 3 * kKernel;  ///< of a row of the window
constexpr int kMaxOutputs = 64;
constexpr int kStripColumns = 7;  ///< of the result; of a warp
constexpr int kOpen = 4;          ///< rows of the convolution that two rows of the source have products with

using Words = std::uint32_t[kHeldLanes];
using Sum = float[kHeldLanes][4];  ///< of 16 columns of the convolution and 8 outputs

/// Float16, two values in a word.
struct Pairs {
  static constexpr int kValues = 2, kParts = 2, kChunk = 4;  ///< of a word; of the outputs; rows [Shape]
  /// Return the word of lane t of 4 of a quad in a row of the window. No two lanes of a warp read different words of
  /// one bank.
  static constexpr MPSCNN_HOST_DEVICE int word_of(int quad, int t) { return 3 * t + quad; }
  /// Return the bits of that word which belong to the window. Values beside it have a weight of 0, and may be infinite.
  static MPSCNN_HOST_DEVICE std::uint32_t mask_of(int quad, int t) {
    return quad == 0 && t == 0 ? 0xffff0000u : quad == 2 && t == 3 ? 0u : ~0u;
  }
  static MPSCNN_HOST_DEVICE std::uint32_t word(float first, float second) { return half_pair(first, second); }
  /// Return a word of the source as an operand.
  static MPSCNN_HOST_DEVICE std::uint32_t operand(std::uint32_t word) { return word; }
  static MPSCNN_HOST_DEVICE std::uint32_t result(const float (&sums)[4], int d) { return word(sums[d], sums[d + 1]); }
  static MPSCNN_HOST_DEVICE std::uint32_t max(std::uint32_t a, std::uint32_t b) { return max_of_halves(a, b); }
  static MPSCNN_HOST_DEVICE std::uint32_t clipped(const Clip& clip, std::uint32_t word) {
    const auto value = [&](int i) { return clip(half_value(static_cast<std::uint16_t>(word >> (16 * i)))); };
    return half_pair(value(0), value(1));
  }
#if MPSCNN_ON_GPU
  /// Let the sums be `c`, plus the products of 16 columns and 8 outputs with the terms of two quads, or one.
  static MPSCNN_HOST_DEVICE void multiply_add(Sum& sums, const Sum& c, const Words (&a)[2], const Words (&a_next)[2],
                                              const Words& b, const Words& b_next) {
#if __CUDA_ARCH__ >= 800
    float (&d)[4] = sums[0];
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%10, %11, %12, %13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0][0]), "r"(a[1][0]), "r"(a_next[0][0]), "r"(a_next[1][0]), "r"(b[0]), "r"(b_next[0]), "f"(c[0][0]),
          "f"(c[0][1]), "f"(c[0][2]), "f"(c[0][3]));
#else
    multiply_add(sums, c, a, b);
    multiply_add(sums, sums, a_next, b_next);
#endif
  }
  static MPSCNN_HOST_DEVICE void multiply_add(Sum& sums, const Sum& c, const Words (&a)[2], const Words& b) {
    float (&d)[4] = sums[0];
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0][0]), "r"(a[1][0]), "r"(b[0]), "f"(c[0][0]), "f"(c[0][1]), "f"(c[0][2]), "f"(c[0][3]));
  }
#else
  static float product(std::uint32_t a, std::uint32_t b) {
    const auto value = [](std::uint32_t word, int i) {
      return half_value(static_cast<std::uint16_t>(word >> (16 * i)));
    };
    return value(a, 0) * value(b, 0) + value(a, 1) * value(b, 1);
  }
#endif
};

/// Float32, one value in a word.
struct Singles {
  static constexpr int kValues = 1, kParts = 4, kChunk = 8;
  static constexpr MPSCNN_HOST_DEVICE int word_of(int quad, int t) { return 5 * t + quad; }
  static MPSCNN_HOST_DEVICE std::uint32_t mask_of(int quad, int t) { return quad == 5 && t < 3 ? 0u : ~0u; }
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
  static MPSCNN_HOST_DEVICE std::uint32_t operand(std::uint32_t bits) { return word(std::bit_cast<float>(bits)); }
  static MPSCNN_HOST_DEVICE std::uint32_t result(const float (&sums)[4], int d) {
    return std::bit_cast<std::uint32_t>(sums[d]);
  }
  /// NaN is greater than any number.
  static MPSCNN_HOST_DEVICE std::uint32_t max(std::uint32_t a, std::uint32_t b) {
    const float x = std::bit_cast<float>(a), y = std::bit_cast<float>(b);
#if MPSCNN_ON_GPU && __CUDA_ARCH__ >= 800
    float result;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
    return std::bit_cast<std::uint32_t>(result);
#else
    return x > y || x != x ? a : b;
#endif
  }
  static MPSCNN_HOST_DEVICE std::uint32_t clipped(const Clip& clip, std::uint32_t word) {
    return std::bit_cast<std::uint32_t>(clip(std::bit_cast<float>(word)));
  }
#if MPSCNN_ON_GPU
  static MPSCNN_HOST_DEVICE void multiply_add(Sum& sums, const Sum& c, const Words (&a)[2], const Words (&a_next)[2],
                                              const Words& b, const Words& b_next) {
#if __CUDA_ARCH__ >= 800
    float (&d)[4] = sums[0];
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%10, %11, %12, %13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0][0]), "r"(a[1][0]), "r"(a_next[0][0]), "r"(a_next[1][0]), "r"(b[0]), "r"(b_next[0]), "f"(c[0][0]),
          "f"(c[0][1]), "f"(c[0][2]), "f"(c[0][3]));
#else
    asm volatile("trap;");  // such GPUs have no tf32: the kernel is not launched
#endif
  }
#else
  static float product(std::uint32_t a, std::uint32_t b) { return std::bit_cast<float>(a) * std::bit_cast<float>(b); }
#endif
};

template <class Word>
struct Shape {
  static constexpr int kQuads = 6 / Word::kValues;               ///< of a row of the window
  static constexpr int kTiles = kMaxOutputs / 8 / Word::kParts;  ///< of 8 outputs; of a warp
  static constexpr int kOwn = 2 * kTiles;                        ///< adjacent outputs of a lane
  static constexpr int kResults = kOwn / Word::kValues;          ///< words of them: 16 bytes
  static constexpr int kStrips = kWarps / Word::kParts;          ///< of a block
  static constexpr int kColumns = kStripColumns * kStrips;       ///< of the result; of a block
  static constexpr int kConvColumns = 2 * (kColumns - kStripColumns) + kTileRows;
  static constexpr int kStep = 6 / Word::kValues;  ///< words from a window to the next
  static constexpr int kRowWords = kStep * (kConvColumns - 1) + Word::word_of(kQuads - 1, 3) + 1;
  static constexpr int kSourceRows = 2 * Word::kChunk;        ///< of a chunk, in which kChunk rows start
  static constexpr int kWeights = kKernel * kQuads * kTiles;  ///< words of a lane
  static constexpr int kVectors = (kWeights + 3) / 4;         ///< of packed weights
  static constexpr i64 kPackedVectors = Word::kParts * kVectors * 32;
  static_assert(kResults == 4 && kRowWords <= kThreads);
};

struct PackArgs {
  Pointer<const float> from;  ///< [outputs][7][7][3]
  Pointer<Halves8> to;        ///< [part][vector][lane]; words of a lane: [row of the window][quad][tile]
  i64 outputs;
};
template <class Word>
MPSCNN_HOST_DEVICE void pack(const PackArgs& args, i64 index) {
  using S = Shape<Word>;
  const int lane = static_cast<int>(index % 32), vector = static_cast<int>(index / 32 % S::kVectors);
  const i64 part = index / (32 * S::kVectors);
  Halves8 words;
  for (int i = 0; i < 4; ++i) {
    const int word = 4 * vector + i, tile = word % S::kTiles;
    const int quad = word / S::kTiles % S::kQuads, row = word / (S::kTiles * S::kQuads);
    const i64 output = part * (kMaxOutputs / Word::kParts) + lane / 8 * S::kOwn + tile * 2 + lane / 4 % 2;
    float values[2] = {};
    for (int j = 0; j < Word::kValues; ++j) {
      const int term = Word::word_of(quad, lane % 4) * Word::kValues + j - (Word::kValues - 1);
      const bool is_own =
          output < args.outputs && row < kKernel && term >= 0 && term < kOwnTerms && Word::mask_of(quad, lane % 4) != 0;
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

/// A tile: pixels (y, x) of the result of image n, from which pixels of the convolution and of the source follow.
template <class Word>
struct Tile {
  i64 n, y, x;
  int conv_y, conv_x, conv_rows, src_y, src_x;

  MPSCNN_HOST_DEVICE Tile(const StemPoolArgs& args, i64 index) {
    const i64 line = index / args.tiles_w, image = line / args.tiles_h;
    n = image, y = (line - image * args.tiles_h) * args.rows, x = (index - line * args.tiles_w) * Shape<Word>::kColumns;
    conv_y = static_cast<int>(2 * y) + args.pool_h, conv_x = static_cast<int>(2 * x) + args.pool_w;
    src_y = 2 * conv_y + args.start_h, src_x = 2 * conv_x + args.start_w;
    const i64 rows = args.dst.h - y < args.rows ? args.dst.h - y : args.rows;
    conv_rows = static_cast<int>(2 * rows) + 1;
  }
  /// Return the rows of the convolution that start, in twice as many rows of the source, until the last one is
  /// complete.
  MPSCNN_HOST_DEVICE int steps() const { return conv_rows + kOpen - 1; }
  /// Return whether any of the rows that are open in kOpen steps is none of the tile or of the convolution.
  MPSCNN_HOST_DEVICE bool is_edge(int first, int conv_h) const {
    const int oldest = first - (kOpen - 1);
    return oldest < 1 || first + kOpen > conv_rows || conv_y + oldest < 0 || conv_y + first >= conv_h;
  }
};

/// A chunk of the source in shared memory.
template <class Word>
struct Chunk {
  std::uint32_t rows[Shape<Word>::kSourceRows][Shape<Word>::kRowWords];
};
template <class Word>
struct TileMemory {
  Chunk<Word> chunks[2];  ///< one is used while the next one is stored
};

constexpr int kHeldThreads = kHeldLanes == 1 ? 1 : kThreads;  ///< a host thread has the values of all threads
constexpr int kHeldWarps = kHeldLanes == 1 ? 1 : kWarps;

/// Loads the chunks of a tile, in order: each is in registers until there is room in shared memory. A thread loads
/// words of one column.
template <class Word>
class Loads {
 public:
  using S = Shape<Word>;
  MPSCNN_HOST_DEVICE Loads(const StemPoolArgs& args, const Tile<Word>& at)
      : args_(args),
        pitch_(kBytes * args.src.h_stride),
        row_(args.src.data.get() + kBytes * at.n * args.src.n_stride + at.src_y * pitch_),
        y_(at.src_y),
        first_(at.src_x * 3 - (Word::kValues - 1)) {
    const i64 end = i64{at.src_y} + 2 * at.steps(), known = end < args.src.h ? end : args.src.h;
    end_ = known > 0 ? static_cast<unsigned>(known) : 0;
  }

  /// Start to load the next chunk.
  MPSCNN_HOST_DEVICE void start() {
    each_thread([&](int thread) {
      if (args_.loads_words)
        load_words(first_value(thread), words_[thread % kHeldThreads]);
      else
        load_values(first_value(thread), words_[thread % kHeldThreads]);
    });
    y_ += S::kSourceRows, row_ += S::kSourceRows * pitch_;
  }
  /// Store the chunk.
  MPSCNN_HOST_DEVICE void store(int thread, Chunk<Word>& to) const {
    if (thread >= S::kRowWords) return;
    MPSCNN_UNROLL
    for (int i = 0; i < S::kSourceRows; ++i) to.rows[i][thread] = Word::operand(words_[thread % kHeldThreads][i]);
  }

 private:
  static constexpr i64 kBytes = 4 / Word::kValues;  ///< of a value
  using OfThread = std::uint32_t[S::kSourceRows];

  MPSCNN_HOST_DEVICE int first_value(int thread) const { return first_ + Word::kValues * thread; }
  MPSCNN_HOST_DEVICE bool is_inside(int value) const {
    return static_cast<unsigned>(value) < 3 * static_cast<unsigned>(args_.src.w);
  }
  MPSCNN_HOST_DEVICE bool has_row(int i) const { return static_cast<unsigned>(y_ + i) < end_; }
  MPSCNN_HOST_DEVICE void load_words(int value, OfThread& to) const {
    const unsigned char* from = row_ + kBytes * value;
    const bool has_column = is_inside(value);
    MPSCNN_UNROLL
    for (int i = 0; i < S::kSourceRows; ++i, from += pitch_)
      to[i] = load_constant<1>(from, has_column && has_row(i)).words[0];
  }
  MPSCNN_HOST_DEVICE void load_values(int value, OfThread& to) const {
    MPSCNN_UNROLL
    for (int i = 0; i < S::kSourceRows; ++i) to[i] = 0;
    MPSCNN_UNROLL
    for (int j = 0; j < Word::kValues; ++j, ++value) {
      if (!is_inside(value)) continue;
      const unsigned char* from = row_ + kBytes * (value / 3 * args_.src.w_stride + value % 3);
      MPSCNN_UNROLL
      for (int i = 0; i < S::kSourceRows; ++i, from += pitch_) {
        if (!has_row(i)) continue;
        if constexpr (Word::kValues == 1)
          to[i] = *reinterpret_cast<const std::uint32_t*>(from);
        else
          to[i] |= std::uint32_t{*reinterpret_cast<const std::uint16_t*>(from)} << (16 * j);
      }
    }
  }

  const StemPoolArgs& args_;
  const i64 pitch_;
  const unsigned char* row_;  ///< of the next chunk, like y_
  int y_;
  unsigned end_;     ///< row after the last one that the tile has products with
  const int first_;  ///< value of the row that thread 0 loads
  OfThread words_[kHeldThreads];
};

/// A warp's outputs, in its columns.
template <class Word>
class Strip {
 public:
  using S = Shape<Word>;
  MPSCNN_HOST_DEVICE void start(const StemPoolArgs& args, int warp) {
    const int part = warp % Word::kParts;
    strip_ = warp / Word::kParts;
    const Halves8* const from = args.weights.get() + part * (S::kVectors * 32);
    MPSCNN_UNROLL
    for (int l = 0; l < kHeldLanes; ++l) {
      MPSCNN_UNROLL
      for (int v = 0; v < S::kVectors; ++v) {
        const Halves8 vector = load_constant<4>(from + v * 32 + lane_of(l));
        MPSCNN_UNROLL
        for (int i = 0; i < 4; ++i) {
          const int word = 4 * v + i;
          if (word < S::kWeights) weights_[word / S::kTiles][word % S::kTiles][l] = vector.words[i];
        }
      }
      channel_[l] = part * (kMaxOutputs / Word::kParts) + lane_of(l) % 4 * S::kOwn;
      const bool has_bias = args.bias && channel_[l] < args.dst.c;
      MPSCNN_UNROLL
      for (int tile = 0; tile < S::kTiles; ++tile) {
        const Bits<2> bias = load_constant<2>(args.bias.get() + channel_[l] + 2 * tile, has_bias);
        MPSCNN_UNROLL
        for (int d = 0; d < 4; ++d) bias_[tile][l][d] = std::bit_cast<float>(bias.words[d % 2]);
      }
      MPSCNN_UNROLL
      for (int half = 0; half < 2; ++half)
        place_[half][l] = S::kStep * column_of(half, l) + Word::word_of(0, lane_of(l) % 4);
    }
  }

  /// Start rows first, first + 1, ... of the convolution: add the products of two rows of the source for each, and
  /// store the rows of the result that are then complete.
  template <bool kIsEdge>
  MPSCNN_HOST_DEVICE void step(const StemPoolArgs& args, const Tile<Word>& at, int first, const Chunk<Word>& from) {
    Operand a[2];
    load(from, first % Word::kChunk, a[0]);
    MPSCNN_UNROLL
    for (int i = 0; i < kOpen; ++i) {
      if (i + 1 < kOpen) load(from, first % Word::kChunk + i + 1, a[(i + 1) % 2]);
      if constexpr (kIsEdge) {
        MPSCNN_UNROLL
        for (int age = kOpen - 1; age >= 0; --age) {
          if (first + i - age < 0 || first + i - age >= at.conv_rows) continue;
          MPSCNN_UNROLL
          for (int quad = 0; quad < 2 * S::kQuads; quad += 2)
            multiply_add(a[i % 2], quad, age, sums_[slot_of(i - age)]);
        }
      } else {
        MPSCNN_UNROLL
        for (int quad = 0; quad < 2 * S::kQuads; quad += 2) {
          MPSCNN_UNROLL
          for (int age = kOpen - 1; age >= 0; --age) multiply_add(a[i % 2], quad, age, sums_[slot_of(i - age)]);
        }
      }
      finish<kIsEdge>(args, at, first + i - (kOpen - 1), i % 2 == 1, sums_[slot_of(i - (kOpen - 1))]);
    }
  }

 private:
  using Operand = Words[2 * S::kQuads][2];  ///< of two rows of the source; of columns 2 x and 2 x + 1
  using Sums = Sum[S::kTiles];
  using Results = Words[2][S::kResults];  ///< of columns 2 x and 2 x + 1

  static constexpr MPSCNN_HOST_DEVICE int slot_of(int row) { return (row + kOpen) % kOpen; }

  /// Return a column of the convolution that a lane has.
  MPSCNN_HOST_DEVICE int column_of(int half, int l) const {
    return 2 * (strip_ * kStripColumns + lane_of(l) / 4) + half;
  }

  /// Load the words of two rows of the source.
  MPSCNN_HOST_DEVICE void load(const Chunk<Word>& from, int row, Operand& a) const {
    MPSCNN_UNROLL
    for (int i = 0; i < 2 * S::kQuads; ++i) {
      const int quad = i % S::kQuads;
      MPSCNN_UNROLL
      for (int half = 0; half < 2; ++half) {
        MPSCNN_UNROLL
        for (int l = 0; l < kHeldLanes; ++l)
          a[i][half][l] =
              from.rows[2 * row + i / S::kQuads][place_[half][l] + quad] & Word::mask_of(quad, lane_of(l) % 4);
      }
    }
  }

  /// Add the products of quads `quad` and the next one, with rows 2 * age and 2 * age + 1 of the window.
  MPSCNN_HOST_DEVICE void multiply_add(const Operand& a, int quad, int age, Sums& sums) const {
    constexpr int kEnd = kKernel * S::kQuads;
    const int first = 2 * age * S::kQuads + quad;
    MPSCNN_UNROLL
    for (int tile = 0; tile < S::kTiles; ++tile) {
      const Sum& before = first == 0 ? bias_[tile] : static_cast<const Sum&>(sums[tile]);
#if MPSCNN_ON_GPU
      if (first + 1 < kEnd) {
        Word::multiply_add(sums[tile], before, a[quad], a[quad + 1], weights_[first][tile], weights_[first + 1][tile]);
      } else if (first < kEnd) {
        if constexpr (kEnd % 2) Word::multiply_add(sums[tile], before, a[quad], weights_[first][tile]);
      }
#else
      for (int lane = 0; lane < 32; ++lane)
        for (int d = 0; d < 4; ++d) {
          float sum = before[lane][d];
          for (int q = 0; q < 2 && first + q < kEnd; ++q)
            for (int t = 0; t < 4; ++t)
              sum += Word::product(a[quad + q][d / 2][lane / 4 * 4 + t],
                                   weights_[first + q][tile][(lane % 4 * 2 + d % 2) * 4 + t]);
          sums[tile][lane][d] = sum;
        }
#endif
    }
  }

  /// Take a row of the convolution into the max of rows. The third row of a window is the first one of the next.
  template <bool kIsEdge>
  MPSCNN_HOST_DEVICE void finish(const StemPoolArgs& args, const Tile<Word>& at, int row, bool is_third,
                                 const Sums& sums) {
    const bool is_inside = !kIsEdge || static_cast<unsigned>(at.conv_y + row) < static_cast<unsigned>(args.conv_h);
    Results window;
    MPSCNN_UNROLL
    for (int half = 0; half < 2; ++half) {
      MPSCNN_UNROLL
      for (int i = 0; i < S::kResults; ++i) {
        MPSCNN_UNROLL
        for (int l = 0; l < kHeldLanes; ++l) {
          const int output = i * Word::kValues;
          const std::uint32_t result = Word::result(sums[output / 2][l], 2 * half + output % 2);
          const std::uint32_t word = is_inside ? result : 0u;  // which changes no max that is rectified
          window[half][i][l] = Word::max(most_[half][i][l], word);
          most_[half][i][l] = is_third ? word : window[half][i][l];
        }
      }
    }
    if (is_third && (!kIsEdge || (row >= 2 && row < at.conv_rows))) store(args, at, row / 2 - 1, window);
  }

  /// Store a row of the result: the max of three columns, rectified.
  MPSCNN_HOST_DEVICE void store(const StemPoolArgs& args, const Tile<Word>& at, int row, Results& window) const {
    Words next[S::kResults];  // column 2 x + 2
    MPSCNN_UNROLL
    for (int i = 0; i < S::kResults; ++i) {
      MPSCNN_UNROLL
      for (int half = 0; half < 2; ++half) {
        MPSCNN_UNROLL
        for (int l = 0; l < kHeldLanes; ++l)
          if (static_cast<unsigned>(at.conv_x + column_of(half, l)) >= static_cast<unsigned>(args.conv_w))
            window[half][i][l] = 0;
      }
#if MPSCNN_ON_GPU
      next[i][0] = __shfl_down_sync(0xffffffffu, window[0][i][0], 4);
#else
      for (int l = 0; l < 32; ++l) next[i][l] = window[0][i][l < 28 ? l + 4 : l];
#endif
    }
    const Clip clip(args.neuron);
    MPSCNN_UNROLL
    for (int l = 0; l < kHeldLanes; ++l) {
      const int column = lane_of(l) / 4;
      const i64 x = at.x + strip_ * kStripColumns + column;
      if (column >= kStripColumns || x >= args.dst.w || channel_[l] >= args.dst.c) continue;
      Halves8 result;
      MPSCNN_UNROLL
      for (int i = 0; i < S::kResults; ++i)
        result.words[i] = Word::clipped(clip, Word::max(Word::max(window[0][i][l], window[1][i][l]), next[i][l]));
      unsigned char* const to =
          args.dst.data.get() + 4 / Word::kValues * args.dst.offset(at.n, at.y + row, x, channel_[l]);
      if (args.stores_vectors) {
        *reinterpret_cast<Halves8*>(to) = result;
      } else if constexpr (Word::kValues == 1) {
        for (int v = 0; v < S::kOwn; ++v) reinterpret_cast<std::uint32_t*>(to)[v] = result.words[v];
      } else {
        for (int v = 0; v < S::kOwn; ++v)
          reinterpret_cast<std::uint16_t*>(to)[v] = static_cast<std::uint16_t>(result.words[v / 2] >> (v % 2 * 16));
      }
    }
  }

  Words weights_[kKernel * S::kQuads][S::kTiles];
  Sums sums_[kOpen];  ///< of rows of the convolution, in turn
  Results most_;      ///< of the rows before in a window
  Sums bias_;
  int place_[2][kHeldLanes];  ///< of the lane's first word of a window in a row
  int channel_[kHeldLanes];
  int strip_;
};

template <class Word>
MPSCNN_HOST_DEVICE void compute_tiles(const StemPoolArgs& args, i64 index, const Block& block,
                                      TileMemory<Word>& memory) {
  const Cluster<1> threads;
  Strip<Word> strips[kHeldWarps] = {};
  each_warp([&](int warp) { strips[warp % kHeldWarps].start(args, warp); });
#pragma unroll 1
  for (i64 tile = index; tile < args.tiles; tile += args.blocks) {
    const Tile<Word> at(args, tile);
    Loads<Word> loads(args, at);
    loads.start();
    block.for_each(kThreads, [&](i64 thread) { loads.store(static_cast<int>(thread), memory.chunks[0]); });
    loads.start();
#pragma unroll 1
    for (int chunk = 0; chunk * Word::kChunk < at.steps(); ++chunk) {
      each_thread([&](int thread) { loads.store(thread, memory.chunks[(chunk + 1) % 2]); });
      loads.start();
      threads.each_warp([&](int, int warp) {
        Strip<Word>& strip = strips[warp % kHeldWarps];
#pragma unroll 1
        for (int i = 0; i < Word::kChunk; i += kOpen) {
          const int first = chunk * Word::kChunk + i;
          if (first >= at.steps()) break;
          if (at.is_edge(first, args.conv_h))
            strip.template step<true>(args, at, first, memory.chunks[chunk % 2]);
          else
            strip.template step<false>(args, at, first, memory.chunks[chunk % 2]);
        }
      });
    }
  }
}

MPSCNN_BLOCK_KERNEL(conv_stem_pool, StemPoolArgs, 1) {
  MPSCNN_SHARED(TileMemory<Pairs>, shared, 1);
  compute_tiles<Pairs>(args, index, block, shared.own(0));
}
MPSCNN_BLOCK_KERNEL(conv_stem_pool_tf32, StemPoolArgs, 1) {
  MPSCNN_SHARED(TileMemory<Singles>, shared, 1);
  compute_tiles<Singles>(args, index, block, shared.own(0));
}

}  // namespace openmps::cuda::product::stem_pool
