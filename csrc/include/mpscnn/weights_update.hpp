// SPDX-License-Identifier: Apache-2.0
// Data sources that update their weights from gradients: the optional methods of MPSCNNConvolutionDataSource, called by
// MPS's graphs, and here by update_weights().
#pragma once

#include <memory>

#include <mpscnn/command_buffer.hpp>
#include <mpscnn/convolution_state.hpp>
#include <mpscnn/gradient_state.hpp>

namespace mpscnn {

class Kernel;

/// Interface of a DataSource with optional update methods.
class UpdatingSource {
 public:
  virtual ~UpdatingSource() = default;

  virtual bool has_update() const = 0;
  virtual bool has_update_on_cpu() const = 0;
  /// Encode the update and return the new weights and biases, or null for none. `source` has the current ones.
  virtual std::shared_ptr<ConvolutionWeightsAndBiasesState> update(
      const std::shared_ptr<CommandBuffer>& buffer, const std::shared_ptr<GradientState>& gradient,
      const std::shared_ptr<ConvolutionWeightsAndBiasesState>& source) = 0;
  /// Update after the device has finished. Return false if the values are unchanged.
  virtual bool update_on_cpu(const std::shared_ptr<GradientState>& gradient,
                             const std::shared_ptr<ConvolutionWeightsAndBiasesState>& source) = 0;
};

/// Call update() of the data source of a convolution's gradient kernel, and reload that kernel and its forward kernel
/// from the result, on the command buffer. Exceptions of the data source are rethrown.
void update_weights(Kernel& gradient, const std::shared_ptr<CommandBuffer>& buffer,
                    const std::shared_ptr<GradientState>& state);
/// Call update_on_cpu(), and reload both kernels from the data source. The gradients must have been computed.
void update_weights_on_cpu(Kernel& gradient, const std::shared_ptr<GradientState>& state);

}  // namespace mpscnn
