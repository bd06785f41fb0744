// SPDX-License-Identifier: Apache-2.0
// Convolutions of any window on tensor cores, with a multiple of 8 channels.
#pragma once

#include "engine/cuda/kernels/tensor_cores.hpp"

namespace openmps::cuda::product::taps {

inline constexpr const char* kFile = "engine/cuda/kernels/conv_windows.hpp";

struct WindowArgs {
  ProductArgs product;  ///< its src is the whole source, with a multiple of 8 channels
  int start_h = 0, start_w = 0, stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1;
  int kernel_h = 1;
  Divisor kernel_w, channels;
  bool clamps = false;  ///< out-of-bounds taps read the edge
};

/// Rows of any convolution: the channels of the taps, tap by tap.
class Taps {
 public:
  using Args = WindowArgs;
  struct Row {
    const unsigned char* image;
    int y, x;
  };
  struct Terms {
    unsigned channel;
    int y, x;
    bool are_inside;
  };

  MPSCNN_HOST_DEVICE explicit Taps(const WindowArgs& args)
      : args_(args), height_(static_cast<int>(args.product.src.h)), width_(static_cast<int>(args.product.src.w)) {}
  MPSCNN_HOST_DEVICE Row row(const Place& at, int) const {
    return {args_.product.src.data.get() + 2 * at.n * args_.product.src.n_stride,
            static_cast<int>(at.y) * args_.stride_h + args_.start_h,
            static_cast<int>(at.x) * args_.stride_w + args_.start_w};
  }
  MPSCNN_HOST_DEVICE Terms terms(int chunk, int lane) const {
    const auto term = static_cast<unsigned>(kTerms * chunk + term_of(lane, 0));
    const unsigned tap = args_.channels.quotient(term), p = args_.kernel_w.quotient(tap);
    return {term - tap * args_.channels.value, static_cast<int>(p) * args_.dilation_h,
            static_cast<int>(tap - p * args_.kernel_w.value) * args_.dilation_w,
            p < static_cast<unsigned>(args_.kernel_h)};
  }
  MPSCNN_HOST_DEVICE Halves8 load(const Row& row, const Terms& terms) const {
    const View& src = args_.product.src;
    int y = row.y + terms.y, x = row.x + terms.x;
    if (args_.clamps) {
      y = y < 0 ? 0 : y >= height_ ? height_ - 1 : y;
      x = x < 0 ? 0 : x >= width_ ? width_ - 1 : x;
    }
    const bool is_inside = terms.are_inside && static_cast<unsigned>(y) < static_cast<unsigned>(height_) &&
                           static_cast<unsigned>(x) < static_cast<unsigned>(width_);
    return load_constant<4>(row.image + 2 * (y * src.h_stride + x * src.w_stride + terms.channel), is_inside);
  }

 private:
  const WindowArgs& args_;
  const int height_, width_;
};

// As the kernels of conv_product.hpp.
MPSCNN_WARP_KERNEL(conv_windows_16x32, WindowArgs, 4) { compute<Taps, 1, 1>(args, index); }
MPSCNN_WARP_KERNEL(conv_windows_32x64, WindowArgs, 2) { compute<Taps, 2, 2>(args, index); }
MPSCNN_WARP_KERNEL(conv_windows_any, WindowArgs) { compute<Taps, 1, 1, true>(args, index); }
MPSCNN_BLOCK_KERNEL(conv_windows_split_16x32, WindowArgs) { compute_split<Taps, 1, 1, 4>(args, index, Cluster<1>()); }
MPSCNN_BLOCK_KERNEL(conv_windows_split_64x32, WindowArgs) { compute_split<Taps, 2, 2, 3>(args, index, Cluster<1>()); }
#if MPSCNN_HAS_CLUSTERS
MPSCNN_CLUSTER_KERNEL(conv_windows_cluster_2, WindowArgs, 2) { compute_split<Taps, 2, 2, 3>(args, index, cluster); }
MPSCNN_CLUSTER_KERNEL(conv_windows_cluster_4, WindowArgs, 4) { compute_split<Taps, 2, 2, 3>(args, index, cluster); }
MPSCNN_CLUSTER_KERNEL(conv_windows_cluster_8, WindowArgs, 8) { compute_split<Taps, 2, 2, 3>(args, index, cluster); }
#endif

}  // namespace openmps::cuda::product::taps
