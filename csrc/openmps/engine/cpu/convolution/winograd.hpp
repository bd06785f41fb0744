// SPDX-License-Identifier: Apache-2.0
// Winograd's convolutions F(4 x 4, 3 x 3) and F(3 x 3, 4 x 4) (Lavin and Gray, "Fast Algorithms for Convolutional
// Neural Networks", 2015): their points, tiles of images, and calls. winograd_products.inc, winograd_convolution.inc
// and winograd_weights.inc are included once per instruction set.
//
// The interpolation points are 0, infinity, and the square roots of 1/2 and 2 with both signs, whose squares are exact
// in float32. With the usual 0, 1, -1, 2, -2 and infinity, errors are about 3 times as large.
#pragma once

#include <cstdint>

#include "engine/cpu/pointwise/vectors.hpp"
#include "engine/problem/conv.hpp"
#include "engine/shared/tensor.hpp"

#if defined(__x86_64__)

namespace openmps::cpu::winograd {

using i64 = std::int64_t;

constexpr i64 kTile = 4;           // rows and columns of a tile of the result
constexpr i64 kReach = kTile + 2;  // of the source's pixels that they read
constexpr i64 kProducts = kReach * kReach;
constexpr i64 kThreadGrain = 200 * 1000;  // min multiplications per thread

constexpr double kRoot = 1.41421356237309504880;
// The interpolation points besides 0 and infinity, and their powers.
constexpr float kA = static_cast<float>(kRoot / 2), kA2 = 0.5f, kA3 = static_cast<float>(kRoot / 4);
constexpr float kB = static_cast<float>(kRoot), kB2 = 2, kB3 = static_cast<float>(2 * kRoot);

inline i64 round_up(i64 value, i64 multiple) { return (value + multiple - 1) / multiple * multiple; }

/// The tiles of a result.
struct Tiles {
  i64 rows, columns, count;

  explicit Tiles(const Tensor& dst)
      : rows((dst.h + kTile - 1) / kTile), columns((dst.w + kTile - 1) / kTile), count(dst.n * rows * columns) {}

  struct Place {
    i64 n, y, x;
  };
  /// Return the image and first pixel of a tile.
  Place at(i64 tile) const { return {tile / columns / rows, tile / columns % rows * kTile, tile % columns * kTile}; }
};

/// dst = after(neuron(bias + convolution of src) + addend). Images are of float32; with AVX-512, of processors that
/// round to bfloat16, each may be of bfloat16 instead.
struct WinogradCall {
  Tensor src, dst;
  Window window;
  const ConvWeights* weights;
  bool is_gradient;             ///< of the source: the taps are reversed, inputs and outputs exchanged
  const float* bias = nullptr;  ///< null: zeros
  Tensor addend = {};           ///< if it has data
  Activation neuron = {}, after = {};
  bool streams = false;  ///< results are stored past the caches
};

/// Times in multiplications of the products, as measured.
struct Costs {
  i64 source, result;  ///< of the transforms of a tile, for each product and each input or output
  i64 weights;         ///< of reading weights that exceed the caches of the cores, in tiles per thread
  i64 gradients;       ///< of the transform of the weights' gradients, in tiles
  i64 packing;         ///< of transforming weights in place, in tiles
};

/// sums[r][lane] = sum over k of a[r][k] * b[k][lane], or += if `adds`. Steps count floats: from one row or k of `a`,
/// k of `b` or row of the sums to the next.
struct ProductCall {
  const float* a;
  i64 a_row, a_step;
  const float* b;
  i64 b_step;
  i64 count;
  float* sums;
  i64 sums_row;
  bool adds = false;
};

}  // namespace openmps::cpu::winograd

#endif
