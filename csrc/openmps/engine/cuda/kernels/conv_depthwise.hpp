// SPDX-License-Identifier: Apache-2.0
// Depth-wise 3 x 3 with the activations of Clip and zero edges, as most networks have them.
#pragma once

#include "engine/cuda/kernels/depthwise.hpp"

namespace openmps::cuda::depthwise::three {

inline constexpr const char* kFile = "engine/cuda/kernels/conv_depthwise.hpp";

#if defined(MPSCNN_FORMAT) && MPSCNN_FORMAT == 2
constexpr int kBlocks = 2;  ///< per multiprocessor
#else
constexpr int kBlocks = 1;
#endif

// Channels and columns fit a thread's registers; narrow: fewer columns, more threads.
MPSCNN_VALUE_KERNEL(conv_depthwise_3x3, DepthwiseArgs, kBlocks) { march<3, 1, 4, 4, false>(args, index); }
MPSCNN_VALUE_KERNEL(conv_depthwise_3x3_narrow, DepthwiseArgs, kBlocks) { march<3, 1, 4, 2, false>(args, index); }
MPSCNN_VALUE_KERNEL(conv_depthwise_3x3_stride_2, DepthwiseArgs, kBlocks) { march<3, 2, 4, 2, false>(args, index); }

}  // namespace openmps::cuda::depthwise::three
