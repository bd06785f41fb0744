// SPDX-License-Identifier: Apache-2.0
// Winograd's convolutions F(4 x 4, 3 x 3) and F(3 x 3, 4 x 4): tiles of images, transforms and products, for AVX-512.
//
// The interpolation points are 0, infinity, and the square roots of 1/2 and 2 with both signs, whose squares are exact
// in float32. With the usual 0, 1, -1, 2, -2 and infinity, errors are about 3 times as large.
#pragma once

#include <algorithm>
#include <array>
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
constexpr i64 kLanes = 16;                // of a vector
constexpr i64 kPanel = 4 * kLanes;        // channels that are computed together
constexpr i64 kRows = 6;                  // rows of a product that are computed together: 24 sums stay in registers
constexpr i64 kThreadGrain = 200 * 1000;  // min multiplications per thread

constexpr double kRoot = 1.41421356237309504880;
// The interpolation points besides 0 and infinity, and their powers.
constexpr float kA = static_cast<float>(kRoot / 2), kA2 = 0.5f, kA3 = static_cast<float>(kRoot / 4);
constexpr float kB = static_cast<float>(kRoot), kB2 = 2, kB3 = static_cast<float>(2 * kRoot);

inline i64 round_up(i64 value, i64 multiple) { return (value + multiple - 1) / multiple * multiple; }
/// Return the lanes of a panel: kPanel, or those that are left, in whole vectors.
inline i64 panel_lanes(i64 channels, i64 panel) {
  return std::min(kPanel, round_up(channels, kLanes) - panel * kPanel);
}
inline i64 panels_of(i64 channels) { return (channels + kPanel - 1) / kPanel; }
inline __mmask16 lanes_from(i64 channel, i64 channels) {
  return static_cast<__mmask16>(channels - channel >= kLanes ? 0xffff : (1 << (channels - channel)) - 1);
}

/// Return null, or why a processor, a window or a problem with this result is not for Winograd's convolution.
const char* declines(const Window& window, i64 groups);
/// Return whether MPSCNN_IMPL names it, so that it computes what it would leave to others.
bool is_forced();

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

/// Transformed tiles: for each product a matrix of tiles x channels.
struct Transformed {
  float* data = nullptr;
  i64 row;      ///< floats from one tile to the next
  i64 product;  ///< and from one product to the next

  /// Rows of whole cache lines, which are not multiples of 4096 bytes apart: those would compete for the same lines.
  Transformed(i64 tiles, i64 channels)
      : row(round_up(channels, kLanes) + (channels % 256 == 0 ? kLanes : 0)), product(tiles * row + kLanes) {}
  i64 floats() const { return kProducts * product; }
};

/// Transform tiles [begin, end) of the source of a convolution, with zeros around it, to rows `slot`, `slot` + 1, ...
void transform_sources(const Tensor& src, const Window& window, const Tiles& tiles, i64 begin, i64 end,
                       const Transformed& to, i64 slot);

struct Six {
  __m512 at[kReach];
};
struct Four {
  __m512 at[kTile];
};

MPSCNN_AVX512 inline __m512 constant(float value) { return _mm512_set1_ps(value); }

/// sums[r][lane] = sum over k of a[r][k] * b[k][lane], or += if `adds`, for `rows` rows and `vectors` vectors. Steps
/// count floats: from one row or k of `a`, k of `b` or row of the sums to the next.
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

template <int rows, int vectors>
MPSCNN_AVX512 void multiply(const ProductCall& call) {
  const float *a = call.a, *b = call.b;
  const i64 a_row = call.a_row, a_step = call.a_step, b_step = call.b_step;
  __m512 sum[rows][vectors];
#pragma GCC unroll 6
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) sum[r][v] = _mm512_setzero_ps();
  for (i64 k = call.count; k > 0; --k, a += a_step, b += b_step) {
    __m512 factors[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) factors[v] = _mm512_loadu_ps(b + v * kLanes);
#pragma GCC unroll 6
    for (int r = 0; r < rows; ++r) {
      const __m512 factor = _mm512_set1_ps(a[r * a_row]);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sum[r][v] = _mm512_fmadd_ps(factor, factors[v], sum[r][v]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      float* const to = call.sums + r * call.sums_row + v * kLanes;
      // Adding the sum of a block once loses fewer digits than adding each product.
      _mm512_storeu_ps(to, call.adds ? _mm512_add_ps(_mm512_loadu_ps(to), sum[r][v]) : sum[r][v]);
    }
}

/// Run multiply() for any number of rows.
inline void multiply_rows(ProductCall call, i64 rows, i64 lanes) {
  using Multiply = void (*)(const ProductCall&);
  static constexpr Multiply kMultiply[4][kRows] = {
      {multiply<1, 1>, multiply<2, 1>, multiply<3, 1>, multiply<4, 1>, multiply<5, 1>, multiply<6, 1>},
      {multiply<1, 2>, multiply<2, 2>, multiply<3, 2>, multiply<4, 2>, multiply<5, 2>, multiply<6, 2>},
      {multiply<1, 3>, multiply<2, 3>, multiply<3, 3>, multiply<4, 3>, multiply<5, 3>, multiply<6, 3>},
      {multiply<1, 4>, multiply<2, 4>, multiply<3, 4>, multiply<4, 4>, multiply<5, 4>, multiply<6, 4>}};
  for (; rows > 0; rows -= kRows, call.a += kRows * call.a_row, call.sums += kRows * call.sums_row)
    kMultiply[lanes / kLanes - 1][std::min(kRows, rows) - 1](call);
}

}  // namespace openmps::cpu::winograd

#endif
