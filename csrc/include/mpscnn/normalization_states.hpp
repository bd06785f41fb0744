// SPDX-License-Identifier: Apache-2.0
// Values of normalization in memory of the device: what a kernel is reloaded with on a command buffer.
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
