// SPDX-License-Identifier: Apache-2.0
// The kernels' interface to images, and extensions of Apple's interface.
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include "metal/OnEngine.hh"

@interface MPSImage (Engine)
/// Return all images, pixels and channels. Raise for a temporary image whose readCount is 0.
- (openmps::ImageView)openmps_view;
/// Call before an encode on `buffer` that reads or writes the image. Raise if it may not be used (another command
/// buffer's temporary image, readCount 0, read-only memory). A write also makes `buffer` the image's writer, so that
/// the CPU may not read before it completes. The caller appends its commands afterwards, and calls openmps_didRead once
/// per encode that read the image.
- (void)openmps_willReadOn:(nonnull id<MTLCommandBuffer>)buffer;
- (void)openmps_willWriteOn:(nonnull id<MTLCommandBuffer>)buffer;
/// Decrement a temporary image's readCount; recycle its storage at 0. No-op for other images.
- (void)openmps_didRead;
@end

/// Additions to Apple's interface; programs check `respondsToSelector:` first.
@interface MPSImageDescriptor (OpenMPSSharing)
/// YES: only memory limits the number of images. A kernel's result has no limit if its first source has none.
- (void)setHasNoSliceLimit:(BOOL)value;
- (BOOL)openmps_hasNoSliceLimit;
@end

@interface MPSImage (OpenMPSSharing)
/// Make an image over the caller's memory, N x H x W x C, channels adjacent. Strides in bytes, positive, multiples of
/// the element size. `deallocator` runs once neither the image nor work that uses it needs the memory. `bytes` is an
/// address of the device if its images have memory of their own.
- (nullable instancetype)initWithDevice:(nonnull id<MTLDevice>)device
                        imageDescriptor:(nonnull const MPSImageDescriptor *)imageDescriptor
                            bytesNoCopy:(nonnull void *)bytes
                          bytesPerPixel:(NSUInteger)bytesPerPixel
                            bytesPerRow:(NSUInteger)bytesPerRow
                          bytesPerImage:(NSUInteger)bytesPerImage
                               readOnly:(BOOL)readOnly
                            deallocator:(nullable void (^)(void))deallocator;
/// For devices whose images have memory of their own; csrc/core/data_source/sharing.hh describes them.
- (nonnull void *)deviceBytesWithStrides:(nonnull NSInteger *)strides;
- (BOOL)copyHostBytes:(nonnull void *)bytes strides:(nonnull const NSInteger *)strides intoImage:(BOOL)intoImage;
- (void)copyDeviceBytes:(nonnull void *)bytes strides:(nonnull const NSInteger *)strides intoImage:(BOOL)intoImage;
@end
