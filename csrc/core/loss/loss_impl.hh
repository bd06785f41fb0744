// SPDX-License-Identifier: Apache-2.0
// Common to the kernels that compare predictions with labels.
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <mpscnn/loss.hpp>

#include "core/device/device_impl.hh"

namespace mpscnn {

MPSCNNLossDescriptor *objc_loss(const LossOptions &options);

struct LossKernel::Impl {
  const char *name;
  std::shared_ptr<Device> device;
  LossReduction reduction;
  Ref<MPSCNNKernel *> kernel;  ///< MPSCNNLoss, or a class with the same encode forms
  Ref<id> descriptor;          ///< from which the kernel was made
};

}  // namespace mpscnn
