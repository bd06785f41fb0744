// SPDX-License-Identifier: Apache-2.0
// Depth-wise convolutions with square kernels and without dilation, and their gradients by the weights. A thread has
// some adjacent channels and walks over rows or columns with its sums in registers, so that each value is loaded few
// times.
#pragma once

#include "engine/cuda/kernels/device.hpp"

#if MPSCNN_ON_GPU
#define MPSCNN_UNROLL _Pragma("unroll")
#define MPSCNN_NO_INLINE __noinline__
#else
#define MPSCNN_UNROLL
#define MPSCNN_NO_INLINE inline __attribute__((noinline))
#endif

namespace openmps::cuda::depthwise {

inline constexpr const char* kFile = "engine/cuda/kernels/conv_depthwise.hpp";

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
    Lanes<std::uint16_t, kLanes> lanes;
    MPSCNN_UNROLL
    for (int i = 0; i < kLanes; ++i) lanes.values[i] = half_bits(from[i]);
    *reinterpret_cast<Lanes<std::uint16_t, kLanes>*>(data + offset * 2) = lanes;
  } else {
    Lanes<float, kLanes> lanes;
    MPSCNN_UNROLL
    for (int i = 0; i < kLanes; ++i) lanes.values[i] = from[i];
    *reinterpret_cast<Lanes<float, kLanes>*>(data + offset * 4) = lanes;
  }
}

/// Not inlined: the formulas would be repeated for every value of a thread, and take its registers.
MPSCNN_NO_INLINE float activate_any(const Activation& f, float x, i64 channel) { return activate(f, x, channel); }

MPSCNN_HOST_DEVICE float activate_soon(const Activation& f, float x, i64 channel) {
  using F = NeuronFormulas<DeviceMath>;
  if (f.type == NeuronType::none) return x;
  if (f.type == NeuronType::relu) return F::relu(x, f.a);
  if (f.type == NeuronType::relun) return F::relun(x, f.a, f.b);
  return activate_any(f, x, channel);
}

struct DepthwiseArgs {
  View src, dst;                       ///< one format, float16 or float32
  Pointer<const float> weights, bias;  ///< weights [kH][kW][C]; null bias: none
  i64 start_h = 0, start_w = 0;
  bool clamps = false;                    ///< out-of-bounds taps read the edge
  bool rotated = false;                   ///< both kernel axes are reversed
  i64 rows = 1, strips = 1, columns = 1;  ///< rows per thread, threads per column and per row
  Activation neuron;
};

template <int kKernel, int kStride, int kLanes, int kColumns>
MPSCNN_HOST_DEVICE void march(const DepthwiseArgs& args, i64 index) {
  constexpr int kLive = (kKernel + kStride - 1) / kStride;    // rows of results that a row of the source adds to
  constexpr int kWidth = (kColumns - 1) * kStride + kKernel;  // columns of the source that a thread reads
  constexpr int kTaps = kKernel * kKernel;
  const View &src = args.src, &dst = args.dst;
  const Format format = format_of(src);
  const Place at = place_of(index, args.strips, args.columns, dst.c / kLanes);
  const i64 channel = at.k * kLanes;
  const int x0 = static_cast<int>(at.x) * kColumns, first = static_cast<int>(at.y * args.rows);
  const int height = static_cast<int>(src.h), width = static_cast<int>(src.w);
  const int end = static_cast<int>(first + args.rows < dst.h ? first + args.rows : dst.h);
  const int left = static_cast<int>(args.start_w) + x0 * kStride, top = static_cast<int>(args.start_h);

  float weights[kTaps][kLanes];
  MPSCNN_UNROLL
  for (int t = 0; t < kTaps; ++t)
    load_lanes(Format::float32, reinterpret_cast<const unsigned char*>(args.weights.get()),
               (args.rotated ? kTaps - 1 - t : t) * dst.c + channel, weights[t]);
  float sums[kLive][kColumns][kLanes] = {};  // of result y: slot (y - first) % kLive

  for (int base = first; base < end + kLive - 1; base += kLive) {
    MPSCNN_UNROLL
    for (int k = 0; k < kLive; ++k) {
      const int step = base + k;  // adds kStride rows of the source, and ends result step - (kLive - 1)
      MPSCNN_UNROLL
      for (int t = 0; t < kColumns; ++t) {
        MPSCNN_UNROLL
        for (int i = 0; i < kLanes; ++i) sums[k][t][i] = 0;
      }
      MPSCNN_UNROLL
      for (int j = 0; j < kStride; ++j) {
        const int beyond = step - (end - 1);
        if (beyond > 0 && j + kStride * beyond >= kKernel) continue;  // no result of the strip reads it
        int y = top + step * kStride + j;
        if (args.clamps) y = y < 0 ? 0 : y >= height ? height - 1 : y;
        if (y < 0 || y >= height) continue;
        const i64 row = src.offset(at.n, y, 0, channel);
        float values[kWidth][kLanes];
        MPSCNN_UNROLL
        for (int i = 0; i < kWidth; ++i) {
          int x = left + i;
          if (args.clamps) x = x < 0 ? 0 : x >= width ? width - 1 : x;
          if (x >= 0 && x < width) {
            load_lanes(format, src.data.get(), row + x * src.w_stride, values[i]);
          } else {
            MPSCNN_UNROLL
            for (int l = 0; l < kLanes; ++l) values[i][l] = 0;
          }
        }
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
      if (result < first || result >= end) continue;
      MPSCNN_UNROLL
      for (int t = 0; t < kColumns; ++t) {
        if (x0 + t >= dst.w) continue;
        float lanes[kLanes];
        MPSCNN_UNROLL
        for (int l = 0; l < kLanes; ++l) {
          const float sum = args.bias ? sums[slot][t][l] + args.bias[channel + l] : sums[slot][t][l];
          lanes[l] = activate_soon(args.neuron, sum, channel + l);
        }
        store_lanes(format, dst.data.get(), dst.offset(at.n, result, x0 + t, channel), lanes);
      }
    }
  }
}

// 3 x 3 and 5 x 5, with channels and columns that fit a thread's registers.
MPSCNN_VALUE_KERNEL(conv_depthwise_3x3, DepthwiseArgs) { march<3, 1, 4, 4>(args, index); }
MPSCNN_VALUE_KERNEL(conv_depthwise_3x3_stride_2, DepthwiseArgs) { march<3, 2, 4, 2>(args, index); }
MPSCNN_VALUE_KERNEL(conv_depthwise_5x5, DepthwiseArgs) { march<5, 1, 2, 4>(args, index); }
MPSCNN_VALUE_KERNEL(conv_depthwise_5x5_stride_2, DepthwiseArgs) { march<5, 2, 2, 2>(args, index); }

/// Partial sums of the weights' gradients over runs of rows of diff_dst.
struct DepthwiseWeightsArgs {
  View diff_dst, src;  ///< one format, float16 or float32
  i64 start_h = 0, start_w = 0;
  bool clamps = false;
  i64 rows = 1;             ///< per split
  Pointer<float> partials;  ///< [split][kH][kW][C]
};

template <int kKernel, int kStride, int kLanes>
MPSCNN_HOST_DEVICE void march_weights(const DepthwiseWeightsArgs& args, i64 index) {
  constexpr int kTaps = kKernel * kKernel, kKept = kKernel > kStride ? kKernel - kStride : 0;
  const View &e = args.diff_dst, &src = args.src;
  const Format format = format_of(e);
  const Place at = place_of(index, 1, 1, e.c / kLanes);
  const i64 split = at.n, channel = at.k * kLanes, rows = e.n * e.h;
  const i64 last = (split + 1) * args.rows < rows ? (split + 1) * args.rows : rows;
  const int height = static_cast<int>(src.h), width = static_cast<int>(src.w), results = static_cast<int>(e.w);
  float sums[kTaps][kLanes] = {};
  float seen[kKernel][kKernel][kLanes] =
      {};  // column u * kStride + q of the window is in slot (u * kStride + q) % kKernel
  for (i64 row = split * args.rows; row < last; ++row) {
    const i64 n = static_cast<std::uint32_t>(row) / static_cast<std::uint32_t>(e.h), v = row - n * e.h;
    const i64 line = e.offset(n, v, 0, channel);
    i64 lines[kKernel];  // -1: zeros
    MPSCNN_UNROLL
    for (int p = 0; p < kKernel; ++p) {
      int y = static_cast<int>(args.start_h + v * kStride) + p;
      if (args.clamps) y = y < 0 ? 0 : y >= height ? height - 1 : y;
      lines[p] = y >= 0 && y < height ? src.offset(n, y, 0, channel) : -1;
    }
    for (int base = 0; base < results; base += kKernel) {
      MPSCNN_UNROLL
      for (int k = 0; k < kKernel; ++k) {
        const int u = base + k;
        if (u >= results) continue;
        MPSCNN_UNROLL
        for (int q = 0; q < kKernel; ++q) {
          if (q < kKept && u > 0) continue;  // loaded for the previous result
          int x = static_cast<int>(args.start_w) + u * kStride + q;
          if (args.clamps) x = x < 0 ? 0 : x >= width ? width - 1 : x;
          const bool inside = x >= 0 && x < width;
          MPSCNN_UNROLL
          for (int p = 0; p < kKernel; ++p) {
            if (inside && lines[p] >= 0) {
              load_lanes(format, src.data.get(), lines[p] + x * src.w_stride, seen[p][(k * kStride + q) % kKernel]);
            } else {
              MPSCNN_UNROLL
              for (int l = 0; l < kLanes; ++l) seen[p][(k * kStride + q) % kKernel][l] = 0;
            }
          }
        }
        float gradient[kLanes];
        load_lanes(format, e.data.get(), line + u * e.w_stride, gradient);
        MPSCNN_UNROLL
        for (int p = 0; p < kKernel; ++p) {
          MPSCNN_UNROLL
          for (int q = 0; q < kKernel; ++q) {
            MPSCNN_UNROLL
            for (int l = 0; l < kLanes; ++l)
              sums[p * kKernel + q][l] += gradient[l] * seen[p][(k * kStride + q) % kKernel][l];
          }
        }
      }
    }
  }
  MPSCNN_UNROLL
  for (int t = 0; t < kTaps; ++t)
    store_lanes(Format::float32, reinterpret_cast<unsigned char*>(args.partials.get()),
                (split * kTaps + t) * e.c + channel, sums[t]);
}

MPSCNN_VALUE_KERNEL(conv_depthwise_weights_3x3, DepthwiseWeightsArgs) { march_weights<3, 1, 4>(args, index); }
MPSCNN_VALUE_KERNEL(conv_depthwise_weights_3x3_stride_2, DepthwiseWeightsArgs) { march_weights<3, 2, 4>(args, index); }
MPSCNN_VALUE_KERNEL(conv_depthwise_weights_5x5, DepthwiseWeightsArgs) { march_weights<5, 1, 2>(args, index); }
MPSCNN_VALUE_KERNEL(conv_depthwise_weights_5x5_stride_2, DepthwiseWeightsArgs) { march_weights<5, 2, 2>(args, index); }

}  // namespace openmps::cuda::depthwise
