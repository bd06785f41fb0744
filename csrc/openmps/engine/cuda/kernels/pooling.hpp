// SPDX-License-Identifier: Apache-2.0
// Pooling and its gradient.
#pragma once

#include "engine/cuda/kernels/constants.hpp"
#include "engine/cuda/kernels/vectors.hpp"
#include "engine/cuda/kernels/windows.hpp"
#include "engine/problem/pool.hpp"

namespace openmps::cuda::pooling {

inline constexpr const char* kFile = "engine/cuda/kernels/pooling.hpp";

struct Shape {
  PoolType type;
  WindowAxis rows, columns;
  i64 zero_pad_h, zero_pad_w;  ///< negative: all taps count

  MPSCNN_HOST_DEVICE static i64 taps_of(const WindowAxis& axis, i64 window, i64 zero_pad) {
    if (zero_pad < 0) return axis.kernel;
    return span_of(axis.start + window * axis.stride + zero_pad, axis.kernel, axis.dilation, axis.size + 2 * zero_pad)
        .count;
  }
  /// Taps that an average divides by, along each axis.
  MPSCNN_HOST_DEVICE i64 taps_h(i64 y) const { return taps_of(rows, y, zero_pad_h); }
  MPSCNN_HOST_DEVICE i64 taps_w(i64 x) const { return taps_of(columns, x, zero_pad_w); }
};

// ------------------------------------------------------------------------------------------------------------ pooling

struct PoolArgs {
  View src, dst;
  Shape shape;
  i64 parts;               ///< of each window
  Pointer<float> partial;  ///< max or sum of each part of the windows, as many as dst has values per part
};

/// Max or sum over part `part` of the taps of a window. Sums are of each row first: the error then grows with the
/// extents of the window, not with their product.
template <bool by_vectors>
MPSCNN_HOST_DEVICE void fold_taps(const PoolArgs& args, const Place& at, i64 part, float (&values)[kMostLanes]) {
  const int lanes = lanes_of<by_vectors>(args.src);
  const WindowTaps rows = args.shape.rows.taps(at.y), columns = args.shape.columns.taps(at.x);
  const i64 width = columns.count();
  i64 tap = 0, end = rows.count() * width, j = 0, i = 0;
  if (args.parts > 1) {
    tap = end * part / args.parts, end = end * (part + 1) / args.parts;
    if (width > 0) j = tap / width, i = tap - j * width;
  }
  const PoolType type = args.shape.type;
  const bool has_zeros = !args.shape.rows.clamps && (rows.is_outside() || columns.is_outside());
  float row[kMostLanes], x[kMostLanes];
  for (int k = 0; k < lanes; ++k) {
    values[k] = type == PoolType::max && !has_zeros ? -std::numeric_limits<float>::infinity() : 0.0f;
    row[k] = 0;
  }
  for (; tap < end; i = 0, ++j) {
    const i64 y = rows.at(j), stop = width - i < end - tap ? width : i + end - tap;
    for (tap += stop - i; i < stop; ++i) {
      load_lanes<by_vectors>(args.src, {at.n, y, columns.at(i), at.k}, x);
      if (type == PoolType::max) {
        for (int k = 0; k < lanes; ++k) values[k] = x[k] > values[k] || x[k] != x[k] ? x[k] : values[k];
      } else if (type == PoolType::average) {
        for (int k = 0; k < lanes; ++k) row[k] += x[k];
      } else {
        const auto times = static_cast<float>(columns.times(i));
        for (int k = 0; k < lanes; ++k) row[k] += times * (x[k] * x[k]);
      }
    }
    if (type == PoolType::max) continue;
    const float times = type == PoolType::average ? 1.0f : static_cast<float>(rows.times(j));
    for (int k = 0; k < lanes; ++k) values[k] += times * row[k], row[k] = 0;
  }
}

/// Return the result of a window from the max or sum over all of its taps.
MPSCNN_HOST_DEVICE float result_of(const Shape& shape, float value, float divisor) {
  return shape.type == PoolType::max ? value : shape.type == PoolType::average ? value / divisor : ::sqrtf(value);
}
MPSCNN_HOST_DEVICE float divisor_of(const Shape& shape, const Place& at) {
  if (shape.type != PoolType::average) return 1;
  const float taps = static_cast<float>(shape.taps_h(at.y)) * static_cast<float>(shape.taps_w(at.x));
  return taps > 1 ? taps : 1.0f;  // 0 if no tap counts
}

template <bool by_vectors>
MPSCNN_HOST_DEVICE void pool_window(const PoolArgs& args, i64 index) {
  const int lanes = lanes_of<by_vectors>(args.dst);
  const Place at = first_place_of(index, args.dst, lanes);
  float values[kMostLanes];
  fold_taps<by_vectors>(args, at, 0, values);
  const float divisor = divisor_of(args.shape, at);
  for (int k = 0; k < lanes; ++k) values[k] = result_of(args.shape, values[k], divisor);
  store_lanes<by_vectors>(args.dst, at, values);
}
MPSCNN_VALUE_KERNEL(pool, PoolArgs) { pool_window<false>(args, index); }
MPSCNN_VALUE_KERNEL(pool_vectors, PoolArgs) { pool_window<true>(args, index); }

struct MaxHalvesArgs {
  View src, dst;  ///< channels and strides are multiples of 8
  int kernel_h, kernel_w, stride_h, stride_w, start_h, start_w;
  int height, width;  ///< of src
  bool counts_zeros;  ///< out-of-bounds taps are 0; otherwise they are the nearest pixel
};
/// Max over windows of kernel_h x kernel_w, each of which meets the source. One thread for 8 channels. Out-of-bounds
/// taps read the nearest pixel, which changes no max.
template <int kernel_h, int kernel_w>
MPSCNN_HOST_DEVICE void max_of_window(const MaxHalvesArgs& args, i64 index) {
  const Place at = first_place_of(index, args.dst, 8);
  const int top = static_cast<int>(at.y) * args.stride_h + args.start_h,
            left = static_cast<int>(at.x) * args.stride_w + args.start_w;
  const int rows = kernel_h ? kernel_h : args.kernel_h, columns = kernel_w ? kernel_w : args.kernel_w;
  const bool has_zeros =
      args.counts_zeros && (top < 0 || left < 0 || top + rows > args.height || left + columns > args.width);
  Vector most;
  for (std::uint32_t& word : most.words) word = has_zeros ? 0 : 0xfc00fc00u;  // -infinity
  const unsigned char* const image = args.src.data.get() + args.src.offset(at.n, 0, 0, at.k) * 2;
  for (int j = 0; j < rows; ++j) {
    const int y = std::clamp(top + j, 0, args.height - 1);
    for (int i = 0; i < columns; ++i) {
      const int x = std::clamp(left + i, 0, args.width - 1);
      const Vector taps = *reinterpret_cast<const Vector*>(image + (y * args.src.h_stride + x * args.src.w_stride) * 2);
      for (int k = 0; k < 4; ++k) most.words[k] = max_of_halves(taps.words[k], most.words[k]);
    }
  }
  *reinterpret_cast<Vector*>(args.dst.data.get() + args.dst.offset(at.n, at.y, at.x, at.k) * 2) = most;
}
MPSCNN_VALUE_KERNEL(pool_max_halves, MaxHalvesArgs) { max_of_window<0, 0>(args, index); }
MPSCNN_VALUE_KERNEL(pool_max_halves_2x2, MaxHalvesArgs) { max_of_window<2, 2>(args, index); }
MPSCNN_VALUE_KERNEL(pool_max_halves_3x3, MaxHalvesArgs) { max_of_window<3, 3>(args, index); }

/// Parts of windows: large windows of few results need more threads than there are results.
MPSCNN_VALUE_KERNEL(pool_parts, PoolArgs) {
  const i64 size = args.dst.size(), part = index / size;
  float values[kMostLanes];
  fold_taps<false>(args, place_of(index - part * size, args.dst), part, values);
  args.partial[index] = values[0];
}
MPSCNN_VALUE_KERNEL(pool_combine, PoolArgs) {
  const Place at = place_of(index, args.dst);
  const i64 size = args.dst.size();
  float most = args.partial[index];
  double sum = most;
  for (i64 part = 1; part < args.parts; ++part) {
    const float x = args.partial[part * size + index];
    most = x > most || x != x ? x : most;
    sum += x;
  }
  const float value = args.shape.type == PoolType::max ? most : static_cast<float>(sum);
  store(args.dst, at, result_of(args.shape, value, divisor_of(args.shape, at)));
}

// ----------------------------------------------------------------------------------------------------------- gradient

constexpr std::uint32_t kNoPixel = 0xffffffffu;

struct PoolGradientArgs {
  View diff_dst, src, diff_src;
  i64 first_h, first_w;
  Shape shape;
  Pointer<std::uint32_t> chosen;  ///< max: row * width + column of the pixel that each window gives its gradient to
  Pointer<float> quotients;       ///< l2_norm: gradient / result of each window
};

/// Find each window's first max, rows before columns; NaN is greater than any number.
template <bool by_vectors>
MPSCNN_HOST_DEVICE void choose_pixels(const PoolGradientArgs& args, i64 index) {
  const int lanes = lanes_of<by_vectors>(args.src);
  const Place at = first_place_of(index, args.diff_dst, lanes);
  const WindowTaps rows = args.shape.rows.taps(at.y), columns = args.shape.columns.taps(at.x);
  float best[kMostLanes], x[kMostLanes];
  std::uint32_t chosen[kMostLanes];
  for (int k = 0; k < lanes; ++k) chosen[k] = kNoPixel, best[k] = 0;
  for (i64 j = 0; j < rows.count(); ++j) {
    const i64 y = rows.at(j);
    for (i64 i = 0; i < columns.count(); ++i) {
      const i64 column = columns.at(i);
      const auto pixel = static_cast<std::uint32_t>(y * args.src.w + column);
      load_lanes<by_vectors>(args.src, {at.n, y, column, at.k}, x);
      for (int k = 0; k < lanes; ++k) {
        const bool is_better = chosen[k] == kNoPixel || x[k] > best[k] || (x[k] != x[k] && best[k] == best[k]);
        best[k] = is_better ? x[k] : best[k];
        chosen[k] = is_better ? pixel : chosen[k];
      }
    }
  }
  if (!args.shape.rows.clamps && (rows.is_outside() || columns.is_outside()))
    for (int k = 0; k < lanes; ++k) chosen[k] = best[k] < 0 ? kNoPixel : chosen[k];
  store_words<by_vectors>(args.chosen, index * lanes, lanes, chosen);
}
MPSCNN_VALUE_KERNEL(pool_choose, PoolGradientArgs) { choose_pixels<false>(args, index); }
MPSCNN_VALUE_KERNEL(pool_choose_vectors, PoolGradientArgs) { choose_pixels<true>(args, index); }

MPSCNN_VALUE_KERNEL(pool_divide_by_norms, PoolGradientArgs) {
  const Place at = place_of(index, args.diff_dst);
  const PoolArgs forward{args.src, args.diff_dst, args.shape, 1, {}};
  float squares[kMostLanes];
  fold_taps<false>(forward, at, 0, squares);
  args.quotients[index] = squares[0] == 0 ? 0.0f : load(args.diff_dst, at) / ::sqrtf(squares[0]);
}

/// Gather the gradients of all windows that read a pixel.
template <bool by_vectors>
MPSCNN_HOST_DEVICE void gather_gradients(const PoolGradientArgs& args, i64 index) {
  const int lanes = lanes_of<by_vectors>(args.diff_src);
  const Place at = first_place_of(index, args.diff_src, lanes);
  const Shape& shape = args.shape;
  const i64 y = args.first_h + at.y, x = args.first_w + at.x;
  i64 first_row, last_row, first_column, last_column;
  shape.rows.find_readers(y, first_row, last_row);
  shape.columns.find_readers(x, first_column, last_column);
  const auto pixel = static_cast<std::uint32_t>(y * args.src.w + x);
  float sums[kMostLanes], row[kMostLanes], diff[kMostLanes];
  std::uint32_t chosen[kMostLanes];
  for (int k = 0; k < lanes; ++k) sums[k] = 0;
  for (i64 v = first_row; v <= last_row; ++v) {
    const i64 times_h = shape.rows.times(v, y);
    if (times_h == 0) continue;
    for (int k = 0; k < lanes; ++k) row[k] = 0;
    for (i64 u = first_column; u <= last_column; ++u) {
      const i64 window = ((at.n * args.diff_dst.h + v) * args.diff_dst.w + u) * args.diff_dst.c + at.k;
      if (shape.type == PoolType::max) {
        load_words<by_vectors>(args.chosen, window, lanes, chosen);
        load_lanes<by_vectors>(args.diff_dst, {at.n, v, u, at.k}, diff);
        for (int k = 0; k < lanes; ++k) row[k] += chosen[k] == pixel ? diff[k] : 0.0f;
        continue;
      }
      const i64 times_w = shape.columns.times(u, x);
      if (times_w == 0) continue;
      if (shape.type == PoolType::average) {
        const i64 taps = shape.taps_w(u);
        const float weight = 1.0f / static_cast<float>(taps > 1 ? taps : 1);
        load_lanes<by_vectors>(args.diff_dst, {at.n, v, u, at.k}, diff);
        for (int k = 0; k < lanes; ++k) row[k] += weight * diff[k];
      } else {
        load_words<by_vectors>(args.quotients, window, lanes, diff);
        for (int k = 0; k < lanes; ++k) row[k] += static_cast<float>(times_w) * diff[k];
      }
    }
    float weight = 1;
    if (shape.type == PoolType::average) {
      const i64 taps = shape.taps_h(v);
      weight = 1.0f / static_cast<float>(taps > 1 ? taps : 1);
    } else if (shape.type == PoolType::l2_norm) {
      weight = static_cast<float>(times_h);
    }
    for (int k = 0; k < lanes; ++k) sums[k] += weight * row[k];
  }
  if (shape.type == PoolType::l2_norm && last_row >= 0 && last_column >= 0) {
    load_lanes<by_vectors>(args.src, {at.n, y, x, at.k}, diff);
    for (int k = 0; k < lanes; ++k) sums[k] *= diff[k];
  }
  store_lanes<by_vectors>(args.diff_src, at, sums);
}
MPSCNN_VALUE_KERNEL(pool_gradient, PoolGradientArgs) { gather_gradients<false>(args, index); }
MPSCNN_VALUE_KERNEL(pool_gradient_vectors, PoolGradientArgs) { gather_gradients<true>(args, index); }

}  // namespace openmps::cuda::pooling
