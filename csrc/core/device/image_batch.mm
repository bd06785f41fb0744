// SPDX-License-Identifier: Apache-2.0
#include "core/device/image_batch.hh"

namespace mpscnn {

void ImageBatch::add(const Image &image) {
  MPSImage *whole = image.impl().image.get();
  add(whole, 0, whole.numberOfImages);
}

void ImageBatch::add(MPSImage *image, NSUInteger first, NSUInteger count) {
  if (image.numberOfImages == 1) {
    [images_.get() addObject:image];
    return;
  }
  MPSImageBatch *parts = [image batchRepresentationWithSubRange:NSMakeRange(first, count)];
  [images_.get() addObjectsFromArray:parts];
  if (![image isKindOfClass:[MPSTemporaryImage class]]) return;
  wholes_.push_back(Ref<MPSTemporaryImage *>::retain(static_cast<MPSTemporaryImage *>(image)));
  for (MPSImage *part in parts)
    parts_.push_back(Ref<MPSTemporaryImage *>::retain(static_cast<MPSTemporaryImage *>(part)));
}

/// Release the whole's own read; each part held another one.
void ImageBatch::did_read() const {
  for (const auto &whole : wholes_) whole.get().readCount = whole.get().readCount - 1;
}

ImageBatch::~ImageBatch() {
  for (const auto &part : parts_)
    if (part.get().readCount > 0) part.get().readCount = 0;
}

bool has_states_of_several_images(id<MTLDevice> device) {
  return [device respondsToSelector:@selector(hasStatesOfSeveralImages)] &&
         [static_cast<id<DeviceTraits>>(device) hasStatesOfSeveralImages];
}

MTLRegion clip_of_single_images(MTLRegion clip) {
  clip.origin.z = 0;
  clip.size.depth = 1;
  return clip;
}

}  // namespace mpscnn
