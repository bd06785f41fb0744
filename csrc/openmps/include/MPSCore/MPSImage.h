// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>
#import <MPSCore/MPSCoreTypes.h>
#import <Metal/MTLPixelFormat.h>
#import <Metal/MTLResource.h>
#import <Metal/MTLTexture.h>
#import <Metal/MTLTypes.h>

NS_ASSUME_NONNULL_BEGIN

@class MPSImage, MPSImageDescriptor, MPSKernel, MTLTextureDescriptor;
@protocol MPSImageAllocator, MTLCommandBuffer, MTLDevice, MTLTexture;

typedef NS_ENUM(NSUInteger, MPSDataLayout) {
    MPSDataLayoutHeightxWidthxFeatureChannels = 0,
    MPSDataLayoutFeatureChannelsxHeightxWidth = 1,
};

typedef NS_ENUM(NSUInteger, MPSPurgeableState) {
    MPSPurgeableStateAllocationDeferred = 0,
    MPSPurgeableStateKeepCurrent = 1,
    MPSPurgeableStateNonVolatile = 2,
    MPSPurgeableStateVolatile = 3,
    MPSPurgeableStateEmpty = 4,
};

typedef struct {
    NSUInteger featureChannelOffset;
    NSUInteger numberOfFeatureChannelsToReadWrite;
} MPSImageReadWriteParams;

typedef NSArray<MPSImage *> MPSImageBatch;

@protocol MPSImageAllocator <NSObject, NSSecureCoding>  // macOS 10.13

- (MPSImage *)imageForCommandBuffer:(id<MTLCommandBuffer>)cmdBuf
                    imageDescriptor:(MPSImageDescriptor *)descriptor
                             kernel:(MPSKernel *)kernel;

@optional
- (MPSImageBatch *)imageBatchForCommandBuffer:(id<MTLCommandBuffer>)cmdBuf
                              imageDescriptor:(MPSImageDescriptor *)descriptor
                                       kernel:(MPSKernel *)kernel
                                        count:(NSUInteger)count;  // macOS 10.13.4

@end

@interface MPSImage : NSObject {  // macOS 10.13
  @protected
    void *_Nullable _openmps;
}

@property (nonatomic, retain, readonly) id<MTLDevice> device;
@property (nonatomic, readonly) NSUInteger width;
@property (nonatomic, readonly) NSUInteger height;
@property (nonatomic, readonly) NSUInteger featureChannels;
@property (nonatomic, readonly) NSUInteger numberOfImages;
@property (nonatomic, readonly) MTLTextureType textureType;
@property (nonatomic, readonly) MTLPixelFormat pixelFormat;
@property (nonatomic, readonly) NSUInteger precision;
@property (nonatomic, readonly) MTLTextureUsage usage;
@property (nonatomic, readonly) MPSImageFeatureChannelFormat featureChannelFormat;
@property (nonatomic, readonly) size_t pixelSize;
@property (nonatomic, readonly) id<MTLTexture> texture;
@property (atomic, copy, nullable) NSString *label;
@property (nonatomic, retain, readonly, nullable) MPSImage *parent;

+ (id<MPSImageAllocator>)defaultAllocator;
- (instancetype)initWithDevice:(id<MTLDevice>)device
               imageDescriptor:(const MPSImageDescriptor *)imageDescriptor;
- (instancetype)initWithParentImage:(MPSImage *)parent
                         sliceRange:(NSRange)sliceRange
                    featureChannels:(NSUInteger)featureChannels;
- (instancetype)initWithTexture:(id<MTLTexture>)texture featureChannels:(NSUInteger)featureChannels;
- (instancetype)init NS_UNAVAILABLE;

- (MPSImageBatch *)batchRepresentationWithSubRange:(NSRange)subRange;
- (MPSImageBatch *)batchRepresentation;
- (MPSImage *)subImageWithFeatureChannelRange:(NSRange)range;
- (NSUInteger)resourceSize;
- (MPSPurgeableState)setPurgeableState:(MPSPurgeableState)state;
- (void)readBytes:(void *)dataBytes
    dataLayout:(MPSDataLayout)dataLayout
    bytesPerRow:(NSUInteger)bytesPerRow
    region:(MTLRegion)region
    featureChannelInfo:(MPSImageReadWriteParams)featureChannelInfo
    imageIndex:(NSUInteger)imageIndex;
- (void)writeBytes:(const void *)dataBytes
    dataLayout:(MPSDataLayout)dataLayout
    bytesPerRow:(NSUInteger)bytesPerRow
    region:(MTLRegion)region
    featureChannelInfo:(MPSImageReadWriteParams)featureChannelInfo
    imageIndex:(NSUInteger)imageIndex;
- (void)writeBytes:(const void *)dataBytes
    dataLayout:(MPSDataLayout)dataLayout
    bytesPerColumn:(NSUInteger)bytesPerColumn
    bytesPerRow:(NSUInteger)bytesPerRow
    bytesPerImage:(NSUInteger)bytesPerImage
    region:(MTLRegion)region
    featureChannelInfo:(MPSImageReadWriteParams)featureChannelInfo
    imageIndex:(NSUInteger)imageIndex;  // macOS 10.15
- (void)readBytes:(void *)dataBytes
    dataLayout:(MPSDataLayout)dataLayout
    bytesPerRow:(NSUInteger)bytesPerRow
    bytesPerImage:(NSUInteger)bytesPerImage
    region:(MTLRegion)region
    featureChannelInfo:(MPSImageReadWriteParams)featureChannelInfo
    imageIndex:(NSUInteger)imageIndex;
- (void)writeBytes:(const void *)dataBytes
    dataLayout:(MPSDataLayout)dataLayout
    bytesPerRow:(NSUInteger)bytesPerRow
    bytesPerImage:(NSUInteger)bytesPerImage
    region:(MTLRegion)region
    featureChannelInfo:(MPSImageReadWriteParams)featureChannelInfo
    imageIndex:(NSUInteger)imageIndex;  // macOS 10.13.4
- (void)readBytes:(void *)dataBytes dataLayout:(MPSDataLayout)dataLayout imageIndex:(NSUInteger)imageIndex;
- (void)writeBytes:(const void *)dataBytes
        dataLayout:(MPSDataLayout)dataLayout
        imageIndex:(NSUInteger)imageIndex;
- (void)synchronizeOnCommandBuffer:(id<MTLCommandBuffer>)commandBuffer;  // macOS 10.13.4

@end

@interface MPSImageDescriptor : NSObject <NSCopying> {  // macOS 10.13
  @protected
    void *_Nullable _openmps;
}

@property (nonatomic) NSUInteger width;
@property (nonatomic) NSUInteger height;
@property (nonatomic) NSUInteger featureChannels;
@property (nonatomic) NSUInteger numberOfImages;
@property (nonatomic, readonly) MTLPixelFormat pixelFormat;
@property (nonatomic) MPSImageFeatureChannelFormat channelFormat;
@property (nonatomic) MTLCPUCacheMode cpuCacheMode;
@property (nonatomic) MTLStorageMode storageMode;
@property (nonatomic) MTLTextureUsage usage;

+ (instancetype)imageDescriptorWithChannelFormat:(MPSImageFeatureChannelFormat)channelFormat
                                           width:(NSUInteger)width
                                          height:(NSUInteger)height
                                 featureChannels:(NSUInteger)featureChannels;
+ (instancetype)imageDescriptorWithChannelFormat:(MPSImageFeatureChannelFormat)channelFormat
                                           width:(NSUInteger)width
                                          height:(NSUInteger)height
                                 featureChannels:(NSUInteger)featureChannels
                                  numberOfImages:(NSUInteger)numberOfImages
                                           usage:(MTLTextureUsage)usage;

- (instancetype)copyWithZone:(nullable NSZone *)zone;  // macOS 10.14

@end

@interface MPSTemporaryImage : MPSImage  // macOS 10.13

@property (nonatomic) NSUInteger readCount;

+ (id<MPSImageAllocator>)defaultAllocator;
+ (instancetype)temporaryImageWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                imageDescriptor:(const MPSImageDescriptor *)imageDescriptor;
+ (instancetype)temporaryImageWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                              textureDescriptor:(const MTLTextureDescriptor *)textureDescriptor;
+ (instancetype)temporaryImageWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                              textureDescriptor:(const MTLTextureDescriptor *)textureDescriptor
                                featureChannels:(NSUInteger)featureChannels;  // macOS 10.13.4
+ (void)prefetchStorageWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                     imageDescriptorList:(NSArray<MPSImageDescriptor *> *)descriptorList;
- (instancetype)initWithTexture:(id<MTLTexture>)texture
                featureChannels:(NSUInteger)featureChannels NS_UNAVAILABLE;
- (instancetype)initWithDevice:(id<MTLDevice>)device
               imageDescriptor:(const MPSImageDescriptor *)imageDescriptor NS_UNAVAILABLE;

@end

OPENMPS_EXTERN NSUInteger MPSImageBatchIncrementReadCount(MPSImageBatch *batch, NSInteger amount);  // macOS 10.13.4
OPENMPS_EXTERN NSInteger MPSImageBatchIterate(MPSImageBatch *batch,
                                              NSInteger (^iteratorBlock)(MPSImage *, NSUInteger));  // macOS 10.15
OPENMPS_EXTERN NSUInteger MPSImageBatchResourceSize(MPSImageBatch *batch);  // macOS 10.14
OPENMPS_EXTERN void MPSImageBatchSynchronize(MPSImageBatch *batch, id<MTLCommandBuffer> cmdBuf);  // macOS 10.13.4

NS_ASSUME_NONNULL_END
