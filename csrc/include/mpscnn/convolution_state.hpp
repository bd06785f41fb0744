// SPDX-License-Identifier: Apache-2.0
// Weights and biases of a convolution in device memory.
#pragma once

#include <memory>

#include <mpscnn/buffer.hpp>

namespace mpscnn {

/// MPSCNNConvolutionWeightsAndBiasesState: float32, weights in MPS's order (OHWI).
struct ConvolutionWeightsAndBiasesState {
  std::shared_ptr<Buffer> weights, biases;  ///< biases: null if absent
  Extents shape;                            ///< of the weights
};

}  // namespace mpscnn
