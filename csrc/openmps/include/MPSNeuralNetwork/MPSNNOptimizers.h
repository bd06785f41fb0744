// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>
#import <MPSCore/MPSKernel.h>

NS_ASSUME_NONNULL_BEGIN

@class MPSCNNBatchNormalizationState, MPSCNNConvolutionGradientState, MPSCNNConvolutionWeightsAndBiasesState,
    MPSCNNNormalizationGammaAndBetaState, MPSMatrix, MPSNNOptimizerDescriptor, MPSVector;
@protocol MTLCommandBuffer, MTLDevice;

typedef NS_ENUM(NSUInteger, MPSNNRegularizationType) {
    MPSNNRegularizationTypeNone = 0,
    MPSNNRegularizationTypeL1 = 1,
    MPSNNRegularizationTypeL2 = 2,
};

@interface MPSNNOptimizer : MPSKernel  // macOS 10.14

@property (nonatomic, readonly) float learningRate;
@property (nonatomic, readonly) float gradientRescale;
@property (nonatomic) BOOL applyGradientClipping;
@property (nonatomic, readonly) float gradientClipMax;
@property (nonatomic, readonly) float gradientClipMin;
@property (nonatomic, readonly) float regularizationScale;
@property (nonatomic, readonly) MPSNNRegularizationType regularizationType;

- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;

- (void)setLearningRate:(float)newLearningRate;

@end

@interface MPSNNOptimizerAdam : MPSNNOptimizer  // macOS 10.14

@property (nonatomic, readonly) double beta1;
@property (nonatomic, readonly) double beta2;
@property (nonatomic, readonly) float epsilon;
@property (nonatomic) NSUInteger timeStep;

- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;
- (instancetype)initWithDevice:(id<MTLDevice>)device learningRate:(float)learningRate;
- (instancetype)initWithDevice:(id<MTLDevice>)device
                         beta1:(double)beta1
                         beta2:(double)beta2
                       epsilon:(float)epsilon
                      timeStep:(NSUInteger)timeStep
           optimizerDescriptor:(MPSNNOptimizerDescriptor *)optimizerDescriptor;

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
          inputGradientVector:(MPSVector *)inputGradientVector
            inputValuesVector:(MPSVector *)inputValuesVector
          inputMomentumVector:(MPSVector *)inputMomentumVector
          inputVelocityVector:(MPSVector *)inputVelocityVector
           resultValuesVector:(MPSVector *)resultValuesVector;
- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
          inputGradientMatrix:(MPSMatrix *)inputGradientMatrix
            inputValuesMatrix:(MPSMatrix *)inputValuesMatrix
          inputMomentumMatrix:(MPSMatrix *)inputMomentumMatrix
          inputVelocityMatrix:(MPSMatrix *)inputVelocityMatrix
           resultValuesMatrix:(MPSMatrix *)resultValuesMatrix;  // macOS 10.15
- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
          inputGradientVector:(MPSVector *)inputGradientVector
            inputValuesVector:(MPSVector *)inputValuesVector
          inputMomentumVector:(MPSVector *)inputMomentumVector
          inputVelocityVector:(MPSVector *)inputVelocityVector
        maximumVelocityVector:(nullable MPSVector *)maximumVelocityVector
           resultValuesVector:(MPSVector *)resultValuesVector;  // macOS 10.15
- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
          inputGradientMatrix:(MPSMatrix *)inputGradientMatrix
            inputValuesMatrix:(MPSMatrix *)inputValuesMatrix
          inputMomentumMatrix:(MPSMatrix *)inputMomentumMatrix
          inputVelocityMatrix:(MPSMatrix *)inputVelocityMatrix
        maximumVelocityMatrix:(nullable MPSMatrix *)maximumVelocityMatrix
           resultValuesMatrix:(MPSMatrix *)resultValuesMatrix;  // macOS 10.15
- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
     convolutionGradientState:(MPSCNNConvolutionGradientState *)convolutionGradientState
       convolutionSourceState:(MPSCNNConvolutionWeightsAndBiasesState *)convolutionSourceState
         inputMomentumVectors:(nullable NSArray<MPSVector *> *)inputMomentumVectors
         inputVelocityVectors:(nullable NSArray<MPSVector *> *)inputVelocityVectors
                  resultState:(MPSCNNConvolutionWeightsAndBiasesState *)resultState;
- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
     convolutionGradientState:(MPSCNNConvolutionGradientState *)convolutionGradientState
       convolutionSourceState:(MPSCNNConvolutionWeightsAndBiasesState *)convolutionSourceState
         inputMomentumVectors:(NSArray<MPSVector *> *)inputMomentumVectors
         inputVelocityVectors:(NSArray<MPSVector *> *)inputVelocityVectors
       maximumVelocityVectors:(nullable NSArray<MPSVector *> *)maximumVelocityVectors
                  resultState:(MPSCNNConvolutionWeightsAndBiasesState *)resultState;  // macOS 10.15
- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
      batchNormalizationState:(MPSCNNBatchNormalizationState *)batchNormalizationState
         inputMomentumVectors:(nullable NSArray<MPSVector *> *)inputMomentumVectors
         inputVelocityVectors:(nullable NSArray<MPSVector *> *)inputVelocityVectors
                  resultState:(MPSCNNNormalizationGammaAndBetaState *)resultState;
- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
      batchNormalizationState:(MPSCNNBatchNormalizationState *)batchNormalizationState
         inputMomentumVectors:(NSArray<MPSVector *> *)inputMomentumVectors
         inputVelocityVectors:(NSArray<MPSVector *> *)inputVelocityVectors
       maximumVelocityVectors:(nullable NSArray<MPSVector *> *)maximumVelocityVectors
                  resultState:(MPSCNNNormalizationGammaAndBetaState *)resultState;  // macOS 10.15
- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
    batchNormalizationGradientState:(MPSCNNBatchNormalizationState *)batchNormalizationGradientState
    batchNormalizationSourceState:(MPSCNNBatchNormalizationState *)batchNormalizationSourceState
    inputMomentumVectors:(nullable NSArray<MPSVector *> *)inputMomentumVectors
    inputVelocityVectors:(nullable NSArray<MPSVector *> *)inputVelocityVectors
    resultState:(MPSCNNNormalizationGammaAndBetaState *)resultState;
- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
    batchNormalizationGradientState:(MPSCNNBatchNormalizationState *)batchNormalizationGradientState
    batchNormalizationSourceState:(MPSCNNBatchNormalizationState *)batchNormalizationSourceState
    inputMomentumVectors:(NSArray<MPSVector *> *)inputMomentumVectors
    inputVelocityVectors:(NSArray<MPSVector *> *)inputVelocityVectors
    maximumVelocityVectors:(nullable NSArray<MPSVector *> *)maximumVelocityVectors
    resultState:(MPSCNNNormalizationGammaAndBetaState *)resultState;  // macOS 10.15

@end

@interface MPSNNOptimizerDescriptor : NSObject {  // macOS 10.14
  @protected
    void *_Nullable _openmps;
}

@property (nonatomic) float learningRate;
@property (nonatomic) float gradientRescale;
@property (nonatomic) BOOL applyGradientClipping;
@property (nonatomic) float gradientClipMax;
@property (nonatomic) float gradientClipMin;
@property (nonatomic) float regularizationScale;
@property (nonatomic) MPSNNRegularizationType regularizationType;

- (instancetype)initWithLearningRate:(float)learningRate
                     gradientRescale:(float)gradientRescale
                  regularizationType:(MPSNNRegularizationType)regularizationType
                 regularizationScale:(float)regularizationScale;
- (instancetype)initWithLearningRate:(float)learningRate
                     gradientRescale:(float)gradientRescale
               applyGradientClipping:(BOOL)applyGradientClipping
                     gradientClipMax:(float)gradientClipMax
                     gradientClipMin:(float)gradientClipMin
                  regularizationType:(MPSNNRegularizationType)regularizationType
                 regularizationScale:(float)regularizationScale;
+ (instancetype)optimizerDescriptorWithLearningRate:(float)learningRate
                                    gradientRescale:(float)gradientRescale
                                 regularizationType:(MPSNNRegularizationType)regularizationType
                                regularizationScale:(float)regularizationScale;
+ (instancetype)optimizerDescriptorWithLearningRate:(float)learningRate
                                    gradientRescale:(float)gradientRescale
                              applyGradientClipping:(BOOL)applyGradientClipping
                                    gradientClipMax:(float)gradientClipMax
                                    gradientClipMin:(float)gradientClipMin
                                 regularizationType:(MPSNNRegularizationType)regularizationType
                                regularizationScale:(float)regularizationScale;

@end

@interface MPSNNOptimizerRMSProp : MPSNNOptimizer  // macOS 10.14

@property (nonatomic, readonly) double decay;
@property (nonatomic, readonly) float epsilon;

- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;
- (instancetype)initWithDevice:(id<MTLDevice>)device learningRate:(float)learningRate;
- (instancetype)initWithDevice:(id<MTLDevice>)device
                         decay:(double)decay
                       epsilon:(float)epsilon
           optimizerDescriptor:(MPSNNOptimizerDescriptor *)optimizerDescriptor;

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
          inputGradientVector:(MPSVector *)inputGradientVector
            inputValuesVector:(MPSVector *)inputValuesVector
      inputSumOfSquaresVector:(MPSVector *)inputSumOfSquaresVector
           resultValuesVector:(MPSVector *)resultValuesVector;
- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
          inputGradientMatrix:(MPSMatrix *)inputGradientMatrix
            inputValuesMatrix:(MPSMatrix *)inputValuesMatrix
      inputSumOfSquaresMatrix:(MPSMatrix *)inputSumOfSquaresMatrix
           resultValuesMatrix:(MPSMatrix *)resultValuesMatrix;  // macOS 10.15
- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
     convolutionGradientState:(MPSCNNConvolutionGradientState *)convolutionGradientState
       convolutionSourceState:(MPSCNNConvolutionWeightsAndBiasesState *)convolutionSourceState
     inputSumOfSquaresVectors:(nullable NSArray<MPSVector *> *)inputSumOfSquaresVectors
                  resultState:(MPSCNNConvolutionWeightsAndBiasesState *)resultState;
- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
      batchNormalizationState:(MPSCNNBatchNormalizationState *)batchNormalizationState
     inputSumOfSquaresVectors:(nullable NSArray<MPSVector *> *)inputSumOfSquaresVectors
                  resultState:(MPSCNNNormalizationGammaAndBetaState *)resultState;
- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
    batchNormalizationGradientState:(MPSCNNBatchNormalizationState *)batchNormalizationGradientState
    batchNormalizationSourceState:(MPSCNNBatchNormalizationState *)batchNormalizationSourceState
    inputSumOfSquaresVectors:(nullable NSArray<MPSVector *> *)inputSumOfSquaresVectors
    resultState:(MPSCNNNormalizationGammaAndBetaState *)resultState;

@end

@interface MPSNNOptimizerStochasticGradientDescent : MPSNNOptimizer  // macOS 10.14

@property (nonatomic, readonly) float momentumScale;
@property (nonatomic, readonly) BOOL useNesterovMomentum;  // macOS 11.0
@property (nonatomic, readonly) BOOL useNestrovMomentum;

- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;
- (instancetype)initWithDevice:(id<MTLDevice>)device learningRate:(float)learningRate;
- (instancetype)initWithDevice:(id<MTLDevice>)device
                 momentumScale:(float)momentumScale
           useNesterovMomentum:(BOOL)useNesterovMomentum
           optimizerDescriptor:(MPSNNOptimizerDescriptor *)optimizerDescriptor;  // macOS 11.0
- (instancetype)initWithDevice:(id<MTLDevice>)device
                 momentumScale:(float)momentumScale
            useNestrovMomentum:(BOOL)useNestrovMomentum
           optimizerDescriptor:(MPSNNOptimizerDescriptor *)optimizerDescriptor;

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
          inputGradientVector:(MPSVector *)inputGradientVector
            inputValuesVector:(MPSVector *)inputValuesVector
          inputMomentumVector:(nullable MPSVector *)inputMomentumVector
           resultValuesVector:(MPSVector *)resultValuesVector;
- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
          inputGradientMatrix:(MPSMatrix *)inputGradientMatrix
            inputValuesMatrix:(MPSMatrix *)inputValuesMatrix
          inputMomentumMatrix:(nullable MPSMatrix *)inputMomentumMatrix
           resultValuesMatrix:(MPSMatrix *)resultValuesMatrix;  // macOS 10.15
- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
     convolutionGradientState:(MPSCNNConvolutionGradientState *)convolutionGradientState
       convolutionSourceState:(MPSCNNConvolutionWeightsAndBiasesState *)convolutionSourceState
         inputMomentumVectors:(nullable NSArray<MPSVector *> *)inputMomentumVectors
                  resultState:(MPSCNNConvolutionWeightsAndBiasesState *)resultState;
- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
      batchNormalizationState:(MPSCNNBatchNormalizationState *)batchNormalizationState
         inputMomentumVectors:(nullable NSArray<MPSVector *> *)inputMomentumVectors
                  resultState:(MPSCNNNormalizationGammaAndBetaState *)resultState;
- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
    batchNormalizationGradientState:(MPSCNNBatchNormalizationState *)batchNormalizationGradientState
    batchNormalizationSourceState:(MPSCNNBatchNormalizationState *)batchNormalizationSourceState
    inputMomentumVectors:(nullable NSArray<MPSVector *> *)inputMomentumVectors
    resultState:(MPSCNNNormalizationGammaAndBetaState *)resultState;

@end

NS_ASSUME_NONNULL_END
