// SPDX-License-Identifier: Apache-2.0
// Data sources that compute their next weights from gradients: the optional methods of MPSCNNConvolutionDataSource,
// which MPS's graphs call, and here update_weights() in their place.
#pragma once

#include <memory>

#include <mpscnn/command_buffer.hpp>
#include <mpscnn/convolution_state.hpp>
#include <mpscnn/gradient_state.hpp>

namespace mpscnn {

class Kernel;

/// A DataSource that is one of these too has the methods that it says.
class UpdatingSource {
 public:
  virtual ~UpdatingSource() = default;

  virtual bool has_update() const = 0;
  virtual bool has_update_on_cpu() const = 0;
  /// Encodes the next values of weights and biases. `source` are those that the kernel has had. Null: none.
  virtual std::shared_ptr<ConvolutionWeightsAndBiasesState> update(
      const std::shared_ptr<CommandBuffer>& buffer, const std::shared_ptr<GradientState>& gradient,
      const std::shared_ptr<ConvolutionWeightsAndBiasesState>& source) = 0;
  /// The device has finished. False: the values are what they were.
  virtual bool update_on_cpu(const std::shared_ptr<GradientState>& gradient,
                             const std::shared_ptr<ConvolutionWeightsAndBiasesState>& source) = 0;
};

/// Of the gradient kernel of a convolution: calls update() of its data source, and reloads it and its forward kernel
/// from what that returns, on the command buffer. Throws what the data source throws.
void update_weights(Kernel& gradient, const std::shared_ptr<CommandBuffer>& buffer,
                    const std::shared_ptr<GradientState>& state);
/// Calls update_on_cpu(), and reloads both from the data source. The gradients must have been computed.
void update_weights_on_cpu(Kernel& gradient, const std::shared_ptr<GradientState>& state);

}  // namespace mpscnn
