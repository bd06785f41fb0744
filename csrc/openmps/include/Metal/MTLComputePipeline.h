// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>

NS_ASSUME_NONNULL_BEGIN

@class MTLComputePipelineReflection;
@protocol MTLBinding, MTLDevice, MTLFunction;

typedef MTLComputePipelineReflection *MTLAutoreleasedComputePipelineReflection;

@protocol MTLComputePipelineState <NSObject>  // macOS 10.11

@property (readonly, nullable) NSString *label;  // macOS 10.13
@property (readonly) id<MTLDevice> device;
@property (readonly) NSUInteger maxTotalThreadsPerThreadgroup;
@property (readonly) NSUInteger threadExecutionWidth;
@property (readonly) NSUInteger staticThreadgroupMemoryLength;  // macOS 10.13

@end

@interface MTLComputePipelineDescriptor : NSObject <NSCopying> {  // macOS 10.11
  @protected
    void *_Nullable _openmps;
}

@property (nonatomic, copy, nullable) NSString *label;
@property (nonatomic, strong, nullable) id<MTLFunction> computeFunction;
@property (nonatomic) BOOL threadGroupSizeIsMultipleOfThreadExecutionWidth;
@property (nonatomic) NSUInteger maxTotalThreadsPerThreadgroup;  // macOS 10.14

- (void)reset;

@end

@interface MTLComputePipelineReflection : NSObject {  // macOS 10.11
  @protected
    void *_Nullable _openmps;
}

@property (readonly) NSArray<id<MTLBinding>> *bindings;  // macOS 13.0

@end

NS_ASSUME_NONNULL_END
