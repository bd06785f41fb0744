// SPDX-License-Identifier: Apache-2.0
// States of a graph, as the data sources of the program get them.
#pragma once

#include <mpscnn/batch_normalization_state.hpp>
#include <mpscnn/gradient_state.hpp>

#include <memory>
#include <string_view>
#include <vector>

#include "core/device/device_impl.hh"
#include "core/kernel/families/family.hh"

namespace mpscnn {

/// Return our device of one of Metal's.
std::shared_ptr<Device> device_of(id<MTLDevice> device);

/// Gradients of a graph for one call of a data source. What is in temporary memory ends with the call.
class GraphGradients {
 public:
  /// `maker`: name of the forward kernel. `commands`: will compute the values; nil: they are computed.
  GraphGradients(std::shared_ptr<Device> device, std::string_view maker, NSArray<MPSState *> *states,
                 std::vector<StateValues> values, id<MTLCommandBuffer> commands);
  ~GraphGradients();
  GraphGradients(const GraphGradients &) = delete;
  GraphGradients &operator=(const GraphGradients &) = delete;

  const std::shared_ptr<GradientState> &state() const { return state_; }

 private:
  std::shared_ptr<GradientState> state_;
};

/// Names, properties and shapes of the gradients of gamma and beta.
std::vector<StateValues> gradients_of_channels(std::int64_t channels);

/// The same for the state of a batch normalization. `count`: values in each channel of the batch.
class GraphStatistics {
 public:
  GraphStatistics(std::shared_ptr<Device> device, MPSCNNBatchNormalizationState *state, std::int64_t channels,
                  std::int64_t count, id<MTLCommandBuffer> commands);
  ~GraphStatistics();
  GraphStatistics(const GraphStatistics &) = delete;
  GraphStatistics &operator=(const GraphStatistics &) = delete;

  const std::shared_ptr<BatchNormalizationState> &state() const { return state_; }

 private:
  std::shared_ptr<BatchNormalizationState> state_;
};

/// Encode a copy of the first `count` floats after `offset` bytes.
std::shared_ptr<Buffer> floats_of(const std::shared_ptr<Device> &device, id<MTLCommandBuffer> commands,
                                  id<MTLBuffer> values, NSUInteger offset, std::int64_t count);

}  // namespace mpscnn
