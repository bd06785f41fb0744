// SPDX-License-Identifier: Apache-2.0
// Depth-wise convolution of bfloat16 images by products of pairs.
#pragma once

#include "engine/cpu/convolution/convolution.hpp"
#include "engine/cpu/pointwise/vectors.hpp"

#if defined(__x86_64__)

namespace openmps::cpu {

/// dst = activation(bias + convolution of src), both of bfloat16: windows of 3 x 3 or 5 x 5, equal strides of 1 or 2,
/// no dilation, zero edges. Filters are rounded to bfloat16. Only if has_avx512_bfloat16().
void convolve_depthwise_pairs(const ConvCall& call, const Activation& activation);

}  // namespace openmps::cpu

#endif
