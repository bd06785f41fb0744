// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>
#import <MPSCore/MPSImage.h>
#import <MPSCore/MPSState.h>
#import <MPSNeuralNetwork/MPSCNNKernel.h>
#import <MPSNeuralNetwork/MPSNNGradientState.h>
#import <Metal/MTLTypes.h>

NS_ASSUME_NONNULL_BEGIN

@class MPSCNNDropoutGradientState, MPSImage, MPSState;
@protocol MTLCommandBuffer, MTLDevice;

typedef NSArray<MPSCNNDropoutGradientState *> MPSCNNDropoutGradientStateBatch;

@interface MPSCNNDropout : MPSCNNKernel  // macOS 10.13.4

@property (nonatomic, readonly) float keepProbability;
@property (nonatomic, readonly) NSUInteger seed;
@property (nonatomic, readonly) MTLSize maskStrideInPixels;

- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;
- (instancetype)initWithDevice:(id<MTLDevice>)device
               keepProbability:(float)keepProbability
                          seed:(NSUInteger)seed
            maskStrideInPixels:(MTLSize)maskStrideInPixels;

- (nullable MPSCNNDropoutGradientState *)resultStateForSourceImage:(MPSImage *)sourceImage
    sourceStates:(nullable NSArray<MPSState *> *)sourceStates
    destinationImage:(MPSImage *)destinationImage;
- (nullable MPSCNNDropoutGradientState *)resultStateBatchForSourceImage:(MPSImageBatch *)sourceImage
    sourceStates:(nullable NSArray<MPSStateBatch *> *)sourceStates
    destinationImage:(MPSImageBatch *)destinationImage;
- (nullable MPSCNNDropoutGradientState *)temporaryResultStateForCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
    sourceImage:(MPSImage *)sourceImage
    sourceStates:(nullable NSArray<MPSState *> *)sourceStates
    destinationImage:(MPSImage *)destinationImage;
- (nullable MPSCNNDropoutGradientStateBatch *)temporaryResultStateBatchForCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
    sourceImage:(MPSImageBatch *)sourceImage
    sourceStates:(nullable NSArray<MPSStateBatch *> *)sourceStates
    destinationImage:(MPSImageBatch *)destinationImage;

@end

@interface MPSCNNDropoutGradient : MPSCNNGradientKernel  // macOS 10.13.4

@property (nonatomic, readonly) float keepProbability;
@property (nonatomic, readonly) NSUInteger seed;
@property (nonatomic, readonly) MTLSize maskStrideInPixels;

- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;
- (instancetype)initWithDevice:(id<MTLDevice>)device
               keepProbability:(float)keepProbability
                          seed:(NSUInteger)seed
            maskStrideInPixels:(MTLSize)maskStrideInPixels;

@end

@interface MPSCNNDropoutGradientState : MPSNNGradientState  // macOS 10.13.4

- (instancetype)init NS_UNAVAILABLE;

- (NSData *)maskData;

@end

NS_ASSUME_NONNULL_END
