// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>
#import <MPSCore/MPSCoreTypes.h>
#import <MPSCore/MPSKernel.h>

NS_ASSUME_NONNULL_BEGIN

@class MPSMatrix, MPSMatrixRandomDistributionDescriptor, MPSVector;
@protocol MTLCommandBuffer, MTLDevice;

typedef NS_OPTIONS(NSUInteger, MPSMatrixRandomDistribution) {
    MPSMatrixRandomDistributionDefault = 1,
    MPSMatrixRandomDistributionUniform = 2,
    MPSMatrixRandomDistributionNormal = 3,
};

@interface MPSMatrixRandomDistributionDescriptor : NSObject <NSCopying> {  // macOS 10.15
  @protected
    void *_Nullable _openmps;
}

@property (nonatomic) MPSMatrixRandomDistribution distributionType;
@property (nonatomic) float minimum;
@property (nonatomic) float maximum;
@property (nonatomic) float mean;
@property (nonatomic) float standardDeviation;

+ (MPSMatrixRandomDistributionDescriptor *)uniformDistributionDescriptorWithMinimum:(float)minimum
                                                                            maximum:(float)maximum;
+ (MPSMatrixRandomDistributionDescriptor *)normalDistributionDescriptorWithMean:(float)mean
                                                              standardDeviation:(float)standardDeviation;  // macOS 11.0
+ (MPSMatrixRandomDistributionDescriptor *)normalDistributionDescriptorWithMean:(float)mean
                                                              standardDeviation:(float)standardDeviation
                                                                        minimum:(float)minimum
                                                                        maximum:(float)maximum;  // macOS 11.0
+ (MPSMatrixRandomDistributionDescriptor *)defaultDistributionDescriptor;

@end

@interface MPSMatrixRandom : MPSKernel  // macOS 10.15

@property (nonatomic, readonly) MPSDataType destinationDataType;
@property (nonatomic, readonly) MPSMatrixRandomDistribution distributionType;
@property (nonatomic) NSUInteger batchStart;
@property (nonatomic) NSUInteger batchSize;

- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
            destinationVector:(MPSVector *)destinationVector;
- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
            destinationMatrix:(MPSMatrix *)destinationMatrix;

@end

@interface MPSMatrixRandomMTGP32 : MPSMatrixRandom  // macOS 10.15

- (instancetype)initWithDevice:(id<MTLDevice>)device;
- (instancetype)initWithDevice:(id<MTLDevice>)device
           destinationDataType:(MPSDataType)destinationDataType
                          seed:(NSUInteger)seed
        distributionDescriptor:(MPSMatrixRandomDistributionDescriptor *)distributionDescriptor;
- (instancetype)initWithDevice:(id<MTLDevice>)device
           destinationDataType:(MPSDataType)destinationDataType
                          seed:(NSUInteger)seed;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

- (void)synchronizeStateOnCommandBuffer:(id<MTLCommandBuffer>)commandBuffer;

@end

@interface MPSMatrixRandomPhilox : MPSMatrixRandom  // macOS 10.15

- (instancetype)initWithDevice:(id<MTLDevice>)device;
- (instancetype)initWithDevice:(id<MTLDevice>)device
           destinationDataType:(MPSDataType)destinationDataType
                          seed:(NSUInteger)seed
        distributionDescriptor:(MPSMatrixRandomDistributionDescriptor *)distributionDescriptor;
- (instancetype)initWithDevice:(id<MTLDevice>)device
           destinationDataType:(MPSDataType)destinationDataType
                          seed:(NSUInteger)seed;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

@end

NS_ASSUME_NONNULL_END
