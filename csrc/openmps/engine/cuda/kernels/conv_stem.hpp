// SPDX-License-Identifier: Apache-2.0
// First layers on tensor cores: 3 dense channels, an even stride.
#pragma once

#include "engine/cuda/kernels/tensor_cores.hpp"

namespace openmps::cuda::product::stem {

inline constexpr const char* kFile = "engine/cuda/kernels/conv_stem.hpp";

struct StemArgs {
  ProductArgs product;  ///< its src is the whole source: dense rows of 3 channels, an even number of values
  int start_h = 0, start_w = 0;
  int stride_h = 1, stride_w = 1;  ///< stride_w is even: all windows start at even values, or all at odd ones
};

/// Rows of a convolution of 3 channels: the values below the window, in pairs. If windows start at odd values, a pair
/// starts before the window.
template <int kKernel>
class Windows {
 public:
  static constexpr int kPairs = (3 * kKernel + 1) / 2;  ///< of a row of the window; one value is not part of it
  using Args = StemArgs;
  struct Row {
    i64 image;
    int y, x;
  };
  struct Terms {
    struct {
      int y, x;
      std::uint32_t mask;  ///< the value that the window does not have may be infinite, and its weight is 0
    } pairs[4];
  };

  MPSCNN_HOST_DEVICE explicit Windows(const StemArgs& args)
      : args_(args),
        src_(args.product.src.data.get()),
        h_stride_(static_cast<int>(args.product.src.h_stride)),
        height_(static_cast<int>(args.product.src.h)),
        width_(static_cast<int>(args.product.src.w) * 3),
        is_odd_(args.start_w & 1) {}
  MPSCNN_HOST_DEVICE Row row(const Place& at, int) const {
    return {at.n * args_.product.src.n_stride, static_cast<int>(at.y) * args_.stride_h + args_.start_h,
            (static_cast<int>(at.x) * args_.stride_w + args_.start_w) * 3 - is_odd_};
  }
  MPSCNN_HOST_DEVICE Terms terms(int chunk, int lane) const {
    Terms terms;
    MPSCNN_UNROLL
    for (int j = 0; j < 4; ++j) {
      const int pair = (kTerms * chunk + term_of(lane, 2 * j)) / 2;
      const int p = pair / kPairs, x = pair - p * kPairs;
      terms.pairs[j] = {p, 2 * x, is_odd_ ? x == 0 ? 0xffff0000u : ~0u : x == kPairs - 1 ? 0xffffu : ~0u};
    }
    return terms;
  }
  MPSCNN_HOST_DEVICE Halves8 load(const Row& row, const Terms& terms) const {
    Halves8 result;
    MPSCNN_UNROLL
    for (int j = 0; j < 4; ++j) {
      const auto& pair = terms.pairs[j];
      const int y = row.y + pair.y, x = row.x + pair.x;
      const bool is_inside = pair.y < kKernel && static_cast<unsigned>(y) < static_cast<unsigned>(height_) &&
                             static_cast<unsigned>(x) < static_cast<unsigned>(width_);
      const i64 offset = row.image + static_cast<i64>(y) * h_stride_ + x;
      result.words[j] = load_constant<1>(src_ + 2 * offset, is_inside).words[0] & pair.mask;
    }
    return result;
  }

 private:
  const StemArgs& args_;
  const unsigned char* const src_;
  const int h_stride_, height_, width_, is_odd_;
};

MPSCNN_WARP_KERNEL(conv_stem_3x3, StemArgs, 4) { compute<Windows<3>, 1, 1>(args, index); }
MPSCNN_WARP_KERNEL(conv_stem_7x7, StemArgs, 2) { compute<Windows<7>, 2, 2>(args, index); }

}  // namespace openmps::cuda::product::stem
