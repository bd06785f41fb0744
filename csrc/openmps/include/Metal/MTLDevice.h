// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>
#import <Metal/MTLComputePipeline.h>
#import <Metal/MTLLibrary.h>
#import <Metal/MTLPixelFormat.h>
#import <Metal/MTLResource.h>
#import <Metal/MTLTypes.h>

NS_ASSUME_NONNULL_BEGIN

@class MTLCompileOptions, MTLHeapDescriptor, MTLSamplerDescriptor, MTLSharedEventHandle, MTLTextureDescriptor;
@protocol MTLBuffer, MTLCommandQueue, MTLComputePipelineState, MTLDevice, MTLEvent, MTLFence, MTLFunction,
    MTLHeap, MTLLibrary, MTLSamplerState, MTLSharedEvent, MTLTexture;

typedef NSString *MTLDeviceNotificationName;

OPENMPS_EXTERN MTLDeviceNotificationName const MTLDeviceRemovalRequestedNotification;  // macOS 10.13
OPENMPS_EXTERN MTLDeviceNotificationName const MTLDeviceWasAddedNotification;  // macOS 10.13
OPENMPS_EXTERN MTLDeviceNotificationName const MTLDeviceWasRemovedNotification;  // macOS 10.13

typedef NS_ENUM(NSUInteger, MTLArgumentBuffersTier) {
    MTLArgumentBuffersTier1 = 0,
    MTLArgumentBuffersTier2 = 1,
};

typedef NS_ENUM(NSUInteger, MTLDeviceLocation) {
    MTLDeviceLocationBuiltIn = 0,
    MTLDeviceLocationSlot = 1,
    MTLDeviceLocationExternal = 2,
    MTLDeviceLocationUnspecified = 0xfffffffffffffffful,
};

typedef NS_ENUM(NSUInteger, MTLFeatureSet) {
    MTLFeatureSet_iOS_GPUFamily1_v1 = 0,
    MTLFeatureSet_iOS_GPUFamily2_v1 = 1,
    MTLFeatureSet_iOS_GPUFamily1_v2 = 2,
    MTLFeatureSet_iOS_GPUFamily2_v2 = 3,
    MTLFeatureSet_iOS_GPUFamily3_v1 = 4,
    MTLFeatureSet_iOS_GPUFamily1_v3 = 5,
    MTLFeatureSet_iOS_GPUFamily2_v3 = 6,
    MTLFeatureSet_iOS_GPUFamily3_v2 = 7,
    MTLFeatureSet_iOS_GPUFamily1_v4 = 8,
    MTLFeatureSet_iOS_GPUFamily2_v4 = 9,
    MTLFeatureSet_iOS_GPUFamily3_v3 = 10,
    MTLFeatureSet_iOS_GPUFamily4_v1 = 11,
    MTLFeatureSet_iOS_GPUFamily1_v5 = 12,
    MTLFeatureSet_iOS_GPUFamily2_v5 = 13,
    MTLFeatureSet_iOS_GPUFamily3_v4 = 14,
    MTLFeatureSet_iOS_GPUFamily4_v2 = 15,
    MTLFeatureSet_iOS_GPUFamily5_v1 = 16,
    MTLFeatureSet_OSX_GPUFamily1_v1 = 10000,
    MTLFeatureSet_macOS_GPUFamily1_v1 = 10000,
    MTLFeatureSet_OSX_GPUFamily1_v2 = 10001,
    MTLFeatureSet_macOS_GPUFamily1_v2 = 10001,
    MTLFeatureSet_OSX_ReadWriteTextureTier2 = 10002,
    MTLFeatureSet_macOS_ReadWriteTextureTier2 = 10002,
    MTLFeatureSet_macOS_GPUFamily1_v3 = 10003,
    MTLFeatureSet_macOS_GPUFamily1_v4 = 10004,
    MTLFeatureSet_macOS_GPUFamily2_v1 = 10005,
    MTLFeatureSet_TVOS_GPUFamily1_v1 = 30000,
    MTLFeatureSet_tvOS_GPUFamily1_v1 = 30000,
    MTLFeatureSet_tvOS_GPUFamily1_v2 = 30001,
    MTLFeatureSet_tvOS_GPUFamily1_v3 = 30002,
    MTLFeatureSet_tvOS_GPUFamily2_v1 = 30003,
    MTLFeatureSet_tvOS_GPUFamily1_v4 = 30004,
    MTLFeatureSet_tvOS_GPUFamily2_v2 = 30005,
};

typedef NS_ENUM(NSInteger, MTLGPUFamily) {
    MTLGPUFamilyApple1 = 1001,
    MTLGPUFamilyApple2 = 1002,
    MTLGPUFamilyApple3 = 1003,
    MTLGPUFamilyApple4 = 1004,
    MTLGPUFamilyApple5 = 1005,
    MTLGPUFamilyApple6 = 1006,
    MTLGPUFamilyApple7 = 1007,
    MTLGPUFamilyApple8 = 1008,
    MTLGPUFamilyApple9 = 1009,
    MTLGPUFamilyApple10 = 1010,
    MTLGPUFamilyMac1 = 2001,
    MTLGPUFamilyMac2 = 2002,
    MTLGPUFamilyCommon1 = 3001,
    MTLGPUFamilyCommon2 = 3002,
    MTLGPUFamilyCommon3 = 3003,
    MTLGPUFamilyMacCatalyst1 = 4001,
    MTLGPUFamilyMacCatalyst2 = 4002,
    MTLGPUFamilyMetal3 = 5001,
    MTLGPUFamilyMetal4 = 5002,
};

typedef NS_OPTIONS(NSUInteger, MTLPipelineOption) {
    MTLPipelineOptionNone = 0,
    MTLPipelineOptionArgumentInfo = 1,
    MTLPipelineOptionBindingInfo = 1,
    MTLPipelineOptionBufferTypeInfo = 2,
    MTLPipelineOptionFailOnBinaryArchiveMiss = 4,
};

typedef NS_ENUM(NSUInteger, MTLReadWriteTextureTier) {
    MTLReadWriteTextureTierNone = 0,
    MTLReadWriteTextureTier1 = 1,
    MTLReadWriteTextureTier2 = 2,
};

typedef struct {
    NSUInteger size;
    NSUInteger align;
} MTLSizeAndAlign;

typedef void (^MTLDeviceNotificationHandler)(id<MTLDevice>, MTLDeviceNotificationName);
typedef uint64_t MTLTimestamp;

@protocol MTLDevice <NSObject>  // macOS 10.11

@property (readonly) NSString *name;
@property (readonly) uint64_t registryID;  // macOS 10.13
@property (readonly) MTLSize maxThreadsPerThreadgroup;
@property (readonly, getter=isLowPower) BOOL lowPower;
@property (readonly, getter=isHeadless) BOOL headless;
@property (readonly, getter=isRemovable) BOOL removable;  // macOS 10.13
@property (readonly) BOOL hasUnifiedMemory;  // macOS 10.15
@property (readonly) uint64_t recommendedMaxWorkingSetSize;  // macOS 10.12
@property (readonly) MTLDeviceLocation location;  // macOS 10.15
@property (readonly) NSUInteger locationNumber;  // macOS 10.15
@property (readonly) MTLReadWriteTextureTier readWriteTextureSupport;  // macOS 10.13
@property (readonly) MTLArgumentBuffersTier argumentBuffersSupport;  // macOS 10.13
@property (readonly, getter=areBarycentricCoordsSupported) BOOL barycentricCoordsSupported;  // macOS 10.15, deprecated 13.0
@property (readonly) BOOL supportsShaderBarycentricCoordinates;  // macOS 10.15
@property (readonly) NSUInteger currentAllocatedSize;  // macOS 10.13
@property (readonly) NSUInteger maxThreadgroupMemoryLength;  // macOS 10.13
@property (readonly) NSUInteger maxArgumentBufferSamplerCount;  // macOS 10.14
@property (readonly) NSUInteger maxBufferLength;  // macOS 10.14

- (nullable id<MTLCommandQueue>)newCommandQueue;
- (nullable id<MTLCommandQueue>)newCommandQueueWithMaxCommandBufferCount:(NSUInteger)maxCommandBufferCount;
- (MTLSizeAndAlign)heapTextureSizeAndAlignWithDescriptor:(MTLTextureDescriptor *)desc;  // macOS 10.13
- (MTLSizeAndAlign)heapBufferSizeAndAlignWithLength:(NSUInteger)length options:(MTLResourceOptions)options;  // macOS 10.13
- (nullable id<MTLHeap>)newHeapWithDescriptor:(MTLHeapDescriptor *)descriptor;  // macOS 10.13
- (nullable id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options;
- (nullable id<MTLBuffer>)newBufferWithBytes:(const void *)pointer
                                      length:(NSUInteger)length
                                     options:(MTLResourceOptions)options;
- (nullable id<MTLBuffer>)newBufferWithBytesNoCopy:(void *)pointer
                                            length:(NSUInteger)length
                                           options:(MTLResourceOptions)options
                                       deallocator:(void (^_Nullable)(void *, NSUInteger))deallocator;
- (nullable id<MTLTexture>)newTextureWithDescriptor:(MTLTextureDescriptor *)descriptor;
- (nullable id<MTLTexture>)newSharedTextureWithDescriptor:(MTLTextureDescriptor *)descriptor;  // macOS 10.14
- (nullable id<MTLSamplerState>)newSamplerStateWithDescriptor:(MTLSamplerDescriptor *)descriptor;
- (nullable id<MTLLibrary>)newDefaultLibrary;
- (nullable id<MTLLibrary>)newDefaultLibraryWithBundle:(NSBundle *)bundle error:(NSError **)error;  // macOS 10.12
- (nullable id<MTLLibrary>)newLibraryWithFile:(NSString *)filepath error:(NSError **)error;  // deprecated 13.0
- (nullable id<MTLLibrary>)newLibraryWithURL:(NSURL *)url error:(NSError **)error;  // macOS 10.13
- (nullable id<MTLLibrary>)newLibraryWithData:(dispatch_data_t)data error:(NSError **)error;
- (nullable id<MTLLibrary>)newLibraryWithSource:(NSString *)source
                                        options:(nullable MTLCompileOptions *)options
                                          error:(NSError **)error;
- (void)newLibraryWithSource:(NSString *)source
                     options:(nullable MTLCompileOptions *)options
           completionHandler:(MTLNewLibraryCompletionHandler)completionHandler;
- (nullable id<MTLComputePipelineState>)newComputePipelineStateWithFunction:(id<MTLFunction>)computeFunction
                                                                      error:(NSError **)error;
- (nullable id<MTLComputePipelineState>)newComputePipelineStateWithFunction:(id<MTLFunction>)computeFunction
    options:(MTLPipelineOption)options
    reflection:(MTLAutoreleasedComputePipelineReflection _Nullable *_Nullable)reflection
    error:(NSError **)error;
- (void)newComputePipelineStateWithFunction:(id<MTLFunction>)computeFunction
                          completionHandler:(MTLNewComputePipelineStateCompletionHandler)completionHandler;
- (nullable id<MTLFence>)newFence;  // macOS 10.13
- (BOOL)supportsFeatureSet:(MTLFeatureSet)featureSet;  // deprecated 13.0
- (BOOL)supportsFamily:(MTLGPUFamily)gpuFamily;  // macOS 10.15
- (NSUInteger)minimumLinearTextureAlignmentForPixelFormat:(MTLPixelFormat)format;  // macOS 10.13
- (NSUInteger)minimumTextureBufferAlignmentForPixelFormat:(MTLPixelFormat)format;  // macOS 10.14
- (nullable id<MTLEvent>)newEvent;  // macOS 10.14
- (nullable id<MTLSharedEvent>)newSharedEvent;  // macOS 10.14
- (nullable id<MTLSharedEvent>)newSharedEventWithHandle:(MTLSharedEventHandle *)sharedEventHandle;  // macOS 10.14
- (void)sampleTimestamps:(MTLTimestamp *)cpuTimestamp gpuTimestamp:(MTLTimestamp *)gpuTimestamp;  // macOS 10.15

@end

OPENMPS_EXTERN NSArray<id<MTLDevice>> *MTLCopyAllDevices(void) NS_RETURNS_RETAINED;  // macOS 10.11
OPENMPS_EXTERN NSArray<id<MTLDevice>> *MTLCopyAllDevicesWithObserver(
    id<NSObject> _Nonnull *_Nonnull observer, MTLDeviceNotificationHandler handler) NS_RETURNS_RETAINED;  // macOS 10.13
OPENMPS_EXTERN id<MTLDevice> _Nullable MTLCreateSystemDefaultDevice(void) NS_RETURNS_RETAINED;  // macOS 10.11
OPENMPS_EXTERN void MTLRemoveDeviceObserver(id<NSObject> observer);  // macOS 10.13

NS_ASSUME_NONNULL_END
