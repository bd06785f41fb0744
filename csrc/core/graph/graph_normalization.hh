// SPDX-License-Identifier: Apache-2.0
// Values of the normalizations of graphs, which an optimizer or the program's data source updates.
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <map>
#include <memory>
#include <mutex>
#include <string_view>

#include <mpscnn/graph_object.hpp>
#include <mpscnn/normalization_update.hpp>
#include <mpscnn/optimizer.hpp>

#include "core/data_source/data_source.hh"
#include "core/device/device_impl.hh"
#include "core/kernel/padding_policy.hh"

namespace mpscnn {

/// Updates of a data source's values: shared by all nodes and graphs that have it.
class NormalizationUpdates {
 public:
  /// `kernel`: its name in the table. `optimizer`: null without one.
  NormalizationUpdates(std::shared_ptr<GuardedNormalization> source, std::string_view kernel,
                       std::shared_ptr<Optimizer> optimizer, double momentum)
      : source_(std::move(source)), kernel_(kernel), optimizer_(std::move(optimizer)), momentum_(momentum) {}

  using Gradients = UpdatingNormalization::Gradients;
  /// Encode a step of gamma and beta, whose current values are those of a state. Return the new ones; nil: none.
  MPSCNNNormalizationGammaAndBetaState *update(const std::shared_ptr<CommandBuffer> &buffer, const Gradients &gradients,
                                               id<MTLBuffer> gamma, id<MTLBuffer> beta);
  /// Encode the update of mean and variance by those of a batch. Return the new ones; nil: none.
  MPSCNNNormalizationMeanAndVarianceState *follow(const std::shared_ptr<CommandBuffer> &buffer,
                                                  MPSCNNBatchNormalizationState *batch);
  /// Return whether gamma and beta have changed.
  bool update_on_cpu(const Gradients &gradients, id<MTLBuffer> gamma, id<MTLBuffer> beta);

  bool has_update() const { return optimizer_ || (own() && own()->has_update()); }
  bool has_follow() const { return optimizer_ || (own() && own()->has_update_mean_and_variance()); }
  bool has_update_on_cpu() const { return !optimizer_ && own() && own()->has_update_on_cpu(); }
  /// Return whether there are updates of the program's source, whose exceptions it keeps.
  bool has_own() const { return !optimizer_ && own() && (has_update() || has_follow() || has_update_on_cpu()); }

  const std::shared_ptr<GuardedNormalization> &source() const { return source_; }
  std::string_view kernel() const { return kernel_; }
  /// The values that an optimizer has changed; null until its first step.
  const NormalizationValues &values() const { return values_; }
  bool is_trained() const { return values_.gamma != nullptr; }
  /// Throw while a command buffer is to write the values.
  void check_readable() const { check_written(writer_, "values"); }

  /// Note the number of values in each channel of a batch that `kernel` normalizes by its own mean and variance; 0: by
  /// the moving ones.
  void note_count(MPSKernel *kernel, std::int64_t count);
  std::int64_t count_of(MPSKernel *kernel) const;

 private:
  struct Average {
    std::shared_ptr<Optimizer> optimizer;
    std::shared_ptr<OptimizerState> state;
    double factor = 0;
  };

  UpdatingNormalization *own() const { return dynamic_cast<UpdatingNormalization *>(source_->source().get()); }
  std::shared_ptr<Buffer> values_like(const float *from, float fallback) const;
  template <class Read>
  void read_source(const Read &read) const;
  void step(CommandBuffer &buffer, const Gradients &gradients);
  void average(CommandBuffer &buffer, Average &average, const std::shared_ptr<Buffer> &values, id<MTLBuffer> batch,
               double factor);

  std::shared_ptr<GuardedNormalization> source_;
  std::string_view kernel_;
  std::shared_ptr<Optimizer> optimizer_;
  double momentum_;
  NormalizationValues values_;
  std::shared_ptr<OptimizerState> state_;
  Average mean_, variance_;
  mutable Writer writer_;
  mutable std::mutex mutex_;
  std::map<MPSKernel *, std::int64_t> counts_;
};

}  // namespace mpscnn

/// A data source of normalization nodes. After the first step of its optimizer it has the trained values.
@interface PyMPSGraphNormalization : PyMPSNormalizationValues {
 @private
  std::shared_ptr<mpscnn::NormalizationUpdates> updates_;
}
- (instancetype)initWithUpdates:(std::shared_ptr<mpscnn::NormalizationUpdates>)updates;
@end

/// The padding policy of a batch normalization's node: counts the values of a batch. Its state does not tell the
/// number, which the unbiased variance needs.
@interface PyMPSCountingPadding : PyMPSPadding {
 @private
  std::shared_ptr<mpscnn::NormalizationUpdates> updates_;
  BOOL follows_;
}
/// NO: the node normalizes by the moving mean and variance, which do not change then.
@property(nonatomic) BOOL follows;
- (instancetype)initWithUpdates:(std::shared_ptr<mpscnn::NormalizationUpdates>)updates;
@end
