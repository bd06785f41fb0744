// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>
#import <MPSCore/MPSCoreTypes.h>
#import <MPSCore/MPSKernel.h>
#import <MPSCore/MPSState.h>
#import <MPSNeuralNetwork/MPSCNNKernel.h>
#import <MPSNeuralNetwork/MPSCNNNeuronType.h>
#import <Metal/MTLTypes.h>

NS_ASSUME_NONNULL_BEGIN

@class MPSImage, MPSMatrix, MPSRNNDescriptor, MPSRNNMatrixTrainingState, MPSRNNRecurrentImageState,
    MPSRNNRecurrentMatrixState;
@protocol MPSCNNConvolutionDataSource, MTLCommandBuffer, MTLDevice;

typedef NS_ENUM(NSUInteger, MPSRNNBidirectionalCombineMode) {
    MPSRNNBidirectionalCombineModeNone = 0,
    MPSRNNBidirectionalCombineModeAdd = 1,
    MPSRNNBidirectionalCombineModeConcatenate = 2,
};

typedef NS_ENUM(NSUInteger, MPSRNNMatrixId) {
    MPSRNNMatrixIdSingleGateInputWeights = 0,
    MPSRNNMatrixIdSingleGateRecurrentWeights = 1,
    MPSRNNMatrixIdSingleGateBiasTerms = 2,
    MPSRNNMatrixIdLSTMInputGateInputWeights = 3,
    MPSRNNMatrixIdLSTMInputGateRecurrentWeights = 4,
    MPSRNNMatrixIdLSTMInputGateMemoryWeights = 5,
    MPSRNNMatrixIdLSTMInputGateBiasTerms = 6,
    MPSRNNMatrixIdLSTMForgetGateInputWeights = 7,
    MPSRNNMatrixIdLSTMForgetGateRecurrentWeights = 8,
    MPSRNNMatrixIdLSTMForgetGateMemoryWeights = 9,
    MPSRNNMatrixIdLSTMForgetGateBiasTerms = 10,
    MPSRNNMatrixIdLSTMMemoryGateInputWeights = 11,
    MPSRNNMatrixIdLSTMMemoryGateRecurrentWeights = 12,
    MPSRNNMatrixIdLSTMMemoryGateMemoryWeights = 13,
    MPSRNNMatrixIdLSTMMemoryGateBiasTerms = 14,
    MPSRNNMatrixIdLSTMOutputGateInputWeights = 15,
    MPSRNNMatrixIdLSTMOutputGateRecurrentWeights = 16,
    MPSRNNMatrixIdLSTMOutputGateMemoryWeights = 17,
    MPSRNNMatrixIdLSTMOutputGateBiasTerms = 18,
    MPSRNNMatrixIdGRUInputGateInputWeights = 19,
    MPSRNNMatrixIdGRUInputGateRecurrentWeights = 20,
    MPSRNNMatrixIdGRUInputGateBiasTerms = 21,
    MPSRNNMatrixIdGRURecurrentGateInputWeights = 22,
    MPSRNNMatrixIdGRURecurrentGateRecurrentWeights = 23,
    MPSRNNMatrixIdGRURecurrentGateBiasTerms = 24,
    MPSRNNMatrixIdGRUOutputGateInputWeights = 25,
    MPSRNNMatrixIdGRUOutputGateRecurrentWeights = 26,
    MPSRNNMatrixIdGRUOutputGateInputGateWeights = 27,
    MPSRNNMatrixIdGRUOutputGateBiasTerms = 28,
    MPSRNNMatrixId_count = 29,
};

typedef NS_ENUM(NSUInteger, MPSRNNSequenceDirection) {
    MPSRNNSequenceDirectionForward = 0,
    MPSRNNSequenceDirectionBackward = 1,
};

@interface MPSRNNDescriptor : NSObject {  // macOS 10.13
  @protected
    void *_Nullable _openmps;
}

@property (nonatomic) NSUInteger inputFeatureChannels;
@property (nonatomic) NSUInteger outputFeatureChannels;
@property (nonatomic) BOOL useLayerInputUnitTransformMode;
@property (nonatomic) BOOL useFloat32Weights;
@property (nonatomic) MPSRNNSequenceDirection layerSequenceDirection;

@end

@interface MPSGRUDescriptor : MPSRNNDescriptor  // macOS 10.13

@property (nonatomic, retain, nullable) id<MPSCNNConvolutionDataSource> inputGateInputWeights;
@property (nonatomic, retain, nullable) id<MPSCNNConvolutionDataSource> inputGateRecurrentWeights;
@property (nonatomic, retain, nullable) id<MPSCNNConvolutionDataSource> recurrentGateInputWeights;
@property (nonatomic, retain, nullable) id<MPSCNNConvolutionDataSource> recurrentGateRecurrentWeights;
@property (nonatomic, retain, nullable) id<MPSCNNConvolutionDataSource> outputGateInputWeights;
@property (nonatomic, retain, nullable) id<MPSCNNConvolutionDataSource> outputGateRecurrentWeights;
@property (nonatomic, retain, nullable) id<MPSCNNConvolutionDataSource> outputGateInputGateWeights;
@property (nonatomic) float gatePnormValue;
@property (nonatomic) BOOL flipOutputGates;

+ (instancetype)createGRUDescriptorWithInputFeatureChannels:(NSUInteger)inputFeatureChannels
                                      outputFeatureChannels:(NSUInteger)outputFeatureChannels;

@end

@interface MPSLSTMDescriptor : MPSRNNDescriptor  // macOS 10.13

@property (nonatomic) BOOL memoryWeightsAreDiagonal;
@property (nonatomic, retain, nullable) id<MPSCNNConvolutionDataSource> inputGateInputWeights;
@property (nonatomic, retain, nullable) id<MPSCNNConvolutionDataSource> inputGateRecurrentWeights;
@property (nonatomic, retain, nullable) id<MPSCNNConvolutionDataSource> inputGateMemoryWeights;
@property (nonatomic, retain, nullable) id<MPSCNNConvolutionDataSource> forgetGateInputWeights;
@property (nonatomic, retain, nullable) id<MPSCNNConvolutionDataSource> forgetGateRecurrentWeights;
@property (nonatomic, retain, nullable) id<MPSCNNConvolutionDataSource> forgetGateMemoryWeights;
@property (nonatomic, retain, nullable) id<MPSCNNConvolutionDataSource> outputGateInputWeights;
@property (nonatomic, retain, nullable) id<MPSCNNConvolutionDataSource> outputGateRecurrentWeights;
@property (nonatomic, retain, nullable) id<MPSCNNConvolutionDataSource> outputGateMemoryWeights;
@property (nonatomic, retain, nullable) id<MPSCNNConvolutionDataSource> cellGateInputWeights;
@property (nonatomic, retain, nullable) id<MPSCNNConvolutionDataSource> cellGateRecurrentWeights;
@property (nonatomic, retain, nullable) id<MPSCNNConvolutionDataSource> cellGateMemoryWeights;
@property (nonatomic) MPSCNNNeuronType cellToOutputNeuronType;
@property (nonatomic) float cellToOutputNeuronParamA;
@property (nonatomic) float cellToOutputNeuronParamB;
@property (nonatomic) float cellToOutputNeuronParamC;

+ (instancetype)createLSTMDescriptorWithInputFeatureChannels:(NSUInteger)inputFeatureChannels
                                       outputFeatureChannels:(NSUInteger)outputFeatureChannels;

@end

@interface MPSRNNImageInferenceLayer : MPSCNNKernel  // macOS 10.13

@property (nonatomic, readonly) NSUInteger inputFeatureChannels;
@property (nonatomic, readonly) NSUInteger outputFeatureChannels;
@property (nonatomic, readonly) NSUInteger numberOfLayers;
@property (nonatomic) BOOL recurrentOutputIsTemporary;
@property (nonatomic) BOOL storeAllIntermediateStates;
@property (nonatomic) MPSRNNBidirectionalCombineMode bidirectionalCombineMode;

- (instancetype)initWithDevice:(id<MTLDevice>)device rnnDescriptor:(const MPSRNNDescriptor *)rnnDescriptor;
- (instancetype)initWithDevice:(id<MTLDevice>)device
                rnnDescriptors:(NSArray<const MPSRNNDescriptor *> *)rnnDescriptors;
- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

- (void)encodeSequenceToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
    sourceImages:(NSArray<MPSImage *> *)sourceImages
    destinationImages:(NSArray<MPSImage *> *)destinationImages
    recurrentInputState:(nullable MPSRNNRecurrentImageState *)recurrentInputState
    recurrentOutputStates:(nullable NSMutableArray<MPSRNNRecurrentImageState *> *)recurrentOutputStates;
- (void)encodeBidirectionalSequenceToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                    sourceSequence:(NSArray<MPSImage *> *)sourceSequence
                          destinationForwardImages:(NSArray<MPSImage *> *)destinationForwardImages
                         destinationBackwardImages:(nullable NSArray<MPSImage *> *)destinationBackwardImages;
- (instancetype)copyWithZone:(nullable NSZone *)zone device:(nullable id<MTLDevice>)device;

@end

@interface MPSRNNMatrixInferenceLayer : MPSKernel  // macOS 10.13

@property (nonatomic, readonly) NSUInteger inputFeatureChannels;
@property (nonatomic, readonly) NSUInteger outputFeatureChannels;
@property (nonatomic, readonly) NSUInteger numberOfLayers;
@property (nonatomic) BOOL recurrentOutputIsTemporary;
@property (nonatomic) BOOL storeAllIntermediateStates;
@property (nonatomic) MPSRNNBidirectionalCombineMode bidirectionalCombineMode;

- (instancetype)initWithDevice:(id<MTLDevice>)device rnnDescriptor:(const MPSRNNDescriptor *)rnnDescriptor;
- (instancetype)initWithDevice:(id<MTLDevice>)device
                rnnDescriptors:(NSArray<const MPSRNNDescriptor *> *)rnnDescriptors;
- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

- (void)encodeSequenceToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
    sourceMatrices:(NSArray<MPSMatrix *> *)sourceMatrices
    sourceOffsets:(nullable NSUInteger *)sourceOffsets
    destinationMatrices:(NSArray<MPSMatrix *> *)destinationMatrices
    destinationOffsets:(nullable NSUInteger *)destinationOffsets
    recurrentInputState:(nullable MPSRNNRecurrentMatrixState *)recurrentInputState
    recurrentOutputStates:(nullable NSMutableArray<MPSRNNRecurrentMatrixState *> *)recurrentOutputStates;  // macOS 10.14
- (void)encodeSequenceToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
    sourceMatrices:(NSArray<MPSMatrix *> *)sourceMatrices
    destinationMatrices:(NSArray<MPSMatrix *> *)destinationMatrices
    recurrentInputState:(nullable MPSRNNRecurrentMatrixState *)recurrentInputState
    recurrentOutputStates:(nullable NSMutableArray<MPSRNNRecurrentMatrixState *> *)recurrentOutputStates;
- (void)encodeBidirectionalSequenceToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
    sourceSequence:(NSArray<MPSMatrix *> *)sourceSequence
    destinationForwardMatrices:(NSArray<MPSMatrix *> *)destinationForwardMatrices
    destinationBackwardMatrices:(nullable NSArray<MPSMatrix *> *)destinationBackwardMatrices;
- (instancetype)copyWithZone:(nullable NSZone *)zone device:(nullable id<MTLDevice>)device;

@end

@interface MPSRNNMatrixTrainingLayer : MPSKernel  // macOS 10.13

@property (nonatomic, readonly) NSUInteger inputFeatureChannels;  // macOS 10.14
@property (nonatomic, readonly) NSUInteger outputFeatureChannels;  // macOS 10.14
@property (nonatomic) BOOL storeAllIntermediateStates;  // macOS 10.14
@property (nonatomic) BOOL recurrentOutputIsTemporary;  // macOS 10.14
@property (nonatomic) BOOL trainingStateIsTemporary;  // macOS 10.14
@property (nonatomic) BOOL accumulateWeightGradients;  // macOS 10.14

- (instancetype)initWithDevice:(id<MTLDevice>)device
                 rnnDescriptor:(const MPSRNNDescriptor *)rnnDescriptor
              trainableWeights:(NSMutableArray<MPSMatrix *> *)trainableWeights;  // macOS 10.14
- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;  // macOS 10.14
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

- (void)createWeightGradientMatrices:(NSMutableArray<MPSMatrix *> *)matricesOut
                            dataType:(MPSDataType)dataType;  // macOS 10.14
- (void)createTemporaryWeightGradientMatrices:(NSMutableArray<MPSMatrix *> *)matricesOut
                                     dataType:(MPSDataType)dataType
                                commandBuffer:(id<MTLCommandBuffer>)commandBuffer;  // macOS 10.14
- (void)createWeightMatrices:(NSMutableArray<MPSMatrix *> *)matricesOut;  // macOS 10.14
- (void)encodeCopyWeightsToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                 weights:(NSArray<MPSMatrix *> *)weights
                                matrixId:(MPSRNNMatrixId)matrixId
                                  matrix:(MPSMatrix *)matrix
                 copyFromWeightsToMatrix:(BOOL)copyFromWeightsToMatrix
                            matrixOffset:(MTLOrigin)matrixOffset;  // macOS 10.14
- (void)encodeForwardSequenceToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
    sourceMatrices:(NSArray<MPSMatrix *> *)sourceMatrices
    sourceOffsets:(nullable NSUInteger *)sourceOffsets
    destinationMatrices:(NSArray<MPSMatrix *> *)destinationMatrices
    destinationOffsets:(nullable NSUInteger *)destinationOffsets
    trainingStates:(NSMutableArray<MPSRNNMatrixTrainingState *> *)trainingStates
    recurrentInputState:(nullable MPSRNNRecurrentMatrixState *)recurrentInputState
    recurrentOutputStates:(nullable NSMutableArray<MPSRNNRecurrentMatrixState *> *)recurrentOutputStates
    weights:(NSArray<MPSMatrix *> *)weights;  // macOS 10.14
- (void)encodeForwardSequenceToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                              sourceMatrices:(NSArray<MPSMatrix *> *)sourceMatrices
                         destinationMatrices:(NSArray<MPSMatrix *> *)destinationMatrices
                              trainingStates:(NSMutableArray<MPSRNNMatrixTrainingState *> *)trainingStates
                                     weights:(NSArray<MPSMatrix *> *)weights;  // macOS 10.14
- (void)encodeGradientSequenceToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
    forwardSources:(NSArray<MPSMatrix *> *)forwardSources
    forwardSourceOffsets:(nullable NSUInteger *)forwardSourceOffsets
    sourceGradients:(NSArray<MPSMatrix *> *)sourceGradients
    sourceGradientOffsets:(nullable NSUInteger *)sourceGradientOffsets
    destinationGradients:(nullable NSArray<MPSMatrix *> *)destinationGradients
    destinationOffsets:(nullable NSUInteger *)destinationOffsets
    weightGradients:(nullable NSArray<MPSMatrix *> *)weightGradients
    trainingStates:(NSArray<MPSRNNMatrixTrainingState *> *)trainingStates
    recurrentInputState:(nullable MPSRNNRecurrentMatrixState *)recurrentInputState
    recurrentOutputStates:(nullable NSMutableArray<MPSRNNRecurrentMatrixState *> *)recurrentOutputStates
    weights:(NSArray<MPSMatrix *> *)weights;  // macOS 10.14
- (void)encodeGradientSequenceToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                               forwardSources:(NSArray<MPSMatrix *> *)forwardSources
                              sourceGradients:(NSArray<MPSMatrix *> *)sourceGradients
                         destinationGradients:(nullable NSArray<MPSMatrix *> *)destinationGradients
                              weightGradients:(nullable NSArray<MPSMatrix *> *)weightGradients
                               trainingStates:(NSArray<MPSRNNMatrixTrainingState *> *)trainingStates
                                      weights:(NSArray<MPSMatrix *> *)weights;  // macOS 10.14
- (instancetype)copyWithZone:(nullable NSZone *)zone device:(nullable id<MTLDevice>)device;  // macOS 10.14

@end

@interface MPSRNNMatrixTrainingState : MPSState  // macOS 10.14
@end

@interface MPSRNNRecurrentImageState : MPSState  // macOS 10.13

- (nullable MPSImage *)getRecurrentOutputImageForLayerIndex:(NSUInteger)layerIndex;
- (nullable MPSImage *)getMemoryCellImageForLayerIndex:(NSUInteger)layerIndex;

@end

@interface MPSRNNRecurrentMatrixState : MPSState  // macOS 10.13

- (nullable MPSMatrix *)getRecurrentOutputMatrixForLayerIndex:(NSUInteger)layerIndex;
- (nullable MPSMatrix *)getMemoryCellMatrixForLayerIndex:(NSUInteger)layerIndex;

@end

@interface MPSRNNSingleGateDescriptor : MPSRNNDescriptor  // macOS 10.13

@property (nonatomic, retain, nullable) id<MPSCNNConvolutionDataSource> inputWeights;
@property (nonatomic, retain, nullable) id<MPSCNNConvolutionDataSource> recurrentWeights;

+ (instancetype)createRNNSingleGateDescriptorWithInputFeatureChannels:(NSUInteger)inputFeatureChannels
                                                outputFeatureChannels:(NSUInteger)outputFeatureChannels;

@end

NS_ASSUME_NONNULL_END
