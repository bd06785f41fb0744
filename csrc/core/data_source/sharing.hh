// SPDX-License-Identifier: Apache-2.0
// Optional extensions of a platform beyond Apple's interface. Check respondsToSelector: first and support both cases.
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

@interface MPSImage (Sharing)
/// Create an image over the caller's memory, N x H x W x C with adjacent channels; strides in bytes, positive,
/// multiples of the element size. `deallocator` runs once neither the image nor work that uses it needs the memory.
/// `bytes` is an address of the device if the device is a DeviceWithMemory.
- (nullable instancetype)initWithDevice:(nonnull id<MTLDevice>)device
                        imageDescriptor:(nonnull const MPSImageDescriptor *)imageDescriptor
                            bytesNoCopy:(nonnull void *)bytes
                          bytesPerPixel:(NSUInteger)bytesPerPixel
                            bytesPerRow:(NSUInteger)bytesPerRow
                          bytesPerImage:(NSUInteger)bytesPerImage
                               readOnly:(BOOL)readOnly
                            deallocator:(nullable void (^)(void))deallocator;
/// Of an image on a DeviceWithMemory: return the device's address of the first value, and set the strides of images,
/// rows and columns, in bytes. All work that writes it must have completed.
- (nonnull void *)deviceBytesWithStrides:(nonnull NSInteger *)strides;
/// Copy between such an image and an array on its device, which has the image's format and extents; strides of images,
/// rows, columns and channels in bytes, positive. The copy is complete on return.
- (void)copyDeviceBytes:(nonnull void *)bytes strides:(nonnull const NSInteger *)strides intoImage:(BOOL)intoImage;
/// The same for an array in the host's memory whose values have no gaps; its axes may have any order. Return NO, and do
/// nothing, if it has gaps. Writes return once the array has been read.
- (BOOL)copyHostBytes:(nonnull void *)bytes strides:(nonnull const NSInteger *)strides intoImage:(BOOL)intoImage;
@end

@interface MPSImageDescriptor (Sharing)
/// YES: an image may have any number of slices. Apple's has at most 2048 [Metal feature set tables].
- (void)setHasNoSliceLimit:(BOOL)value;
@end

@protocol AwaitedCommit
/// -commit by a thread whose next call is -waitUntilCompleted: if the queue is idle, that thread may do the work.
- (void)commitAwaited;
@end

/// Command buffers whose commands others of the same queue can encode again, without the kernels.
@protocol CommandRecorder
/// YES: the commands encoded from now on can be recorded. There are none yet.
- (BOOL)recordsCommands;
/// YES: they can be encoded with other images of the same layout instead of those that they were recorded with.
- (BOOL)recordsForOtherImages;
/// Return all commands encoded so far, which use these images and temporary ones; nil if they cannot be repeated.
/// Kernels may be changed afterwards: the commands stay as they are.
- (nullable id)recordedCommandsWithSourceImages:(NSArray<MPSImage *> *)sourceImages
                              destinationImages:(NSArray<MPSImage *> *)destinationImages;
/// Encode what the method above returned. Raises if an image cannot be used. Return NO, and encode nothing, if the
/// images have another layout or share memory.
- (BOOL)encodeRecordedCommands:(id)commands
                  sourceImages:(NSArray<MPSImage *> *)sourceImages
             destinationImages:(NSArray<MPSImage *> *)destinationImages;
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
/// YES: gradients of MPSCNNArithmetic are 0 where the result reached a bound, if the forward encode made a state.
/// Apple's header also says that bounds are not differentiated [MPSCNNMath.h].
- (BOOL)differentiatesBounds;
/// YES: command buffers have no time limit. macOS ends those that occupy the GPU for seconds.
- (BOOL)hasNoTimeLimit;
@end

@protocol DevicesByName
/// Return the device of an engine, "cpu" or "cuda:0"; nil if there is no such engine. Raises with the reason if it
/// cannot be made.
- (nullable id<MTLDevice>)deviceOfEngine:(NSString *)name;
@end

/// A device whose images have memory that the host cannot access.
@protocol DeviceWithMemory
/// DLPack's type and number of the device [dlpack.h, DLDevice].
- (int32_t)dlpackType;
- (int32_t)dlpackNumber;
/// Return the number of the device in whose memory an address lies, -1 for other addresses.
- (int32_t)dlpackNumberOfAddress:(nonnull const void *)address;
/// Wait until a stream of another library has done its work: DLPack's number of a stream; 0: all streams.
- (void)waitForStream:(uintptr_t)stream;
- (void)copyFromDeviceBytes:(nonnull const void *)bytes length:(NSUInteger)length toHost:(nonnull void *)host;
/// Make a private buffer over memory of the device that another library allocated. `deallocator` as above.
- (nonnull id<MTLBuffer>)newBufferWithDeviceBytesNoCopy:(nonnull void *)bytes
                                                 length:(NSUInteger)length
                                            deallocator:(nonnull void (^)(void))deallocator;
/// Return the device's address of a buffer, private or shared.
- (nonnull void *)deviceBytesOfBuffer:(nonnull id<MTLBuffer>)buffer;
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

@protocol ThreadsOfProcess
/// Max number of threads that compute at once in this process, on all devices.
- (NSUInteger)computeThreads;
/// Takes effect on work that starts later; at most the processors that the process may use.
- (void)setComputeThreads:(NSUInteger)threads;
@end

/// A device that computes on threads of the processor.
@protocol DeviceOnThreads
/// YES: command queues may have numbers of threads.
- (BOOL)computesOnThreads;
/// Return a queue whose command buffers are computed by at most `threads` threads each, beside those of other queues.
/// All queues together compute on at most as many threads as the process may use.
- (nonnull id<MTLCommandQueue>)newCommandQueueWithMaxCommandBufferCount:(NSUInteger)maxCommandBufferCount
                                                         computeThreads:(NSUInteger)threads;
@end

/// All queues of such a device.
@protocol QueueOnThreads
/// YES: all committed command buffers have completed.
- (BOOL)isIdle;
@end

@protocol WeightsOwner
/// Optional method of a convolution's data source: while the returned object is held, the memory of -weights stays
/// valid and unchanged, even after purge. nil: it may change.
- (nullable id)weightsOwner;
@end

@protocol PagesOwner
/// Optional method of that object, for any thread: a kernel has its own copy of the weights, so pages of a mapped file
/// may leave memory. The weights stay valid.
- (void)releasePages;
@end

/// Convolutions and their gradient kernels.
@protocol WeightsInPlace
/// Like -reloadWeightsAndBiasesWithCommandBuffer:state:, without a copy: work that is encoded from now on, until the
/// next reload, reads the state's buffers when it runs. Only commands may change the buffers meanwhile; each reload
/// follows the change on its command buffer, and nothing encoded before reads them after it. Return NO, and encode
/// nothing, if the kernel needs values of its own.
- (BOOL)readWeightsInPlaceWithCommandBuffer:(nonnull id<MTLCommandBuffer>)commandBuffer
                                      state:(nonnull MPSCNNConvolutionWeightsAndBiasesState *)state;
@end

namespace mpscnn {
/// Return whether images of the device can use the caller's memory.
inline bool shares_images(id<MTLDevice> device) {
  return [device respondsToSelector:@selector(sharesImages)] && [static_cast<id<DeviceTraits>>(device) sharesImages];
}

/// Return the device as a DeviceWithMemory; nil if the host can access the memory of its images.
inline id<DeviceWithMemory> with_memory(id<MTLDevice> device) {
  const bool has_memory = [device respondsToSelector:@selector(dlpackType)] && !shares_images(device);
  return has_memory ? static_cast<id<DeviceWithMemory>>(static_cast<id>(device)) : nil;
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
