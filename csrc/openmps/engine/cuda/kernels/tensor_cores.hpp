// SPDX-License-Identifier: Apache-2.0
// Convolutions of float16 images as products of matrices on tensor cores, for several files: each is compiled when one
// of its kernels is first used. A row is a pixel of the result, and has one sum per output. A warp computes 16 rows x
// 32 outputs or a multiple, with mma.m16n8k16 [PTX ISA, matrix fragments for mma.m16n8k16].
//
// Operands need no shared memory. The order of the terms of a sum is free, so the thread that holds terms 2t, 2t + 1,
// 2t + 8 and 2t + 9 of two instructions loads 8 adjacent values instead, 16 bytes. The order of the columns is free
// too: the columns 2t and 2t + 1 of 4 instructions are 8 adjacent outputs, which the thread stores at once. The packed
// weights have both orders.
#pragma once

#include "engine/cuda/kernels/clusters.hpp"
#include "engine/cuda/kernels/constants.hpp"

namespace openmps::cuda::product {

constexpr int kOutputs = 32;     ///< of a group: 4 instructions of 8 columns
constexpr int kTerms = 32;       ///< of a chunk: 2 instructions of 16 terms
constexpr int kColumnTiles = 4;  ///< of a group
constexpr int kTileRows = 16;    ///< of an instruction

/// Return the term of packed weights: value i of lane `lane`, of a chunk.
MPSCNN_HOST_DEVICE int term_of(int lane, int i) { return lane % 4 * 8 + i; }
/// Return the output of packed weights: lane `lane` of column tile `tile`, of a group.
MPSCNN_HOST_DEVICE int output_of(int lane, int tile) { return lane / 8 * 8 + tile * 2 + lane / 4 % 2; }

#if MPSCNN_ON_GPU

/// Add the products of 16 rows and 8 columns with 16 terms to the sums. a: rows g and g + 8, each with the pairs of
/// terms t and t + 4; lane 4 g + t.
MPSCNN_HOST_DEVICE void multiply_add(float (&sums)[1][4], const Halves8 (&low)[1], const Halves8 (&high)[1],
                                     const Halves8 (&b)[1], int step) {
  float (&d)[4] = sums[0];
  const std::uint32_t a0 = low[0].words[2 * step], a1 = high[0].words[2 * step], a2 = low[0].words[2 * step + 1],
                      a3 = high[0].words[2 * step + 1], b0 = b[0].words[2 * step], b1 = b[0].words[2 * step + 1];
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#else
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(b0));
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a2), "r"(a3), "r"(b1));
#endif
}

#else

inline void multiply_add(float (&sums)[32][4], const Halves8 (&low)[32], const Halves8 (&high)[32],
                         const Halves8 (&b)[32], int step) {
  const auto value = [&](const Halves8& lane, int pair, int i) { return half_of(lane, 4 * step + 2 * pair + i); };
  for (int lane = 0; lane < 32; ++lane)
    for (int d = 0; d < 4; ++d) {
      const int row = lane / 4, column = lane % 4 * 2 + d % 2;
      for (int t = 0; t < 4; ++t)
        for (int pair = 0; pair < 2; ++pair)
          for (int i = 0; i < 2; ++i)
            sums[lane][d] += value((d < 2 ? low : high)[row * 4 + t], pair, i) * value(b[column * 4 + t], pair, i);
    }
}

#endif

/// Sums of kRowTiles * 16 rows and kGroups * 32 outputs.
template <int kRowTiles, int kGroups>
struct Sums {
  float v[kRowTiles][kGroups * kColumnTiles][kHeldLanes][4];
};
/// A chunk of kRowTiles * 16 rows; [0]: rows g of each tile, [1]: rows g + 8.
template <int kRowTiles>
struct Chunk {
  Halves8 v[kRowTiles][2][kHeldLanes];
};
/// A chunk of the weights of a group.
struct Weights {
  Halves8 v[kColumnTiles][kHeldLanes];
};

// ------------------------------------------------------------------------------------------------------ the operands

/// Divides numbers below 2^32 / divisor by a multiplication: magic is the least integer above 2^32 / divisor, so the
/// product exceeds the quotient by less than 1 / divisor.
struct Divisor {
  std::uint32_t value = 1, magic = 0;

  MPSCNN_HOST_DEVICE std::uint32_t quotient(std::uint32_t number) const {
    return value == 1 ? number : static_cast<std::uint32_t>(static_cast<std::uint64_t>(number) * magic >> 32);
  }
};
MPSCNN_HOST_DEVICE Divisor divisor_of(std::uint32_t value) {
  return {value, value == 1 ? 0 : static_cast<std::uint32_t>((std::uint64_t{1} << 32) / value + 1)};
}

struct ProductArgs {
  View src, dst, addend;           ///< float16; vectors. src has the pixels that are read, and dst's extents
  Pointer<const Halves8> weights;  ///< [group][chunk][column tile][lane]
  Pointer<const float> bias;       ///< null: none
  i64 rows = 0;                    ///< pixels of dst, less than 2^31
  i64 chunks = 0, groups = 0;
  i64 tiles = 0;         ///< of the kernel, for all outputs of a row
  bool is_flat = false;  ///< the pixels of each image have one distance
  Activation neuron, after;
  /// Above 1: dst's strides and extents are those of squares of this many rows and columns, each pixel of which has
  /// `channels` outputs. If those are no multiple of 8, only kernels for any activation store them.
  Divisor subpixel, channels;
  i64 h_stride = 0, w_stride = 0;  ///< of the pixels of a square
  bool repeats_bias = false;       ///< the pixels of a square have the same bias

  MPSCNN_HOST_DEVICE bool has_squares() const { return subpixel.value > 1; }
  /// Return the offset of a pixel of a square.
  MPSCNN_HOST_DEVICE i64 offset_in_square(int position) const {
    const auto y = static_cast<int>(subpixel.quotient(static_cast<std::uint32_t>(position)));
    return y * h_stride + (position - y * static_cast<int>(subpixel.value)) * w_stride;
  }
};

/// The product in the arguments of a kernel.
MPSCNN_HOST_DEVICE const ProductArgs& product_of(const ProductArgs& args) { return args; }
template <class Args>
MPSCNN_HOST_DEVICE const ProductArgs& product_of(const Args& args) {
  return args.product;
}

/// Return the row of a lane in a tile: of pairs `half`.
MPSCNN_HOST_DEVICE i64 row_of(i64 first, int tile, int half, int lane) {
  return first + tile * kTileRows + half * 8 + lane / 4;
}

MPSCNN_HOST_DEVICE Place pixel_of(const ProductArgs& args, i64 row) {
  const auto i = static_cast<std::uint32_t>(row);
  if (args.is_flat) return {0, 0, i, 0};
  const auto height = static_cast<std::uint32_t>(args.dst.h), width = static_cast<std::uint32_t>(args.dst.w);
  const std::uint32_t line = i / width, image = line / height;
  return {image, line - image * height, i - line * width, 0};
}
MPSCNN_HOST_DEVICE i64 offset_of(const View& view, const Place& pixel) {
  return pixel.n * view.n_stride + pixel.y * view.h_stride + pixel.x * view.w_stride;
}

/// Return the first of the 8 outputs of a group that a lane stores.
MPSCNN_HOST_DEVICE i64 channel_of(i64 group, int lane) { return group * kOutputs + lane % 4 * 8; }

/// The rows of a warp. A Source reads them: row(place, lane) is the part that does not change between chunks,
/// terms(chunk, lane) is common to the rows, and load(row, terms) returns 8 terms.
template <class Source, int kRowTiles>
class Rows {
 public:
  MPSCNN_HOST_DEVICE Rows(const typename Source::Args& args, i64 first) : source_(args) {
    const ProductArgs& product = product_of(args);
    for_each([&](int i, int half, int l) {
      const i64 row = row_of(first, i, half, lane_of(l));
      rows_[i][half][l] = source_.row(pixel_of(product, row < product.rows ? row : product.rows - 1), lane_of(l));
    });
  }

  MPSCNN_HOST_DEVICE void load(int chunk, Chunk<kRowTiles>& to) const {
    typename Source::Terms terms[kHeldLanes];
    MPSCNN_UNROLL
    for (int l = 0; l < kHeldLanes; ++l) terms[l] = source_.terms(chunk, lane_of(l));
    for_each([&](int i, int half, int l) { to.v[i][half][l] = source_.load(rows_[i][half][l], terms[l]); });
  }

 private:
  template <class Body>
  static MPSCNN_HOST_DEVICE void for_each(const Body& body) {
    MPSCNN_UNROLL
    for (int i = 0; i < kRowTiles; ++i) {
      MPSCNN_UNROLL
      for (int half = 0; half < 2; ++half) {
        MPSCNN_UNROLL
        for (int l = 0; l < kHeldLanes; ++l) body(i, half, l);
      }
    }
  }

  const Source source_;
  typename Source::Row rows_[kRowTiles][2][kHeldLanes];
};

// ---------------------------------------------------------------------------------------------------------- the sums

/// Let the sums start with the bias, or with 0.
template <int kRowTiles, int kGroups>
MPSCNN_HOST_DEVICE void start(const ProductArgs& args, i64 first_group, Sums<kRowTiles, kGroups>& sums,
                              bool has_bias = true) {
  MPSCNN_UNROLL
  for (int q = 0; q < kGroups; ++q) {
    MPSCNN_UNROLL
    for (int l = 0; l < kHeldLanes; ++l) {
      const i64 channel = channel_of(first_group + q, lane_of(l));
      const bool is_inside = has_bias && args.bias && channel < args.dst.c;
      const auto index = static_cast<std::uint32_t>(channel);
      const i64 of_bias = args.repeats_bias ? index - args.channels.quotient(index) * args.channels.value : channel;
      MPSCNN_UNROLL
      for (int v = 0; v < 8; v += 4) {
        const Bits<4> bias = load_constant<4>(args.bias.get() + of_bias + v, is_inside);
        MPSCNN_UNROLL
        for (int i = 0; i < kRowTiles; ++i) {
          MPSCNN_UNROLL
          for (int d = 0; d < 4; ++d) {
            sums.v[i][q * kColumnTiles + v / 2][l][d] = std::bit_cast<float>(bias.words[d % 2]);
            sums.v[i][q * kColumnTiles + v / 2 + 1][l][d] = std::bit_cast<float>(bias.words[2 + d % 2]);
          }
        }
      }
    }
  }
}

/// Load a chunk of the weights of a group. Groups beyond the last one repeat it; their sums are not stored.
MPSCNN_HOST_DEVICE void load_weights(const ProductArgs& args, i64 group, int chunk, Weights& to) {
  const i64 known = group < args.groups ? group : args.groups - 1;
  const Halves8* const from = args.weights.get() + (known * args.chunks + chunk) * (kColumnTiles * 32);
  MPSCNN_UNROLL
  for (int j = 0; j < kColumnTiles; ++j) {
    MPSCNN_UNROLL
    for (int l = 0; l < kHeldLanes; ++l) to.v[j][l] = load_constant<4>(from + j * 32 + lane_of(l));
  }
}

/// Add the products of a chunk with the weights of group q of the sums.
template <int kRowTiles, int kGroups>
MPSCNN_HOST_DEVICE void multiply_add(const Chunk<kRowTiles>& a, const Weights& b, int q,
                                     Sums<kRowTiles, kGroups>& sums) {
  MPSCNN_UNROLL
  for (int j = 0; j < kColumnTiles; ++j) {
    MPSCNN_UNROLL
    for (int step = 0; step < 2; ++step) {
      MPSCNN_UNROLL
      for (int i = 0; i < kRowTiles; ++i)
        multiply_add(sums.v[i][q * kColumnTiles + j], a.v[i][0], a.v[i][1], b.v[j], step);
    }
  }
}

/// Add the products of a chunk.
template <int kRowTiles, int kGroups>
MPSCNN_HOST_DEVICE void add_chunk(const ProductArgs& args, i64 first_group, int chunk, const Chunk<kRowTiles>& a,
                                  Sums<kRowTiles, kGroups>& sums) {
  MPSCNN_UNROLL
  for (int q = 0; q < kGroups; ++q) {
    Weights b;
    load_weights(args, first_group + q, chunk, b);
    multiply_add(a, b, q, sums);
  }
}

/// Add the products of all chunks; the rows of each are loaded while the previous one is multiplied.
template <int kRowTiles, int kGroups, class Source>
MPSCNN_HOST_DEVICE void add_chunks(const ProductArgs& args, const Rows<Source, kRowTiles>& rows, i64 first_group,
                                   Sums<kRowTiles, kGroups>& sums) {
  const int chunks = static_cast<int>(args.chunks);
  Chunk<kRowTiles> now, next;
  rows.load(0, now);
#pragma unroll 1
  for (int chunk = 0; chunk < chunks; ++chunk) {
    if (chunk + 1 < chunks) rows.load(chunk + 1, next);
    add_chunk(args, first_group, chunk, now, sums);
    now = next;
  }
}

/// Add the products of chunks first, first + step, ... of one group. The operands of kAhead chunks are under way at a
/// time, for warps that have few others beside them to hide the latency of loads.
template <int kAhead, int kRowTiles, class Source>
MPSCNN_HOST_DEVICE void add_chunks_ahead(const ProductArgs& args, const Rows<Source, kRowTiles>& rows, i64 group,
                                         int first, int step, Sums<kRowTiles, 1>& sums) {
  const int chunks = static_cast<int>(args.chunks);
  Chunk<kRowTiles> a[kAhead];
  Weights b[kAhead];
  MPSCNN_UNROLL
  for (int s = 0; s < kAhead; ++s)
    if (first + s * step < chunks) rows.load(first + s * step, a[s]), load_weights(args, group, first + s * step, b[s]);
#pragma unroll 1
  for (int chunk = first; chunk < chunks; chunk += kAhead * step) {
    MPSCNN_UNROLL
    for (int s = 0; s < kAhead; ++s) {
      const int now = chunk + s * step, later = now + kAhead * step;
      if (now < chunks) multiply_add(a[s], b[s], 0, sums);
      if (later < chunks) rows.load(later, a[s]), load_weights(args, group, later, b[s]);
    }
  }
}

// ------------------------------------------------------------------------------------------------------- the results

/// Apply an activation to values of adjacent channels. Not inlined: the formulas would be repeated for all values.
MPSCNN_NO_INLINE void activate_any(const Activation& f, float* values, i64 channel) {
#pragma unroll 1
  for (int i = 0; i < 8; ++i) values[i] = activate(f, values[i], channel + i);
}

/// kAny: any activation, otherwise those of Clip.
template <bool kAny>
class Lanes8 {
 public:
  MPSCNN_HOST_DEVICE explicit Lanes8(const Activation& f) : f_(f), clip_(f) {}
  MPSCNN_HOST_DEVICE void apply(float (&values)[8], i64 channel) const {
    if constexpr (kAny) {
      activate_any(f_, values, channel);
    } else {
      MPSCNN_UNROLL
      for (int i = 0; i < 8; ++i) values[i] = clip_(values[i]);
    }
  }

 private:
  const Activation& f_;
  const Clip clip_;
};

/// Stores results: of a row, 8 adjacent channels at a time.
template <bool kAny>
class Results {
 public:
  MPSCNN_HOST_DEVICE explicit Results(const ProductArgs& args)
      : args_(args), neuron_(args.neuron), after_(args.after) {}

  /// Add the addend, apply the activations, and store. `to`, `from`: offsets of the row in dst and the addend.
  MPSCNN_HOST_DEVICE void store(i64 to, i64 from, i64 channel, float (&values)[8]) const {
    neuron_.apply(values, channel);
    if (args_.addend) {
      const Halves8 addend = *reinterpret_cast<const Halves8*>(args_.addend.data.get() + 2 * (from + channel));
      MPSCNN_UNROLL
      for (int v = 0; v < 8; ++v) values[v] += half_of(addend, v);
      after_.apply(values, channel);
    }
    if (args_.has_squares()) {
      if (kAny && args_.channels.value % 8) return store_square(to, static_cast<int>(channel), values);
      const auto position = static_cast<int>(args_.channels.quotient(static_cast<std::uint32_t>(channel)));
      to += args_.offset_in_square(position) - static_cast<i64>(position) * args_.channels.value;
    }
    Halves8 result;
    MPSCNN_UNROLL
    for (int v = 0; v < 4; ++v) result.words[v] = half_pair(values[2 * v], values[2 * v + 1]);
    *reinterpret_cast<Halves8*>(args_.dst.data.get() + 2 * (to + channel)) = result;
  }

 private:
  /// Store the outputs of a square of pixels: position by position.
  MPSCNN_HOST_DEVICE void store_square(i64 to, int output, const float (&values)[8]) const {
    MPSCNN_UNROLL
    for (int v = 0; v < 8; ++v) {
      if (output + v >= static_cast<int>(args_.dst.c)) continue;
      const auto position = static_cast<int>(args_.channels.quotient(static_cast<std::uint32_t>(output + v)));
      const int k = output + v - position * static_cast<int>(args_.channels.value);
      reinterpret_cast<std::uint16_t*>(args_.dst.data.get())[to + args_.offset_in_square(position) + k] =
          half_bits(values[v]);
    }
  }

  const ProductArgs& args_;
  const Lanes8<kAny> neuron_, after_;
};

/// Return sum `v` of 8 adjacent outputs of a row that a lane has.
template <int kRowTiles, int kGroups>
MPSCNN_HOST_DEVICE float sum_of(const Sums<kRowTiles, kGroups>& sums, int tile, int half, int q, int l, int v) {
  return sums.v[tile][q * kColumnTiles + v / 2][l][2 * half + v % 2];
}

template <bool kAny, int kRowTiles, int kGroups>
MPSCNN_HOST_DEVICE void finish(const ProductArgs& args, i64 first_row, i64 first_group,
                               const Sums<kRowTiles, kGroups>& sums) {
  const Results<kAny> results(args);
  MPSCNN_UNROLL
  for (int l = 0; l < kHeldLanes; ++l) {
    i64 to[kRowTiles][2], from[kRowTiles][2];  // -1: beyond the last row
    MPSCNN_UNROLL
    for (int i = 0; i < kRowTiles; ++i) {
      MPSCNN_UNROLL
      for (int half = 0; half < 2; ++half) {
        const i64 row = row_of(first_row, i, half, lane_of(l));
        const Place pixel = pixel_of(args, row);
        to[i][half] = row < args.rows ? offset_of(args.dst, pixel) : -1;
        from[i][half] = offset_of(args.addend, pixel);
      }
    }
    MPSCNN_UNROLL
    for (int q = 0; q < kGroups; ++q) {
      const i64 channel = channel_of(first_group + q, lane_of(l));
      if (channel >= args.dst.c) continue;
      MPSCNN_UNROLL
      for (int i = 0; i < kRowTiles; ++i) {
        MPSCNN_UNROLL
        for (int half = 0; half < 2; ++half) {
          if (to[i][half] < 0) continue;
          float values[8];
          MPSCNN_UNROLL
          for (int v = 0; v < 8; ++v) values[v] = sum_of(sums, i, half, q, l, v);
          results.store(to[i][half], from[i][half], channel, values);
        }
      }
    }
  }
}

// --------------------------------------------------------------------------------------------------------- the tiles

/// Rows and groups of tile `index`.
struct TilePlace {
  i64 row, group;
};
MPSCNN_HOST_DEVICE TilePlace tile_of(const ProductArgs& args, i64 index, int rows, int groups) {
  const auto i = static_cast<std::uint32_t>(index), tiles = static_cast<std::uint32_t>(args.tiles);
  const std::uint32_t row = i / tiles;  // adjacent warps read the same rows
  return {static_cast<i64>(row) * rows, static_cast<i64>(i - row * tiles) * groups};
}

/// A warp per tile.
template <class Source, int kRowTiles, int kGroups, bool kAny = false>
MPSCNN_HOST_DEVICE void compute(const typename Source::Args& args, i64 index) {
  const ProductArgs& product = product_of(args);
  const TilePlace at = tile_of(product, index, kRowTiles * kTileRows, kGroups);
  Sums<kRowTiles, kGroups> sums;
  start(product, at.group, sums);
  add_chunks(product, Rows<Source, kRowTiles>(args, at.row), at.group, sums);
  finish<kAny>(product, at.row, at.group, sums);
}

/// Partial sums of a tile in shared memory. An item is 8 rows of a tile of 16, whose lanes have 8 outputs each.
template <int kItems>
struct Partials {
  Halves8 v[kItems][2][32];  ///< float32; 16 bytes per lane, so that no two lanes use one bank

  MPSCNN_HOST_DEVICE void put(int item, int lane, const float (&values)[8]) {
    MPSCNN_UNROLL
    for (int i = 0; i < 8; ++i) v[item][i / 4][lane].words[i % 4] = std::bit_cast<std::uint32_t>(values[i]);
  }
  MPSCNN_HOST_DEVICE void add_to(float (&values)[8], int item, int lane) const {
    MPSCNN_UNROLL
    for (int i = 0; i < 2; ++i) {
      const Halves8 part = v[item][i][lane];
      MPSCNN_UNROLL
      for (int j = 0; j < 4; ++j) values[4 * i + j] += std::bit_cast<float>(part.words[j]);
    }
  }
};

/// A cluster per tile of 32 outputs, for products with too few tiles to keep a GPU busy. Each warp adds some of the
/// chunks of kRowTiles * 16 rows; kRowWarps warps of a block share a chunk. Then the partial sums of a block are added,
/// and then those of the cluster, in a fixed order.
template <class Source, int kRowTiles, int kRowWarps, int kAhead, int kBlocks>
MPSCNN_HOST_DEVICE void compute_split(const typename Source::Args& args, i64 index, const Cluster<kBlocks>& cluster) {
  constexpr int kParts = kWarps / kRowWarps;                   // of a block
  constexpr int kItems = 2 * kRowTiles * kRowWarps;            // of a tile
  constexpr int kOwnItems = (kItems + kBlocks - 1) / kBlocks;  // that a block stores
  static_assert(kItems <= kWarps && kItems % kBlocks == 0);
  using Part = Partials<kItems>;
  struct Parts {
    Part of[kParts];
  };
  const ProductArgs& product = product_of(args);
  const TilePlace at = tile_of(product, index, kItems * 8, 1);
  MPSCNN_SHARED(Parts, parts, kBlocks);
  cluster.each_warp([&](int block, int warp) {
    const int part = warp / kRowWarps, first_tile = warp % kRowWarps * kRowTiles;
    Sums<kRowTiles, 1> sums;
    start(product, at.group, sums, block == 0 && part == 0);
    add_chunks_ahead<kAhead>(product, Rows<Source, kRowTiles>(args, at.row + first_tile * kTileRows), at.group,
                             block * kParts + part, kBlocks * kParts, sums);
    MPSCNN_UNROLL
    for (int l = 0; l < kHeldLanes; ++l) {
      MPSCNN_UNROLL
      for (int i = 0; i < 2 * kRowTiles; ++i) {
        float values[8];
        MPSCNN_UNROLL
        for (int v = 0; v < 8; ++v) values[v] = sum_of(sums, i / 2, i % 2, 0, l, v);
        parts.own(block).of[part].put(2 * first_tile + i, lane_of(l), values);
      }
    }
  });
  if constexpr (kBlocks > 1) {
    cluster.each_warp([&](int block, int warp) {
      if (warp >= kItems) return;
      MPSCNN_UNROLL
      for (int l = 0; l < kHeldLanes; ++l) {
        float values[8] = {};
        MPSCNN_UNROLL
        for (int part = 0; part < kParts; ++part) parts.own(block).of[part].add_to(values, warp, lane_of(l));
        parts.own(block).of[0].put(warp, lane_of(l), values);
      }
    });
    cluster.join();
  }
  cluster.each_warp([&](int block, int warp) {
    if (warp >= kOwnItems) return;
    const int item = warp * kBlocks + block;
    const Results<false> results(product);
    MPSCNN_UNROLL
    for (int l = 0; l < kHeldLanes; ++l) {
      float values[8] = {};
      MPSCNN_UNROLL
      for (int i = 0; i < (kBlocks > 1 ? kBlocks : kParts); ++i)
        parts.of(kBlocks > 1 ? i : 0).of[kBlocks > 1 ? 0 : i].add_to(values, item, lane_of(l));
      const i64 row = row_of(at.row, item / 2, item % 2, lane_of(l)), channel = channel_of(at.group, lane_of(l));
      if (row >= product.rows || channel >= product.dst.c) continue;
      const Place pixel = pixel_of(product, row);
      results.store(offset_of(product.dst, pixel), offset_of(product.addend, pixel), channel, values);
    }
  });
  cluster.join();  // the other blocks read this one's sums
}

}  // namespace openmps::cuda::product
