// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>
#import <MPSCore/MPSCoreTypes.h>

NS_ASSUME_NONNULL_BEGIN

@class MPSMatrixDescriptor, MPSVectorDescriptor;
@protocol MTLBuffer, MTLCommandBuffer, MTLDevice;

@interface MPSMatrix : NSObject {  // macOS 10.13
  @protected
    void *_Nullable _openmps;
}

@property (nonatomic, retain, readonly) id<MTLDevice> device;
@property (nonatomic, readonly) NSUInteger rows;
@property (nonatomic, readonly) NSUInteger columns;
@property (nonatomic, readonly) NSUInteger matrices;
@property (nonatomic, readonly) MPSDataType dataType;
@property (nonatomic, readonly) NSUInteger rowBytes;
@property (nonatomic, readonly) NSUInteger matrixBytes;
@property (nonatomic, readonly) NSUInteger offset;  // macOS 10.15
@property (nonatomic, readonly) id<MTLBuffer> data;

- (instancetype)initWithBuffer:(id<MTLBuffer>)buffer descriptor:(MPSMatrixDescriptor *)descriptor;
- (instancetype)initWithBuffer:(id<MTLBuffer>)buffer
                        offset:(NSUInteger)offset
                    descriptor:(MPSMatrixDescriptor *)descriptor;  // macOS 10.15
- (instancetype)initWithDevice:(id<MTLDevice>)device descriptor:(MPSMatrixDescriptor *)descriptor;
- (instancetype)init NS_UNAVAILABLE;

- (void)synchronizeOnCommandBuffer:(id<MTLCommandBuffer>)commandBuffer;  // macOS 10.13.4
- (NSUInteger)resourceSize;  // macOS 10.13.4

@end

@interface MPSMatrixDescriptor : NSObject {  // macOS 10.13
  @protected
    void *_Nullable _openmps;
}

@property (nonatomic) NSUInteger rows;
@property (nonatomic) NSUInteger columns;
@property (nonatomic, readonly) NSUInteger matrices;
@property (nonatomic) MPSDataType dataType;
@property (nonatomic) NSUInteger rowBytes;
@property (nonatomic, readonly) NSUInteger matrixBytes;

+ (instancetype)matrixDescriptorWithDimensions:(NSUInteger)rows
                                       columns:(NSUInteger)columns
                                      rowBytes:(NSUInteger)rowBytes
                                      dataType:(MPSDataType)dataType;
+ (instancetype)matrixDescriptorWithRows:(NSUInteger)rows
                                 columns:(NSUInteger)columns
                                rowBytes:(NSUInteger)rowBytes
                                dataType:(MPSDataType)dataType;
+ (instancetype)matrixDescriptorWithRows:(NSUInteger)rows
                                 columns:(NSUInteger)columns
                                matrices:(NSUInteger)matrices
                                rowBytes:(NSUInteger)rowBytes
                             matrixBytes:(NSUInteger)matrixBytes
                                dataType:(MPSDataType)dataType;
+ (size_t)rowBytesFromColumns:(NSUInteger)columns dataType:(MPSDataType)dataType;
+ (size_t)rowBytesForColumns:(NSUInteger)columns dataType:(MPSDataType)dataType;

@end

@interface MPSTemporaryMatrix : MPSMatrix  // macOS 10.13

@property (nonatomic) NSUInteger readCount;

+ (instancetype)temporaryMatrixWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                matrixDescriptor:(MPSMatrixDescriptor *)matrixDescriptor;
+ (void)prefetchStorageWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                    matrixDescriptorList:(NSArray<MPSMatrixDescriptor *> *)descriptorList;
- (instancetype)initWithBuffer:(id<MTLBuffer>)buffer
                    descriptor:(MPSMatrixDescriptor *)descriptor NS_UNAVAILABLE;

@end

@interface MPSVector : NSObject {  // macOS 10.13
  @protected
    void *_Nullable _openmps;
}

@property (nonatomic, retain, readonly) id<MTLDevice> device;
@property (nonatomic, readonly) NSUInteger length;
@property (nonatomic, readonly) NSUInteger vectors;
@property (nonatomic, readonly) MPSDataType dataType;
@property (nonatomic, readonly) NSUInteger vectorBytes;
@property (nonatomic, readonly) NSUInteger offset;  // macOS 10.15
@property (nonatomic, readonly) id<MTLBuffer> data;

- (instancetype)initWithBuffer:(id<MTLBuffer>)buffer descriptor:(MPSVectorDescriptor *)descriptor;
- (instancetype)initWithBuffer:(id<MTLBuffer>)buffer
                        offset:(NSUInteger)offset
                    descriptor:(MPSVectorDescriptor *)descriptor;  // macOS 10.15
- (instancetype)initWithDevice:(id<MTLDevice>)device descriptor:(MPSVectorDescriptor *)descriptor;  // macOS 10.13.4
- (instancetype)init NS_UNAVAILABLE;

- (void)synchronizeOnCommandBuffer:(id<MTLCommandBuffer>)commandBuffer;  // macOS 10.13.4
- (NSUInteger)resourceSize;  // macOS 10.13.4

@end

@interface MPSTemporaryVector : MPSVector  // macOS 10.13

@property (nonatomic) NSUInteger readCount;

+ (instancetype)temporaryVectorWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                      descriptor:(MPSVectorDescriptor *)descriptor;
+ (void)prefetchStorageWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                          descriptorList:(NSArray<MPSVectorDescriptor *> *)descriptorList;
- (instancetype)initWithBuffer:(id<MTLBuffer>)buffer
                    descriptor:(MPSVectorDescriptor *)descriptor NS_UNAVAILABLE;

@end

@interface MPSVectorDescriptor : NSObject {  // macOS 10.13
  @protected
    void *_Nullable _openmps;
}

@property (nonatomic) NSUInteger length;
@property (nonatomic, readonly) NSUInteger vectors;
@property (nonatomic) MPSDataType dataType;
@property (nonatomic, readonly) NSUInteger vectorBytes;

+ (instancetype)vectorDescriptorWithLength:(NSUInteger)length dataType:(MPSDataType)dataType;
+ (instancetype)vectorDescriptorWithLength:(NSUInteger)length
                                   vectors:(NSUInteger)vectors
                               vectorBytes:(NSUInteger)vectorBytes
                                  dataType:(MPSDataType)dataType;
+ (size_t)vectorBytesForLength:(NSUInteger)length dataType:(MPSDataType)dataType;

@end

NS_ASSUME_NONNULL_END
