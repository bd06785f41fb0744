// SPDX-License-Identifier: Apache-2.0
// The MPS objects behind LossLabels.
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <memory>
#include <mutex>
#include <vector>

#include <mpscnn/loss.hpp>

#include "core/device/device_impl.hh"
#include "core/device/forked.hpp"
#include "core/device/image_batch.hh"

namespace mpscnn {

struct LossLabels::Impl {
  /// Labels and weights of the images in one MPSImage.
  struct Part {
    std::shared_ptr<Image> labels, weights;
  };
  std::shared_ptr<Device> device;
  ImageShape shape;
  LossShape loss_shape;
  std::vector<Part> parts = {};
  bool copied = true;     ///< the images are owned copies
  bool is_split = false;  ///< there is an MPSCNNLossLabels for each image, although one for all is possible
  Ref<NSMutableArray *> batch = Ref<NSMutableArray *>::adopt([[NSMutableArray alloc] init]);
  bool has_loss = false;
  mutable Writer writer = {};  ///< writer of the losses, which reads labels and weights
  mutable ForkChecked<std::mutex> mutex = {};

  /// Whether one MPSCNNLossLabels belongs to all images.
  bool is_whole() const {
    return !is_split && parts.size() == 1 && has_states_of_several_images(device->impl().device.get());
  }
  void make_batch();
  /// Return an MPSCNNLossLabels for each image, as graphs take them. An earlier loss is lost.
  NSArray *batch_of_single_images();
  /// Record a command that writes the losses.
  void note_loss(id<MTLCommandBuffer> commands);

 private:
  void add(MPSImage *labels, MPSImage *weights);
};

}  // namespace mpscnn
