// SPDX-License-Identifier: Apache-2.0
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <mpscnn/convolution_state.hpp>

namespace mpscnn {

/// Return a new autoreleased object over the same buffers.
MPSCNNConvolutionWeightsAndBiasesState *objc_weights(const ConvolutionWeightsAndBiasesState &weights);

}  // namespace mpscnn
