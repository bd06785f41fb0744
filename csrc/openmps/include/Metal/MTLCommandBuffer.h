// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLBlitCommandEncoder, MTLCommandBuffer, MTLCommandQueue, MTLComputeCommandEncoder, MTLDevice,
    MTLEvent;

OPENMPS_EXTERN NSErrorUserInfoKey const MTLCommandBufferEncoderInfoErrorKey;  // macOS 11.0
OPENMPS_EXTERN NSErrorDomain const MTLCommandBufferErrorDomain;  // macOS 10.11

typedef NS_ENUM(NSUInteger, MTLCommandBufferError) {
    MTLCommandBufferErrorNone = 0,
    MTLCommandBufferErrorInternal = 1,
    MTLCommandBufferErrorTimeout = 2,
    MTLCommandBufferErrorPageFault = 3,
    MTLCommandBufferErrorAccessRevoked = 4,
    MTLCommandBufferErrorBlacklisted = 4,
    MTLCommandBufferErrorNotPermitted = 7,
    MTLCommandBufferErrorOutOfMemory = 8,
    MTLCommandBufferErrorInvalidResource = 9,
    MTLCommandBufferErrorMemoryless = 10,
    MTLCommandBufferErrorDeviceRemoved = 11,
    MTLCommandBufferErrorStackOverflow = 12,
};

typedef NS_OPTIONS(NSUInteger, MTLCommandBufferErrorOption) {
    MTLCommandBufferErrorOptionNone = 0,
    MTLCommandBufferErrorOptionEncoderExecutionStatus = 1,
};

typedef NS_ENUM(NSUInteger, MTLCommandBufferStatus) {
    MTLCommandBufferStatusNotEnqueued = 0,
    MTLCommandBufferStatusEnqueued = 1,
    MTLCommandBufferStatusCommitted = 2,
    MTLCommandBufferStatusScheduled = 3,
    MTLCommandBufferStatusCompleted = 4,
    MTLCommandBufferStatusError = 5,
};

typedef NS_ENUM(NSUInteger, MTLDispatchType) {
    MTLDispatchTypeSerial = 0,
    MTLDispatchTypeConcurrent = 1,
};

typedef void (^MTLCommandBufferHandler)(id<MTLCommandBuffer>);

@protocol MTLCommandBuffer <NSObject>  // macOS 10.11

@property (readonly) id<MTLDevice> device;
@property (readonly) id<MTLCommandQueue> commandQueue;
@property (readonly) BOOL retainedReferences;
@property (atomic, copy, nullable) NSString *label;
@property (readonly) CFTimeInterval kernelStartTime;  // macOS 10.15
@property (readonly) CFTimeInterval kernelEndTime;  // macOS 10.15
@property (readonly) CFTimeInterval GPUStartTime;  // macOS 10.15
@property (readonly) CFTimeInterval GPUEndTime;  // macOS 10.15
@property (readonly) MTLCommandBufferStatus status;
@property (readonly, nullable) NSError *error;

- (void)enqueue;
- (void)commit;
- (void)addScheduledHandler:(MTLCommandBufferHandler)block;
- (void)waitUntilScheduled;
- (void)addCompletedHandler:(MTLCommandBufferHandler)block;
- (void)waitUntilCompleted;
- (nullable id<MTLBlitCommandEncoder>)blitCommandEncoder;
- (nullable id<MTLComputeCommandEncoder>)computeCommandEncoder;
- (nullable id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:(MTLDispatchType)dispatchType;  // macOS 10.14
- (void)encodeWaitForEvent:(id<MTLEvent>)event value:(uint64_t)value;  // macOS 10.14
- (void)encodeSignalEvent:(id<MTLEvent>)event value:(uint64_t)value;  // macOS 10.14
- (void)pushDebugGroup:(NSString *)string;  // macOS 10.13
- (void)popDebugGroup;  // macOS 10.13

@end

NS_ASSUME_NONNULL_END
