// SPDX-License-Identifier: Apache-2.0
// Optimizers: subclasses of MPSNNOptimizer, which update values from their gradients on the device. The state kept
// between steps belongs to an OptimizerState, one per parameter or layer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <mpscnn/batch_normalization_state.hpp>
#include <mpscnn/buffer.hpp>
#include <mpscnn/command_buffer.hpp>
#include <mpscnn/convolution_state.hpp>
#include <mpscnn/gradient_state.hpp>
#include <mpscnn/normalization_states.hpp>
#include <mpscnn/value.hpp>

namespace mpscnn {

/// Values that are updated in place.
using OptimizedValues = std::variant<std::shared_ptr<Buffer>, std::shared_ptr<ConvolutionWeightsAndBiasesState>,
                                     std::shared_ptr<NormalizationGammaAndBetaState>>;
/// Gradients of the values; several states, one per chunk of a batch, are summed.
using Gradients = std::variant<std::shared_ptr<Buffer>, std::shared_ptr<GradientState>,
                               std::shared_ptr<BatchNormalizationState>, std::vector<std::shared_ptr<GradientState>>>;

class OptimizerState;

class Optimizer : public std::enable_shared_from_this<Optimizer> {
 public:
  struct Impl;
  /// Make an optimizer of a class of Python's ("OptimizerAdam") with all its options by name. Throw TypeError or
  /// std::invalid_argument with the option, its value and the limit.
  static std::shared_ptr<Optimizer> make(std::shared_ptr<Device> device, std::string_view name, const Params& options);

  explicit Optimizer(std::unique_ptr<Impl> impl);
  ~Optimizer();

  double learning_rate() const;
  void set_learning_rate(double rate);

  /// Allocate the zero-initialized state of these values, float32.
  std::shared_ptr<OptimizerState> state_for(const OptimizedValues& values);
  /// Encode one step, in place. Errors are thrown before anything is encoded. Thread-safe on different command buffers.
  void encode(CommandBuffer& buffer, const Gradients& gradients, OptimizerState& state) const;

  const char* name() const;
  std::shared_ptr<Device> device() const;
  Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

class OptimizerState {
 public:
  struct Impl;
  explicit OptimizerState(std::unique_ptr<Impl> impl);
  ~OptimizerState();

  /// Number of encoded steps; Adam's t is one more.
  std::int64_t time_step() const;
  void set_time_step(std::int64_t step);

  /// A float32 state array: "momentum", or "weights.momentum" if there are several values.
  struct Remembered {
    std::string name;
    std::shared_ptr<Buffer> buffer;
    Extents shape;
  };
  /// Throw std::runtime_error while a command buffer is due to write them.
  std::vector<Remembered> remembered() const;

  std::shared_ptr<Optimizer> optimizer() const;
  OptimizedValues values() const;
  Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace mpscnn
