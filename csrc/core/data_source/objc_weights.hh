// SPDX-License-Identifier: Apache-2.0
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <mpscnn/convolution_state.hpp>

namespace mpscnn {

/// A new object over the same buffers, which an autorelease pool has.
MPSCNNConvolutionWeightsAndBiasesState *objc_weights(const ConvolutionWeightsAndBiasesState &weights);

}  // namespace mpscnn
