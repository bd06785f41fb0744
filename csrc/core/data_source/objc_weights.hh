// SPDX-License-Identifier: Apache-2.0
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <string_view>

#include <mpscnn/convolution_state.hpp>

namespace mpscnn {

/// Return a new autoreleased object over the same buffers.
MPSCNNConvolutionWeightsAndBiasesState *objc_weights(const ConvolutionWeightsAndBiasesState &weights);

/// Throw unless the buffers have the values that a kernel of this `shape` (OHWI) reads. `who` is the prefix of the
/// message.
void check_sizes(std::string_view who, const ConvolutionWeightsAndBiasesState &state, const Extents &shape);

}  // namespace mpscnn
