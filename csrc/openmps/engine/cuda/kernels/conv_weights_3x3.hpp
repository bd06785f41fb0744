// SPDX-License-Identifier: Apache-2.0
// Gradients of 3 x 3 convolutions by the weights, float16 on tensor cores: products of diff_dst, transposed, and the
// source, whose terms are pixels.
//
// A block computes all taps of 64 outputs and 64 inputs, 36,864 sums in registers, over a part of the pixels: it loads
// each value once for the products of 9 taps and 64 channels. Pixels are numbered with one more column in each row and
// one more row in each image, which are 0. A tap of pixel i is then pixel i plus a distance that is the same for all,
// so that any 16 adjacent pixels are the terms of an instruction.
#pragma once

#include "engine/cuda/kernels/async_copies.hpp"
#include "engine/cuda/kernels/exact_divisor.hpp"
#include "engine/cuda/kernels/tensor_cores.hpp"

namespace openmps::cuda::product::weights_3x3 {

inline constexpr const char* kFile = "engine/cuda/kernels/conv_weights_3x3.hpp";

constexpr int kTaps = 9;
constexpr int kChannels = 64, kEighths = kChannels / 8;  ///< of a block: outputs, and inputs
constexpr int kPixels = 32;                              ///< of a chunk, two instructions
constexpr int kStages = 3;                               ///< chunks in memory: one is used, two are under way
constexpr int kRing = 256;                               ///< pixels of the source in memory
constexpr int kMaxWidth = 78;                            ///< whose two rows and the chunks are in memory

struct WeightsArgs {
  View diff_dst, src;             ///< float16, of the same extents; vectors
  int pixels = 0;                 ///< numbered, of all images
  int chunks = 0;                 ///< of a part
  int ahead = 0;                  ///< chunks of the source before and after a pixel that its taps need
  ExactDivisor by_row, by_image;  ///< divide by the pixels of a row, and by the rows of an image
  int output_tiles = 1, input_tiles = 1;
  i64 weights = 0;          ///< of a part
  Pointer<float> partials;  ///< [part][outputs][3][3][inputs]

  MPSCNN_HOST_DEVICE int pitch() const { return static_cast<int>(src.w) + 1; }
  MPSCNN_HOST_DEVICE int distance(int tap) const { return (tap / 3 - 1) * pitch() + tap % 3 - 1; }
  MPSCNN_HOST_DEVICE int max_distance() const { return pitch() + 1; }
};

struct Memory {
  Halves8 diff_dst[kStages][kPixels][kEighths];
  Halves8 src[kRing][kEighths];
};
/// Return where 8 channels of a pixel are: those of 8 adjacent pixels are in different banks.
MPSCNN_HOST_DEVICE int place_of_eighth(int pixel, int eighth) { return eighth ^ (pixel & 7); }

/// Sums of a warp: of 64 outputs and 8 inputs.
struct Sums {
  float v[kChannels / kTileRows][kTaps][kHeldLanes][4];
};
constexpr int kHeldWarps = kHeldLanes == 1 ? 1 : kWarps;  ///< a host thread has the sums of all warps

/// Place of a tap in the ring: the value of a pixel whose number is a multiple of 8, plus this, modulo the ring.
struct TapsOfWarp {
  int v[kTaps][kHeldLanes];
};

/// The products of a block.
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
  MPSCNN_HOST_DEVICE void load(int chunk, Memory& to) const {
    each_thread([&](int thread) {
      const int i = thread / kEighths, eighth = thread % kEighths;
      copy_async(to.diff_dst[chunk % kStages][i][place_of_eighth(i, eighth)],
                 source_of(args_.diff_dst, first_ + chunk * kPixels + i, output_ + eighth * 8));
    });
    load_src(chunk + args_.ahead, to);
  }
  /// Start to load chunk `chunk` of the source.
  MPSCNN_HOST_DEVICE void load_src(int chunk, Memory& to) const {
    each_thread([&](int thread) {
      const int i = first_ - args_.max_distance() + chunk * kPixels + thread / kEighths, eighth = thread % kEighths;
      const int place = i & (kRing - 1);
      copy_async(to.src[place][place_of_eighth(place, eighth)], source_of(args_.src, i, input_ + eighth * 8));
    });
  }

  /// Return the places for the inputs of a warp: lane l loads pixel l of a chunk.
  MPSCNN_HOST_DEVICE TapsOfWarp taps_of(int warp) const {
    TapsOfWarp taps;
    MPSCNN_UNROLL
    for (int tap = 0; tap < kTaps; ++tap) {
      MPSCNN_UNROLL
      for (int l = 0; l < kHeldLanes; ++l) {
        const int pixel = lane_of(l) + args_.distance(tap);
        taps.v[tap][l] = pixel * kEighths + place_of_eighth(pixel, warp);
      }
    }
    return taps;
  }

  /// Add the products of a chunk to the sums of a warp.
  MPSCNN_HOST_DEVICE void multiply(int chunk, const TapsOfWarp& taps, const Memory& from, Sums& sums) const {
    constexpr int kTiles = kChannels / kTileRows;
    const auto& gradients = from.diff_dst[chunk % kStages];
    const Halves8* const ring = &from.src[0][0];
    const int first = (first_ + chunk * kPixels) * kEighths;
    Halves8 low[kTiles][kHeldLanes], high[kTiles][kHeldLanes];
    MPSCNN_UNROLL
    for (int m = 0; m < kTiles; ++m) {
      MPSCNN_UNROLL
      for (int step = 0; step < 2; ++step) {
        std::uint32_t words[kHeldLanes][4];
        load_transposed(words, [&](int row) {
          const int pixel = step * 16 + row / 16 * 8 + row % 8;
          return &gradients[pixel][place_of_eighth(pixel, m * 2 + row / 8 % 2)];
        });
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
        return ring + ((first + taps.v[tap][kHeldLanes == 1 ? 0 : row]) & (kRing * kEighths - 1));
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
    const auto outputs = static_cast<int>(args_.diff_dst.c), inputs = static_cast<int>(args_.src.c);
    float* const to = args_.partials.get() + part_ * args_.weights;
    MPSCNN_UNROLL
    for (int l = 0; l < kHeldLanes; ++l) {
      const int input = input_ + warp * 8 + lane_of(l) % 4 * 2;
      if (input >= inputs) continue;
      MPSCNN_UNROLL
      for (int m = 0; m < kChannels / 8; ++m) {
        const int output = output_ + m * 8 + lane_of(l) / 4;
        if (output >= outputs) continue;
        MPSCNN_UNROLL
        for (int tap = 0; tap < kTaps; ++tap) {
          const float* const pair = &sums.v[m / 2][tap][l][m % 2 * 2];
          const Bits<2> words{{std::bit_cast<std::uint32_t>(pair[0]), std::bit_cast<std::uint32_t>(pair[1])}};
          *reinterpret_cast<Bits<2>*>(to + (static_cast<i64>(output) * kTaps + tap) * inputs + input) = words;
        }
      }
    }
  }

 private:
  MPSCNN_HOST_DEVICE Copied source_of(const View& view, int pixel, int channel) const {
    const auto i = static_cast<unsigned>(pixel), row = args_.by_row(i), image = args_.by_image(row),
               x = i - row * (static_cast<unsigned>(view.w) + 1), y = row - image * (static_cast<unsigned>(view.h) + 1);
    const bool is_inside = i < static_cast<unsigned>(args_.pixels) && x < static_cast<unsigned>(view.w) &&
                           y < static_cast<unsigned>(view.h) && channel < static_cast<int>(view.c);
    const unsigned char* const first = view.data.get();
    return {is_inside ? first + 2 * view.offset(image, y, x, channel) : first, is_inside};
  }

  const WeightsArgs& args_;
  i64 part_;
  int output_, input_, first_;
};

MPSCNN_BLOCK_KERNEL(conv_weights_3x3, WeightsArgs, 1) {
  MPSCNN_SHARED(Memory, shared, 1);
  Memory& memory = shared.own(0);
  const Tile tile(args, index);
  Sums sums[kHeldWarps] = {};
  TapsOfWarp taps[kHeldWarps];
  each_warp([&](int warp) { taps[warp % kHeldWarps] = tile.taps_of(warp); });
  for (int chunk = 0; chunk < args.ahead; ++chunk) tile.load_src(chunk, memory);
  MPSCNN_UNROLL
  for (int chunk = 0; chunk < kStages - 1; ++chunk) tile.load(chunk, memory), end_copies();
#pragma unroll 1
  for (int chunk = 0; chunk < args.chunks; ++chunk) {
    wait_for_copies<kStages - 2>();  // also for the warps that still use what is loaded next
    each_warp([&](int warp) { tile.multiply(chunk, taps[warp % kHeldWarps], memory, sums[warp % kHeldWarps]); });
    tile.load(chunk + kStages - 1, memory), end_copies();  // its addresses are found between the products
  }
  leave_copies();
  each_warp([&](int warp) { tile.store(warp, sums[warp % kHeldWarps]); });
}

}  // namespace openmps::cuda::product::weights_3x3
