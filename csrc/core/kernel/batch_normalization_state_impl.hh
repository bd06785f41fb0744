// SPDX-License-Identifier: Apache-2.0
// The MPS objects behind a BatchNormalizationState, for the kernels that take one.
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <mutex>

#include <mpscnn/batch_normalization_state.hpp>

#include "core/device/device_impl.hh"

namespace mpscnn {

struct BatchNormalizationState::Impl {
  std::shared_ptr<Device> device;
  Ref<MPSCNNBatchNormalization *> maker;  ///< kernel used only to create the state
  Ref<MPSCNNBatchNormalizationState *> state;
  std::int64_t channels = 0, count = 0;
  bool is_used = false;        ///< read by a normalization: the next statistics begin a new batch
  bool has_gradients = false;  ///< gradients of gamma and beta for this batch
  mutable Writer writer = {};
  mutable std::mutex mutex = {};

  /// Record a write that has been encoded.
  void note_write(id<MTLCommandBuffer> commands) {
    synchronize(state.get(), commands);
    writer.set(commands);
  }
};

}  // namespace mpscnn
