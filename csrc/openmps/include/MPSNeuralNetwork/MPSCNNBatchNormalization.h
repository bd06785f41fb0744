// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>
#import <MPSCore/MPSImage.h>
#import <MPSCore/MPSState.h>
#import <MPSNeuralNetwork/MPSCNNKernel.h>
#import <MPSNeuralNetwork/MPSNNGradientState.h>

NS_ASSUME_NONNULL_BEGIN

@class MPSCNNBatchNormalization, MPSCNNBatchNormalizationState, MPSCNNNormalizationGammaAndBetaState,
    MPSCNNNormalizationMeanAndVarianceState, MPSImage, MPSNNNeuronDescriptor, MPSState, MTLTextureDescriptor;
@protocol MPSCNNBatchNormalizationDataSource, MTLBuffer, MTLCommandBuffer, MTLDevice, MTLResource;

@protocol MPSCNNBatchNormalizationDataSource <NSCopying, NSObject>  // macOS 10.13.4

- (NSUInteger)numberOfFeatureChannels;
- (nullable float *)gamma;
- (nullable float *)beta;
- (nullable float *)mean;
- (nullable float *)variance;
- (BOOL)load;
- (void)purge;
- (nullable NSString *)label;

@optional
@property (class, readonly) BOOL supportsSecureCoding;

- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder;

- (nullable MPSCNNNormalizationGammaAndBetaState *)updateGammaAndBetaWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
    batchNormalizationState:(MPSCNNBatchNormalizationState *)batchNormalizationState;
- (nullable MPSCNNNormalizationMeanAndVarianceState *)updateMeanAndVarianceWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
    batchNormalizationState:(MPSCNNBatchNormalizationState *)batchNormalizationState;  // macOS 10.14
- (BOOL)updateGammaAndBetaWithBatchNormalizationState:(MPSCNNBatchNormalizationState *)batchNormalizationState;
- (BOOL)updateMeanAndVarianceWithBatchNormalizationState:(MPSCNNBatchNormalizationState *)batchNormalizationState;  // macOS 10.14
- (float)epsilon;
- (void)encodeWithCoder:(NSCoder *)aCoder;
- (instancetype)copyWithZone:(nullable NSZone *)zone device:(nullable id<MTLDevice>)device;  // macOS 10.14

@end

@interface MPSCNNBatchNormalization : MPSCNNKernel  // macOS 10.13.4

@property (nonatomic, readonly) NSUInteger numberOfFeatureChannels;
@property (nonatomic) float epsilon;
@property (nonatomic, retain, readonly) id<MPSCNNBatchNormalizationDataSource> dataSource;

- (instancetype)initWithDevice:(id<MTLDevice>)device
                    dataSource:(id<MPSCNNBatchNormalizationDataSource>)dataSource;
- (instancetype)initWithDevice:(id<MTLDevice>)device
                    dataSource:(id<MPSCNNBatchNormalizationDataSource>)dataSource
         fusedNeuronDescriptor:(nullable MPSNNNeuronDescriptor *)fusedNeuronDescriptor;  // macOS 10.14
- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                  sourceImage:(MPSImage *)sourceImage
      batchNormalizationState:(MPSCNNBatchNormalizationState *)batchNormalizationState
             destinationImage:(MPSImage *)destinationImage;
- (void)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                      sourceImages:(MPSImageBatch *)sourceImages
           batchNormalizationState:(MPSCNNBatchNormalizationState *)batchNormalizationState
                 destinationImages:(MPSImageBatch *)destinationImages;
- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                  sourceImage:(MPSImage *)sourceImage
             destinationState:(MPSState *)destinationState
             destinationImage:(MPSImage *)destinationImage NS_UNAVAILABLE;
- (MPSImage *)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                        sourceImage:(MPSImage *)sourceImage
                   destinationState:(MPSState *_Nullable *_Nonnull)outState
        destinationStateIsTemporary:(BOOL)isTemporary NS_UNAVAILABLE;
- (void)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                      sourceImages:(MPSImageBatch *)sourceImages
                 destinationStates:(nullable MPSStateBatch *)destinationStates
                 destinationImages:(MPSImageBatch *)destinationImages NS_UNAVAILABLE;
- (MPSImageBatch *)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                 sourceImages:(MPSImageBatch *)sourceImages
                            destinationStates:(MPSStateBatch *_Nullable *_Nonnull)outStates
                  destinationStateIsTemporary:(BOOL)isTemporary NS_UNAVAILABLE;
- (nullable MPSCNNBatchNormalizationState *)resultStateForSourceImage:(MPSImage *)sourceImage
    sourceStates:(nullable NSArray<MPSState *> *)sourceStates
    destinationImage:(MPSImage *)destinationImage;
- (nullable MPSCNNBatchNormalizationState *)temporaryResultStateForCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
    sourceImage:(MPSImage *)sourceImage
    sourceStates:(nullable NSArray<MPSState *> *)sourceStates
    destinationImage:(MPSImage *)destinationImage;
- (void)reloadDataSource:(id<MPSCNNBatchNormalizationDataSource>)dataSource;  // deprecated 10.14
- (void)reloadGammaAndBetaFromDataSource;  // macOS 10.14
- (void)reloadMeanAndVarianceFromDataSource;  // macOS 10.14
- (void)reloadGammaAndBetaWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                          gammaAndBetaState:(MPSCNNNormalizationGammaAndBetaState *)gammaAndBetaState;
- (void)reloadMeanAndVarianceWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                          meanAndVarianceState:(MPSCNNNormalizationMeanAndVarianceState *)meanAndVarianceState;  // macOS 10.14

@end

@interface MPSCNNBatchNormalizationGradient : MPSCNNGradientKernel  // macOS 10.13.4

- (instancetype)initWithDevice:(id<MTLDevice>)device
         fusedNeuronDescriptor:(nullable MPSNNNeuronDescriptor *)fusedNeuronDescriptor;  // macOS 10.14
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
               sourceGradient:(MPSImage *)sourceGradient
                  sourceImage:(MPSImage *)sourceImage
      batchNormalizationState:(MPSCNNBatchNormalizationState *)batchNormalizationState
          destinationGradient:(MPSImage *)destinationGradient;
- (void)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                   sourceGradients:(MPSImageBatch *)sourceGradients
                      sourceImages:(MPSImageBatch *)sourceImages
           batchNormalizationState:(MPSCNNBatchNormalizationState *)batchNormalizationState
              destinationGradients:(MPSImageBatch *)destinationGradients;
- (MPSImage *)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                     sourceGradient:(MPSImage *)sourceGradient
                        sourceImage:(MPSImage *)sourceImage
            batchNormalizationState:(MPSCNNBatchNormalizationState *)batchNormalizationState;
- (MPSImageBatch *)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                              sourceGradients:(MPSImageBatch *)sourceGradients
                                 sourceImages:(MPSImageBatch *)sourceImages
                      batchNormalizationState:(MPSCNNBatchNormalizationState *)batchNormalizationState;
- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                 primaryImage:(MPSImage *)primaryImage
               secondaryImage:(MPSImage *)secondaryImage
             destinationImage:(MPSImage *)destinationImage NS_UNAVAILABLE;
- (void)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                     primaryImages:(MPSImageBatch *)primaryImages
                   secondaryImages:(MPSImageBatch *)secondaryImages
                 destinationImages:(MPSImageBatch *)destinationImages NS_UNAVAILABLE;
- (MPSImage *)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                       primaryImage:(MPSImage *)primaryImage
                     secondaryImage:(MPSImage *)secondaryImage NS_UNAVAILABLE;
- (MPSImageBatch *)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                primaryImages:(MPSImageBatch *)primaryImage
                              secondaryImages:(MPSImageBatch *)secondaryImage NS_UNAVAILABLE;

@end

@interface MPSCNNBatchNormalizationState : MPSNNGradientState  // macOS 10.13.4

@property (nonatomic, retain, readonly) MPSCNNBatchNormalization *batchNormalization;

- (instancetype)initWithResource:(nullable id<MTLResource>)resource NS_UNAVAILABLE;
+ (instancetype)temporaryStateWithCommandBuffer:(id<MTLCommandBuffer>)cmdBuf
                                     bufferSize:(size_t)bufferSize NS_UNAVAILABLE;
+ (instancetype)temporaryStateWithCommandBuffer:(id<MTLCommandBuffer>)cmdBuf
                              textureDescriptor:(MTLTextureDescriptor *)descriptor NS_UNAVAILABLE;

- (void)reset;
- (nullable id<MTLBuffer>)gamma;
- (nullable id<MTLBuffer>)beta;
- (nullable id<MTLBuffer>)mean;
- (nullable id<MTLBuffer>)variance;
- (nullable id<MTLBuffer>)gradientForGamma;
- (nullable id<MTLBuffer>)gradientForBeta;

@end

@interface MPSCNNBatchNormalizationStatistics : MPSCNNKernel  // macOS 10.13.4

- (instancetype)initWithDevice:(id<MTLDevice>)device;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

- (void)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                      sourceImages:(MPSImageBatch *)sourceImages
           batchNormalizationState:(MPSCNNBatchNormalizationState *)batchNormalizationState;
- (void)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                      sourceImages:(MPSImageBatch *)sourceImages
                 destinationImages:(MPSImageBatch *)destinationImages NS_UNAVAILABLE;
- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                  sourceImage:(MPSImage *)sourceImage
             destinationImage:(MPSImage *)destinationImage NS_UNAVAILABLE;
- (MPSImage *)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                        sourceImage:(MPSImage *)sourceImage NS_UNAVAILABLE;
- (MPSImageBatch *)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                 sourceImages:(MPSImageBatch *)sourceImages NS_UNAVAILABLE;

@end

@interface MPSCNNBatchNormalizationStatisticsGradient : MPSCNNGradientKernel  // macOS 10.13.4

- (instancetype)initWithDevice:(id<MTLDevice>)device
         fusedNeuronDescriptor:(nullable MPSNNNeuronDescriptor *)fusedNeuronDescriptor;  // macOS 10.14
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

- (void)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                   sourceGradients:(MPSImageBatch *)sourceGradients
                      sourceImages:(MPSImageBatch *)sourceImages
           batchNormalizationState:(MPSCNNBatchNormalizationState *)batchNormalizationState;
- (MPSImage *)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                     sourceGradient:(MPSImage *)sourceGradient
                        sourceImage:(MPSImage *)sourceImage
                      gradientState:(MPSState *)gradientState NS_UNAVAILABLE;
- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
               sourceGradient:(MPSImage *)sourceGradient
                  sourceImage:(MPSImage *)sourceImage
                gradientState:(MPSState *)gradientState
          destinationGradient:(MPSImage *)destinationGradient NS_UNAVAILABLE;
- (MPSImageBatch *)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                              sourceGradients:(MPSImageBatch *)sourceGradients
                                 sourceImages:(MPSImageBatch *)sourceImages
                               gradientStates:(MPSStateBatch *)gradientStates NS_UNAVAILABLE;
- (void)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                   sourceGradients:(MPSImageBatch *)sourceGradients
                      sourceImages:(MPSImageBatch *)sourceImages
                    gradientStates:(MPSStateBatch *)gradientStates
              destinationGradients:(MPSImageBatch *)destinationGradients NS_UNAVAILABLE;

@end

@interface MPSCNNNormalizationMeanAndVarianceState : MPSState  // macOS 10.14

@property (nonatomic, readonly) id<MTLBuffer> mean;
@property (nonatomic, readonly) id<MTLBuffer> variance;

- (instancetype)initWithMean:(id<MTLBuffer>)mean variance:(id<MTLBuffer>)variance;
+ (instancetype)temporaryStateWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                        numberOfFeatureChannels:(NSUInteger)numberOfFeatureChannels;

@end

NS_ASSUME_NONNULL_END
