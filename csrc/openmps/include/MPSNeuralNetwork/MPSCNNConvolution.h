// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>
#import <MPSCore/MPSCoreTypes.h>
#import <MPSCore/MPSImage.h>
#import <MPSCore/MPSState.h>
#import <MPSNeuralNetwork/MPSCNNKernel.h>
#import <MPSNeuralNetwork/MPSCNNNeuronType.h>
#import <MPSNeuralNetwork/MPSNNGradientState.h>
#import <MPSNeuralNetwork/MPSNeuralNetworkTypes.h>

NS_ASSUME_NONNULL_BEGIN

@class MPSCNNConvolution, MPSCNNConvolutionDescriptor, MPSCNNConvolutionGradientState,
    MPSCNNConvolutionTranspose, MPSCNNConvolutionTransposeGradientState,
    MPSCNNConvolutionWeightsAndBiasesState, MPSCNNNeuron, MPSImage, MPSNNNeuronDescriptor, MPSState;
@protocol MPSCNNConvolutionDataSource, MTLBuffer, MTLCommandBuffer, MTLDevice;

typedef NS_OPTIONS(NSUInteger, MPSCNNConvolutionGradientOption) {
    MPSCNNConvolutionGradientOptionGradientWithData = 1,
    MPSCNNConvolutionGradientOptionGradientWithWeightsAndBias = 2,
    MPSCNNConvolutionGradientOptionAll = 3,
};

typedef NS_ENUM(uint32_t, MPSCNNConvolutionWeightsLayout) {
    MPSCNNConvolutionWeightsLayoutOHWI = 0,
};

typedef NS_ENUM(uint32_t, MPSCNNWeightsQuantizationType) {
    MPSCNNWeightsQuantizationTypeNone = 0,
    MPSCNNWeightsQuantizationTypeLinear = 1,
    MPSCNNWeightsQuantizationTypeLookupTable = 2,
};

typedef NSArray<MPSCNNConvolutionGradientState *> MPSCNNConvolutionGradientStateBatch;
typedef NSArray<MPSCNNConvolutionTransposeGradientState *> MPSCNNConvolutionTransposeGradientStateBatch;

@protocol MPSCNNConvolutionDataSource <NSCopying, NSObject>  // macOS 10.13

- (MPSDataType)dataType;
- (MPSCNNConvolutionDescriptor *)descriptor;
- (void *)weights;
- (nullable float *)biasTerms;
- (BOOL)load;
- (void)purge;
- (nullable NSString *)label;

@optional
- (vector_float2 *)rangesForUInt8Kernel;
- (float *)lookupTableForUInt8Kernel;
- (MPSCNNWeightsQuantizationType)weightsQuantizationType;  // macOS 10.13.4
- (nullable MPSCNNConvolutionWeightsAndBiasesState *)updateWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
    gradientState:(MPSCNNConvolutionGradientState *)gradientState
    sourceState:(MPSCNNConvolutionWeightsAndBiasesState *)sourceState;  // macOS 10.13.4
- (BOOL)updateWithGradientState:(MPSCNNConvolutionGradientState *)gradientState
                    sourceState:(MPSCNNConvolutionWeightsAndBiasesState *)sourceState;  // macOS 10.13.4
- (instancetype)copyWithZone:(nullable NSZone *)zone device:(nullable id<MTLDevice>)device;  // macOS 10.14
- (MPSCNNConvolutionWeightsLayout)weightsLayout;  // macOS 10.15
- (MPSDataType)kernelWeightsDataType;  // macOS 11.0

@end

@interface MPSCNNBinaryConvolution : MPSCNNKernel  // macOS 10.13

@property (nonatomic, readonly) NSUInteger inputFeatureChannels;
@property (nonatomic, readonly) NSUInteger outputFeatureChannels;

- (instancetype)initWithDevice:(id<MTLDevice>)device
               convolutionData:(id<MPSCNNConvolutionDataSource>)convolutionData
                    scaleValue:(float)scaleValue
                          type:(MPSCNNBinaryConvolutionType)type
                         flags:(MPSCNNBinaryConvolutionFlags)flags;
- (instancetype)initWithDevice:(id<MTLDevice>)device
               convolutionData:(id<MPSCNNConvolutionDataSource>)convolutionData
               outputBiasTerms:(nullable const float *)outputBiasTerms
              outputScaleTerms:(nullable const float *)outputScaleTerms
                inputBiasTerms:(nullable const float *)inputBiasTerms
               inputScaleTerms:(nullable const float *)inputScaleTerms
                          type:(MPSCNNBinaryConvolutionType)type
                         flags:(MPSCNNBinaryConvolutionFlags)flags;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;
- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;

@end

@interface MPSCNNBinaryFullyConnected : MPSCNNBinaryConvolution  // macOS 10.13

- (instancetype)initWithDevice:(id<MTLDevice>)device
               convolutionData:(id<MPSCNNConvolutionDataSource>)convolutionData
                    scaleValue:(float)scaleValue
                          type:(MPSCNNBinaryConvolutionType)type
                         flags:(MPSCNNBinaryConvolutionFlags)flags;
- (instancetype)initWithDevice:(id<MTLDevice>)device
               convolutionData:(id<MPSCNNConvolutionDataSource>)convolutionData
               outputBiasTerms:(nullable const float *)outputBiasTerms
              outputScaleTerms:(nullable const float *)outputScaleTerms
                inputBiasTerms:(nullable const float *)inputBiasTerms
               inputScaleTerms:(nullable const float *)inputScaleTerms
                          type:(MPSCNNBinaryConvolutionType)type
                         flags:(MPSCNNBinaryConvolutionFlags)flags;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;
- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;

@end

@interface MPSCNNConvolution : MPSCNNKernel  // macOS 10.13

@property (nonatomic, readonly) NSUInteger inputFeatureChannels;
@property (nonatomic, readonly) NSUInteger outputFeatureChannels;
@property (nonatomic, readonly) NSUInteger groups;
@property (nonatomic, retain, readonly) id<MPSCNNConvolutionDataSource> dataSource;
@property (nonatomic, readonly) NSUInteger subPixelScaleFactor;
@property (nonatomic, readonly, nullable) const MPSCNNNeuron *neuron;
@property (nonatomic, readonly) MPSCNNNeuronType neuronType;  // deprecated 10.14
@property (nonatomic, readonly) float neuronParameterA;  // deprecated 10.14
@property (nonatomic, readonly) float neuronParameterB;  // deprecated 10.14
@property (nonatomic, readonly) float neuronParameterC;  // deprecated 10.14
@property (nonatomic, readonly, nullable) MPSNNNeuronDescriptor *fusedNeuronDescriptor;  // macOS 10.14
@property (nonatomic, readonly) NSUInteger channelMultiplier;
@property (nonatomic) MPSNNConvolutionAccumulatorPrecisionOption accumulatorPrecisionOption;  // macOS 10.13.4

- (instancetype)initWithDevice:(id<MTLDevice>)device weights:(id<MPSCNNConvolutionDataSource>)weights;
- (instancetype)initWithDevice:(id<MTLDevice>)device
         convolutionDescriptor:(const MPSCNNConvolutionDescriptor *)convolutionDescriptor
                 kernelWeights:(const float *)kernelWeights
                     biasTerms:(nullable const float *)biasTerms
                         flags:(MPSCNNConvolutionFlags)flags;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;
- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;

- (nullable MPSCNNConvolutionGradientState *)resultStateForSourceImage:(MPSImage *)sourceImage
    sourceStates:(nullable NSArray<MPSState *> *)sourceStates
    destinationImage:(MPSImage *)destinationImage;  // macOS 10.13.4
- (nullable MPSCNNConvolutionGradientStateBatch *)resultStateBatchForSourceImage:(MPSImageBatch *)sourceImage
    sourceStates:(nullable NSArray<MPSStateBatch *> *)sourceStates
    destinationImage:(MPSImageBatch *)destinationImage;  // macOS 10.13.4
- (nullable MPSCNNConvolutionGradientState *)temporaryResultStateForCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
    sourceImage:(MPSImage *)sourceImage
    sourceStates:(nullable NSArray<MPSState *> *)sourceStates
    destinationImage:(MPSImage *)destinationImage;  // macOS 10.13.4
- (nullable MPSCNNConvolutionGradientStateBatch *)temporaryResultStateBatchForCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
    sourceImage:(MPSImageBatch *)sourceImage
    sourceStates:(nullable NSArray<MPSStateBatch *> *)sourceStates
    destinationImage:(MPSImageBatch *)destinationImage;  // macOS 10.13.4
- (void)reloadWeightsAndBiasesFromDataSource;  // macOS 10.14
- (void)reloadWeightsAndBiasesWithDataSource:(id<MPSCNNConvolutionDataSource>)dataSource;  // macOS 10.13.4, deprecated 10.14
- (void)reloadWeightsAndBiasesWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                          state:(MPSCNNConvolutionWeightsAndBiasesState *)state;  // macOS 10.13.4
- (MPSCNNConvolutionWeightsAndBiasesState *)exportWeightsAndBiasesWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
    resultStateCanBeTemporary:(BOOL)resultStateCanBeTemporary;  // macOS 10.13.4

@end

@interface MPSCNNConvolutionDescriptor : NSObject <NSCopying, NSSecureCoding> {  // macOS 10.13
  @protected
    void *_Nullable _openmps;
}

@property (nonatomic) NSUInteger kernelWidth;
@property (nonatomic) NSUInteger kernelHeight;
@property (nonatomic) NSUInteger inputFeatureChannels;
@property (nonatomic) NSUInteger outputFeatureChannels;
@property (nonatomic) NSUInteger strideInPixelsX;
@property (nonatomic) NSUInteger strideInPixelsY;
@property (nonatomic) NSUInteger groups;
@property (nonatomic) NSUInteger dilationRateX;
@property (nonatomic) NSUInteger dilationRateY;
@property (nonatomic, retain) MPSNNNeuronDescriptor *fusedNeuronDescriptor;  // macOS 10.13.4
@property (nonatomic, retain, nullable) const MPSCNNNeuron *neuron;
@property (class, readonly) BOOL supportsSecureCoding;

- (instancetype)initWithCoder:(NSCoder *)aDecoder;
+ (instancetype)cnnConvolutionDescriptorWithKernelWidth:(NSUInteger)kernelWidth
                                           kernelHeight:(NSUInteger)kernelHeight
                                   inputFeatureChannels:(NSUInteger)inputFeatureChannels
                                  outputFeatureChannels:(NSUInteger)outputFeatureChannels
                                           neuronFilter:(nullable const MPSCNNNeuron *)neuronFilter;
+ (instancetype)cnnConvolutionDescriptorWithKernelWidth:(NSUInteger)kernelWidth
                                           kernelHeight:(NSUInteger)kernelHeight
                                   inputFeatureChannels:(NSUInteger)inputFeatureChannels
                                  outputFeatureChannels:(NSUInteger)outputFeatureChannels;

- (void)encodeWithCoder:(NSCoder *)aCoder;
- (void)setBatchNormalizationParametersForInferenceWithMean:(nullable const float *)mean
                                                   variance:(nullable const float *)variance
                                                      gamma:(nullable const float *)gamma
                                                       beta:(nullable const float *)beta
                                                    epsilon:(const float)epsilon;
- (void)setNeuronType:(MPSCNNNeuronType)neuronType parameterA:(float)parameterA parameterB:(float)parameterB;  // deprecated 10.13.4
- (MPSCNNNeuronType)neuronType;  // deprecated 10.13.4
- (float)neuronParameterA;  // deprecated 10.13.4
- (float)neuronParameterB;  // deprecated 10.13.4
- (void)setNeuronToPReLUWithParametersA:(NSData *)A;  // deprecated 10.13.4

@end

@interface MPSCNNConvolutionGradient : MPSCNNGradientKernel  // macOS 10.13.4

@property (nonatomic, readonly) NSUInteger sourceGradientFeatureChannels;
@property (nonatomic, readonly) NSUInteger sourceImageFeatureChannels;
@property (nonatomic, readonly) NSUInteger groups;
@property (nonatomic, readonly) NSUInteger channelMultiplier;
@property (nonatomic, retain, readonly) id<MPSCNNConvolutionDataSource> dataSource;
@property (nonatomic) MPSCNNConvolutionGradientOption gradientOption;
@property (nonatomic) BOOL serializeWeightsAndBiases;  // deprecated 10.14

- (instancetype)initWithDevice:(id<MTLDevice>)device weights:(id<MPSCNNConvolutionDataSource>)weights;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;
- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;

- (void)reloadWeightsAndBiasesFromDataSource;
- (void)reloadWeightsAndBiasesWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                          state:(MPSCNNConvolutionWeightsAndBiasesState *)state;

@end

@interface MPSCNNConvolutionGradientState : MPSNNGradientState <MPSImageSizeEncodingState>  // macOS 10.13.4

@property (nonatomic, readonly) id<MTLBuffer> gradientForWeights;
@property (nonatomic, readonly) id<MTLBuffer> gradientForBiases;
@property (nonatomic, retain, readonly) MPSCNNConvolution *convolution;
@property (nonatomic, readonly) MPSCNNConvolutionWeightsLayout gradientForWeightsLayout;  // macOS 10.15

@end

@interface MPSCNNConvolutionTranspose : MPSCNNKernel  // macOS 10.13

@property (nonatomic, readonly) NSUInteger inputFeatureChannels;
@property (nonatomic, readonly) NSUInteger outputFeatureChannels;
@property (nonatomic) NSInteger kernelOffsetX;
@property (nonatomic) NSInteger kernelOffsetY;
@property (nonatomic, readonly) NSUInteger groups;
@property (nonatomic) MPSNNConvolutionAccumulatorPrecisionOption accumulatorPrecisionOption;  // macOS 10.13.4
@property (nonatomic, retain, readonly) id<MPSCNNConvolutionDataSource> dataSource;  // macOS 10.15

- (instancetype)initWithDevice:(id<MTLDevice>)device weights:(id<MPSCNNConvolutionDataSource>)weights;
- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

- (MPSImage *)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                        sourceImage:(MPSImage *)sourceImage
           convolutionGradientState:(nullable MPSCNNConvolutionGradientState *)convolutionGradientState;  // macOS 10.13.4
- (MPSImageBatch *)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
    sourceImages:(MPSImageBatch *)sourceImage
    convolutionGradientStates:(nullable MPSCNNConvolutionGradientStateBatch *)convolutionGradientState;  // macOS 10.13.4
- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                  sourceImage:(MPSImage *)sourceImage
     convolutionGradientState:(nullable MPSCNNConvolutionGradientState *)convolutionGradientState
             destinationImage:(MPSImage *)destinationImage;  // macOS 10.13.4
- (void)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                      sourceImages:(MPSImageBatch *)sourceImage
         convolutionGradientStates:(nullable MPSCNNConvolutionGradientStateBatch *)convolutionGradientState
                 destinationImages:(MPSImageBatch *)destinationImage;  // macOS 10.13.4
- (nullable MPSCNNConvolutionTransposeGradientState *)resultStateForSourceImage:(MPSImage *)sourceImage
    sourceStates:(nullable NSArray<MPSCNNConvolutionGradientState *> *)sourceStates
    destinationImage:(MPSImage *)destinationImage;  // macOS 10.13.4
- (nullable MPSCNNConvolutionTransposeGradientStateBatch *)resultStateBatchForSourceImage:(MPSImageBatch *)sourceImage
    sourceStates:(nullable NSArray<MPSCNNConvolutionGradientStateBatch *> *)sourceStates
    destinationImage:(MPSImageBatch *)destinationImage;  // macOS 10.13.4
- (nullable MPSCNNConvolutionTransposeGradientState *)temporaryResultStateForCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
    sourceImage:(MPSImage *)sourceImage
    sourceStates:(nullable NSArray<MPSCNNConvolutionGradientState *> *)sourceStates
    destinationImage:(MPSImage *)destinationImage;  // macOS 10.13.4
- (nullable MPSCNNConvolutionTransposeGradientStateBatch *)temporaryResultStateBatchForCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
    sourceImage:(MPSImageBatch *)sourceImage
    sourceStates:(nullable NSArray<MPSCNNConvolutionGradientStateBatch *> *)sourceStates
    destinationImage:(MPSImageBatch *)destinationImage;  // macOS 10.13.4
- (void)reloadWeightsAndBiasesFromDataSource;  // macOS 10.15
- (void)reloadWeightsAndBiasesWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                          state:(MPSCNNConvolutionWeightsAndBiasesState *)state;  // macOS 10.15
- (MPSCNNConvolutionWeightsAndBiasesState *)exportWeightsAndBiasesWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
    resultStateCanBeTemporary:(BOOL)resultStateCanBeTemporary;  // macOS 10.15
- (MPSImage *)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                        sourceImage:(MPSImage *)sourceImage
           convolutionGradientState:(nullable MPSCNNConvolutionGradientState *)convolutionGradientState
                   destinationState:(MPSCNNConvolutionTransposeGradientState *_Nullable *_Nonnull)outState
        destinationStateIsTemporary:(BOOL)isTemporary;  // macOS 10.15
- (MPSImageBatch *)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
    sourceImages:(MPSImageBatch *)sourceImages
    convolutionGradientStates:(nullable MPSCNNConvolutionGradientStateBatch *)convolutionGradientStates
    destinationStates:(MPSCNNConvolutionTransposeGradientStateBatch *_Nullable *_Nonnull)outStates
    destinationStateIsTemporary:(BOOL)isTemporary;  // macOS 10.15

@end

@interface MPSCNNConvolutionTransposeGradient : MPSCNNGradientKernel  // macOS 10.15

@property (nonatomic, readonly) NSUInteger sourceGradientFeatureChannels;
@property (nonatomic, readonly) NSUInteger sourceImageFeatureChannels;
@property (nonatomic, readonly) NSUInteger groups;
@property (nonatomic, retain, readonly) id<MPSCNNConvolutionDataSource> dataSource;
@property (nonatomic) MPSCNNConvolutionGradientOption gradientOption;

- (instancetype)initWithDevice:(id<MTLDevice>)device weights:(id<MPSCNNConvolutionDataSource>)weights;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;
- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;

- (void)reloadWeightsAndBiasesFromDataSource;
- (void)reloadWeightsAndBiasesWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                          state:(MPSCNNConvolutionWeightsAndBiasesState *)state;

@end

@interface MPSCNNConvolutionTransposeGradientState : MPSCNNConvolutionGradientState  // macOS 10.15

@property (nonatomic, retain, readonly) MPSCNNConvolutionTranspose *convolutionTranspose;

@end

@interface MPSCNNConvolutionWeightsAndBiasesState : MPSState  // macOS 10.13.4

@property (nonatomic, readonly) id<MTLBuffer> weights;
@property (nonatomic, readonly, nullable) id<MTLBuffer> biases;
@property (nonatomic, readonly) NSUInteger weightsOffset;
@property (nonatomic, readonly) NSUInteger biasesOffset;

- (instancetype)initWithWeights:(id<MTLBuffer>)weights biases:(nullable id<MTLBuffer>)biases;
- (instancetype)initWithDevice:(id<MTLDevice>)device
      cnnConvolutionDescriptor:(MPSCNNConvolutionDescriptor *)descriptor;
+ (instancetype)temporaryCNNConvolutionWeightsAndBiasesStateWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
    cnnConvolutionDescriptor:(MPSCNNConvolutionDescriptor *)descriptor;
- (instancetype)initWithWeights:(id<MTLBuffer>)weights
                  weightsOffset:(NSUInteger)weightsOffset
                         biases:(nullable id<MTLBuffer>)biases
                   biasesOffset:(NSUInteger)biasesOffset
       cnnConvolutionDescriptor:(MPSCNNConvolutionDescriptor *)descriptor;  // macOS 10.15

@end

@interface MPSCNNDepthWiseConvolutionDescriptor : MPSCNNConvolutionDescriptor  // macOS 10.13

@property (nonatomic, readonly) NSUInteger channelMultiplier;

@end

@interface MPSCNNFullyConnected : MPSCNNConvolution  // macOS 10.13

- (instancetype)initWithDevice:(id<MTLDevice>)device weights:(id<MPSCNNConvolutionDataSource>)weights;
- (instancetype)initWithDevice:(id<MTLDevice>)device
         convolutionDescriptor:(const MPSCNNConvolutionDescriptor *)convolutionDescriptor
                 kernelWeights:(const float *)kernelWeights
                     biasTerms:(nullable const float *)biasTerms
                         flags:(MPSCNNConvolutionFlags)flags;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;
- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;

@end

@interface MPSCNNFullyConnectedGradient : MPSCNNConvolutionGradient  // macOS 10.13.4

- (instancetype)initWithDevice:(id<MTLDevice>)device weights:(id<MPSCNNConvolutionDataSource>)weights;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;
- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;

@end

@interface MPSCNNSubPixelConvolutionDescriptor : MPSCNNConvolutionDescriptor  // macOS 10.13

@property (nonatomic) NSUInteger subPixelScaleFactor;

@end

@interface MPSNNGramMatrixCalculation : MPSCNNKernel  // macOS 10.15

@property (nonatomic) float alpha;

- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;
- (instancetype)initWithDevice:(id<MTLDevice>)device alpha:(float)alpha;
- (instancetype)initWithDevice:(id<MTLDevice>)device;

@end

@interface MPSNNGramMatrixCalculationGradient : MPSCNNGradientKernel  // macOS 10.15

@property (nonatomic) float alpha;

- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;
- (instancetype)initWithDevice:(id<MTLDevice>)device alpha:(float)alpha;
- (instancetype)initWithDevice:(id<MTLDevice>)device;

@end

NS_ASSUME_NONNULL_END
