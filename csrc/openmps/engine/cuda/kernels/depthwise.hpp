// SPDX-License-Identifier: Apache-2.0
// Depth-wise convolutions with square kernels and without dilation, for several files: each is compiled when one of its
// kernels is first used. A thread has some adjacent channels and walks over rows with its sums in registers, so that
// each value is loaded few times.
#pragma once

#include "engine/cuda/kernels/constants.hpp"

namespace openmps::cuda::depthwise {

/// kLanes values that one instruction loads.
template <class T, int kLanes>
struct alignas(sizeof(T) * kLanes) Lanes {
  T values[kLanes];
};

/// Load adjacent values; `offset` is a multiple of kLanes, and so is the address in elements. float16 or float32.
template <int kLanes>
MPSCNN_HOST_DEVICE void load_lanes(Format format, const unsigned char* data, i64 offset, float (&to)[kLanes]) {
  if (format == Format::float16) {
    const auto lanes = *reinterpret_cast<const Lanes<std::uint16_t, kLanes>*>(data + offset * 2);
    MPSCNN_UNROLL
    for (int i = 0; i < kLanes; ++i) to[i] = half_value(lanes.values[i]);
  } else {
    const auto lanes = *reinterpret_cast<const Lanes<float, kLanes>*>(data + offset * 4);
    MPSCNN_UNROLL
    for (int i = 0; i < kLanes; ++i) to[i] = lanes.values[i];
  }
}
template <int kLanes>
MPSCNN_HOST_DEVICE void store_lanes(Format format, unsigned char* data, i64 offset, const float (&from)[kLanes]) {
  if (format == Format::float16) {
    Lanes<std::uint32_t, kLanes / 2> lanes;
    MPSCNN_UNROLL
    for (int i = 0; i < kLanes / 2; ++i) lanes.values[i] = half_pair(from[2 * i], from[2 * i + 1]);
    *reinterpret_cast<Lanes<std::uint32_t, kLanes / 2>*>(data + offset * 2) = lanes;
  } else {
    Lanes<float, kLanes> lanes;
    MPSCNN_UNROLL
    for (int i = 0; i < kLanes; ++i) lanes.values[i] = from[i];
    *reinterpret_cast<Lanes<float, kLanes>*>(data + offset * 4) = lanes;
  }
}

/// Values of a thread as they are in memory: half of the words with float16.
template <int kLanes>
struct Stored {
  std::uint32_t words[kLanes];
};
template <int kLanes>
MPSCNN_HOST_DEVICE void load_stored(Format format, const unsigned char* from, bool is_inside, Stored<kLanes>& to) {
  if (format == Format::float16) {
    const auto bits = load_constant<kLanes / 2>(from, is_inside);
    MPSCNN_UNROLL
    for (int i = 0; i < kLanes / 2; ++i) to.words[i] = bits.words[i];
  } else {
    const auto bits = load_constant<kLanes>(from, is_inside);
    MPSCNN_UNROLL
    for (int i = 0; i < kLanes; ++i) to.words[i] = bits.words[i];
  }
}
template <int kLanes>
MPSCNN_HOST_DEVICE float value_of(Format format, const Stored<kLanes>& stored, int i) {
  if (format != Format::float16) return std::bit_cast<float>(stored.words[i]);
  return half_value(static_cast<std::uint16_t>(stored.words[i / 2] >> (i % 2 * 16)));
}

/// Not inlined: the formulas would be repeated for every value of a thread, and take its registers.
MPSCNN_NO_INLINE float activate_any(const Activation& f, float x, i64 channel) { return activate(f, x, channel); }

struct DepthwiseArgs {
  View src, dst;                       ///< one format, float16 or float32
  Pointer<const float> weights, bias;  ///< weights [kH][kW][C]; null bias: none
  i64 start_h = 0, start_w = 0;
  bool clamps = false;                    ///< out-of-bounds taps read the edge; only if kAny
  bool rotated = false;                   ///< both kernel axes are reversed
  i64 rows = 1, strips = 1, columns = 1;  ///< rows per thread, threads per column and per row
  Activation neuron;                      ///< one of Clip, unless kAny
};

/// Compute some rows of kColumns columns. Each row of the source is loaded while the previous one is multiplied. kAny:
/// any activation and clamped taps, which take registers.
template <int kKernel, int kStride, int kLanes, int kColumns, bool kAny>
MPSCNN_HOST_DEVICE void march(const DepthwiseArgs& args, i64 index) {
  constexpr int kLive = (kKernel + kStride - 1) / kStride;    // rows of results that a row of the source adds to
  constexpr int kWidth = (kColumns - 1) * kStride + kKernel;  // columns of the source that a thread reads
  constexpr int kTaps = kKernel * kKernel;
  const View &src = args.src, &dst = args.dst;
  const Format format = format_of(src);
  const i64 bytes = format == Format::float16 ? 2 : 4;
  const Place at = place_of(index, args.strips, args.columns, dst.c / kLanes);
  const i64 channel = at.k * kLanes;
  const int x0 = static_cast<int>(at.x) * kColumns, first = static_cast<int>(at.y * args.rows);
  const int height = static_cast<int>(src.h), width = static_cast<int>(src.w);
  const int results = static_cast<int>(first + args.rows < dst.h ? args.rows : dst.h - first);
  const int left = static_cast<int>(args.start_w) + x0 * kStride;
  const int top = static_cast<int>(args.start_h) + first * kStride;
  const Clip clip(args.neuron);
  const bool clips = is_clip(args.neuron.type, args.neuron.a);

  float weights[kTaps][kLanes];
  MPSCNN_UNROLL
  for (int t = 0; t < kTaps; ++t)
    load_lanes(Format::float32, reinterpret_cast<const unsigned char*>(args.weights.get()),
               (args.rotated ? kTaps - 1 - t : t) * dst.c + channel, weights[t]);
  float bias[kLanes] = {};
  if (args.bias) load_lanes(Format::float32, reinterpret_cast<const unsigned char*>(args.bias.get()), channel, bias);

  const int rows = kStride * (results - 1) + kKernel;  // of the source
  unsigned inside = 0;                                 // columns, one bit each
  MPSCNN_UNROLL
  for (int i = 0; i < kWidth; ++i)
    if ((kAny && args.clamps) || static_cast<unsigned>(left + i) < static_cast<unsigned>(width)) inside |= 1u << i;
  const unsigned char* const image = src.data.get() + bytes * src.offset(at.n, 0, 0, channel);
  const i64 w_step = bytes * src.w_stride;
  Stored<kLanes> next[kWidth];
  const auto load_row = [&](int row) {
    int y = top + row;
    if (kAny && args.clamps) y = y < 0 ? 0 : y >= height ? height - 1 : y;
    const bool has_row = row < rows && static_cast<unsigned>(y) < static_cast<unsigned>(height);
    const unsigned char* const line = image + bytes * y * src.h_stride;
    MPSCNN_UNROLL
    for (int i = 0; i < kWidth; ++i) {
      int x = left + i;
      if (kAny && args.clamps) x = x < 0 ? 0 : x >= width ? width - 1 : x;
      load_stored<kLanes>(format, line + x * w_step, has_row && (inside >> i & 1), next[i]);
    }
  };
  load_row(0);

  float sums[kLive][kColumns][kLanes];  // of result y: slot y % kLive
  for (int base = 0; base * kStride < rows; base += kLive) {
    MPSCNN_UNROLL
    for (int k = 0; k < kLive; ++k) {
      const int step = base + k;  // adds kStride rows of the source, and ends result step - (kLive - 1)
      MPSCNN_UNROLL
      for (int t = 0; t < kColumns; ++t) {
        MPSCNN_UNROLL
        for (int l = 0; l < kLanes; ++l) sums[k][t][l] = bias[l];
      }
      MPSCNN_UNROLL
      for (int j = 0; j < kStride; ++j) {
        float values[kWidth][kLanes];
        MPSCNN_UNROLL
        for (int i = 0; i < kWidth; ++i) {
          MPSCNN_UNROLL
          for (int l = 0; l < kLanes; ++l) values[i][l] = value_of(format, next[i], l);
        }
        load_row(step * kStride + j + 1);
        MPSCNN_UNROLL
        for (int d = 0; d < kLive; ++d) {
          const int p = j + d * kStride, slot = (k - d + kLive) % kLive;
          if (p >= kKernel) continue;
          MPSCNN_UNROLL
          for (int t = 0; t < kColumns; ++t) {
            MPSCNN_UNROLL
            for (int q = 0; q < kKernel; ++q) {
              MPSCNN_UNROLL
              for (int l = 0; l < kLanes; ++l)
                sums[slot][t][l] += weights[p * kKernel + q][l] * values[t * kStride + q][l];
            }
          }
        }
      }
      const int result = step - (kLive - 1), slot = (k + 1) % kLive;
      if (result < 0 || result >= results) continue;
      MPSCNN_UNROLL
      for (int t = 0; t < kColumns; ++t) {
        if (x0 + t >= dst.w) continue;
        float lanes[kLanes];
        MPSCNN_UNROLL
        for (int l = 0; l < kLanes; ++l) {
          if (kAny && !clips)
            lanes[l] = activate_any(args.neuron, sums[slot][t][l], channel + l);
          else
            lanes[l] = clip(sums[slot][t][l]);
        }
        store_lanes(format, dst.data.get(), dst.offset(at.n, first + result, x0 + t, channel), lanes);
      }
    }
  }
}

}  // namespace openmps::cuda::depthwise
