// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>
#import <MPSCore/MPSCoreTypes.h>
#import <MPSCore/MPSKernel.h>
#import <Metal/MTLTypes.h>

NS_ASSUME_NONNULL_BEGIN

@class MPSImage, MPSKernel;
@protocol MTLCommandBuffer, MTLDevice, MTLTexture;

typedef id<MTLTexture> _Nonnull NS_RETURNS_RETAINED (^MPSCopyAllocator)(MPSKernel *, id<MTLCommandBuffer>, id<MTLTexture>);

@interface MPSUnaryImageKernel : MPSKernel  // macOS 10.13

@property (nonatomic) MPSOffset offset;
@property (nonatomic) MTLRegion clipRect;
@property (nonatomic) MPSImageEdgeMode edgeMode;

- (instancetype)initWithDevice:(id<MTLDevice>)device;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

- (BOOL)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
               inPlaceTexture:(id<MTLTexture> _Nonnull *_Nonnull)texture
        fallbackCopyAllocator:(nullable MPSCopyAllocator)copyAllocator;
- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                sourceTexture:(id<MTLTexture>)sourceTexture
           destinationTexture:(id<MTLTexture>)destinationTexture;
- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                  sourceImage:(MPSImage *)sourceImage
             destinationImage:(MPSImage *)destinationImage;
- (MPSRegion)sourceRegionForDestinationSize:(MTLSize)destinationSize;

@end

NS_ASSUME_NONNULL_END
