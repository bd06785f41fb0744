// SPDX-License-Identifier: Apache-2.0
// Depth-wise 3 x 3 and 5 x 5 with any activation and edge.
#pragma once

#include "engine/cuda/kernels/depthwise.hpp"

namespace openmps::cuda::depthwise::any {

inline constexpr const char* kFile = "engine/cuda/kernels/conv_depthwise_any.hpp";

MPSCNN_VALUE_KERNEL(conv_depthwise_any_3x3, DepthwiseArgs) { march<3, 1, 4, 4, true>(args, index); }
MPSCNN_VALUE_KERNEL(conv_depthwise_any_3x3_stride_2, DepthwiseArgs) { march<3, 2, 4, 2, true>(args, index); }
MPSCNN_VALUE_KERNEL(conv_depthwise_any_5x5, DepthwiseArgs) { march<5, 1, 2, 2, true>(args, index); }
MPSCNN_VALUE_KERNEL(conv_depthwise_any_5x5_stride_2, DepthwiseArgs) { march<5, 2, 2, 2, true>(args, index); }

}  // namespace openmps::cuda::depthwise::any
