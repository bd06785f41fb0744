// SPDX-License-Identifier: Apache-2.0
// Max pooling of a normalized image that is not stored, and its gradient by the source of the normalization: the first
// layers of residual networks in training.
#pragma once

#include "engine/cuda/kernels/max_pool_gradient.hpp"
#include "engine/cuda/kernels/statistics.hpp"

namespace openmps::cuda::normalize_pool {

inline constexpr const char* kFile = "engine/cuda/kernels/normalize_pool.hpp";

using max_pool_gradient::Args, max_pool_gradient::TileMemory;
using normalization::Coefficients, normalization::GradientCoefficients, normalization::Pair;

struct PoolArgs {
  View src, dst;  ///< channels and strides are multiples of 16 bytes
  normalization::StoredCoefficients coefficients;
  int start_h, start_w;
};

/// Return for each value of 16 bytes a word or half of its sign bit, if its scale is negative.
MPSCNN_HOST_DEVICE Bits<4> flips_of(const View& view, const Coefficients* known) {
  Bits<4> flips{};
  for (int i = 0; i < lanes_of<true>(view); ++i) {
    if (!(known[i].scale < 0)) continue;
    if (format_of(view) == Format::float16)
      flips.words[i / 2] |= 0x8000u << (i % 2 * 16);
    else
      flips.words[i] = 0x80000000u;
  }
  return flips;
}
MPSCNN_HOST_DEVICE Bits<4> flipped(const Bits<4>& values, const Bits<4>& flips) {
  Bits<4> result;
  for (int v = 0; v < 4; ++v) result.words[v] = values.words[v] ^ flips.words[v];
  return result;
}

/// Return the values of the source whose normalized values are the maxima of a window: its maxima or, with a negative
/// scale, its minima. NaN is greater than any number. Out-of-bounds taps are the nearest pixel, which changes no max.
MPSCNN_HOST_DEVICE Vector max_of_window(const View& src, i64 image, i64 channel, const Bits<4>& flips, int top,
                                        int left, int kernel_h, int kernel_w) {
  const int height = static_cast<int>(src.h), width = static_cast<int>(src.w);
  const bool is_half = format_of(src) == Format::float16;
  const unsigned char* const pixels = src.data.get() + src.offset(image, 0, 0, channel) * (is_half ? 2 : 4);
  Bits<4> most{};
  MPSCNN_UNROLL
  for (int j = 0; j < kernel_h; ++j) {
    const i64 row = std::clamp(top + j, 0, height - 1) * src.h_stride;
    MPSCNN_UNROLL
    for (int i = 0; i < kernel_w; ++i) {
      const i64 at = row + std::clamp(left + i, 0, width - 1) * src.w_stride;
      const Bits<4> tap = flipped(load_constant<4>(pixels + at * (is_half ? 2 : 4)), flips);
      const bool is_first = j == 0 && i == 0;
      MPSCNN_UNROLL
      for (int v = 0; v < 4; ++v) {
        if (is_half) {
          most.words[v] = is_first ? tap.words[v] : max_of_halves(tap.words[v], most.words[v]);
        } else {
          const float x = std::bit_cast<float>(tap.words[v]), known = std::bit_cast<float>(most.words[v]);
          if (is_first || x > known || x != x) most.words[v] = tap.words[v];
        }
      }
    }
  }
  most = flipped(most, flips);
  return {{most.words[0], most.words[1], most.words[2], most.words[3]}};
}

/// dst = max of relu((x - mean) * scale + shift) over windows of 3 x 3 pixels, each of which meets the source. One
/// thread for 16 bytes of channels.
MPSCNN_VALUE_KERNEL(pool_normalized_3x3, PoolArgs) {
  const View &src = args.src, &dst = args.dst;
  const int lanes = lanes_of<true>(dst);
  const Place at = first_place_of(index, dst, lanes);
  Coefficients known[kMostLanes];
  args.coefficients.load<true>(at.k, lanes, known);
  const Vector most = max_of_window(src, at.n, at.k, flips_of(src, known), static_cast<int>(at.y) * 2 + args.start_h,
                                    static_cast<int>(at.x) * 2 + args.start_w, 3, 3);
  float values[kMostLanes];
  for (int l = 0; l < lanes; ++l)
    values[l] = NeuronFormulas<DeviceMath>::relu(
        (lane_of(src, most, l) - known[l].mean) * known[l].scale + known[l].shift, 0.0f);
  store_lanes<true>(dst, at, values);
}

// ---------------------------------------------------------------------------------------------------------- gradients

constexpr int kChannelsOfTile = max_pool_gradient::kVectorsOfTile * kMostLanes;

struct GradientArgs {
  Args pool;  ///< src: that of the normalization; diff_src: the gradient by it
  normalization::GradientSumsArgs sums;
  Activation neuron;      ///< none or relu
  i64 parts;              ///< sums: blocks of a chunk of channels
  Pointer<Pair> partial;  ///< [channel][part]

  MPSCNN_HOST_DEVICE i64 first_channel(i64 index) const {
    return (index % pool.chunks << pool.vector_bits) * lanes_of<true>(pool.src);
  }
};

/// Coefficients of the channels of a tile.
template <class T>
struct ChannelsOfTile {
  T of[kChannelsOfTile];

  template <class Find>
  MPSCNN_HOST_DEVICE void fill(const GradientArgs& args, i64 first, const Block& block, const Find& find) {
    const i64 channels = args.pool.src.c - first;
    block.for_each(channels < kChannelsOfTile ? channels : kChannelsOfTile, [&](i64 i) { of[i] = find(first + i); });
  }
};

/// Values whose order is that of the normalized ones: with a negative scale, of the other sign. Where the normalized
/// values differ less than they are rounded, the max is that of the exact ones.
struct Source {
  const View& src;
  const Coefficients* known;  ///< of channel `first` and the following ones
  i64 first;

  struct Lanes {
    Bits<4> flips;
    MPSCNN_HOST_DEVICE Bits<4> operator()(const Bits<4>& values) const { return flipped(values, flips); }
  };
  MPSCNN_HOST_DEVICE Lanes lanes(i64 channel) const { return {flips_of(src, known + (channel - first))}; }
};

/// Sums of each thread: of lane i of thread t at i * kThreads + t.
struct SumsOfThreads {
  Pair of[kThreads * kMostLanes];
};

/// Stores the gradient by the source of the normalization.
struct StoringSink {
  const GradientArgs& args;
  const Coefficients* known;
  const GradientCoefficients* own;
  i64 first;

  MPSCNN_HOST_DEVICE void take(const Place& at, const float (&gradient)[kMostLanes]) const {
    const View& src = args.pool.src;
    float x[kMostLanes];
    load_lanes<true>(src, at, x);
    MPSCNN_UNROLL
    for (int i = 0; i < lanes_of<true>(src); ++i) {
      const i64 k = at.k - first + i;
      x[i] = normalization::gradient_of<true>(args.neuron, at.k + i, known[k], own[k], x[i], gradient[i]);
    }
    store_lanes<true>(args.pool.diff_src, at, x);
  }
};

/// Sum G, the gradient before the neuron, and G * (x - mean): each window's gradient is that of one pixel. Index: part
/// * chunks of channels + chunk.
MPSCNN_BLOCK_KERNEL(sum_pooled_gradients_3x3, GradientArgs, 2) {
  MPSCNN_SHARED(ChannelsOfTile<Coefficients>, shared_known, 1);
  MPSCNN_SHARED(SumsOfThreads, shared, 1);
  const View &src = args.pool.src, &gradients = args.pool.diff_dst;
  const int lanes = lanes_of<true>(src), vectors = 1 << args.pool.vector_bits;
  const i64 first = args.first_channel(index), chunks = args.pool.chunks, part = index / chunks;
  const auto windows = static_cast<std::uint32_t>(gradients.n * gradients.h * gradients.w),
             height = static_cast<std::uint32_t>(gradients.h), width = static_cast<std::uint32_t>(gradients.w);
  Pair* const sums = shared.own(0).of;
  const Coefficients* const known = shared_known.own(0).of;
  shared_known.own(0).fill(args, first, block, [&](i64 k) { return args.sums.forward.find(0, k); });
  block.for_each(kThreads, [&](i64 thread) {
    for (int i = 0; i < lanes; ++i) sums[i * kThreads + thread] = {0, 0};
    const i64 channel = first + (thread & (vectors - 1)) * lanes;
    if (channel >= src.c) return;
    const Coefficients* const own = known + (channel - first);
    const Bits<4> flips = flips_of(src, own);
    constexpr int kTogether = 8;  // windows summed in float
    const auto step = static_cast<std::uint32_t>(args.parts * (kThreads >> args.pool.vector_bits));
    std::uint32_t window =
        static_cast<std::uint32_t>(part * (kThreads >> args.pool.vector_bits) + (thread >> args.pool.vector_bits));
    while (window < windows) {
      float a[kMostLanes] = {}, b[kMostLanes] = {};
      for (int turn = 0; turn < kTogether && window < windows; ++turn, window += step) {
        const std::uint32_t line = window / width, image = line / height, y = line - image * height,
                            x = window - line * width;
        float gradient[kMostLanes];
        load_lanes<true>(gradients, gradients.offset(image, y, x, channel), gradient);
        const Vector most = max_of_window(src, image, channel, flips, static_cast<int>(y) * 2 + args.pool.rows.start,
                                          static_cast<int>(x) * 2 + args.pool.columns.start, 3, 3);
        MPSCNN_UNROLL
        for (int i = 0; i < lanes; ++i) {
          const float distance = lane_of(src, most, i) - own[i].mean, value = distance * own[i].scale + own[i].shift;
          const float g = normalization::slope_times<true>(args.neuron, gradient[i], value, channel + i);
          a[i] += g;
          b[i] += g * distance;
        }
      }
      for (int i = 0; i < lanes; ++i) {
        Pair& sum = sums[i * kThreads + thread];
        sum = normalization::added(sum, {a[i], b[i]});
      }
    }
  });
  block.for_each(i64{vectors} * lanes, [&](i64 i) {
    const i64 channel = first + i;
    if (channel >= src.c) return;
    const int vector = static_cast<int>(i) / lanes, lane = static_cast<int>(i) % lanes;
    Pair total{0, 0};
    for (int thread = vector; thread < kThreads; thread += vectors)
      total = normalization::added(total, sums[lane * kThreads + thread]);
    args.partial[channel * args.parts + part] = total;
  });
}

/// Store the gradients of channel `index` by gamma and beta.
MPSCNN_WARP_KERNEL(add_pooled_sums, GradientArgs) {
  const Pair* const parts = args.partial.get() + index * args.parts;
  const Pair sums = warp.reduce(
      args.parts, Pair{0, 0}, [&](i64 part) { return parts[part]; },
      [](const Pair& x, const Pair& y) { return normalization::added(x, y); });
  warp.for_each(1, [&](i64) { args.sums.store(index, sums); });
}

template <int kKernel, int kStride>
MPSCNN_HOST_DEVICE void store_tile(const GradientArgs& args, i64 index, const Block& block) {
  MPSCNN_SHARED(TileMemory, taps, 1);
  MPSCNN_SHARED(ChannelsOfTile<Coefficients>, known, 1);
  MPSCNN_SHARED(ChannelsOfTile<GradientCoefficients>, own, 1);
  const i64 first = args.first_channel(index);
  known.own(0).fill(args, first, block, [&](i64 k) { return args.sums.forward.find(0, k); });
  own.own(0).fill(args, first, block, [&](i64 k) { return args.sums.find(0, k); });
  const Source source{args.pool.src, known.own(0).of, first};
  const StoringSink sink{args, known.own(0).of, own.own(0).of, first};
  max_pool_gradient::compute_tile<kKernel, kStride>(args.pool, index, block, taps.own(0).taps, source, sink);
}

MPSCNN_BLOCK_KERNEL(pooled_gradients_3x3, GradientArgs, 3) { store_tile<3, 2>(args, index, block); }

}  // namespace openmps::cuda::normalize_pool
