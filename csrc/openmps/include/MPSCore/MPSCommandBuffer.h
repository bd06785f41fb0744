// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>
#import <Metal/MTLCommandBuffer.h>

NS_ASSUME_NONNULL_BEGIN

@class MPSPredicate, MTLHeapDescriptor;
@protocol MPSHeapProvider, MTLBuffer, MTLCommandBuffer, MTLCommandQueue, MTLDevice, MTLHeap;

@protocol MPSHeapProvider <NSObject>

- (nullable id<MTLHeap>)newHeapWithDescriptor:(MTLHeapDescriptor *)descriptor;

@optional
- (void)retireHeap:(id<MTLHeap>)heap cacheDelay:(double)seconds;

@end

@interface MPSCommandBuffer : NSObject <MTLCommandBuffer> {  // macOS 10.15
  @protected
    void *_Nullable _openmps;
}

@property (nonatomic, retain, readonly) id<MTLCommandBuffer> commandBuffer;
@property (nonatomic, retain, readonly) id<MTLCommandBuffer> rootCommandBuffer;
@property (nonatomic, retain, nullable) MPSPredicate *predicate;
@property (nonatomic, retain, nullable) id<MPSHeapProvider> heapProvider;

+ (instancetype)commandBufferWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer;
+ (instancetype)commandBufferFromCommandQueue:(id<MTLCommandQueue>)commandQueue;
- (instancetype)initWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer;
- (instancetype)init NS_UNAVAILABLE;

- (void)commitAndContinue;
- (void)prefetchHeapForWorkloadSize:(size_t)size;

@end

@interface MPSPredicate : NSObject {  // macOS 10.15
  @protected
    void *_Nullable _openmps;
}

@property (nonatomic, retain, readonly) id<MTLBuffer> predicateBuffer;
@property (nonatomic, readonly) NSUInteger predicateOffset;

+ (instancetype)predicateWithBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset;
- (instancetype)initWithBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset;
- (instancetype)initWithDevice:(id<MTLDevice>)device;

@end

NS_ASSUME_NONNULL_END
