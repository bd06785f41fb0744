// SPDX-License-Identifier: Apache-2.0
// MPSImages with several images as batches of single images, for the encode methods that take batches.
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <vector>

#include "core/device/device_impl.hh"

namespace mpscnn {

/// Batch of single images for one encode. An MPSImage with several images is split; it counts as read or written when
/// its parts are.
class ImageBatch {
 public:
  ImageBatch() = default;
  explicit ImageBatch(const Image &image) { add(image); }
  /// Images [first, first + count).
  ImageBatch(MPSImage *image, NSUInteger first, NSUInteger count) { add(image, first, count); }
  /// Drop the pending reads of the parts that were not read, or were written.
  ~ImageBatch();
  ImageBatch(ImageBatch &&) = default;
  ImageBatch(const ImageBatch &) = delete;
  ImageBatch &operator=(const ImageBatch &) = delete;

  void add(const Image &image);
  void add(MPSImage *image, NSUInteger first, NSUInteger count);
  MPSImageBatch *images() const { return images_.get(); }
  /// Record that an encode has read all images.
  void did_read() const;

 private:
  Ref<NSMutableArray *> images_ = Ref<NSMutableArray *>::adopt([[NSMutableArray alloc] init]);
  std::vector<Ref<MPSTemporaryImage *>> wholes_, parts_;  ///< temporary images that were split
};

/// Return whether a state, of gradients or of labels, may belong to an MPSImage with several images; otherwise kernels
/// are encoded to batches of single images, with a state for each.
bool has_states_of_several_images(id<MTLDevice> device);

/// Return the clipRect of a kernel encoded to a batch of single images, where it does not select the images.
MTLRegion clip_of_single_images(MTLRegion clip);

}  // namespace mpscnn
