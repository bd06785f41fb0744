// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLCommandBuffer, MTLDevice;

@protocol MTLCommandQueue <NSObject>  // macOS 10.11

@property (atomic, copy, nullable) NSString *label;
@property (readonly) id<MTLDevice> device;

- (nullable id<MTLCommandBuffer>)commandBuffer;
- (nullable id<MTLCommandBuffer>)commandBufferWithUnretainedReferences;

@end

NS_ASSUME_NONNULL_END
