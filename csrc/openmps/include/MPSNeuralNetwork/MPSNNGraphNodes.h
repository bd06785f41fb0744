// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>
#import <MPSCore/MPSCoreTypes.h>
#import <MPSNeuralNetwork/MPSCNNMath.h>
#import <MPSNeuralNetwork/MPSCNNTypes.h>
#import <MPSNeuralNetwork/MPSNeuralNetworkTypes.h>
#import <Metal/MTLTypes.h>

NS_ASSUME_NONNULL_BEGIN

@class MPSCNNConvolutionGradientStateNode, MPSCNNConvolutionTransposeGradientStateNode, MPSCNNLossDescriptor,
    MPSCNNYOLOLossDescriptor, MPSImage, MPSNNBinaryGradientStateNode, MPSNNFilterNode,
    MPSNNGradientFilterNode, MPSNNGradientStateNode, MPSNNImageNode, MPSNNLabelsNode, MPSNNLossGradientNode,
    MPSNNNeuronDescriptor, MPSNNStateNode;
@protocol MPSCNNBatchNormalizationDataSource, MPSCNNConvolutionDataSource, MPSCNNGroupNormalizationDataSource,
    MPSCNNInstanceNormalizationDataSource, MPSHandle, MPSImageAllocator, MPSImageTransformProvider,
    MPSNNGramMatrixCallback, MPSNNLossCallback, MPSNNPadding;

typedef void (^MPSGradientNodeBlock)(MPSNNFilterNode *, MPSNNFilterNode *, MPSNNImageNode *, MPSNNImageNode *);

@protocol MPSHandle <NSObject, NSSecureCoding>  // macOS 10.13

- (nullable NSString *)label;

@end

@protocol MPSImageTransformProvider <NSObject, NSSecureCoding>  // macOS 10.13

- (MPSScaleTransform)transformForSourceImage:(MPSImage *)image handle:(nullable id<MPSHandle>)handle;

@end

@protocol MPSNNGramMatrixCallback <NSCopying, NSObject, NSSecureCoding>

- (float)alphaForSourceImage:(MPSImage *)sourceImage destinationImage:(MPSImage *)destinationImage;

@end

@protocol MPSNNLossCallback <NSCopying, NSObject, NSSecureCoding>

- (float)scalarWeightForSourceImage:(MPSImage *)sourceImage destinationImage:(MPSImage *)destinationImage;

@end

@protocol MPSNNTrainableNode <NSObject>  // macOS 10.13.4

@property (nonatomic) MPSNNTrainingStyle trainingStyle;

@end

@interface MPSNNFilterNode : NSObject {  // macOS 10.13
  @protected
    void *_Nullable _openmps;
}

@property (nonatomic, readonly) MPSNNImageNode *resultImage;
@property (nonatomic, readonly, nullable) MPSNNStateNode *resultState;
@property (nonatomic, readonly, nullable) NSArray<MPSNNStateNode *> *resultStates;
@property (nonatomic, retain) id<MPSNNPadding> paddingPolicy;
@property (atomic, copy, nullable) NSString *label;

- (instancetype)init NS_UNAVAILABLE;

- (MPSNNGradientFilterNode *)gradientFilterWithSource:(MPSNNImageNode *)gradientImage;
- (MPSNNGradientFilterNode *)gradientFilterWithSources:(NSArray<MPSNNImageNode *> *)gradientImages;
- (NSArray<MPSNNGradientFilterNode *> *)gradientFiltersWithSources:(NSArray<MPSNNImageNode *> *)gradientImages;
- (NSArray<MPSNNGradientFilterNode *> *)gradientFiltersWithSource:(MPSNNImageNode *)gradientImage;
- (nullable NSArray<MPSNNFilterNode *> *)trainingGraphWithSourceGradient:(nullable MPSNNImageNode *)gradientImage
    nodeHandler:(nullable MPSGradientNodeBlock)nodeHandler;  // macOS 10.14

@end

@interface MPSNNGradientFilterNode : MPSNNFilterNode  // macOS 10.13.4

- (MPSNNGradientFilterNode *)gradientFilterWithSources:(NSArray<MPSNNImageNode *> *)gradientImages NS_UNAVAILABLE;
- (NSArray<MPSNNGradientFilterNode *> *)gradientFiltersWithSources:(NSArray<MPSNNImageNode *> *)gradientImages NS_UNAVAILABLE;
- (MPSNNGradientFilterNode *)gradientFilterWithSource:(MPSNNImageNode *)gradientImage NS_UNAVAILABLE;
- (NSArray<MPSNNGradientFilterNode *> *)gradientFiltersWithSource:(MPSNNImageNode *)gradientImage NS_UNAVAILABLE;

@end

@interface MPSCNNBatchNormalizationGradientNode : MPSNNGradientFilterNode <MPSNNTrainableNode>  // macOS 10.13.4

+ (instancetype)nodeWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
                         gradientState:(MPSNNGradientStateNode *)gradientState;
- (instancetype)initWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
                         gradientState:(MPSNNGradientStateNode *)gradientState;

@end

@interface MPSCNNBatchNormalizationNode : MPSNNFilterNode <MPSNNTrainableNode>  // macOS 10.13.4

@property (nonatomic) MPSCNNBatchNormalizationFlags flags;
@property (nonatomic) MPSNNTrainingStyle trainingStyle;  // macOS 10.15

+ (instancetype)nodeWithSource:(MPSNNImageNode *)source
                    dataSource:(id<MPSCNNBatchNormalizationDataSource>)dataSource;
- (instancetype)initWithSource:(MPSNNImageNode *)source
                    dataSource:(id<MPSCNNBatchNormalizationDataSource>)dataSource;

@end

@interface MPSCNNConvolutionNode : MPSNNFilterNode <MPSNNTrainableNode>  // macOS 10.13

@property (nonatomic) MPSNNTrainingStyle trainingStyle;  // macOS 10.15
@property (nonatomic) MPSNNConvolutionAccumulatorPrecisionOption accumulatorPrecision;  // macOS 10.14
@property (nonatomic, readonly, nullable) MPSCNNConvolutionGradientStateNode *convolutionGradientState;  // macOS 10.13.4

+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode weights:(id<MPSCNNConvolutionDataSource>)weights;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode weights:(id<MPSCNNConvolutionDataSource>)weights;

@end

@interface MPSCNNBinaryConvolutionNode : MPSCNNConvolutionNode  // macOS 10.13

@property (nonatomic, readonly) MPSCNNConvolutionGradientStateNode *convolutionGradientState NS_UNAVAILABLE;

+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode
                       weights:(id<MPSCNNConvolutionDataSource>)weights
                    scaleValue:(float)scaleValue
                          type:(MPSCNNBinaryConvolutionType)type
                         flags:(MPSCNNBinaryConvolutionFlags)flags;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode
                       weights:(id<MPSCNNConvolutionDataSource>)weights
                    scaleValue:(float)scaleValue
                          type:(MPSCNNBinaryConvolutionType)type
                         flags:(MPSCNNBinaryConvolutionFlags)flags;
+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode
                       weights:(id<MPSCNNConvolutionDataSource>)weights
               outputBiasTerms:(nullable const float *)outputBiasTerms
              outputScaleTerms:(nullable const float *)outputScaleTerms
                inputBiasTerms:(nullable const float *)inputBiasTerms
               inputScaleTerms:(nullable const float *)inputScaleTerms
                          type:(MPSCNNBinaryConvolutionType)type
                         flags:(MPSCNNBinaryConvolutionFlags)flags;  // macOS 10.13.4
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode
                       weights:(id<MPSCNNConvolutionDataSource>)weights
               outputBiasTerms:(nullable const float *)outputBiasTerms
              outputScaleTerms:(nullable const float *)outputScaleTerms
                inputBiasTerms:(nullable const float *)inputBiasTerms
               inputScaleTerms:(nullable const float *)inputScaleTerms
                          type:(MPSCNNBinaryConvolutionType)type
                         flags:(MPSCNNBinaryConvolutionFlags)flags;  // macOS 10.13.4

@end

@interface MPSCNNBinaryFullyConnectedNode : MPSCNNBinaryConvolutionNode  // macOS 10.13

+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode
                       weights:(id<MPSCNNConvolutionDataSource>)weights
                    scaleValue:(float)scaleValue
                          type:(MPSCNNBinaryConvolutionType)type
                         flags:(MPSCNNBinaryConvolutionFlags)flags;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode
                       weights:(id<MPSCNNConvolutionDataSource>)weights
                    scaleValue:(float)scaleValue
                          type:(MPSCNNBinaryConvolutionType)type
                         flags:(MPSCNNBinaryConvolutionFlags)flags;
+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode
                       weights:(id<MPSCNNConvolutionDataSource>)weights
               outputBiasTerms:(nullable const float *)outputBiasTerms
              outputScaleTerms:(nullable const float *)outputScaleTerms
                inputBiasTerms:(nullable const float *)inputBiasTerms
               inputScaleTerms:(nullable const float *)inputScaleTerms
                          type:(MPSCNNBinaryConvolutionType)type
                         flags:(MPSCNNBinaryConvolutionFlags)flags;  // macOS 10.13.4
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode
                       weights:(id<MPSCNNConvolutionDataSource>)weights
               outputBiasTerms:(nullable const float *)outputBiasTerms
              outputScaleTerms:(nullable const float *)outputScaleTerms
                inputBiasTerms:(nullable const float *)inputBiasTerms
               inputScaleTerms:(nullable const float *)inputScaleTerms
                          type:(MPSCNNBinaryConvolutionType)type
                         flags:(MPSCNNBinaryConvolutionFlags)flags;  // macOS 10.13.4

@end

@interface MPSCNNConvolutionGradientNode : MPSNNGradientFilterNode <MPSNNTrainableNode>  // macOS 10.13.4

+ (instancetype)nodeWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
              convolutionGradientState:(MPSCNNConvolutionGradientStateNode *)gradientState
                               weights:(nullable id<MPSCNNConvolutionDataSource>)weights;
- (instancetype)initWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
              convolutionGradientState:(MPSCNNConvolutionGradientStateNode *)gradientState
                               weights:(nullable id<MPSCNNConvolutionDataSource>)weights;

@end

@interface MPSNNStateNode : NSObject {  // macOS 10.13
  @protected
    void *_Nullable _openmps;
}

@property (nonatomic, retain, nullable) id<MPSHandle> handle;
@property (nonatomic) BOOL exportFromGraph;
@property (nonatomic) BOOL synchronizeResource;  // macOS 10.13.4

- (instancetype)init NS_UNAVAILABLE;

@end

@interface MPSNNGradientStateNode : MPSNNStateNode  // macOS 10.13.4
@end

@interface MPSCNNConvolutionGradientStateNode : MPSNNGradientStateNode  // macOS 10.13.4
@end

@interface MPSCNNConvolutionTransposeGradientNode : MPSCNNConvolutionGradientNode  // macOS 10.15

+ (instancetype)nodeWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
     convolutionTransposeGradientState:(MPSCNNConvolutionTransposeGradientStateNode *)gradientState
                               weights:(nullable id<MPSCNNConvolutionDataSource>)weights;
- (instancetype)initWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
     convolutionTransposeGradientState:(MPSCNNConvolutionTransposeGradientStateNode *)gradientState
                               weights:(nullable id<MPSCNNConvolutionDataSource>)weights;

@end

@interface MPSCNNConvolutionTransposeGradientStateNode : MPSCNNConvolutionGradientStateNode
@end

@interface MPSCNNConvolutionTransposeNode : MPSCNNConvolutionNode  // macOS 10.13

@property (nonatomic, readonly) MPSCNNConvolutionGradientStateNode *convolutionGradientState NS_UNAVAILABLE;

+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode
      convolutionGradientState:(nullable MPSCNNConvolutionGradientStateNode *)convolutionGradientState
                       weights:(id<MPSCNNConvolutionDataSource>)weights;  // macOS 10.13.4
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode
      convolutionGradientState:(nullable MPSCNNConvolutionGradientStateNode *)convolutionGradientState
                       weights:(id<MPSCNNConvolutionDataSource>)weights;  // macOS 10.13.4

@end

@interface MPSCNNCrossChannelNormalizationGradientNode : MPSNNGradientFilterNode  // macOS 10.13.4

@property (nonatomic, readonly) NSUInteger kernelSize;

+ (instancetype)nodeWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
                         gradientState:(MPSNNGradientStateNode *)gradientState
                            kernelSize:(NSUInteger)kernelSize;
- (instancetype)initWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
                         gradientState:(MPSNNGradientStateNode *)gradientState
                            kernelSize:(NSUInteger)kernelSize;

@end

@interface MPSCNNNormalizationNode : MPSNNFilterNode  // macOS 10.13

@property (nonatomic) float alpha;
@property (nonatomic) float beta;
@property (nonatomic) float delta;

+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode;

@end

@interface MPSCNNCrossChannelNormalizationNode : MPSCNNNormalizationNode  // macOS 10.13

@property (nonatomic) NSUInteger kernelSizeInFeatureChannels;

+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode kernelSize:(NSUInteger)kernelSize;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode kernelSize:(NSUInteger)kernelSize;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode;

@end

@interface MPSCNNPoolingGradientNode : MPSNNGradientFilterNode  // macOS 10.13.4

@property (nonatomic, readonly) NSUInteger kernelWidth;
@property (nonatomic, readonly) NSUInteger kernelHeight;
@property (nonatomic, readonly) NSUInteger strideInPixelsX;
@property (nonatomic, readonly) NSUInteger strideInPixelsY;

+ (instancetype)nodeWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
                         gradientState:(MPSNNGradientStateNode *)gradientState
                           kernelWidth:(NSUInteger)kernelWidth
                          kernelHeight:(NSUInteger)kernelHeight
                       strideInPixelsX:(NSUInteger)strideInPixelsX
                       strideInPixelsY:(NSUInteger)strideInPixelsY
                         paddingPolicy:(nullable id<MPSNNPadding>)paddingPolicy;
- (instancetype)initWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
                         gradientState:(MPSNNGradientStateNode *)gradientState
                           kernelWidth:(NSUInteger)kernelWidth
                          kernelHeight:(NSUInteger)kernelHeight
                       strideInPixelsX:(NSUInteger)strideInPixelsX
                       strideInPixelsY:(NSUInteger)strideInPixelsY
                         paddingPolicy:(nullable id<MPSNNPadding>)paddingPolicy;

@end

@interface MPSCNNDilatedPoolingMaxGradientNode : MPSCNNPoolingGradientNode  // macOS 10.13.4

@property (nonatomic, readonly) NSUInteger dilationRateX;
@property (nonatomic, readonly) NSUInteger dilationRateY;

+ (instancetype)nodeWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
                         gradientState:(MPSNNGradientStateNode *)gradientState
                           kernelWidth:(NSUInteger)kernelWidth
                          kernelHeight:(NSUInteger)kernelHeight
                       strideInPixelsX:(NSUInteger)strideInPixelsX
                       strideInPixelsY:(NSUInteger)strideInPixelsY
                         dilationRateX:(NSUInteger)dilationRateX
                         dilationRateY:(NSUInteger)dilationRateY;
- (instancetype)initWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
                         gradientState:(MPSNNGradientStateNode *)gradientState
                           kernelWidth:(NSUInteger)kernelWidth
                          kernelHeight:(NSUInteger)kernelHeight
                       strideInPixelsX:(NSUInteger)strideInPixelsX
                       strideInPixelsY:(NSUInteger)strideInPixelsY
                         dilationRateX:(NSUInteger)dilationRateX
                         dilationRateY:(NSUInteger)dilationRateY;

@end

@interface MPSCNNDilatedPoolingMaxNode : MPSNNFilterNode  // macOS 10.13

@property (nonatomic, readonly) NSUInteger dilationRateX;
@property (nonatomic, readonly) NSUInteger dilationRateY;

+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode filterSize:(NSUInteger)size;
+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode
                    filterSize:(NSUInteger)size
                        stride:(NSUInteger)stride
                  dilationRate:(NSUInteger)dilationRate;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode
                   kernelWidth:(NSUInteger)kernelWidth
                  kernelHeight:(NSUInteger)kernelHeight
               strideInPixelsX:(NSUInteger)strideInPixelsX
               strideInPixelsY:(NSUInteger)strideInPixelsY
                 dilationRateX:(NSUInteger)dilationRateX
                 dilationRateY:(NSUInteger)dilationRateY;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode
                    filterSize:(NSUInteger)size
                        stride:(NSUInteger)stride
                  dilationRate:(NSUInteger)dilationRate;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode filterSize:(NSUInteger)size;

@end

@interface MPSCNNDropoutGradientNode : MPSNNGradientFilterNode  // macOS 10.13.4

@property (nonatomic, readonly) float keepProbability;
@property (nonatomic, readonly) NSUInteger seed;
@property (nonatomic, readonly) MTLSize maskStrideInPixels;

+ (instancetype)nodeWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
                         gradientState:(MPSNNGradientStateNode *)gradientState
                       keepProbability:(float)keepProbability
                                  seed:(NSUInteger)seed
                    maskStrideInPixels:(MTLSize)maskStrideInPixels;
- (instancetype)initWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
                         gradientState:(MPSNNGradientStateNode *)gradientState
                       keepProbability:(float)keepProbability
                                  seed:(NSUInteger)seed
                    maskStrideInPixels:(MTLSize)maskStrideInPixels;

@end

@interface MPSCNNDropoutNode : MPSNNFilterNode  // macOS 10.13.4

@property (nonatomic, readonly) float keepProbability;
@property (nonatomic, readonly) NSUInteger seed;
@property (nonatomic, readonly) MTLSize maskStrideInPixels;

+ (instancetype)nodeWithSource:(MPSNNImageNode *)source;
- (instancetype)initWithSource:(MPSNNImageNode *)source;
+ (instancetype)nodeWithSource:(MPSNNImageNode *)source keepProbability:(float)keepProbability;
- (instancetype)initWithSource:(MPSNNImageNode *)source keepProbability:(float)keepProbability;
+ (instancetype)nodeWithSource:(MPSNNImageNode *)source
               keepProbability:(float)keepProbability
                          seed:(NSUInteger)seed
            maskStrideInPixels:(MTLSize)maskStrideInPixels;
- (instancetype)initWithSource:(MPSNNImageNode *)source
               keepProbability:(float)keepProbability
                          seed:(NSUInteger)seed
            maskStrideInPixels:(MTLSize)maskStrideInPixels;

@end

@interface MPSCNNFullyConnectedGradientNode : MPSCNNConvolutionGradientNode  // macOS 10.15

+ (instancetype)nodeWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
              convolutionGradientState:(MPSCNNConvolutionGradientStateNode *)gradientState
                               weights:(nullable id<MPSCNNConvolutionDataSource>)weights;
- (instancetype)initWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
              convolutionGradientState:(MPSCNNConvolutionGradientStateNode *)gradientState
                               weights:(nullable id<MPSCNNConvolutionDataSource>)weights;

@end

@interface MPSCNNFullyConnectedNode : MPSCNNConvolutionNode  // macOS 10.13

+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode weights:(id<MPSCNNConvolutionDataSource>)weights;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode weights:(id<MPSCNNConvolutionDataSource>)weights;

@end

@interface MPSCNNGroupNormalizationGradientNode : MPSNNGradientFilterNode <MPSNNTrainableNode>  // macOS 10.15

+ (instancetype)nodeWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
                         gradientState:(MPSNNGradientStateNode *)gradientState;
- (instancetype)initWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
                         gradientState:(MPSNNGradientStateNode *)gradientState;

@end

@interface MPSCNNGroupNormalizationNode : MPSNNFilterNode <MPSNNTrainableNode>  // macOS 10.15

@property (nonatomic) MPSNNTrainingStyle trainingStyle;

+ (instancetype)nodeWithSource:(MPSNNImageNode *)source
                    dataSource:(id<MPSCNNGroupNormalizationDataSource>)dataSource;
- (instancetype)initWithSource:(MPSNNImageNode *)source
                    dataSource:(id<MPSCNNGroupNormalizationDataSource>)dataSource;

@end

@interface MPSCNNInstanceNormalizationGradientNode : MPSNNGradientFilterNode <MPSNNTrainableNode>  // macOS 10.13.4

+ (instancetype)nodeWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
                         gradientState:(MPSNNGradientStateNode *)gradientState;
- (instancetype)initWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
                         gradientState:(MPSNNGradientStateNode *)gradientState;

@end

@interface MPSCNNInstanceNormalizationNode : MPSNNFilterNode <MPSNNTrainableNode>  // macOS 10.13.4

@property (nonatomic) MPSNNTrainingStyle trainingStyle;  // macOS 10.15

+ (instancetype)nodeWithSource:(MPSNNImageNode *)source
                    dataSource:(id<MPSCNNInstanceNormalizationDataSource>)dataSource;
- (instancetype)initWithSource:(MPSNNImageNode *)source
                    dataSource:(id<MPSCNNInstanceNormalizationDataSource>)dataSource;

@end

@interface MPSCNNLocalContrastNormalizationGradientNode : MPSNNGradientFilterNode  // macOS 10.13.4

@property (nonatomic) float alpha;
@property (nonatomic) float beta;
@property (nonatomic) float delta;
@property (nonatomic) float p0;
@property (nonatomic) float pm;
@property (nonatomic) float ps;
@property (nonatomic, readonly) NSUInteger kernelWidth;
@property (nonatomic, readonly) NSUInteger kernelHeight;

+ (instancetype)nodeWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
                         gradientState:(MPSNNGradientStateNode *)gradientState
                           kernelWidth:(NSUInteger)kernelWidth
                          kernelHeight:(NSUInteger)kernelHeight;
- (instancetype)initWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
                         gradientState:(MPSNNGradientStateNode *)gradientState
                           kernelWidth:(NSUInteger)kernelWidth
                          kernelHeight:(NSUInteger)kernelHeight;

@end

@interface MPSCNNLocalContrastNormalizationNode : MPSCNNNormalizationNode  // macOS 10.13

@property (nonatomic) float pm;
@property (nonatomic) float ps;
@property (nonatomic) float p0;
@property (nonatomic) NSUInteger kernelWidth;
@property (nonatomic) NSUInteger kernelHeight;

+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode kernelSize:(NSUInteger)kernelSize;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode kernelSize:(NSUInteger)kernelSize;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode;

@end

@interface MPSCNNLogSoftMaxGradientNode : MPSNNGradientFilterNode  // macOS 10.13.4

+ (instancetype)nodeWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
                         gradientState:(MPSNNGradientStateNode *)gradientState;
- (instancetype)initWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
                         gradientState:(MPSNNGradientStateNode *)gradientState;

@end

@interface MPSCNNLogSoftMaxNode : MPSNNFilterNode  // macOS 10.13

+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode;

@end

@interface MPSCNNLossNode : MPSNNFilterNode  // macOS 10.13.4

@property (nonatomic, retain, readonly) MPSNNLabelsNode *inputLabels;

+ (instancetype)nodeWithSource:(MPSNNImageNode *)source lossDescriptor:(MPSCNNLossDescriptor *)descriptor;
- (instancetype)initWithSource:(MPSNNImageNode *)source lossDescriptor:(MPSCNNLossDescriptor *)descriptor;

- (MPSNNGradientFilterNode *)gradientFilterWithSources:(NSArray<MPSNNImageNode *> *)gradientImages NS_UNAVAILABLE;

@end

@interface MPSCNNNeuronNode : MPSNNFilterNode  // macOS 10.13

@property (nonatomic, readonly) float a;
@property (nonatomic, readonly) float b;
@property (nonatomic, readonly) float c;

+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode descriptor:(MPSNNNeuronDescriptor *)descriptor;  // macOS 10.14
- (instancetype)init NS_UNAVAILABLE;

@end

@interface MPSCNNNeuronAbsoluteNode : MPSCNNNeuronNode  // macOS 10.13

+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode;

@end

@interface MPSCNNNeuronELUNode : MPSCNNNeuronNode  // macOS 10.13

+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode a:(float)a;
+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode a:(float)a;

@end

@interface MPSCNNNeuronExponentialNode : MPSCNNNeuronNode  // macOS 10.13.4

+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode a:(float)a b:(float)b c:(float)c;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode a:(float)a b:(float)b c:(float)c;
+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode;

@end

@interface MPSCNNNeuronGeLUNode : MPSCNNNeuronNode  // macOS 10.15

- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode;
+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode;

@end

@interface MPSCNNNeuronGradientNode : MPSNNGradientFilterNode  // macOS 10.13.4

@property (nonatomic, readonly) MPSNNNeuronDescriptor *descriptor;

+ (instancetype)nodeWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
                         gradientState:(MPSNNGradientStateNode *)gradientState
                            descriptor:(MPSNNNeuronDescriptor *)descriptor;
- (instancetype)initWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
                         gradientState:(MPSNNGradientStateNode *)gradientState
                            descriptor:(MPSNNNeuronDescriptor *)descriptor;
- (instancetype)init NS_UNAVAILABLE;

@end

@interface MPSCNNNeuronHardSigmoidNode : MPSCNNNeuronNode  // macOS 10.13

+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode a:(float)a b:(float)b;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode a:(float)a b:(float)b;
+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode;

@end

@interface MPSCNNNeuronLinearNode : MPSCNNNeuronNode  // macOS 10.13

+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode a:(float)a b:(float)b;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode a:(float)a b:(float)b;
+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode;

@end

@interface MPSCNNNeuronLogarithmNode : MPSCNNNeuronNode  // macOS 10.13.4

+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode a:(float)a b:(float)b c:(float)c;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode a:(float)a b:(float)b c:(float)c;
+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode;

@end

@interface MPSCNNNeuronPReLUNode : MPSCNNNeuronNode  // macOS 10.13

+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode aData:(NSData *)aData;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode aData:(NSData *)aData;
+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode NS_UNAVAILABLE;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode NS_UNAVAILABLE;

@end

@interface MPSCNNNeuronPowerNode : MPSCNNNeuronNode  // macOS 10.13.4

+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode a:(float)a b:(float)b c:(float)c;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode a:(float)a b:(float)b c:(float)c;
+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode;

@end

@interface MPSCNNNeuronReLUNNode : MPSCNNNeuronNode  // macOS 10.13

+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode a:(float)a b:(float)b;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode a:(float)a b:(float)b;
+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode;

@end

@interface MPSCNNNeuronReLUNode : MPSCNNNeuronNode  // macOS 10.13

+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode a:(float)a;
+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode a:(float)a;

@end

@interface MPSCNNNeuronSigmoidNode : MPSCNNNeuronNode  // macOS 10.13

+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode;

@end

@interface MPSCNNNeuronSoftPlusNode : MPSCNNNeuronNode  // macOS 10.13

+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode a:(float)a b:(float)b;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode a:(float)a b:(float)b;
+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode;

@end

@interface MPSCNNNeuronSoftSignNode : MPSCNNNeuronNode  // macOS 10.13

+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode;

@end

@interface MPSCNNNeuronTanHNode : MPSCNNNeuronNode  // macOS 10.13

+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode a:(float)a b:(float)b;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode a:(float)a b:(float)b;
+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode;

@end

@interface MPSCNNPoolingAverageGradientNode : MPSCNNPoolingGradientNode  // macOS 10.13.4
@end

@interface MPSCNNPoolingNode : MPSNNFilterNode  // macOS 10.13

@property (nonatomic, readonly) NSUInteger kernelWidth;  // macOS 10.14
@property (nonatomic, readonly) NSUInteger kernelHeight;  // macOS 10.14
@property (nonatomic, readonly) NSUInteger strideInPixelsX;  // macOS 10.14
@property (nonatomic, readonly) NSUInteger strideInPixelsY;  // macOS 10.14

+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode filterSize:(NSUInteger)size;
+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode
                    filterSize:(NSUInteger)size
                        stride:(NSUInteger)stride;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode
                   kernelWidth:(NSUInteger)kernelWidth
                  kernelHeight:(NSUInteger)kernelHeight
               strideInPixelsX:(NSUInteger)strideInPixelsX
               strideInPixelsY:(NSUInteger)strideInPixelsY;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode
                    filterSize:(NSUInteger)size
                        stride:(NSUInteger)stride;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode filterSize:(NSUInteger)size;

@end

@interface MPSCNNPoolingAverageNode : MPSCNNPoolingNode  // macOS 10.13
@end

@interface MPSCNNPoolingL2NormGradientNode : MPSCNNPoolingGradientNode  // macOS 10.13.4
@end

@interface MPSCNNPoolingL2NormNode : MPSCNNPoolingNode  // macOS 10.13
@end

@interface MPSCNNPoolingMaxGradientNode : MPSCNNPoolingGradientNode  // macOS 10.13.4
@end

@interface MPSCNNPoolingMaxNode : MPSCNNPoolingNode  // macOS 10.13
@end

@interface MPSCNNSoftMaxGradientNode : MPSNNGradientFilterNode  // macOS 10.13.4

+ (instancetype)nodeWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
                         gradientState:(MPSNNGradientStateNode *)gradientState;
- (instancetype)initWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
                         gradientState:(MPSNNGradientStateNode *)gradientState;

@end

@interface MPSCNNSoftMaxNode : MPSNNFilterNode  // macOS 10.13

+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode;

@end

@interface MPSCNNSpatialNormalizationGradientNode : MPSNNGradientFilterNode  // macOS 10.13.4

@property (nonatomic) NSUInteger kernelWidth;
@property (nonatomic) NSUInteger kernelHeight;
@property (nonatomic) float alpha;
@property (nonatomic) float beta;
@property (nonatomic) float delta;

+ (instancetype)nodeWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
                         gradientState:(MPSNNGradientStateNode *)gradientState
                            kernelSize:(NSUInteger)kernelSize;
- (instancetype)initWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
                         gradientState:(MPSNNGradientStateNode *)gradientState
                            kernelSize:(NSUInteger)kernelSize;

@end

@interface MPSCNNSpatialNormalizationNode : MPSCNNNormalizationNode  // macOS 10.13

@property (nonatomic) NSUInteger kernelWidth;
@property (nonatomic) NSUInteger kernelHeight;

+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode kernelSize:(NSUInteger)kernelSize;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode kernelSize:(NSUInteger)kernelSize;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode;

@end

@interface MPSCNNUpsamplingBilinearGradientNode : MPSNNGradientFilterNode  // macOS 10.13.4

@property (nonatomic, readonly) double scaleFactorX;
@property (nonatomic, readonly) double scaleFactorY;

+ (instancetype)nodeWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
                         gradientState:(MPSNNGradientStateNode *)gradientState
                          scaleFactorX:(double)scaleFactorX
                          scaleFactorY:(double)scaleFactorY;
- (instancetype)initWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
                         gradientState:(MPSNNGradientStateNode *)gradientState
                          scaleFactorX:(double)scaleFactorX
                          scaleFactorY:(double)scaleFactorY;

@end

@interface MPSCNNUpsamplingBilinearNode : MPSNNFilterNode  // macOS 10.13

@property (nonatomic, readonly) double scaleFactorX;
@property (nonatomic, readonly) double scaleFactorY;
@property (nonatomic, readonly) BOOL alignCorners;

+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode
           integerScaleFactorX:(NSUInteger)integerScaleFactorX
           integerScaleFactorY:(NSUInteger)integerScaleFactorY;
+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode
           integerScaleFactorX:(NSUInteger)integerScaleFactorX
           integerScaleFactorY:(NSUInteger)integerScaleFactorY
                  alignCorners:(BOOL)alignCorners;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode
           integerScaleFactorX:(NSUInteger)integerScaleFactorX
           integerScaleFactorY:(NSUInteger)integerScaleFactorY;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode
           integerScaleFactorX:(NSUInteger)integerScaleFactorX
           integerScaleFactorY:(NSUInteger)integerScaleFactorY
                  alignCorners:(BOOL)alignCorners;

@end

@interface MPSCNNUpsamplingNearestGradientNode : MPSNNGradientFilterNode  // macOS 10.13.4

@property (nonatomic, readonly) double scaleFactorX;
@property (nonatomic, readonly) double scaleFactorY;

+ (instancetype)nodeWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
                         gradientState:(MPSNNGradientStateNode *)gradientState
                          scaleFactorX:(double)scaleFactorX
                          scaleFactorY:(double)scaleFactorY;
- (instancetype)initWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
                         gradientState:(MPSNNGradientStateNode *)gradientState
                          scaleFactorX:(double)scaleFactorX
                          scaleFactorY:(double)scaleFactorY;

@end

@interface MPSCNNUpsamplingNearestNode : MPSNNFilterNode  // macOS 10.13

@property (nonatomic, readonly) double scaleFactorX;
@property (nonatomic, readonly) double scaleFactorY;

+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode
           integerScaleFactorX:(NSUInteger)integerScaleFactorX
           integerScaleFactorY:(NSUInteger)integerScaleFactorY;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode
           integerScaleFactorX:(NSUInteger)integerScaleFactorX
           integerScaleFactorY:(NSUInteger)integerScaleFactorY;

@end

@interface MPSCNNYOLOLossNode : MPSNNFilterNode  // macOS 10.13.4

@property (nonatomic, retain, readonly) MPSNNLabelsNode *inputLabels;

+ (instancetype)nodeWithSource:(MPSNNImageNode *)source lossDescriptor:(MPSCNNYOLOLossDescriptor *)descriptor;
- (instancetype)initWithSource:(MPSNNImageNode *)source lossDescriptor:(MPSCNNYOLOLossDescriptor *)descriptor;

- (MPSNNGradientFilterNode *)gradientFilterWithSources:(NSArray<MPSNNImageNode *> *)gradientImages NS_UNAVAILABLE;

@end

@interface MPSNNArithmeticGradientNode : MPSNNGradientFilterNode  // macOS 10.13.4

@property (nonatomic) float primaryScale;
@property (nonatomic) float secondaryScale;
@property (nonatomic) float bias;
@property (nonatomic) NSUInteger secondaryStrideInPixelsX;
@property (nonatomic) NSUInteger secondaryStrideInPixelsY;
@property (nonatomic) NSUInteger secondaryStrideInFeatureChannels;
@property (nonatomic) float minimumValue;
@property (nonatomic) float maximumValue;
@property (nonatomic, readonly) BOOL isSecondarySourceFilter;

+ (instancetype)nodeWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
                         gradientState:(MPSNNBinaryGradientStateNode *)gradientState
               isSecondarySourceFilter:(BOOL)isSecondarySourceFilter;
- (instancetype)initWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
                         gradientState:(MPSNNBinaryGradientStateNode *)gradientState
               isSecondarySourceFilter:(BOOL)isSecondarySourceFilter;
- (instancetype)initWithGradientImages:(NSArray<MPSNNImageNode *> *)gradientImages
                         forwardFilter:(MPSNNFilterNode *)filter
               isSecondarySourceFilter:(BOOL)isSecondarySourceFilter;

@end

@interface MPSNNAdditionGradientNode : MPSNNArithmeticGradientNode  // macOS 10.13.4
@end

@interface MPSNNBinaryArithmeticNode : MPSNNFilterNode  // macOS 10.13

@property (nonatomic) float primaryScale;
@property (nonatomic) float secondaryScale;
@property (nonatomic) float bias;
@property (nonatomic) NSUInteger primaryStrideInPixelsX;
@property (nonatomic) NSUInteger primaryStrideInPixelsY;
@property (nonatomic) NSUInteger primaryStrideInFeatureChannels;
@property (nonatomic) NSUInteger secondaryStrideInPixelsX;
@property (nonatomic) NSUInteger secondaryStrideInPixelsY;
@property (nonatomic) NSUInteger secondaryStrideInFeatureChannels;
@property (nonatomic) float minimumValue;
@property (nonatomic) float maximumValue;

+ (instancetype)nodeWithSources:(NSArray<MPSNNImageNode *> *)sourceNodes;
+ (instancetype)nodeWithLeftSource:(MPSNNImageNode *)left rightSource:(MPSNNImageNode *)right;
- (instancetype)initWithSources:(NSArray<MPSNNImageNode *> *)sourceNodes;
- (instancetype)initWithLeftSource:(MPSNNImageNode *)left rightSource:(MPSNNImageNode *)right;

- (Class)gradientClass;
- (MPSNNGradientFilterNode *)gradientFilterWithSources:(NSArray<MPSNNImageNode *> *)gradientImages NS_UNAVAILABLE;
- (NSArray<MPSNNGradientFilterNode *> *)gradientFiltersWithSources:(NSArray<MPSNNImageNode *> *)gradientImages;  // macOS 10.13.4

@end

@interface MPSNNAdditionNode : MPSNNBinaryArithmeticNode  // macOS 10.13
@end

@interface MPSNNBinaryGradientStateNode : MPSNNStateNode  // macOS 10.13.4
@end

@interface MPSNNArithmeticGradientStateNode : MPSNNBinaryGradientStateNode  // macOS 10.13.4
@end

@interface MPSNNScaleNode : MPSNNFilterNode  // macOS 10.13

+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode outputSize:(MTLSize)size;
+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode
             transformProvider:(nullable id<MPSImageTransformProvider>)transformProvider
                    outputSize:(MTLSize)size;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode outputSize:(MTLSize)size;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode
             transformProvider:(nullable id<MPSImageTransformProvider>)transformProvider
                    outputSize:(MTLSize)size;

@end

@interface MPSNNBilinearScaleNode : MPSNNScaleNode  // macOS 10.13
@end

@interface MPSNNComparisonNode : MPSNNBinaryArithmeticNode  // macOS 10.14.1

@property (nonatomic) MPSNNComparisonType comparisonType;

@end

@interface MPSNNConcatenationGradientNode : MPSNNGradientFilterNode  // macOS 10.13.4

+ (instancetype)nodeWithSourceGradient:(MPSNNImageNode *)gradientSourceNode
                           sourceImage:(MPSNNImageNode *)sourceImage
                         gradientState:(MPSNNGradientStateNode *)gradientState;
- (instancetype)initWithSourceGradient:(MPSNNImageNode *)gradientSourceNode
                           sourceImage:(MPSNNImageNode *)sourceImage
                         gradientState:(MPSNNGradientStateNode *)gradientState;

@end

@interface MPSNNConcatenationNode : MPSNNFilterNode  // macOS 10.13

+ (instancetype)nodeWithSources:(NSArray<MPSNNImageNode *> *)sourceNodes;
- (instancetype)initWithSources:(NSArray<MPSNNImageNode *> *)sourceNodes;

- (MPSNNGradientFilterNode *)gradientFilterWithSources:(NSArray<MPSNNImageNode *> *)gradientImages NS_UNAVAILABLE;

@end

@interface MPSNNDivisionNode : MPSNNBinaryArithmeticNode  // macOS 10.13
@end

@interface MPSNNForwardLossNode : MPSNNFilterNode  // macOS 10.15

@property (nonatomic, readonly) MPSCNNLossType lossType;
@property (nonatomic, readonly) MPSCNNReductionType reductionType;
@property (nonatomic, readonly) NSUInteger numberOfClasses;
@property (nonatomic, readonly) BOOL reduceAcrossBatch;  // macOS 11.0
@property (nonatomic, readonly) float weight;
@property (nonatomic, readonly) float labelSmoothing;
@property (nonatomic, readonly) float epsilon;
@property (nonatomic, readonly) float delta;
@property (nonatomic, retain, nullable) id<MPSNNLossCallback> propertyCallBack;

+ (instancetype)nodeWithSource:(MPSNNImageNode *)source
                        labels:(MPSNNImageNode *)labels
                       weights:(MPSNNImageNode *)weights
                lossDescriptor:(MPSCNNLossDescriptor *)descriptor;
+ (instancetype)nodeWithSource:(MPSNNImageNode *)source
                        labels:(MPSNNImageNode *)labels
                lossDescriptor:(MPSCNNLossDescriptor *)descriptor;
+ (instancetype)nodeWithSources:(NSArray<MPSNNImageNode *> *)sourceNodes
                 lossDescriptor:(MPSCNNLossDescriptor *)descriptor;
- (instancetype)initWithSource:(MPSNNImageNode *)source
                        labels:(MPSNNImageNode *)labels
                       weights:(nullable MPSNNImageNode *)weights
                lossDescriptor:(MPSCNNLossDescriptor *)descriptor;
- (instancetype)initWithSource:(MPSNNImageNode *)source
                        labels:(MPSNNImageNode *)labels
                lossDescriptor:(MPSCNNLossDescriptor *)descriptor;
- (instancetype)initWithSources:(NSArray<MPSNNImageNode *> *)sourceNodes
                 lossDescriptor:(MPSCNNLossDescriptor *)descriptor;

- (MPSNNLossGradientNode *)gradientFilterWithSources:(NSArray<MPSNNImageNode *> *)sourceGradient;
- (NSArray<MPSNNLossGradientNode *> *)gradientFiltersWithSources:(NSArray<MPSNNImageNode *> *)sourceGradient;
- (MPSNNLossGradientNode *)gradientFilterWithSource:(MPSNNImageNode *)sourceGradient;
- (NSArray<MPSNNLossGradientNode *> *)gradientFiltersWithSource:(MPSNNImageNode *)sourceGradient;

@end

@interface MPSNNGramMatrixCalculationGradientNode : MPSNNGradientFilterNode  // macOS 10.15

@property (nonatomic, readonly) float alpha;

+ (instancetype)nodeWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
                         gradientState:(MPSNNGradientStateNode *)gradientState;
- (instancetype)initWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
                         gradientState:(MPSNNGradientStateNode *)gradientState;
+ (instancetype)nodeWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
                         gradientState:(MPSNNGradientStateNode *)gradientState
                                 alpha:(float)alpha;
- (instancetype)initWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
                         gradientState:(MPSNNGradientStateNode *)gradientState
                                 alpha:(float)alpha;

@end

@interface MPSNNGramMatrixCalculationNode : MPSNNFilterNode  // macOS 10.15

@property (nonatomic, readonly) float alpha;
@property (nonatomic, retain, nullable) id<MPSNNGramMatrixCallback> propertyCallBack;

+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode;
+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode alpha:(float)alpha;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode alpha:(float)alpha;

@end

@interface MPSNNImageNode : NSObject {  // macOS 10.13
  @protected
    void *_Nullable _openmps;
}

@property (nonatomic, retain, nullable) id<MPSHandle> handle;
@property (nonatomic) MPSImageFeatureChannelFormat format;
@property (nonatomic, retain) id<MPSImageAllocator> imageAllocator;
@property (nonatomic) BOOL exportFromGraph;
@property (nonatomic) BOOL synchronizeResource;  // macOS 10.13.4
@property (nonatomic) BOOL stopGradient;  // macOS 10.14

- (instancetype)initWithHandle:(nullable NSObject <MPSHandle> *)handle;
+ (instancetype)nodeWithHandle:(nullable NSObject <MPSHandle> *)handle;
+ (instancetype)exportedNodeWithHandle:(nullable NSObject <MPSHandle> *)handle;
- (instancetype)init NS_UNAVAILABLE;

@end

@interface MPSNNInitialGradientNode : MPSNNFilterNode  // macOS 10.15

+ (instancetype)nodeWithSource:(MPSNNImageNode *)source;
- (instancetype)initWithSource:(MPSNNImageNode *)source;

- (MPSNNGradientFilterNode *)gradientFilterWithSources:(NSArray<MPSNNImageNode *> *)gradientImages NS_UNAVAILABLE;

@end

@interface MPSNNLabelsNode : MPSNNStateNode  // macOS 10.13.4
@end

@interface MPSNNLanczosScaleNode : MPSNNScaleNode  // macOS 10.13
@end

@interface MPSNNLossGradientNode : MPSNNGradientFilterNode  // macOS 10.15

@property (nonatomic, readonly) MPSCNNLossType lossType;
@property (nonatomic, readonly) MPSCNNReductionType reductionType;
@property (nonatomic, readonly) NSUInteger numberOfClasses;
@property (nonatomic, readonly) BOOL reduceAcrossBatch;  // macOS 11.0
@property (nonatomic, readonly) float weight;
@property (nonatomic, readonly) float labelSmoothing;
@property (nonatomic, readonly) float epsilon;
@property (nonatomic, readonly) float delta;
@property (nonatomic, readonly) BOOL isLabelsGradientFilter;
@property (nonatomic, retain, nullable) id<MPSNNLossCallback> propertyCallBack;

+ (instancetype)nodeWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
                                labels:(MPSNNImageNode *)labels
                               weights:(MPSNNImageNode *)weights
                         gradientState:(nullable MPSNNGradientStateNode *)gradientState
                        lossDescriptor:(MPSCNNLossDescriptor *)descriptor
                isLabelsGradientFilter:(BOOL)isLabelsGradientFilter;
+ (instancetype)nodeWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
                                labels:(MPSNNImageNode *)labels
                         gradientState:(nullable MPSNNGradientStateNode *)gradientState
                        lossDescriptor:(MPSCNNLossDescriptor *)descriptor
                isLabelsGradientFilter:(BOOL)isLabelsGradientFilter;
+ (instancetype)nodeWithSources:(NSArray<MPSNNImageNode *> *)sourceNodes
                  gradientState:(nullable MPSNNGradientStateNode *)gradientState
                 lossDescriptor:(MPSCNNLossDescriptor *)descriptor
         isLabelsGradientFilter:(BOOL)isLabelsGradientFilter;
- (instancetype)initWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
                                labels:(MPSNNImageNode *)labels
                               weights:(nullable MPSNNImageNode *)weights
                         gradientState:(nullable MPSNNGradientStateNode *)gradientState
                        lossDescriptor:(MPSCNNLossDescriptor *)descriptor
                isLabelsGradientFilter:(BOOL)isLabelsGradientFilter;
- (instancetype)initWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
                                labels:(MPSNNImageNode *)labels
                         gradientState:(nullable MPSNNGradientStateNode *)gradientState
                        lossDescriptor:(MPSCNNLossDescriptor *)descriptor
                isLabelsGradientFilter:(BOOL)isLabelsGradientFilter;
- (instancetype)initWithSources:(NSArray<MPSNNImageNode *> *)sourceNodes
                  gradientState:(nullable MPSNNGradientStateNode *)gradientState
                 lossDescriptor:(MPSCNNLossDescriptor *)descriptor
         isLabelsGradientFilter:(BOOL)isLabelsGradientFilter;

- (MPSNNGradientFilterNode *)gradientFilterWithSources:(NSArray<MPSNNImageNode *> *)gradientImages NS_UNAVAILABLE;

@end

@interface MPSNNMultiaryGradientStateNode : MPSNNStateNode
@end

@interface MPSNNMultiplicationGradientNode : MPSNNArithmeticGradientNode  // macOS 10.13.4
@end

@interface MPSNNMultiplicationNode : MPSNNBinaryArithmeticNode  // macOS 10.13
@end

@interface MPSNNPadGradientNode : MPSNNGradientFilterNode  // macOS 10.14.1

+ (instancetype)nodeWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
                         gradientState:(MPSNNGradientStateNode *)gradientState;
- (instancetype)initWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
                         gradientState:(MPSNNGradientStateNode *)gradientState;

@end

@interface MPSNNPadNode : MPSNNFilterNode  // macOS 10.14.1

@property (nonatomic) float fillValue;

+ (instancetype)nodeWithSource:(MPSNNImageNode *)source
             paddingSizeBefore:(MPSImageCoordinate)paddingSizeBefore
              paddingSizeAfter:(MPSImageCoordinate)paddingSizeAfter
                      edgeMode:(MPSImageEdgeMode)edgeMode;
- (instancetype)initWithSource:(MPSNNImageNode *)source
             paddingSizeBefore:(MPSImageCoordinate)paddingSizeBefore
              paddingSizeAfter:(MPSImageCoordinate)paddingSizeAfter
                      edgeMode:(MPSImageEdgeMode)edgeMode;

@end

@interface MPSNNUnaryReductionNode : MPSNNFilterNode  // macOS 10.14.1

@property (nonatomic) MTLRegion clipRectSource;

+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode;
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode;

@end

@interface MPSNNReductionColumnMaxNode : MPSNNUnaryReductionNode  // macOS 10.14.1
@end

@interface MPSNNReductionColumnMeanNode : MPSNNUnaryReductionNode  // macOS 10.14.1
@end

@interface MPSNNReductionColumnMinNode : MPSNNUnaryReductionNode  // macOS 10.14.1
@end

@interface MPSNNReductionColumnSumNode : MPSNNUnaryReductionNode  // macOS 10.14.1
@end

@interface MPSNNReductionFeatureChannelsArgumentMaxNode : MPSNNUnaryReductionNode  // macOS 10.14.1
@end

@interface MPSNNReductionFeatureChannelsArgumentMinNode : MPSNNUnaryReductionNode  // macOS 10.14.1
@end

@interface MPSNNReductionFeatureChannelsMaxNode : MPSNNUnaryReductionNode  // macOS 10.14.1
@end

@interface MPSNNReductionFeatureChannelsMeanNode : MPSNNUnaryReductionNode  // macOS 10.14.1
@end

@interface MPSNNReductionFeatureChannelsMinNode : MPSNNUnaryReductionNode  // macOS 10.14.1
@end

@interface MPSNNReductionFeatureChannelsSumNode : MPSNNUnaryReductionNode  // macOS 10.14.1

@property (nonatomic) float weight;

@end

@interface MPSNNReductionRowMaxNode : MPSNNUnaryReductionNode  // macOS 10.14.1
@end

@interface MPSNNReductionRowMeanNode : MPSNNUnaryReductionNode  // macOS 10.14.1
@end

@interface MPSNNReductionRowMinNode : MPSNNUnaryReductionNode  // macOS 10.14.1
@end

@interface MPSNNReductionRowSumNode : MPSNNUnaryReductionNode  // macOS 10.14.1
@end

@interface MPSNNReductionSpatialMeanGradientNode : MPSNNGradientFilterNode  // macOS 10.14.1

+ (instancetype)nodeWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
                         gradientState:(MPSNNGradientStateNode *)gradientState;
- (instancetype)initWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
                         gradientState:(MPSNNGradientStateNode *)gradientState;

@end

@interface MPSNNReductionSpatialMeanNode : MPSNNUnaryReductionNode  // macOS 10.14.1
@end

@interface MPSNNReshapeGradientNode : MPSNNGradientFilterNode  // macOS 10.14.1

+ (instancetype)nodeWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
                         gradientState:(MPSNNGradientStateNode *)gradientState;
- (instancetype)initWithSourceGradient:(MPSNNImageNode *)sourceGradient
                           sourceImage:(MPSNNImageNode *)sourceImage
                         gradientState:(MPSNNGradientStateNode *)gradientState;

@end

@interface MPSNNReshapeNode : MPSNNFilterNode  // macOS 10.14.1

+ (instancetype)nodeWithSource:(MPSNNImageNode *)source
                   resultWidth:(NSUInteger)resultWidth
                  resultHeight:(NSUInteger)resultHeight
         resultFeatureChannels:(NSUInteger)resultFeatureChannels;
- (instancetype)initWithSource:(MPSNNImageNode *)source
                   resultWidth:(NSUInteger)resultWidth
                  resultHeight:(NSUInteger)resultHeight
         resultFeatureChannels:(NSUInteger)resultFeatureChannels;

@end

@interface MPSNNSubtractionGradientNode : MPSNNArithmeticGradientNode  // macOS 10.13.4
@end

@interface MPSNNSubtractionNode : MPSNNBinaryArithmeticNode  // macOS 10.13
@end

NS_ASSUME_NONNULL_END
