// SPDX-License-Identifier: Apache-2.0
// Convolutions with few outputs on tensor cores, without strides. The columns of the window are outputs too: each pixel
// of the source is multiplied with all taps of a row of the window at once. Result x is then the sum of tap q at
// x + q over all q. So a pixel is read once per row of the window, and few columns of the products are unused.
#pragma once

#include "engine/cuda/kernels/tensor_cores.hpp"

namespace openmps::cuda::product::few_outputs {

inline constexpr const char* kFile = "engine/cuda/kernels/conv_few_outputs.hpp";

constexpr int kMaxProducts = kOutputs;  ///< columns of the window x outputs

// A block: kTileH rows of kTileW pixels of the source, of kWarpW by a warp.
constexpr int kRowTiles = 2, kWarpW = kRowTiles * kTileRows, kTileW = 2 * kWarpW, kTileH = kWarps / 2;

struct FewOutputsArgs {
  ProductArgs product;  ///< weights: outputs of tap 0, of tap 1, ...; `chunks` of a row of the window
  int start_h = 0, start_w = 0, kernel_h = 1, kernel_w = 1;
  bool clamps = false;  ///< out-of-bounds taps read the edge
  i64 tiles_h = 0, tiles_w = 0;

  MPSCNN_HOST_DEVICE int results_of_tile() const { return kTileW - (kernel_w - 1); }  ///< of a row
};

/// Products of the pixels of a block with all taps of the columns.
struct Products {
  static constexpr int kPitch = kMaxProducts + 1;  ///< odd, so that lanes with adjacent pixels use different banks
  float of[kTileH][kTileW][kPitch];
};

/// Load a chunk of the channels of a warp's pixels, from (y, x) on.
MPSCNN_HOST_DEVICE void load_pixels(const FewOutputsArgs& args, const unsigned char* image, int y, int x, int chunk,
                                    Chunk<kRowTiles>& to) {
  const View& src = args.product.src;
  const int height = static_cast<int>(src.h), width = static_cast<int>(src.w);
  if (args.clamps) y = y < 0 ? 0 : y >= height ? height - 1 : y;
  const bool is_row = static_cast<unsigned>(y) < static_cast<unsigned>(height);
  MPSCNN_UNROLL
  for (int i = 0; i < kRowTiles; ++i) {
    MPSCNN_UNROLL
    for (int half = 0; half < 2; ++half) {
      MPSCNN_UNROLL
      for (int l = 0; l < kHeldLanes; ++l) {
        const int lane = lane_of(l), channel = chunk * kTerms + term_of(lane, 0);
        int at = x + i * kTileRows + half * 8 + lane / 4;
        if (args.clamps) at = at < 0 ? 0 : at >= width ? width - 1 : at;
        const bool is_inside =
            is_row && static_cast<unsigned>(at) < static_cast<unsigned>(width) && channel < static_cast<int>(src.c);
        to.v[i][half][l] = load_constant<4>(image + 2 * (y * src.h_stride + at * src.w_stride + channel), is_inside);
      }
    }
  }
}

/// Finish and store the sum of a result's taps. `to`: offset in dst.
MPSCNN_HOST_DEVICE void store_result(const ProductArgs& args, const Place& pixel, i64 to, int output, float value) {
  if (args.bias) value += args.bias[output];
  if (args.neuron.type != NeuronType::none) value = activate(args.neuron, value, output);
  if (args.addend) {
    value += load(args.addend, pixel.n, pixel.y, pixel.x, output);
    if (args.after.type != NeuronType::none) value = activate(args.after, value, output);
  }
  reinterpret_cast<std::uint16_t*>(args.dst.data.get())[to] = half_bits(value);
}

/// The chunks of a row of the window, row by row, of which several are under way at a time: the first warp that reads a
/// row waits for the memory, and few other warps compute meanwhile.
class PixelRows {
 public:
  static constexpr int kAhead = 3;

  MPSCNN_HOST_DEVICE PixelRows(const FewOutputsArgs& args, const unsigned char* image, int y, int x)
      : args_(args), image_(image), chunks_(static_cast<int>(args.product.chunks)), y_(y), x_(x) {}
  MPSCNN_HOST_DEVICE int count() const { return args_.kernel_h * chunks_; }
  /// Load the next chunk.
  MPSCNN_HOST_DEVICE void load(Chunk<kRowTiles>& to) {
    load_pixels(args_, image_, y_, x_, chunk_, to);
    if (++chunk_ == chunks_) chunk_ = 0, ++y_;
  }

 private:
  const FewOutputsArgs& args_;
  const unsigned char* const image_;
  const int chunks_;
  int y_;
  const int x_;
  int chunk_ = 0;
};

/// Add the products of a chunk of pixels.
MPSCNN_HOST_DEVICE void add_products(const ProductArgs& args, int chunk, const Chunk<kRowTiles>& pixels,
                                     Sums<kRowTiles, 1>& sums) {
  Weights weights;
  MPSCNN_UNROLL
  for (int j = 0; j < kColumnTiles; ++j) {
    MPSCNN_UNROLL
    for (int l = 0; l < kHeldLanes; ++l)
      weights.v[j][l] = load_constant<4>(args.weights.get() + (chunk * kColumnTiles + j) * 32 + lane_of(l));
  }
  multiply_add(pixels, weights, 0, sums);
}

MPSCNN_BLOCK_KERNEL(conv_few_outputs, FewOutputsArgs, 2) {
  const ProductArgs& product = args.product;
  const auto tile = static_cast<std::uint32_t>(index), tiles_w = static_cast<std::uint32_t>(args.tiles_w),
             tiles_h = static_cast<std::uint32_t>(args.tiles_h);
  const std::uint32_t row = tile / tiles_w, image = row / tiles_h;
  const int first_y = static_cast<int>(row - image * tiles_h) * kTileH;
  const int first_x = static_cast<int>(tile - row * tiles_w) * args.results_of_tile();
  const unsigned char* const src = product.src.data.get() + 2 * image * product.src.n_stride;
  const int height = static_cast<int>(product.dst.h), width = static_cast<int>(product.dst.w);
  MPSCNN_SHARED(Products, shared, 1);
  Products& products = shared.own(0);
  Cluster<1>().each_warp([&](int, int warp) {
    constexpr int kAhead = PixelRows::kAhead;
    const int of_tile = warp / 2, x = warp % 2 * kWarpW;
    if (first_y + of_tile >= height) return;
    PixelRows rows(args, src, first_y + of_tile + args.start_h, first_x + x + args.start_w);
    const int count = rows.count();
    Sums<kRowTiles, 1> sums = {};
    Chunk<kRowTiles> loaded[kAhead];
    MPSCNN_UNROLL
    for (int s = 0; s < kAhead; ++s)
      if (s < count) rows.load(loaded[s]);
#pragma unroll 1
    for (int chunk = 0; chunk < count; chunk += kAhead) {
      MPSCNN_UNROLL
      for (int s = 0; s < kAhead; ++s) {
        if (chunk + s >= count) break;
        add_products(product, chunk + s, loaded[s], sums);
        if (chunk + s + kAhead < count) rows.load(loaded[s]);
      }
    }
    MPSCNN_UNROLL
    for (int i = 0; i < kRowTiles; ++i) {
      MPSCNN_UNROLL
      for (int half = 0; half < 2; ++half) {
        MPSCNN_UNROLL
        for (int l = 0; l < kHeldLanes; ++l) {
          const int lane = lane_of(l);
          float* const to = &products.of[of_tile][x + i * kTileRows + half * 8 + lane / 4][lane % 4 * 8];
          MPSCNN_UNROLL
          for (int v = 0; v < 8; ++v) to[v] = sum_of(sums, i, half, 0, l, v);
        }
      }
    }
  });
  // A thread per pixel.
  const int results = args.results_of_tile(), outputs = static_cast<int>(product.dst.c);
  const int side = static_cast<int>(product.subpixel.value), of_position = outputs / (side * side);
  block.for_each(kTileH * kTileW, [&](i64 i) {
    const int of_tile = static_cast<int>(i) / kTileW, x = static_cast<int>(i) % kTileW, y = first_y + of_tile;
    if (x >= results || y >= height || first_x + x >= width) return;
    const Place pixel{image, y, first_x + x, 0};
    const i64 first = offset_of(product.dst, pixel);
    const float* const from = products.of[of_tile][x];
    int output = 0;
    for (int position = 0; position < side * side; ++position) {
      const i64 to = first + (side > 1 ? product.offset_in_square(position) : 0);
      for (int k = 0; k < of_position; ++k, ++output) {
        float sum = 0;
        for (int q = 0; q < args.kernel_w; ++q) sum += from[q * (Products::kPitch + outputs) + output];
        store_result(product, pixel, to + k, output, sum);
      }
    }
  });
}

}  // namespace openmps::cuda::product::few_outputs
