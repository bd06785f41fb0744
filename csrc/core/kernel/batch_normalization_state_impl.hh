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
  Ref<MPSCNNBatchNormalization *> maker;  ///< a kernel makes states; nothing else is asked of it
  Ref<MPSCNNBatchNormalizationState *> state;
  std::int64_t channels = 0, count = 0;
  bool is_used = false;        ///< by a normalization: the next statistics begin a new batch
  bool has_gradients = false;  ///< of gamma and beta, for this batch
  mutable Writer writer = {};
  mutable std::mutex mutex = {};

  /// Called behind the encode of a write.
  void note_write(id<MTLCommandBuffer> commands) {
    synchronize(state.get(), commands);
    writer.set(commands);
  }
};

}  // namespace mpscnn
