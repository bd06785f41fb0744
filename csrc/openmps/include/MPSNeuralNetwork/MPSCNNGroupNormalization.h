// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>
#import <MPSNeuralNetwork/MPSCNNKernel.h>
#import <MPSNeuralNetwork/MPSNNGradientState.h>

NS_ASSUME_NONNULL_BEGIN

@class MPSCNNGroupNormalization, MPSCNNGroupNormalizationGradientState, MPSCNNNormalizationGammaAndBetaState,
    MPSImage, MPSState, MTLTextureDescriptor;
@protocol MPSCNNGroupNormalizationDataSource, MTLBuffer, MTLCommandBuffer, MTLDevice, MTLResource;

typedef NSArray<MPSCNNGroupNormalizationGradientState *> MPSCNNGroupNormalizationGradientStateBatch;

@protocol MPSCNNGroupNormalizationDataSource <NSCopying, NSObject>  // macOS 10.15

@property (nonatomic, readonly) NSUInteger numberOfFeatureChannels;
@property (nonatomic) NSUInteger numberOfGroups;

- (nullable float *)gamma;
- (nullable float *)beta;
- (nullable NSString *)label;

@optional
@property (class, readonly) BOOL supportsSecureCoding;

- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder;

- (nullable MPSCNNNormalizationGammaAndBetaState *)updateGammaAndBetaWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
    groupNormalizationStateBatch:(MPSCNNGroupNormalizationGradientStateBatch *)groupNormalizationStateBatch;
- (BOOL)updateGammaAndBetaWithGroupNormalizationStateBatch:(MPSCNNGroupNormalizationGradientStateBatch *)groupNormalizationStateBatch;
- (float)epsilon;
- (void)encodeWithCoder:(NSCoder *)aCoder;
- (instancetype)copyWithZone:(nullable NSZone *)zone device:(nullable id<MTLDevice>)device;

@end

@interface MPSCNNGroupNormalization : MPSCNNKernel  // macOS 10.15

@property (nonatomic) float epsilon;
@property (nonatomic, retain, readonly) id<MPSCNNGroupNormalizationDataSource> dataSource;

- (instancetype)initWithDevice:(id<MTLDevice>)device
                    dataSource:(id<MPSCNNGroupNormalizationDataSource>)dataSource;
- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

- (void)reloadGammaAndBetaFromDataSource;
- (void)reloadGammaAndBetaWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                          gammaAndBetaState:(MPSCNNNormalizationGammaAndBetaState *)gammaAndBetaState;
- (nullable MPSCNNGroupNormalizationGradientState *)resultStateForSourceImage:(MPSImage *)sourceImage
    sourceStates:(nullable NSArray<MPSState *> *)sourceStates
    destinationImage:(MPSImage *)destinationImage;
- (nullable MPSCNNGroupNormalizationGradientState *)temporaryResultStateForCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
    sourceImage:(MPSImage *)sourceImage
    sourceStates:(nullable NSArray<MPSState *> *)sourceStates
    destinationImage:(MPSImage *)destinationImage;

@end

@interface MPSCNNGroupNormalizationGradient : MPSCNNGradientKernel
@end

@interface MPSCNNGroupNormalizationGradientState : MPSNNGradientState  // macOS 10.15

@property (nonatomic, retain, readonly) MPSCNNGroupNormalization *groupNormalization;
@property (nonatomic, readonly, nullable) id<MTLBuffer> gamma;
@property (nonatomic, readonly, nullable) id<MTLBuffer> beta;
@property (nonatomic, readonly) id<MTLBuffer> gradientForGamma;
@property (nonatomic, readonly) id<MTLBuffer> gradientForBeta;

+ (instancetype)temporaryStateWithCommandBuffer:(id<MTLCommandBuffer>)cmdBuf
                              textureDescriptor:(MTLTextureDescriptor *)descriptor NS_UNAVAILABLE;
+ (instancetype)temporaryStateWithCommandBuffer:(id<MTLCommandBuffer>)cmdBuf NS_UNAVAILABLE;
+ (instancetype)temporaryStateWithCommandBuffer:(id<MTLCommandBuffer>)cmdBuf
                                     bufferSize:(size_t)bufferSize NS_UNAVAILABLE;
- (instancetype)initWithDevice:(id<MTLDevice>)device
             textureDescriptor:(MTLTextureDescriptor *)descriptor NS_UNAVAILABLE;
- (instancetype)initWithResource:(nullable id<MTLResource>)resource NS_UNAVAILABLE;
- (instancetype)initWithDevice:(id<MTLDevice>)device bufferSize:(size_t)bufferSize NS_UNAVAILABLE;

@end

NS_ASSUME_NONNULL_END
