// SPDX-License-Identifier: Apache-2.0
// Depth-wise convolutions in vectors: parts of images, and products of pairs of bfloat16 with AVX-512.
#pragma once

#include <algorithm>

#include "engine/cpu/convolution/convolution.hpp"
#include "engine/cpu/pointwise/vectors.hpp"

#if defined(__x86_64__)

namespace openmps::cpu {

/// Return how many parts the rows of an image are done in. A part of the source fits the second-level cache while its
/// blocks of channels are done one after the other; the rows of a window and a block fit the first-level cache. Few
/// blocks: more parts, for all threads.
inline std::int64_t depthwise_parts(const ConvCall& call, std::int64_t blocks, int threads) {
  constexpr std::int64_t kPartBytes = 512 * 1024;
  const std::int64_t row_bytes = call.src.w * call.src.c * static_cast<std::int64_t>(size_of(call.src.format));
  const std::int64_t rows =
      std::max<std::int64_t>(2 * call.window.kernel_h, kPartBytes / row_bytes / call.window.stride_h);
  const std::int64_t for_threads = 4 * threads / std::max<std::int64_t>(1, call.dst.n * blocks);
  return std::clamp<std::int64_t>(std::max((call.dst.h + rows - 1) / rows, for_threads), 1, call.dst.h);
}

/// dst = activation(bias + convolution of src), both of bfloat16: windows of 3 x 3 or 5 x 5, equal strides of 1 or 2,
/// no dilation, zero edges. Filters are rounded to bfloat16. Only if has_avx512_bfloat16().
void convolve_depthwise_pairs(const ConvCall& call, const Activation& activation);

}  // namespace openmps::cpu

#endif
