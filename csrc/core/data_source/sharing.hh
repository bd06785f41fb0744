// SPDX-License-Identifier: Apache-2.0
// What a platform may offer beyond Apple's interface. Ask respondsToSelector: first; there is a path for both answers.
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

@interface MPSImage (Sharing)
/// An image over the caller's memory, N x H x W x C with adjacent channels; strides in bytes, positive, multiples of
/// the element size. `deallocator` runs when neither the image nor work that uses it needs the memory any more.
- (nullable instancetype)initWithDevice:(nonnull id<MTLDevice>)device
                        imageDescriptor:(nonnull const MPSImageDescriptor *)imageDescriptor
                            bytesNoCopy:(nonnull void *)bytes
                          bytesPerPixel:(NSUInteger)bytesPerPixel
                            bytesPerRow:(NSUInteger)bytesPerRow
                          bytesPerImage:(NSUInteger)bytesPerImage
                               readOnly:(BOOL)readOnly
                            deallocator:(nullable void (^)(void))deallocator;
@end

@interface MPSImageDescriptor (Sharing)
/// YES: an image may have any number of slices. Apple's has at most 2048 [Metal feature set tables].
- (void)setHasNoSliceLimit:(BOOL)value;
@end

@protocol AwaitedCommit
/// -commit by a thread whose next call is -waitUntilCompleted: where the queue is idle, that thread may do the work.
- (void)commitAwaited;
@end

@protocol DeviceTraits
/// YES: images can be made over memory of the program's.
- (BOOL)sharesImages;
/// YES: a kernel leaves one state for all images of an MPSImage, and a gradient kernel takes it. Apple's documentation
/// knows states of one image, and batches of them [MPSCNNKernel.h].
- (BOOL)hasStatesOfSeveralImages;
/// YES: the memory of temporary images is laid out when their command buffer is committed, so that
/// prefetchStorageWithCommandBuffer:imageDescriptorList: has nothing to do.
- (BOOL)plansTemporaryImages;
/// YES: a command buffer may take as long as it likes. macOS ends those that keep the GPU for seconds.
- (BOOL)hasNoTimeLimit;
@end

@protocol CountedMemory
/// Bytes: the most that currentAllocatedSize has been since -resetPeakAllocatedSize.
- (NSUInteger)peakAllocatedSize;
- (void)resetPeakAllocatedSize;
/// Bytes that are free and kept for the next allocation.
- (NSUInteger)cachedSize;
- (void)freeCachedMemory;
@end

@protocol WeightsOwner
/// What a convolution's data source may answer beyond Apple's protocol: as long as the object is held, what -weights
/// answered stays valid and is not written, purge or not. nil: it may change.
- (nullable id)weightsOwner;
@end

namespace mpscnn {
/// Whether images of the device can use memory of the caller's.
inline bool shares_images(id<MTLDevice> device) {
  return [device respondsToSelector:@selector(sharesImages)] && [static_cast<id<DeviceTraits>>(device) sharesImages];
}

/// Whether the CPU's copy of an image or a state has to be synchronized.
inline bool copies_storage() {
  static const bool is_copied =
      ![MPSImage instancesRespondToSelector:@selector(initWithDevice:imageDescriptor:bytesNoCopy:bytesPerPixel:
                                                      bytesPerRow:bytesPerImage:readOnly:deallocator:)];
  return is_copied;
}

/// Whether an image has at most 2048 slices.
inline bool limits_slices() {
  static const bool is_limited = ![MPSImageDescriptor instancesRespondToSelector:@selector(setHasNoSliceLimit:)];
  return is_limited;
}

/// Called behind the encode of a write to an image or a state: the CPU sees it when `commands` have completed. Images
/// are managed on macOS, states may be, and their caches are the caller's to synchronize [MPSImage.h, MPSState.h].
template <class Written>
void synchronize(Written *written, id<MTLCommandBuffer> commands) {
  if (copies_storage()) [written synchronizeOnCommandBuffer:commands];
}
}  // namespace mpscnn
