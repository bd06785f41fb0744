// SPDX-License-Identifier: Apache-2.0
// Gradients of 3 x 3 convolutions by the weights, float16 on tensor cores: products of diff_dst, transposed, and the
// source, whose terms are pixels.
//
// A block computes all taps of 64 outputs and 64 inputs, 36,864 sums in registers, over a part of the pixels: it loads
// each value once for the products of 9 taps and 64 channels. Pixels are numbered with one more column in each row and
// one more row in each image, which are 0. A tap of pixel i is then pixel i plus a distance that is the same for all,
// so that any 16 adjacent pixels are the terms of an instruction.
//
// With wgmma (compute capability 9.0), the tensor cores read the source from shared memory. Each of two groups of 4
// warps has half of the sums, and its instructions run while the next chunks are loaded.
//
// With strides of 2, the source is divided into four planes, of its even or odd rows and columns, whose pixels have the
// numbers of those of diff_dst: a tap is again a distance, in one of the planes.
#pragma once

#include "engine/cuda/kernels/async_copies.hpp"
#include "engine/cuda/kernels/exact_divisor.hpp"
#include "engine/cuda/kernels/tensor_cores.hpp"
#include "engine/cuda/kernels/wgmma.hpp"

namespace openmps::cuda::product::weights_3x3 {

inline constexpr const char* kFile = "engine/cuda/kernels/conv_weights_3x3.hpp";

constexpr int kTaps = 9;
constexpr int kChannels = 64, kEighths = kChannels / 8;  ///< of a block: outputs, and inputs
constexpr int kPixels = 32;                              ///< of a chunk, two instructions

struct WeightsArgs {
  View diff_dst, src;             ///< float16; vectors. Without strides, of the same extents
  int pixels = 0;                 ///< numbered, of all images
  int chunks = 0;                 ///< of a part; with wgmma, a multiple of kChunksOfTurn
  int ahead = 0;                  ///< chunks of the source before and after a pixel that its taps need
  ExactDivisor by_row, by_image;  ///< divide by the pixels of a row, and by the rows of an image
  int output_tiles = 1, input_tiles = 1;
  i64 weights = 0;          ///< of a part
  Pointer<float> partials;  ///< [part][outputs][3][3][inputs]

  MPSCNN_HOST_DEVICE int pitch() const { return static_cast<int>(diff_dst.w) + 1; }
  /// Return the distance of a tap in its plane. With strides of 2, row 2 y - 1 is the odd row of pair y - 1, and rows
  /// 2 y and 2 y + 1 are those of pair y.
  template <int kStride>
  MPSCNN_HOST_DEVICE int distance(int tap) const {
    const int down = tap / 3, right = tap % 3;
    if constexpr (kStride == 2) return (down == 0 ? -pitch() : 0) - (right == 0 ? 1 : 0);
    return (down - 1) * pitch() + right - 1;
  }
  MPSCNN_HOST_DEVICE int max_distance() const { return pitch() + 1; }
};

/// Return the plane of a tap: bit 1 of the odd rows, bit 0 of the odd columns.
template <int kStride>
constexpr MPSCNN_HOST_DEVICE int plane_of(int tap) {
  return kStride == 1 ? 0 : (tap / 3 == 1 ? 0 : 2) + (tap % 3 == 1 ? 0 : 1);
}

/// Shared memory. Stages: chunks of diff_dst, of which one is used and the others are under way. Ring: pixels of each
/// plane of the source; the first kMirrored are again behind it, so that adjacent pixels are adjacent in memory.
/// kBefore: chunks before the one that is used that may still be read.
template <int kStrideOf, int kStagesOf, int kRingOf, int kMirroredOf, int kBefore>
struct alignas(1024) MemoryOf {  // as wgmma demands
  static constexpr int kStride = kStrideOf, kStages = kStagesOf, kRing = kRingOf, kMirrored = kMirroredOf;
  static constexpr int kPlanes = kStride * kStride, kPlane = kRing + kMirrored;
  /// Of images whose one or two rows and the chunks are in the ring.
  static constexpr int kMaxWidth = (kRing / kPixels - kStages - kBefore) * kPixels * kStride / 2 - 2;
  static_assert(kRing % kPixels == 0 && kPlane % 8 == 0);

  Halves8 src[kPlanes * kPlane][kEighths];
  Halves8 diff_dst[kStages][kPixels][kEighths];

  /// Return the place of a pixel, which may be up to kRing pixels before the first one.
  static MPSCNN_HOST_DEVICE int place_of(int pixel) {
    if constexpr ((kRing & (kRing - 1)) == 0) return pixel & (kRing - 1);
    return static_cast<int>(static_cast<unsigned>(pixel + kRing) % kRing);
  }
};
using Memory = MemoryOf<1, 3, 256, 0, 0>;
using MemoryOfGroups = MemoryOf<1, 8, 512, 16, 2>;
using MemoryOfPlanes = MemoryOf<2, 6, 320, 16, 2>;
static_assert(Memory::kMaxWidth == 78 && MemoryOfGroups::kMaxWidth == 94 && MemoryOfPlanes::kMaxWidth == 62);
constexpr int kChunksOfTurn = 4;  ///< with wgmma: two at a time, in two buffers

/// Return where 8 channels of a pixel are: those of 8 adjacent pixels are in different banks. It is the order of
/// wgmma's 128-byte swizzle.
MPSCNN_HOST_DEVICE int place_of_eighth(int pixel, int eighth) { return eighth ^ (pixel & 7); }

/// Sums of a warp: of 64 outputs and 8 inputs.
struct Sums {
  float v[kChannels / kTileRows][kTaps][kHeldLanes][4];
};
constexpr int kHeldWarps = kHeldLanes == 1 ? 1 : kWarps;  ///< a host thread has the sums of all warps

/// Sums of a warp of a group: of 16 outputs. Of 64 inputs, the group has 4 taps, and of 32 inputs the middle one: the
/// tensor cores are slower for instructions of few columns. Lane 4 g + t has inputs 2 t and 2 t + 1 of outputs g and
/// g + 8, 8 inputs at a time.
struct SumsOfGroup {
  static constexpr int kOwnTaps = kTaps / 2, kMiddle = kTaps / 2, kInputsOfMiddle = kChannels / 2;
  float v[kOwnTaps][kHeldLanes][kChannels / 2];
  float middle[kHeldLanes][kInputsOfMiddle / 2];
};

/// Place of a tap in the ring: the value of a pixel whose number is a multiple of 8, plus this, modulo the ring.
struct TapsOfWarp {
  int v[kTaps][kHeldLanes];
};

/// The products of a block.
template <int kStride>
class Tile {
 public:
  MPSCNN_HOST_DEVICE Tile(const WeightsArgs& args, i64 index) : args_(args) {
    const int tiles = args.output_tiles * args.input_tiles;
    const auto tile = static_cast<int>(index % tiles);
    part_ = index / tiles;
    output_ = tile / args.input_tiles * kChannels, input_ = tile % args.input_tiles * kChannels;
    first_ = static_cast<int>(part_) * args.chunks * kPixels;
  }

  /// Start to load chunk `chunk` of diff_dst, and that of the source which is the last one that it needs.
  template <class Memory>
  MPSCNN_HOST_DEVICE void load(int chunk, Memory& to) const {
    each_thread([&](int thread) {
      const int i = thread / kEighths, eighth = thread % kEighths;
      copy_async(to.diff_dst[chunk % Memory::kStages][i][place_of_eighth(i, eighth)],
                 source_of(args_.diff_dst, first_ + chunk * kPixels + i, output_ + eighth * 8));
    });
    load_src(chunk + args_.ahead, to);
  }
  /// Start to load chunk `chunk` of the source.
  template <class Memory>
  MPSCNN_HOST_DEVICE void load_src(int chunk, Memory& to) const {
    static_assert(Memory::kStride == kStride);
    each_thread([&](int thread) {
      const int i = first_ - args_.max_distance() + chunk * kPixels + thread / kEighths, eighth = thread % kEighths;
      const int place = Memory::place_of(i), place_of_own = place_of_eighth(place, eighth);
      const auto load_plane = [&](int plane, const Copied& source) {
        copy_async(to.src[plane * Memory::kPlane + place][place_of_own], source);
        if (place < Memory::kMirrored)
          copy_async(to.src[plane * Memory::kPlane + Memory::kRing + place][place_of_own], source);
      };
      if constexpr (kStride == 1) {  // its few instructions hide behind the products
        load_plane(0, source_of(args_.src, i, input_ + eighth * 8));
      } else {
        MPSCNN_UNROLL
        for (int plane = 0; plane < Memory::kPlanes; ++plane)
          load_plane(plane, source_of_plane(i, plane, input_ + eighth * 8));
      }
    });
  }

  /// Return the places for the inputs of a warp: lane l loads pixel l of a chunk.
  MPSCNN_HOST_DEVICE TapsOfWarp taps_of(int warp) const {
    TapsOfWarp taps;
    MPSCNN_UNROLL
    for (int tap = 0; tap < kTaps; ++tap) {
      MPSCNN_UNROLL
      for (int l = 0; l < kHeldLanes; ++l) {
        const int pixel = lane_of(l) + args_.template distance<kStride>(tap);
        taps.v[tap][l] = pixel * kEighths + place_of_eighth(pixel, warp);
      }
    }
    return taps;
  }

  /// Load gradients of 16 outputs from `output` on, of 16 pixels of a chunk: rows of an instruction.
  template <class Memory>
  static MPSCNN_HOST_DEVICE void load_rows(const Memory& from, int chunk, int step, int output,
                                           std::uint32_t (&to)[kHeldLanes][4]) {
    load_transposed(to, [&](int row) {
      const int pixel = step * 16 + row / 16 * 8 + row % 8;
      return &from.diff_dst[chunk % Memory::kStages][pixel][place_of_eighth(pixel, output / 8 + row / 8 % 2)];
    });
  }

  MPSCNN_HOST_DEVICE int distance(int tap) const { return args_.template distance<kStride>(tap); }
  /// Return the number of the first pixel that a tap reads, for 16 pixels of a chunk.
  MPSCNN_HOST_DEVICE int pixel_of(int chunk, int step, int distance) const {
    return first_ + chunk * kPixels + step * 16 + distance;
  }

  /// Add the products of a chunk to the sums of a warp.
  MPSCNN_HOST_DEVICE void multiply(int chunk, const TapsOfWarp& taps, const Memory& from, Sums& sums) const {
    constexpr int kTiles = kChannels / kTileRows;
    const Halves8* const ring = &from.src[0][0];
    const int first = (first_ + chunk * kPixels) * kEighths;
    Halves8 low[kTiles][kHeldLanes], high[kTiles][kHeldLanes];
    MPSCNN_UNROLL
    for (int m = 0; m < kTiles; ++m) {
      MPSCNN_UNROLL
      for (int step = 0; step < 2; ++step) {
        std::uint32_t words[kHeldLanes][4];
        load_rows(from, chunk, step, m * kTileRows, words);
        MPSCNN_UNROLL
        for (int l = 0; l < kHeldLanes; ++l) {
          low[m][l].words[2 * step] = words[l][0], high[m][l].words[2 * step] = words[l][1];
          low[m][l].words[2 * step + 1] = words[l][2], high[m][l].words[2 * step + 1] = words[l][3];
        }
      }
    }
    MPSCNN_UNROLL
    for (int tap = 0; tap < kTaps; ++tap) {
      std::uint32_t words[kHeldLanes][4];
      load_transposed(words, [&](int row) {
        return ring + ((first + taps.v[tap][kHeldLanes == 1 ? 0 : row]) & (Memory::kRing * kEighths - 1));
      });
      Halves8 b[kHeldLanes];
      MPSCNN_UNROLL
      for (int l = 0; l < kHeldLanes; ++l) b[l] = {{words[l][0], words[l][1], words[l][2], words[l][3]}};
      MPSCNN_UNROLL
      for (int step = 0; step < 2; ++step) {
        MPSCNN_UNROLL
        for (int m = 0; m < kTiles; ++m) multiply_add(sums.v[m][tap], low[m], high[m], b, step);
      }
    }
  }

  MPSCNN_HOST_DEVICE void store(int warp, const Sums& sums) const {
    MPSCNN_UNROLL
    for (int l = 0; l < kHeldLanes; ++l) {
      MPSCNN_UNROLL
      for (int m = 0; m < kChannels / 8; ++m) {
        MPSCNN_UNROLL
        for (int tap = 0; tap < kTaps; ++tap)
          store_pair(m * 8 + lane_of(l) / 4, tap, warp * 8 + lane_of(l) % 4 * 2, &sums.v[m / 2][tap][l][m % 2 * 2]);
      }
    }
  }
  MPSCNN_HOST_DEVICE void store(int warp, const SumsOfGroup& sums) const {
    using Of = SumsOfGroup;
    const int output = warp % 4 * kTileRows, group = warp / 4;
    MPSCNN_UNROLL
    for (int l = 0; l < kHeldLanes; ++l) {
      const int g = lane_of(l) / 4, t = lane_of(l) % 4;
      MPSCNN_UNROLL
      for (int i = 0; i < kChannels / 4; ++i) {  // two rows of 8 inputs
        const int row = output + i % 2 * 8 + g, input = i / 2 * 8 + 2 * t;
        MPSCNN_UNROLL
        for (int tap = 0; tap < Of::kOwnTaps; ++tap)
          store_pair(row, tap + group * (Of::kMiddle + 1), input, &sums.v[tap][l][2 * i]);
        if (i < Of::kInputsOfMiddle / 4)
          store_pair(row, Of::kMiddle, group * Of::kInputsOfMiddle + input, &sums.middle[l][2 * i]);
      }
    }
  }

 private:
  /// Store two adjacent inputs.
  MPSCNN_HOST_DEVICE void store_pair(int output, int tap, int input, const float* pair) const {
    const auto outputs = static_cast<int>(args_.diff_dst.c), inputs = static_cast<int>(args_.src.c);
    output += output_, input += input_;
    if (output >= outputs || input >= inputs) return;
    float* const to = args_.partials.get() + part_ * args_.weights;
    const Bits<2> words{{std::bit_cast<std::uint32_t>(pair[0]), std::bit_cast<std::uint32_t>(pair[1])}};
    *reinterpret_cast<Bits<2>*>(to + (static_cast<i64>(output) * kTaps + tap) * inputs + input) = words;
  }

  /// Return the source of a pixel of an image with the extents of diff_dst.
  MPSCNN_HOST_DEVICE Copied source_of(const View& view, int pixel, int channel) const {
    const auto i = static_cast<unsigned>(pixel), row = args_.by_row(i), image = args_.by_image(row),
               x = i - row * (static_cast<unsigned>(view.w) + 1), y = row - image * (static_cast<unsigned>(view.h) + 1);
    const bool is_inside = i < static_cast<unsigned>(args_.pixels) && x < static_cast<unsigned>(view.w) &&
                           y < static_cast<unsigned>(view.h) && channel < static_cast<int>(view.c);
    const unsigned char* const first = view.data.get();
    return {is_inside ? first + 2 * view.offset(image, y, x, channel) : first, is_inside};
  }
  /// Return the source of a pixel of a plane.
  MPSCNN_HOST_DEVICE Copied source_of_plane(int pixel, int plane, int channel) const {
    const View &src = args_.src, &results = args_.diff_dst;
    const auto i = static_cast<unsigned>(pixel), row = args_.by_row(i), image = args_.by_image(row);
    const unsigned x = (i - row * (static_cast<unsigned>(results.w) + 1)) * kStride,
                   y = (row - image * (static_cast<unsigned>(results.h) + 1)) * kStride;
    const unsigned down = plane / kStride, right = plane % kStride;
    const bool is_inside = i < static_cast<unsigned>(args_.pixels) && y + down < static_cast<unsigned>(src.h) &&
                           x + right < static_cast<unsigned>(src.w) && channel < static_cast<int>(src.c);
    const unsigned char* const first = src.data.get();
    const i64 distance = down * src.h_stride + right * src.w_stride;  // from the even row and column
    return {is_inside ? first + 2 * (src.offset(image, y, x, channel) + distance) : first, is_inside};
  }

  const WeightsArgs& args_;
  i64 part_;
  int output_, input_, first_;
};

MPSCNN_BLOCK_KERNEL(conv_weights_3x3, WeightsArgs, 1) {
  MPSCNN_SHARED(Memory, shared, 1);
  Memory& memory = shared.own(0);
  const Tile<1> tile(args, index);
  Sums sums[kHeldWarps] = {};
  TapsOfWarp taps[kHeldWarps];
  each_warp([&](int warp) { taps[warp % kHeldWarps] = tile.taps_of(warp); });
  for (int chunk = 0; chunk < args.ahead; ++chunk) tile.load_src(chunk, memory);
  MPSCNN_UNROLL
  for (int chunk = 0; chunk < Memory::kStages - 1; ++chunk) tile.load(chunk, memory), end_copies();
#pragma unroll 1
  for (int chunk = 0; chunk < args.chunks; ++chunk) {
    wait_for_copies<Memory::kStages - 2>();  // also for the warps that still use what is loaded next
    each_warp([&](int warp) { tile.multiply(chunk, taps[warp % kHeldWarps], memory, sums[warp % kHeldWarps]); });
    tile.load(chunk + Memory::kStages - 1, memory), end_copies();  // its addresses are found between the products
  }
  leave_copies();
  each_warp([&](int warp) { tile.store(warp, sums[warp % kHeldWarps]); });
}

#if MPSCNN_HAS_WGMMA

/// The products of a group of 4 warps. Those of one buffer may be under way while the next rows are loaded.
template <class Memory>
class Group {
 public:
  using Products = Tile<Memory::kStride>;

  MPSCNN_HOST_DEVICE Group(const Products& tile, int warp) : tile_(tile), warp_(warp) {
    MPSCNN_UNROLL
    for (int i = 0; i < Of::kOwnTaps; ++i) {
      const int tap = i + warp / 4 * (Of::kMiddle + 1);
      distances_[i] = tile.distance(tap), planes_[i] = plane_of<Memory::kStride>(tap) * Memory::kPlane;
    }
  }

  /// Load the rows of two chunks.
  template <int kBuffer>
  MPSCNN_HOST_DEVICE void load_rows(int chunk, const Memory& from) {
    MPSCNN_UNROLL
    for (int step = 0; step < 4; ++step)
      Products::load_rows(from, chunk + step / 2, step % 2, warp_ % 4 * kTileRows, rows_[kBuffer][step]);
  }
  /// Start to add the products of a chunk, the first or the second one of a buffer.
  template <int kBuffer, int kChunk>
  MPSCNN_HOST_DEVICE void multiply(int chunk, const Memory& from) {
    const Halves8* const rings = &from.src[0][0];
    start_products();
    MPSCNN_UNROLL
    for (int step = 0; step < 2; ++step) {
      const auto& rows = rows_[kBuffer][2 * kChunk + step];
      const bool adds = chunk > 0 || step > 0;
      const auto place_of = [&](int distance) { return Memory::place_of(tile_.pixel_of(chunk, step, distance)); };
      MPSCNN_UNROLL
      for (int tap = 0; tap < Of::kOwnTaps; ++tap)
        add_products(sums_.v[tap], rows, rings, planes_[tap] + place_of(distances_[tap]), 0, adds);
      add_products(sums_.middle, rows, rings, place_of(0), warp_ / 4 * Of::kInputsOfMiddle / 8, adds);
    }
  }
  /// Wait for the products of all buffers but the last `kOpen`; `kBuffer` has the rows of those that have ended.
  template <int kOpen, int kBuffer>
  MPSCNN_HOST_DEVICE void wait() {
    wait_for_products<kOpen>();
    MPSCNN_UNROLL
    for (int step = 0; step < 4; ++step) keep_until_here(rows_[kBuffer][step]);
  }
  MPSCNN_HOST_DEVICE void store() {
    MPSCNN_UNROLL
    for (int tap = 0; tap < Of::kOwnTaps; ++tap) change_here(sums_.v[tap]);
    change_here(sums_.middle);
    tile_.store(warp_, sums_);
  }

 private:
  using Of = SumsOfGroup;
  static_assert(plane_of<Memory::kStride>(Of::kMiddle) == 0);

  const Products& tile_;
  const int warp_;
  int distances_[Of::kOwnTaps], planes_[Of::kOwnTaps];  ///< of the taps
  SumsOfGroup sums_;                                    // the first products are not added to them
  std::uint32_t rows_[2][4][kHeldLanes][4] = {};
};

/// The same with wgmma. A load replaces pixels that both groups have read: those of products that have ended, and rows
/// that are in registers.
template <class Memory>
MPSCNN_HOST_DEVICE void sum_by_groups(const WeightsArgs& args, i64 index, Memory& memory) {
  constexpr int kStages = Memory::kStages;
  const Tile<Memory::kStride> tile(args, index);
  OfWarps<Group<Memory>> groups([&](int warp) { return Group<Memory>(tile, warp); });
  for (int chunk = 0; chunk < args.ahead; ++chunk) tile.load_src(chunk, memory);
  MPSCNN_UNROLL
  for (int chunk = 0; chunk < kStages - 2; ++chunk) tile.load(chunk, memory), end_copies();
  // Loads are enqueued between the products, so that the tensor cores have work meanwhile.
  const auto add = [&]<int kBuffer>(int chunk) {
    wait_for_copies_of_products<kStages - 4>();
    groups.each([&](Group<Memory>& group) {
      group.template load_rows<kBuffer>(chunk, memory);
      group.template multiply<kBuffer, 0>(chunk, memory);
    });
    tile.load(chunk + kStages - 2, memory), end_copies();
    groups.each([&](Group<Memory>& group) { group.template multiply<kBuffer, 1>(chunk + 1, memory), end_products(); });
    tile.load(chunk + kStages - 1, memory), end_copies();
    groups.each([&](Group<Memory>& group) { group.template wait<1, 1 - kBuffer>(); });
  };
#pragma unroll 1
  for (int chunk = 0; chunk < args.chunks; chunk += kChunksOfTurn) {
    add.template operator()<0>(chunk);
    add.template operator()<1>(chunk + 2);
  }
  groups.each([&](Group<Memory>& group) { group.template wait<0, 1>(), group.store(); });
  leave_copies();
}

MPSCNN_LARGE_KERNEL(conv_weights_3x3_wgmma, WeightsArgs, MemoryOfGroups) { sum_by_groups(args, index, memory); }
MPSCNN_LARGE_KERNEL(conv_weights_3x3_planes_wgmma, WeightsArgs, MemoryOfPlanes) { sum_by_groups(args, index, memory); }

#endif

}  // namespace openmps::cuda::product::weights_3x3
