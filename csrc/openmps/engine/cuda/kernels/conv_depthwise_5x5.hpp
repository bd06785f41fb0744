// SPDX-License-Identifier: Apache-2.0
// Depth-wise 5 x 5 with the activations of Clip and zero edges.
#pragma once

#include "engine/cuda/kernels/depthwise.hpp"

namespace openmps::cuda::depthwise::five {

inline constexpr const char* kFile = "engine/cuda/kernels/conv_depthwise_5x5.hpp";

#if defined(MPSCNN_FORMAT) && MPSCNN_FORMAT == 2
constexpr int kBlocks = 2;  ///< per multiprocessor
#else
constexpr int kBlocks = 1;
#endif

MPSCNN_VALUE_KERNEL(conv_depthwise_5x5, DepthwiseArgs, kBlocks) { march<5, 1, 2, 2, false>(args, index); }
MPSCNN_VALUE_KERNEL(conv_depthwise_5x5_stride_2, DepthwiseArgs, kBlocks) { march<5, 2, 2, 2, false>(args, index); }

}  // namespace openmps::cuda::depthwise::five
