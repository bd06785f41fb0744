// SPDX-License-Identifier: Apache-2.0
// The MPS objects behind a BatchNormalizationState, for the kernels that take one.
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <mutex>

#include <mpscnn/batch_normalization_state.hpp>
#include <mpscnn/buffer.hpp>

#include "core/device/device_impl.hh"

namespace mpscnn {

struct BatchNormalizationState::Impl {
  std::shared_ptr<Device> device;
  Ref<MPSCNNBatchNormalization *> maker;  ///< kernel used only to create the state
  Ref<MPSCNNBatchNormalizationState *> state;
  std::int64_t channels = 0, count = 0;
  std::shared_ptr<Buffer> downloaded[2] = {};  ///< mean and variance, if `is_downloaded`
  bool is_downloaded = false;
  bool is_used = false;        ///< read by a normalization: the next statistics begin a new batch
  bool has_gradients = false;  ///< gradients of gamma and beta for this batch
  bool is_temporary = false;   ///< in temporary memory of a graph
  bool has_ended = false;      ///< temporary, and the last read has been encoded
  mutable Writer writer = {};
  mutable std::mutex mutex = {};

  /// Record a write that has been encoded.
  void note_write(id<MTLCommandBuffer> commands) {
    is_downloaded = false;
    synchronize(state.get(), commands);
    writer.set(commands);
  }
};

}  // namespace mpscnn
