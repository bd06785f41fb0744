// SPDX-License-Identifier: Apache-2.0
// Gradients of depth-wise convolutions by the weights.
#pragma once

#include "engine/cuda/kernels/depthwise.hpp"

namespace openmps::cuda::depthwise::gradient {

inline constexpr const char* kFile = "engine/cuda/kernels/conv_depthwise_weights.hpp";

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

}  // namespace openmps::cuda::depthwise::gradient
