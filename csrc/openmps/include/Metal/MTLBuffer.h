// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>
#import <Metal/MTLResource.h>

NS_ASSUME_NONNULL_BEGIN

@class MTLTextureDescriptor;
@protocol MTLTexture;

@protocol MTLBuffer <MTLResource>  // macOS 10.11

@property (readonly) NSUInteger length;

- (nullable void *)contents;
- (void)didModifyRange:(NSRange)range;
- (nullable id<MTLTexture>)newTextureWithDescriptor:(MTLTextureDescriptor *)descriptor
                                             offset:(NSUInteger)offset
                                        bytesPerRow:(NSUInteger)bytesPerRow;  // macOS 10.13
- (void)addDebugMarker:(NSString *)marker range:(NSRange)range;  // macOS 10.12
- (void)removeAllDebugMarkers;  // macOS 10.12

@end

NS_ASSUME_NONNULL_END
