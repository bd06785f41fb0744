// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>
#import <MPSNeuralNetwork/MPSCNNKernel.h>
#import <MPSNeuralNetwork/MPSNNGradientState.h>

NS_ASSUME_NONNULL_BEGIN

@class MPSCNNInstanceNormalization, MPSCNNInstanceNormalizationGradientState,
    MPSCNNNormalizationGammaAndBetaState, MPSImage, MPSState, MTLTextureDescriptor;
@protocol MPSCNNInstanceNormalizationDataSource, MTLBuffer, MTLCommandBuffer, MTLDevice, MTLResource;

typedef NSArray<MPSCNNInstanceNormalizationGradientState *> MPSCNNInstanceNormalizationGradientStateBatch;

@protocol MPSCNNInstanceNormalizationDataSource <NSCopying, NSObject>  // macOS 10.13.4

@property (nonatomic, readonly) NSUInteger numberOfFeatureChannels;

- (nullable float *)gamma;
- (nullable float *)beta;
- (nullable NSString *)label;

@optional
@property (class, readonly) BOOL supportsSecureCoding;

- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder;

- (nullable MPSCNNNormalizationGammaAndBetaState *)updateGammaAndBetaWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
    instanceNormalizationStateBatch:(MPSCNNInstanceNormalizationGradientStateBatch *)instanceNormalizationStateBatch;
- (BOOL)updateGammaAndBetaWithInstanceNormalizationStateBatch:(MPSCNNInstanceNormalizationGradientStateBatch *)instanceNormalizationStateBatch;
- (float)epsilon;
- (void)encodeWithCoder:(NSCoder *)aCoder;
- (instancetype)copyWithZone:(nullable NSZone *)zone device:(nullable id<MTLDevice>)device;  // macOS 10.14
- (BOOL)load;  // macOS 10.15
- (void)purge;  // macOS 10.15

@end

@interface MPSCNNInstanceNormalization : MPSCNNKernel  // macOS 10.13.4

@property (nonatomic) float epsilon;
@property (nonatomic, retain, readonly) id<MPSCNNInstanceNormalizationDataSource> dataSource;

- (instancetype)initWithDevice:(id<MTLDevice>)device
                    dataSource:(id<MPSCNNInstanceNormalizationDataSource>)dataSource;
- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

- (void)reloadDataSource:(id<MPSCNNInstanceNormalizationDataSource>)dataSource;  // deprecated 10.14
- (void)reloadGammaAndBetaFromDataSource;  // macOS 10.14
- (void)reloadGammaAndBetaWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                          gammaAndBetaState:(MPSCNNNormalizationGammaAndBetaState *)gammaAndBetaState;
- (nullable MPSCNNInstanceNormalizationGradientState *)resultStateForSourceImage:(MPSImage *)sourceImage
    sourceStates:(nullable NSArray<MPSState *> *)sourceStates
    destinationImage:(MPSImage *)destinationImage;
- (nullable MPSCNNInstanceNormalizationGradientState *)temporaryResultStateForCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
    sourceImage:(MPSImage *)sourceImage
    sourceStates:(nullable NSArray<MPSState *> *)sourceStates
    destinationImage:(MPSImage *)destinationImage;

@end

@interface MPSCNNInstanceNormalizationGradient : MPSCNNGradientKernel  // macOS 10.13.4
@end

@interface MPSCNNInstanceNormalizationGradientState : MPSNNGradientState  // macOS 10.13.4

@property (nonatomic, retain, readonly) MPSCNNInstanceNormalization *instanceNormalization;
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
