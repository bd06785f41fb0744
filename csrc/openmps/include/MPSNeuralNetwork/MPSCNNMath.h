// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>
#import <MPSCore/MPSImage.h>
#import <MPSNeuralNetwork/MPSCNNKernel.h>
#import <MPSNeuralNetwork/MPSNNGradientState.h>

NS_ASSUME_NONNULL_BEGIN

@class MPSCNNArithmeticGradientState, MPSImage;
@protocol MTLCommandBuffer, MTLDevice;

typedef NS_OPTIONS(NSUInteger, MPSNNComparisonType) {
    MPSNNComparisonTypeEqual = 0,
    MPSNNComparisonTypeNotEqual = 1,
    MPSNNComparisonTypeLess = 2,
    MPSNNComparisonTypeLessOrEqual = 3,
    MPSNNComparisonTypeGreater = 4,
    MPSNNComparisonTypeGreaterOrEqual = 5,
};

typedef NSArray<MPSCNNArithmeticGradientState *> MPSCNNArithmeticGradientStateBatch;

@interface MPSCNNArithmetic : MPSCNNBinaryKernel  // macOS 10.13.4

@property (nonatomic) float primaryScale;
@property (nonatomic) float secondaryScale;
@property (nonatomic) float bias;
@property (nonatomic) NSUInteger primaryStrideInFeatureChannels;
@property (nonatomic) NSUInteger secondaryStrideInFeatureChannels;
@property (nonatomic) float minimumValue;
@property (nonatomic) float maximumValue;

- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                 primaryImage:(MPSImage *)primaryImage
               secondaryImage:(MPSImage *)secondaryImage
             destinationState:(MPSCNNArithmeticGradientState *)destinationState
             destinationImage:(MPSImage *)destinationImage;
- (void)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                     primaryImages:(MPSImageBatch *)primaryImages
                   secondaryImages:(MPSImageBatch *)secondaryImages
                 destinationStates:(MPSCNNArithmeticGradientStateBatch *)destinationStates
                 destinationImages:(MPSImageBatch *)destinationImages;

@end

@interface MPSCNNAdd : MPSCNNArithmetic  // macOS 10.13.4

- (instancetype)initWithDevice:(id<MTLDevice>)device;

@end

@interface MPSCNNArithmeticGradient : MPSCNNGradientKernel  // macOS 10.13.4

@property (nonatomic) float primaryScale;
@property (nonatomic) float secondaryScale;
@property (nonatomic) float bias;
@property (nonatomic) NSUInteger secondaryStrideInFeatureChannels;
@property (nonatomic) float minimumValue;
@property (nonatomic) float maximumValue;
@property (nonatomic, readonly) BOOL isSecondarySourceFilter;

- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;
- (instancetype)initWithDevice:(id<MTLDevice>)device
       isSecondarySourceFilter:(BOOL)isSecondarySourceFilter NS_UNAVAILABLE;

@end

@interface MPSCNNAddGradient : MPSCNNArithmeticGradient  // macOS 10.13.4

- (instancetype)initWithDevice:(id<MTLDevice>)device isSecondarySourceFilter:(BOOL)isSecondarySourceFilter;

@end

@interface MPSCNNArithmeticGradientState : MPSNNBinaryGradientState  // macOS 10.13.4

- (instancetype)init NS_UNAVAILABLE;

@end

@interface MPSCNNDivide : MPSCNNArithmetic  // macOS 10.13.4

- (instancetype)initWithDevice:(id<MTLDevice>)device;

@end

@interface MPSCNNMultiply : MPSCNNArithmetic  // macOS 10.13.4

- (instancetype)initWithDevice:(id<MTLDevice>)device;

@end

@interface MPSCNNMultiplyGradient : MPSCNNArithmeticGradient  // macOS 10.13.4

- (instancetype)initWithDevice:(id<MTLDevice>)device isSecondarySourceFilter:(BOOL)isSecondarySourceFilter;

@end

@interface MPSCNNSubtract : MPSCNNArithmetic  // macOS 10.13.4

- (instancetype)initWithDevice:(id<MTLDevice>)device;

@end

@interface MPSCNNSubtractGradient : MPSCNNArithmeticGradient  // macOS 10.13.4

- (instancetype)initWithDevice:(id<MTLDevice>)device isSecondarySourceFilter:(BOOL)isSecondarySourceFilter;

@end

@interface MPSNNCompare : MPSCNNArithmetic  // macOS 10.14.1

@property (nonatomic) MPSNNComparisonType comparisonType;
@property (nonatomic) float threshold;

- (instancetype)initWithDevice:(id<MTLDevice>)device;

@end

NS_ASSUME_NONNULL_END
