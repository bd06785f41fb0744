// SPDX-License-Identifier: Apache-2.0
// Weights and biases of a convolution in memory of the device.
#pragma once

#include <memory>

#include <mpscnn/buffer.hpp>

namespace mpscnn {

/// MPSCNNConvolutionWeightsAndBiasesState: float32, weights in MPS's order (OHWI).
struct ConvolutionWeightsAndBiasesState {
  std::shared_ptr<Buffer> weights, biases;  ///< no biases: null
  Extents shape;                            ///< of the weights
};

}  // namespace mpscnn
