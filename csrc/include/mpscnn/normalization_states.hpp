// SPDX-License-Identifier: Apache-2.0
// Normalization parameters in device memory, for reloading kernels on a command buffer.
#pragma once

#include <memory>

#include <mpscnn/buffer.hpp>

namespace mpscnn {

/// MPSCNNNormalizationGammaAndBetaState: one float32 per channel in each buffer, or more.
struct NormalizationGammaAndBetaState {
  std::shared_ptr<Buffer> gamma, beta;
};

/// MPSCNNNormalizationMeanAndVarianceState.
struct NormalizationMeanAndVarianceState {
  std::shared_ptr<Buffer> mean, variance;
};

}  // namespace mpscnn
