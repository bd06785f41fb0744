// SPDX-License-Identifier: Apache-2.0
// What the kernels that compare predictions with labels share.
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <mpscnn/loss.hpp>

#include "device_impl.hh"

namespace mpscnn {

MPSCNNLossDescriptor *objc_loss(const LossOptions &options);

struct LossKernel::Impl {
  const char *name;
  std::shared_ptr<Device> device;
  LossReduction reduction;
  Ref<MPSCNNKernel *> kernel;  ///< MPSCNNLoss, or a class with the same encode forms
};

/// The images of some Images, one object for each, as long as an encode lasts. The whole counts as read, or written,
/// with them.
class ImageBatch {
 public:
  void add(const Image &image);
  MPSImageBatch *images() const { return images_.get(); }
  /// To be called after the encode.
  void did_read() const;
  void did_write() const;

 private:
  Ref<NSMutableArray *> images_ = Ref<NSMutableArray *>::adopt([[NSMutableArray alloc] init]);
  std::vector<Ref<MPSTemporaryImage *>> wholes_, parts_;  ///< temporary ones that were taken apart
};

}  // namespace mpscnn
