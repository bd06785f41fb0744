// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>
#import <Metal/MTLPixelFormat.h>
#import <Metal/MTLTexture.h>

NS_ASSUME_NONNULL_BEGIN

@class MPSImage, MPSImageDescriptor, MPSKernel, MPSState, MPSStateResourceList, MTLTextureDescriptor;
@protocol MTLCommandBuffer, MTLDevice, MTLResource;

typedef NS_ENUM(NSUInteger, MPSStateResourceType) {
    MPSStateResourceTypeNone = 0,
    MPSStateResourceTypeBuffer = 1,
    MPSStateResourceTypeTexture = 2,
};

typedef struct MPSStateTextureInfo {
    NSUInteger width;
    NSUInteger height;
    NSUInteger depth;
    NSUInteger arrayLength;
    MTLPixelFormat pixelFormat;
    MTLTextureType textureType;
    MTLTextureUsage usage;
    NSUInteger _reserved[4];
} MPSStateTextureInfo;

typedef NSArray<MPSState *> MPSStateBatch;

@interface MPSState : NSObject {  // macOS 10.13
  @protected
    void *_Nullable _openmps;
}

@property (nonatomic, readonly) NSUInteger resourceCount;
@property (nonatomic) NSUInteger readCount;
@property (nonatomic, readonly) BOOL isTemporary;
@property (atomic, copy, nullable) NSString *label;
@property (nonatomic, retain, readonly, nullable) id<MTLResource> resource;  // deprecated 10.13.4

+ (instancetype)temporaryStateWithCommandBuffer:(id<MTLCommandBuffer>)cmdBuf bufferSize:(size_t)bufferSize;
+ (instancetype)temporaryStateWithCommandBuffer:(id<MTLCommandBuffer>)cmdBuf
                              textureDescriptor:(MTLTextureDescriptor *)descriptor;
+ (instancetype)temporaryStateWithCommandBuffer:(id<MTLCommandBuffer>)cmdBuf;
- (instancetype)initWithDevice:(id<MTLDevice>)device bufferSize:(size_t)bufferSize;
- (instancetype)initWithDevice:(id<MTLDevice>)device textureDescriptor:(MTLTextureDescriptor *)descriptor;
- (instancetype)initWithResource:(nullable id<MTLResource>)resource;
- (instancetype)init NS_UNAVAILABLE;
- (instancetype)initWithDevice:(id<MTLDevice>)device resourceList:(MPSStateResourceList *)resourceList;  // macOS 10.13.4
+ (instancetype)temporaryStateWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                   resourceList:(MPSStateResourceList *)resourceList;  // macOS 10.13.4
- (instancetype)initWithResources:(nullable NSArray<id<MTLResource>> *)resources;

- (nullable id<MTLResource>)resourceAtIndex:(NSUInteger)index allocateMemory:(BOOL)allocateMemory;
- (NSUInteger)bufferSizeAtIndex:(NSUInteger)index;
- (MPSStateTextureInfo)textureInfoAtIndex:(NSUInteger)index;
- (MPSStateResourceType)resourceTypeAtIndex:(NSUInteger)index;
- (void)synchronizeOnCommandBuffer:(id<MTLCommandBuffer>)commandBuffer;  // macOS 10.13.4
- (NSUInteger)resourceSize;  // macOS 10.13.4
- (MPSImageDescriptor *)destinationImageDescriptorForSourceImages:(NSArray<MPSImage *> *)sourceImages
                                                     sourceStates:(nullable NSArray<MPSState *> *)sourceStates
                                                        forKernel:(MPSKernel *)kernel
                                              suggestedDescriptor:(MPSImageDescriptor *)inDescriptor;

@end

@interface MPSStateResourceList : NSObject {  // macOS 10.13.4
  @protected
    void *_Nullable _openmps;
}

+ (instancetype)resourceList;
+ (instancetype)resourceListWithTextureDescriptors:(MTLTextureDescriptor *)d, ...;
+ (instancetype)resourceListWithBufferSizes:(NSUInteger)firstSize, ...;
- (instancetype)init;

- (void)appendTexture:(MTLTextureDescriptor *)descriptor;
- (void)appendBuffer:(NSUInteger)size;

@end

OPENMPS_EXTERN NSUInteger MPSStateBatchIncrementReadCount(MPSStateBatch *_Nullable batch, NSInteger amount);  // macOS 10.13.4
OPENMPS_EXTERN NSUInteger MPSStateBatchResourceSize(MPSStateBatch *_Nullable batch);  // macOS 10.14
OPENMPS_EXTERN void MPSStateBatchSynchronize(MPSStateBatch *batch, id<MTLCommandBuffer> cmdBuf);  // macOS 10.13.4

NS_ASSUME_NONNULL_END
