// SPDX-License-Identifier: Apache-2.0
// Optional extensions of a platform beyond Apple's interface. Check respondsToSelector: first and support both cases.
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

@interface MPSImage (Sharing)
/// Create an image over the caller's memory, N x H x W x C with adjacent channels; strides in bytes, positive,
/// multiples of the element size. `deallocator` runs once neither the image nor work that uses it needs the memory.
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
/// -commit by a thread whose next call is -waitUntilCompleted: if the queue is idle, that thread may do the work.
- (void)commitAwaited;
@end

@protocol DeviceTraits
/// YES: images can be made over the program's memory.
- (BOOL)sharesImages;
/// YES: kernels make and gradient kernels take one state for all images of an MPSImage, losses take one
/// MPSCNNLossLabels for them, and the kernels of batch statistics are StatisticsOfSeveralImages. Apple documents only
/// states of single images and batches of them [MPSCNNKernel.h].
- (BOOL)hasStatesOfSeveralImages;
/// YES: the memory of temporary images is planned when their command buffer is committed, so that
/// prefetchStorageWithCommandBuffer:imageDescriptorList: is not needed.
- (BOOL)plansTemporaryImages;
/// YES: command buffers have no time limit. macOS ends those that occupy the GPU for seconds.
- (BOOL)hasNoTimeLimit;
@end

@protocol DevicesByName
/// Return the device of an engine, "cpu" or "cuda:0"; nil if there is no such engine. Raises with the reason if it
/// cannot be made.
- (nullable id<MTLDevice>)deviceOfEngine:(NSString *)name;
@end

/// Encodes of one MPSImage with any number of images, instead of a batch.
@protocol StatisticsOfSeveralImages
- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                  sourceImage:(MPSImage *)sourceImage
      batchNormalizationState:(MPSCNNBatchNormalizationState *)batchNormalizationState;
- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
               sourceGradient:(MPSImage *)sourceGradient
                  sourceImage:(MPSImage *)sourceImage
      batchNormalizationState:(MPSCNNBatchNormalizationState *)batchNormalizationState;
@end

@protocol CountedMemory
/// Max of currentAllocatedSize since -resetPeakAllocatedSize, in bytes.
- (NSUInteger)peakAllocatedSize;
- (void)resetPeakAllocatedSize;
/// Free bytes kept for later allocations.
- (NSUInteger)cachedSize;
- (void)freeCachedMemory;
@end

@protocol WeightsOwner
/// Optional method of a convolution's data source: while the returned object is held, the memory of -weights stays
/// valid and unchanged, even after purge. nil: it may change.
- (nullable id)weightsOwner;
@end

namespace mpscnn {
/// Return whether images of the device can use the caller's memory.
inline bool shares_images(id<MTLDevice> device) {
  return [device respondsToSelector:@selector(sharesImages)] && [static_cast<id<DeviceTraits>>(device) sharesImages];
}

/// Return whether the CPU's copy of an image or a state has to be synchronized.
inline bool copies_storage() {
  static const bool is_copied =
      ![MPSImage instancesRespondToSelector:@selector(initWithDevice:imageDescriptor:bytesNoCopy:bytesPerPixel:
                                                      bytesPerRow:bytesPerImage:readOnly:deallocator:)];
  return is_copied;
}

/// Return whether an image has at most 2048 slices.
inline bool limits_slices() {
  static const bool is_limited = ![MPSImageDescriptor instancesRespondToSelector:@selector(setHasNoSliceLimit:)];
  return is_limited;
}

/// Synchronize an image or a state after the encode of a write, for reads by the CPU once `commands` have completed.
/// Images are managed on macOS, states may be; the caller must synchronize their caches [MPSImage.h, MPSState.h].
template <class Written>
void synchronize(Written *written, id<MTLCommandBuffer> commands) {
  if (copies_storage()) [written synchronizeOnCommandBuffer:commands];
}
}  // namespace mpscnn
