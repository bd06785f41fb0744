// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>
#import <MPSCore/MPSCoreTypes.h>
#import <MPSCore/MPSImage.h>

NS_ASSUME_NONNULL_BEGIN

@class MPSKernel, MPSNDArray, MPSNDArrayDescriptor;
@protocol MPSNDArrayAllocator, MTLBuffer, MTLCommandBuffer, MTLDevice;

@protocol MPSNDArrayAllocator <NSCopying, NSObject, NSSecureCoding>

- (MPSNDArray *)arrayForCommandBuffer:(id<MTLCommandBuffer>)cmdBuf
                      arrayDescriptor:(MPSNDArrayDescriptor *)descriptor
                               kernel:(MPSKernel *)kernel;

@end

@interface MPSNDArray : NSObject {  // macOS 10.15
  @protected
    void *_Nullable _openmps;
}

@property (atomic, copy, nullable) NSString *label;
@property (nonatomic, readonly) MPSDataType dataType;
@property (nonatomic, readonly) size_t dataTypeSize;
@property (nonatomic, readonly) NSUInteger numberOfDimensions;
@property (nonatomic, retain, readonly) id<MTLDevice> device;
@property (nonatomic, retain, readonly, nullable) MPSNDArray *parent;

+ (id<MPSNDArrayAllocator>)defaultAllocator;
- (instancetype)init NS_UNAVAILABLE;
- (instancetype)initWithDevice:(id<MTLDevice>)device descriptor:(MPSNDArrayDescriptor *)descriptor;
- (instancetype)initWithDevice:(id<MTLDevice>)device scalar:(double)value;
- (instancetype)initWithBuffer:(id<MTLBuffer>)buffer
                        offset:(NSUInteger)offset
                    descriptor:(MPSNDArrayDescriptor *)descriptor;  // macOS 15.0

- (NSUInteger)lengthOfDimension:(NSUInteger)dimensionIndex;
- (MPSNDArrayDescriptor *)descriptor;
- (nullable id<MTLBuffer>)userBuffer;  // macOS 15.0
- (NSUInteger)resourceSize;
- (nullable MPSNDArray *)arrayViewWithCommandBuffer:(id<MTLCommandBuffer>)cmdBuf
                                         descriptor:(MPSNDArrayDescriptor *)descriptor
                                           aliasing:(MPSAliasingStrategy)aliasing;
- (nullable MPSNDArray *)arrayViewWithDescriptor:(MPSNDArrayDescriptor *)descriptor;  // macOS 15.0
- (nullable MPSNDArray *)arrayViewWithShape:(nullable MPSShape *)shape strides:(MPSShape *)strides;  // macOS 15.0
- (nullable MPSNDArray *)arrayViewWithDimensionCount:(NSUInteger)numberOfDimensions
                                      dimensionSizes:(const NSUInteger *)dimensionSizes
                                             strides:(const NSUInteger *)dimStrides;  // macOS 15.0
- (void)exportDataWithCommandBuffer:(id<MTLCommandBuffer>)cmdBuf
                           toBuffer:(id<MTLBuffer>)buffer
                destinationDataType:(MPSDataType)destinationDataType
                             offset:(NSUInteger)offset
                         rowStrides:(nullable NSInteger *)rowStrides;
- (void)importDataWithCommandBuffer:(id<MTLCommandBuffer>)cmdBuf
                         fromBuffer:(id<MTLBuffer>)buffer
                     sourceDataType:(MPSDataType)sourceDataType
                             offset:(NSUInteger)offset
                         rowStrides:(nullable NSInteger *)rowStrides;
- (void)exportDataWithCommandBuffer:(id<MTLCommandBuffer>)cmdBuf
                           toImages:(MPSImageBatch *)images
                             offset:(MPSImageCoordinate)offset;
- (void)importDataWithCommandBuffer:(id<MTLCommandBuffer>)cmdBuf
                         fromImages:(MPSImageBatch *)images
                             offset:(MPSImageCoordinate)offset;
- (void)readBytes:(void *)buffer strideBytes:(nullable NSInteger *)strideBytesPerDimension;
- (void)writeBytes:(void *)buffer strideBytes:(nullable NSInteger *)strideBytesPerDimension;
- (void)synchronizeOnCommandBuffer:(id<MTLCommandBuffer>)commandBuffer;

@end

@interface MPSNDArrayDescriptor : NSObject {  // macOS 10.15
  @protected
    void *_Nullable _openmps;
}

@property (nonatomic) MPSDataType dataType;
@property (nonatomic) NSUInteger numberOfDimensions;
@property (nonatomic) BOOL preferPackedRows;  // macOS 15.0

+ (instancetype)descriptorWithDataType:(MPSDataType)dataType
                        dimensionCount:(NSUInteger)numberOfDimensions
                        dimensionSizes:(NSUInteger *)dimensionSizes;
+ (instancetype)descriptorWithDataType:(MPSDataType)dataType shape:(NSArray<NSNumber *> *)shape;
+ (instancetype)descriptorWithDataType:(MPSDataType)dataType dimensionSizes:(NSUInteger)dimension0, ...;
- (instancetype)init NS_UNAVAILABLE;

- (NSUInteger)lengthOfDimension:(NSUInteger)dimensionIndex;
- (MPSDimensionSlice)sliceRangeForDimension:(NSUInteger)dimensionIndex;
- (void)sliceDimension:(NSUInteger)dimensionIndex withSubrange:(MPSDimensionSlice)subRange;
- (void)transposeDimension:(NSUInteger)dimensionIndex withDimension:(NSUInteger)dimensionIndex2;
- (void)permuteWithDimensionOrder:(NSUInteger *)dimensionOrder;  // macOS 15.0
- (vector_uchar16)dimensionOrder;
- (NSArray<NSNumber *> *)getShape;  // macOS 15.0
- (void)reshapeWithDimensionCount:(NSUInteger)numberOfDimensions dimensionSizes:(NSUInteger *)dimensionSizes;
- (void)reshapeWithShape:(NSArray<NSNumber *> *)shape;

@end

@interface MPSTemporaryNDArray : MPSNDArray  // macOS 10.15

@property (nonatomic) NSUInteger readCount;

+ (id<MPSNDArrayAllocator>)defaultAllocator;
+ (instancetype)temporaryNDArrayWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                       descriptor:(MPSNDArrayDescriptor *)descriptor;
- (instancetype)initWithDevice:(id<MTLDevice>)device
                    descriptor:(MPSNDArrayDescriptor *)descriptor NS_UNAVAILABLE;

@end

NS_ASSUME_NONNULL_END
