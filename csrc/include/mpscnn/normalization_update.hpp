// SPDX-License-Identifier: Apache-2.0
// Data sources that update their values from gradients: the optional methods of Apple's protocols of normalization data
// sources, which graphs call.
#pragma once

#include <memory>
#include <variant>

#include <mpscnn/batch_normalization_state.hpp>
#include <mpscnn/command_buffer.hpp>
#include <mpscnn/gradient_state.hpp>
#include <mpscnn/normalization_states.hpp>

namespace mpscnn {

/// Interface of a NormalizationSource with optional update methods.
class UpdatingNormalization {
 public:
  virtual ~UpdatingNormalization() = default;

  /// Gradients of gamma and beta: of instance and group normalization, or of batch normalization.
  using Gradients = std::variant<std::shared_ptr<GradientState>, std::shared_ptr<BatchNormalizationState>>;

  virtual bool has_update() const = 0;
  virtual bool has_update_mean_and_variance() const = 0;
  virtual bool has_update_on_cpu() const = 0;
  /// Encode the update and return the new gamma and beta, or null for none. `source` has the current ones.
  virtual std::shared_ptr<NormalizationGammaAndBetaState> update(
      const std::shared_ptr<CommandBuffer>& buffer, const Gradients& gradients,
      const std::shared_ptr<NormalizationGammaAndBetaState>& source) = 0;
  /// Encode the update of the moving mean and variance by those of `batch`, and return them, or null for none.
  virtual std::shared_ptr<NormalizationMeanAndVarianceState> update_mean_and_variance(
      const std::shared_ptr<CommandBuffer>& buffer, const std::shared_ptr<BatchNormalizationState>& batch) = 0;
  /// Update gamma and beta after the device has finished. Return false if they are unchanged.
  virtual bool update_on_cpu(const Gradients& gradients,
                             const std::shared_ptr<NormalizationGammaAndBetaState>& source) = 0;
};

}  // namespace mpscnn
