// SPDX-License-Identifier: Apache-2.0
// What the kernels ask of images and states beyond Apple's interface.
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include "metal/OnEngine.hh"

@interface MPSImage (Engine)
/// All images, pixels and channels. Raises for a temporary image whose readCount is 0.
- (openmps::ImageView)openmps_view;
/// An encode on `buffer` is going to read or write the image: raises when it may not (another command buffer's
/// temporary image, readCount 0, read-only memory). Writing also makes `buffer` the image's writer, so that the CPU may
/// not read before it completes. The caller appends its commands afterwards, and calls openmps_didRead once per encode
/// that read the image.
- (void)openmps_willReadOn:(nonnull id<MTLCommandBuffer>)buffer;
- (void)openmps_willWriteOn:(nonnull id<MTLCommandBuffer>)buffer;
/// Temporary images: readCount - 1, storage recycled at 0. Others: nothing.
- (void)openmps_didRead;
@end

/// Additions to Apple's interface; programs ask `respondsToSelector:` first.
@interface MPSImageDescriptor (OpenMPSSharing)
/// YES: only memory limits the number of images. A kernel's result has no limit where its first source has none.
- (void)setHasNoSliceLimit:(BOOL)value;
- (BOOL)openmps_hasNoSliceLimit;
@end

@interface MPSImage (OpenMPSSharing)
/// An image over the caller's memory, N x H x W x C, channels adjacent. Strides in bytes, positive, multiples of the
/// element size. `deallocator` runs when neither the image nor work that uses it needs the memory any more.
- (nullable instancetype)initWithDevice:(nonnull id<MTLDevice>)device
                        imageDescriptor:(nonnull const MPSImageDescriptor *)imageDescriptor
                            bytesNoCopy:(nonnull void *)bytes
                          bytesPerPixel:(NSUInteger)bytesPerPixel
                            bytesPerRow:(NSUInteger)bytesPerRow
                          bytesPerImage:(NSUInteger)bytesPerImage
                               readOnly:(BOOL)readOnly
                            deallocator:(nullable void (^)(void))deallocator;
@end
