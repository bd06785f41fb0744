// SPDX-License-Identifier: Apache-2.0
// MPSImages of several images as batches of single ones, for the encode forms that take batches.
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <vector>

#include "core/device/device_impl.hh"

namespace mpscnn {

/// Single images, for one encode. MPSImages of several are taken apart; the whole counts as read, or written, with its
/// images.
class ImageBatch {
 public:
  ImageBatch() = default;
  explicit ImageBatch(const Image &image) { add(image); }
  /// `count` of its images.
  ImageBatch(MPSImage *image, NSUInteger first, NSUInteger count) { add(image, first, count); }
  /// Images that were not read, or that were written, are not going to be read.
  ~ImageBatch();
  ImageBatch(ImageBatch &&) = default;
  ImageBatch(const ImageBatch &) = delete;
  ImageBatch &operator=(const ImageBatch &) = delete;

  void add(const Image &image);
  void add(MPSImage *image, NSUInteger first, NSUInteger count);
  MPSImageBatch *images() const { return images_.get(); }
  /// To be called when an encode has read all of them.
  void did_read() const;

 private:
  Ref<NSMutableArray *> images_ = Ref<NSMutableArray *>::adopt([[NSMutableArray alloc] init]);
  std::vector<Ref<MPSTemporaryImage *>> wholes_, parts_;  ///< temporary ones that were taken apart
};

/// Whether a state for gradient kernels may be of an MPSImage with several images; else kernels are encoded to batches
/// of single ones, with a state for each.
bool has_states_of_several_images(id<MTLDevice> device);

/// clipRect of a kernel that is encoded to a batch of single images, which are chosen without it.
MTLRegion clip_of_single_images(MTLRegion clip);

}  // namespace mpscnn
