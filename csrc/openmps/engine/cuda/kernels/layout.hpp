// SPDX-License-Identifier: Apache-2.0
// Copies that prepare operands of cuDNN and cuBLASLt.
#pragma once

#include "engine/cuda/kernels/device.hpp"

namespace openmps::cuda::layout {

inline constexpr const char* kFile = "engine/cuda/kernels/layout.hpp";

struct PadChannelsArgs {
  View src, dst;  ///< dst has more channels, and any format
};
/// Convert pixels; channels that src does not have become 0. One thread per pixel.
MPSCNN_VALUE_KERNEL(pad_channels, PadChannelsArgs) {
  const View &src = args.src, &dst = args.dst;
  const Place at = place_of(index, dst.h, dst.w, 1);
  for (i64 k = 0; k < dst.c; ++k)
    store(dst.format, dst.data.get(), dst.offset(at.n, at.y, at.x, k),
          k < src.c ? load(src.format, src.data.get(), src.offset(at.n, at.y, at.x, k)) : 0.0f);
}

struct PadThreeArgs {
  Pointer<const std::uint16_t> src;
  Pointer<std::uint64_t> dst;
};
/// Pixels of 3 values of 16 bits become pixels of 4, the last one 0. One thread per pixel; without gaps.
MPSCNN_VALUE_KERNEL(pad_three, PadThreeArgs) {
  const std::uint16_t* const from = args.src.get() + 3 * index;
  args.dst[index] = from[0] | static_cast<std::uint64_t>(from[1]) << 16 | static_cast<std::uint64_t>(from[2]) << 32;
}

/// 16 bytes of adjacent channels.
struct alignas(16) Bytes16 {
  std::uint64_t words[2];
};

struct GatherPixelsArgs {
  Pointer<const Bytes16> src;
  Pointer<Bytes16> dst;              ///< dense
  i64 h, w, parts;                   ///< parts: 16 bytes each, of a pixel
  i64 n_stride, h_stride, w_stride;  ///< of src, in parts
};
/// Copy pixels that are not adjacent to adjacent ones. One thread per part.
MPSCNN_VALUE_KERNEL(gather_pixels, GatherPixelsArgs) {
  const Place at = place_of(index, args.h, args.w, args.parts);
  args.dst[index] = args.src[at.n * args.n_stride + at.y * args.h_stride + at.x * args.w_stride + at.k];
}

struct AddGradientArgs {
  Pointer<unsigned char> from;
  Pointer<float> to;
  Format format;               ///< of `from`
  i64 channels, all_channels;  ///< of `to`, and of `from`, whose last ones are dropped
  bool accumulates;            ///< add instead of overwriting
};
MPSCNN_VALUE_KERNEL(add_gradient, AddGradientArgs) {
  const i64 row = index / args.channels;
  const float value = load(args.format, args.from.get(), row * args.all_channels + index - row * args.channels);
  args.to[index] = args.accumulates ? args.to[index] + value : value;
}

}  // namespace openmps::cuda::layout
