// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>
#import <Metal/MTLCommandEncoder.h>
#import <Metal/MTLTypes.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLBuffer, MTLFence, MTLResource, MTLTexture;

typedef NS_OPTIONS(NSUInteger, MTLBlitOption) {
    MTLBlitOptionNone = 0,
    MTLBlitOptionDepthFromDepthStencil = 1,
    MTLBlitOptionStencilFromDepthStencil = 2,
    MTLBlitOptionRowLinearPVRTC = 4,
};

@protocol MTLBlitCommandEncoder <MTLCommandEncoder>  // macOS 10.11

- (void)synchronizeResource:(id<MTLResource>)resource;
- (void)synchronizeTexture:(id<MTLTexture>)texture slice:(NSUInteger)slice level:(NSUInteger)level;
- (void)copyFromTexture:(id<MTLTexture>)sourceTexture
            sourceSlice:(NSUInteger)sourceSlice
            sourceLevel:(NSUInteger)sourceLevel
           sourceOrigin:(MTLOrigin)sourceOrigin
             sourceSize:(MTLSize)sourceSize
              toTexture:(id<MTLTexture>)destinationTexture
       destinationSlice:(NSUInteger)destinationSlice
       destinationLevel:(NSUInteger)destinationLevel
      destinationOrigin:(MTLOrigin)destinationOrigin;
- (void)copyFromBuffer:(id<MTLBuffer>)sourceBuffer
    sourceOffset:(NSUInteger)sourceOffset
    sourceBytesPerRow:(NSUInteger)sourceBytesPerRow
    sourceBytesPerImage:(NSUInteger)sourceBytesPerImage
    sourceSize:(MTLSize)sourceSize
    toTexture:(id<MTLTexture>)destinationTexture
    destinationSlice:(NSUInteger)destinationSlice
    destinationLevel:(NSUInteger)destinationLevel
    destinationOrigin:(MTLOrigin)destinationOrigin;
- (void)copyFromBuffer:(id<MTLBuffer>)sourceBuffer
    sourceOffset:(NSUInteger)sourceOffset
    sourceBytesPerRow:(NSUInteger)sourceBytesPerRow
    sourceBytesPerImage:(NSUInteger)sourceBytesPerImage
    sourceSize:(MTLSize)sourceSize
    toTexture:(id<MTLTexture>)destinationTexture
    destinationSlice:(NSUInteger)destinationSlice
    destinationLevel:(NSUInteger)destinationLevel
    destinationOrigin:(MTLOrigin)destinationOrigin
    options:(MTLBlitOption)options;
- (void)copyFromTexture:(id<MTLTexture>)sourceTexture
    sourceSlice:(NSUInteger)sourceSlice
    sourceLevel:(NSUInteger)sourceLevel
    sourceOrigin:(MTLOrigin)sourceOrigin
    sourceSize:(MTLSize)sourceSize
    toBuffer:(id<MTLBuffer>)destinationBuffer
    destinationOffset:(NSUInteger)destinationOffset
    destinationBytesPerRow:(NSUInteger)destinationBytesPerRow
    destinationBytesPerImage:(NSUInteger)destinationBytesPerImage;
- (void)copyFromTexture:(id<MTLTexture>)sourceTexture
    sourceSlice:(NSUInteger)sourceSlice
    sourceLevel:(NSUInteger)sourceLevel
    sourceOrigin:(MTLOrigin)sourceOrigin
    sourceSize:(MTLSize)sourceSize
    toBuffer:(id<MTLBuffer>)destinationBuffer
    destinationOffset:(NSUInteger)destinationOffset
    destinationBytesPerRow:(NSUInteger)destinationBytesPerRow
    destinationBytesPerImage:(NSUInteger)destinationBytesPerImage
    options:(MTLBlitOption)options;
- (void)generateMipmapsForTexture:(id<MTLTexture>)texture;
- (void)fillBuffer:(id<MTLBuffer>)buffer range:(NSRange)range value:(uint8_t)value;
- (void)copyFromTexture:(id<MTLTexture>)sourceTexture
            sourceSlice:(NSUInteger)sourceSlice
            sourceLevel:(NSUInteger)sourceLevel
              toTexture:(id<MTLTexture>)destinationTexture
       destinationSlice:(NSUInteger)destinationSlice
       destinationLevel:(NSUInteger)destinationLevel
             sliceCount:(NSUInteger)sliceCount
             levelCount:(NSUInteger)levelCount;  // macOS 10.15
- (void)copyFromTexture:(id<MTLTexture>)sourceTexture toTexture:(id<MTLTexture>)destinationTexture;  // macOS 10.15
- (void)copyFromBuffer:(id<MTLBuffer>)sourceBuffer
          sourceOffset:(NSUInteger)sourceOffset
              toBuffer:(id<MTLBuffer>)destinationBuffer
     destinationOffset:(NSUInteger)destinationOffset
                  size:(NSUInteger)size;
- (void)updateFence:(id<MTLFence>)fence;  // macOS 10.13
- (void)waitForFence:(id<MTLFence>)fence;  // macOS 10.13

@end

NS_ASSUME_NONNULL_END
