// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>
#import <MPSCore/MPSCoreTypes.h>
#import <MPSNeuralNetwork/MPSCNNKernel.h>
#import <Metal/MTLTypes.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLDevice;

@interface MPSNNReduceBinary : MPSCNNBinaryKernel  // macOS 10.13.4

@property (nonatomic) MTLRegion primarySourceClipRect;
@property (nonatomic) MTLRegion secondarySourceClipRect;
@property (nonatomic) MPSOffset primaryOffset;  // deprecated 10.15
@property (nonatomic) MPSOffset secondaryOffset;  // deprecated 10.15

- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;

@end

@interface MPSNNLocalCorrelation : MPSNNReduceBinary  // macOS 10.15

@property (nonatomic) NSUInteger windowInX;
@property (nonatomic) NSUInteger windowInY;
@property (nonatomic) NSUInteger strideInX;
@property (nonatomic) NSUInteger strideInY;

- (instancetype)initWithDevice:(id<MTLDevice>)device;
- (instancetype)initWithDevice:(id<MTLDevice>)device
                     windowInX:(NSUInteger)windowInX
                     windowInY:(NSUInteger)windowInY
                     strideInX:(NSUInteger)strideInX
                     strideInY:(NSUInteger)strideInY;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

@end

@interface MPSNNReduceUnary : MPSCNNKernel  // macOS 10.13.4

@property (nonatomic) MTLRegion clipRectSource;
@property (nonatomic) MPSOffset offset;  // deprecated 10.15

- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;

@end

@interface MPSNNReduceColumnMax : MPSNNReduceUnary  // macOS 10.13.4

- (instancetype)initWithDevice:(id<MTLDevice>)device;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

@end

@interface MPSNNReduceColumnMean : MPSNNReduceUnary  // macOS 10.13.4

- (instancetype)initWithDevice:(id<MTLDevice>)device;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

@end

@interface MPSNNReduceColumnMin : MPSNNReduceUnary  // macOS 10.13.4

- (instancetype)initWithDevice:(id<MTLDevice>)device;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

@end

@interface MPSNNReduceColumnSum : MPSNNReduceUnary  // macOS 10.13.4

- (instancetype)initWithDevice:(id<MTLDevice>)device;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

@end

@interface MPSNNReduceFeatureChannelsAndWeightsMean : MPSNNReduceBinary  // macOS 10.13.4

- (instancetype)initWithDevice:(id<MTLDevice>)device;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

@end

@interface MPSNNReduceFeatureChannelsAndWeightsSum : MPSNNReduceBinary  // macOS 10.13.4

@property (nonatomic, readonly) bool doWeightedSumByNonZeroWeights;

- (instancetype)initWithDevice:(id<MTLDevice>)device;
- (instancetype)initWithDevice:(id<MTLDevice>)device
    doWeightedSumByNonZeroWeights:(bool)doWeightedSumByNonZeroWeights;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

@end

@interface MPSNNReduceFeatureChannelsArgumentMax : MPSNNReduceUnary  // macOS 10.14

- (instancetype)initWithDevice:(id<MTLDevice>)device;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

@end

@interface MPSNNReduceFeatureChannelsArgumentMin : MPSNNReduceUnary  // macOS 10.14

- (instancetype)initWithDevice:(id<MTLDevice>)device;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

@end

@interface MPSNNReduceFeatureChannelsMax : MPSNNReduceUnary  // macOS 10.13.4

- (instancetype)initWithDevice:(id<MTLDevice>)device;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

@end

@interface MPSNNReduceFeatureChannelsMean : MPSNNReduceUnary  // macOS 10.13.4

- (instancetype)initWithDevice:(id<MTLDevice>)device;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

@end

@interface MPSNNReduceFeatureChannelsMin : MPSNNReduceUnary  // macOS 10.13.4

- (instancetype)initWithDevice:(id<MTLDevice>)device;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

@end

@interface MPSNNReduceFeatureChannelsSum : MPSNNReduceUnary  // macOS 10.13.4

@property (nonatomic) float weight;

- (instancetype)initWithDevice:(id<MTLDevice>)device;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

@end

@interface MPSNNReduceRowMax : MPSNNReduceUnary  // macOS 10.13.4

- (instancetype)initWithDevice:(id<MTLDevice>)device;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

@end

@interface MPSNNReduceRowMean : MPSNNReduceUnary  // macOS 10.13.4

- (instancetype)initWithDevice:(id<MTLDevice>)device;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

@end

@interface MPSNNReduceRowMin : MPSNNReduceUnary  // macOS 10.13.4

- (instancetype)initWithDevice:(id<MTLDevice>)device;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

@end

@interface MPSNNReduceRowSum : MPSNNReduceUnary  // macOS 10.13.4

- (instancetype)initWithDevice:(id<MTLDevice>)device;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

@end

NS_ASSUME_NONNULL_END
