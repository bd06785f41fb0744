// SPDX-License-Identifier: Apache-2.0
// The Objective-C objects behind GraphObject, for the other files of graphs.
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <memory>

#include <mpscnn/graph_object.hpp>

#include "core/data_source/data_source.hh"
#include "core/device/device_impl.hh"

namespace mpscnn {

class NormalizationUpdates;
class WeightsTraining;

struct GraphObject::Impl {
  Ref<id> object;
  std::shared_ptr<GuardedSource> source = {};          ///< of weights
  std::shared_ptr<WeightsTraining> training = {};      ///< of weights with an optimizer
  std::shared_ptr<NormalizationUpdates> updates = {};  ///< of the values of a normalization
  std::shared_ptr<Device> device = {};                 ///< of states that a graph has returned
  std::shared_ptr<Writer> writer = {};                 ///< likewise
};

/// Return a wrapper of an object; null for nil.
std::shared_ptr<GraphObject> graph_object(id object);

/// The values of a data source that an optimizer changes: shared by all nodes and graphs that have the data source.
class WeightsTraining {
 public:
  explicit WeightsTraining(std::shared_ptr<Optimizer> optimizer) : optimizer_(std::move(optimizer)) {}

  /// Encode a step of the optimizer. Return the state with the new values. Throws.
  MPSCNNConvolutionWeightsAndBiasesState *update(id<MTLCommandBuffer> commands, const ConvolutionDescriptor &descriptor,
                                                 MPSCNNConvolutionGradientState *gradient,
                                                 MPSCNNConvolutionWeightsAndBiasesState *source);
  /// The values, which the kernels of all graphs read; null before the first step.
  std::shared_ptr<Buffer> weights() const { return weights_.values; }
  std::shared_ptr<Buffer> biases() const { return biases_.values; }
  /// Throw while a command buffer is to write the values.
  void check_readable() const { check_written(*writer_, "weights"); }
  const std::shared_ptr<Optimizer> &optimizer() const { return optimizer_; }

 private:
  struct Parameter {
    std::shared_ptr<Buffer> values;
    std::shared_ptr<OptimizerState> state;
  };
  void step(CommandBuffer &buffer, id<MTLCommandBuffer> commands, Parameter &parameter, id<MTLBuffer> gradient,
            id<MTLBuffer> source, NSUInteger offset, std::int64_t count);

  std::shared_ptr<Optimizer> optimizer_;
  Parameter weights_, biases_;
  std::shared_ptr<Writer> writer_ = std::make_shared<Writer>();
};

}  // namespace mpscnn
