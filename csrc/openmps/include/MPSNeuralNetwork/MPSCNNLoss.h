// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>
#import <MPSCore/MPSImage.h>
#import <MPSCore/MPSState.h>
#import <MPSNeuralNetwork/MPSCNNKernel.h>
#import <MPSNeuralNetwork/MPSCNNTypes.h>
#import <Metal/MTLTypes.h>

NS_ASSUME_NONNULL_BEGIN

@class MPSCNNLoss, MPSCNNLossDataDescriptor, MPSCNNLossDescriptor, MPSCNNLossLabels, MPSCNNYOLOLossDescriptor,
    MPSImage;
@protocol MTLCommandBuffer, MTLDevice;

typedef NSArray<MPSCNNLossLabels *> MPSCNNLossLabelsBatch;

@interface MPSCNNLoss : MPSCNNKernel  // macOS 10.13.4

@property (nonatomic, readonly) MPSCNNLossType lossType;
@property (nonatomic, readonly) MPSCNNReductionType reductionType;
@property (nonatomic, readonly) float weight;
@property (nonatomic, readonly) float labelSmoothing;
@property (nonatomic, readonly) NSUInteger numberOfClasses;
@property (nonatomic, readonly) float epsilon;
@property (nonatomic, readonly) float delta;
@property (nonatomic, readonly) BOOL reduceAcrossBatch;  // macOS 11.0

- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;
- (instancetype)initWithDevice:(id<MTLDevice>)device lossDescriptor:(MPSCNNLossDescriptor *)lossDescriptor;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                  sourceImage:(MPSImage *)sourceImage
                       labels:(MPSCNNLossLabels *)labels
             destinationImage:(MPSImage *)destinationImage;
- (MPSImage *)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                        sourceImage:(MPSImage *)sourceImage
                             labels:(MPSCNNLossLabels *)labels;
- (void)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                      sourceImages:(MPSImageBatch *)sourceImage
                            labels:(MPSCNNLossLabelsBatch *)labels
                 destinationImages:(MPSImageBatch *)destinationImage;
- (MPSImageBatch *)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                 sourceImages:(MPSImageBatch *)sourceImage
                                       labels:(MPSCNNLossLabelsBatch *)labels;

@end

@interface MPSCNNLossDataDescriptor : NSObject <NSCopying> {  // macOS 10.13.4
  @protected
    void *_Nullable _openmps;
}

@property (nonatomic, readonly) MPSDataLayout layout;
@property (nonatomic, readonly) MTLSize size;
@property (nonatomic) NSUInteger bytesPerRow;
@property (nonatomic) NSUInteger bytesPerImage;

- (instancetype)init NS_UNAVAILABLE;
+ (nullable MPSCNNLossDataDescriptor *)cnnLossDataDescriptorWithData:(NSData *)data
                                                              layout:(MPSDataLayout)layout
                                                                size:(MTLSize)size;

@end

@interface MPSCNNLossDescriptor : NSObject <NSCopying> {  // macOS 10.13.4
  @protected
    void *_Nullable _openmps;
}

@property (nonatomic) MPSCNNLossType lossType;
@property (nonatomic) MPSCNNReductionType reductionType;
@property (nonatomic) BOOL reduceAcrossBatch;  // macOS 11.0
@property (nonatomic) float weight;
@property (nonatomic) float labelSmoothing;
@property (nonatomic) NSUInteger numberOfClasses;
@property (nonatomic) float epsilon;
@property (nonatomic) float delta;

- (instancetype)init NS_UNAVAILABLE;
+ (MPSCNNLossDescriptor *)cnnLossDescriptorWithType:(MPSCNNLossType)lossType
                                      reductionType:(MPSCNNReductionType)reductionType;

@end

@interface MPSCNNLossLabels : MPSState  // macOS 10.13.4

- (instancetype)init NS_UNAVAILABLE;
- (instancetype)initWithDevice:(id<MTLDevice>)device
              labelsDescriptor:(MPSCNNLossDataDescriptor *)labelsDescriptor;
- (instancetype)initWithDevice:(id<MTLDevice>)device
                 lossImageSize:(MTLSize)lossImageSize
              labelsDescriptor:(MPSCNNLossDataDescriptor *)labelsDescriptor
             weightsDescriptor:(nullable MPSCNNLossDataDescriptor *)weightsDescriptor;
- (instancetype)initWithDevice:(id<MTLDevice>)device
                 lossImageSize:(MTLSize)lossImageSize
                   labelsImage:(MPSImage *)labelsImage
                  weightsImage:(nullable MPSImage *)weightsImage;  // macOS 10.15

- (MPSImage *)lossImage;
- (MPSImage *)labelsImage;
- (MPSImage *)weightsImage;

@end

@interface MPSCNNYOLOLoss : MPSCNNKernel  // macOS 10.14

@property (nonatomic, retain, readonly) MPSCNNLoss *lossXY;
@property (nonatomic, retain, readonly) MPSCNNLoss *lossWH;
@property (nonatomic, retain, readonly) MPSCNNLoss *lossConfidence;
@property (nonatomic, retain, readonly) MPSCNNLoss *lossClasses;
@property (nonatomic, readonly) float scaleXY;
@property (nonatomic, readonly) float scaleWH;
@property (nonatomic, readonly) float scaleNoObject;
@property (nonatomic, readonly) float scaleObject;
@property (nonatomic, readonly) float scaleClass;
@property (nonatomic, readonly) float minIOUForObjectPresence;
@property (nonatomic, readonly) float maxIOUForObjectAbsence;
@property (nonatomic, readonly) MPSCNNReductionType reductionType;
@property (nonatomic, readonly) NSUInteger numberOfAnchorBoxes;
@property (nonatomic, retain, readonly) NSData *anchorBoxes;
@property (nonatomic, readonly) BOOL reduceAcrossBatch;  // macOS 11.0

- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;
- (instancetype)initWithDevice:(id<MTLDevice>)device
                lossDescriptor:(MPSCNNYOLOLossDescriptor *)lossDescriptor;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                  sourceImage:(MPSImage *)sourceImage
                       labels:(MPSCNNLossLabels *)labels
             destinationImage:(MPSImage *)destinationImage;
- (MPSImage *)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                        sourceImage:(MPSImage *)sourceImage
                             labels:(MPSCNNLossLabels *)labels;
- (void)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                      sourceImages:(MPSImageBatch *)sourceImage
                            labels:(MPSCNNLossLabelsBatch *)labels
                 destinationImages:(MPSImageBatch *)destinationImage;
- (MPSImageBatch *)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                 sourceImages:(MPSImageBatch *)sourceImage
                                       labels:(MPSCNNLossLabelsBatch *)labels;

@end

@interface MPSCNNYOLOLossDescriptor : NSObject <NSCopying> {  // macOS 10.14
  @protected
    void *_Nullable _openmps;
}

@property (nonatomic, retain) MPSCNNLossDescriptor *XYLossDescriptor;
@property (nonatomic, retain) MPSCNNLossDescriptor *WHLossDescriptor;
@property (nonatomic, retain) MPSCNNLossDescriptor *confidenceLossDescriptor;
@property (nonatomic, retain) MPSCNNLossDescriptor *classesLossDescriptor;
@property (nonatomic) MPSCNNReductionType reductionType;
@property (nonatomic) BOOL reduceAcrossBatch;  // macOS 11.0
@property (nonatomic) BOOL rescore;
@property (nonatomic) float scaleXY;
@property (nonatomic) float scaleWH;
@property (nonatomic) float scaleNoObject;
@property (nonatomic) float scaleObject;
@property (nonatomic) float scaleClass;
@property (nonatomic) float minIOUForObjectPresence;
@property (nonatomic) float maxIOUForObjectAbsence;
@property (nonatomic) NSUInteger numberOfAnchorBoxes;
@property (nonatomic, retain) NSData *anchorBoxes;

- (instancetype)init NS_UNAVAILABLE;
+ (MPSCNNYOLOLossDescriptor *)cnnLossDescriptorWithXYLossType:(MPSCNNLossType)XYLossType
                                                   WHLossType:(MPSCNNLossType)WHLossType
                                           confidenceLossType:(MPSCNNLossType)confidenceLossType
                                              classesLossType:(MPSCNNLossType)classesLossType
                                                reductionType:(MPSCNNReductionType)reductionType
                                                  anchorBoxes:(NSData *)anchorBoxes
                                          numberOfAnchorBoxes:(NSUInteger)numberOfAnchorBoxes;

@end

@interface MPSNNForwardLoss : MPSCNNKernel  // macOS 10.15

@property (nonatomic, readonly) MPSCNNLossType lossType;
@property (nonatomic, readonly) MPSCNNReductionType reductionType;
@property (nonatomic, readonly) BOOL reduceAcrossBatch;  // macOS 11.0
@property (nonatomic, readonly) NSUInteger numberOfClasses;
@property (nonatomic) float weight;
@property (nonatomic) float labelSmoothing;
@property (nonatomic) float epsilon;
@property (nonatomic) float delta;

- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;
- (instancetype)initWithDevice:(id<MTLDevice>)device lossDescriptor:(MPSCNNLossDescriptor *)lossDescriptor;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

- (void)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                      sourceImages:(MPSImageBatch *)sourceImages
                            labels:(MPSImageBatch *)labels
                           weights:(nullable MPSImageBatch *)weights
                 destinationStates:(nullable MPSStateBatch *)destinationStates
                 destinationImages:(MPSImageBatch *)destinationImages;
- (MPSImageBatch *)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                 sourceImages:(MPSImageBatch *)sourceImages
                                       labels:(MPSImageBatch *)labels
                                      weights:(nullable MPSImageBatch *)weights
                            destinationStates:(MPSStateBatch *_Nullable *_Nullable)outStates
                  destinationStateIsTemporary:(BOOL)isTemporary;

@end

@interface MPSNNInitialGradient : MPSCNNKernel  // macOS 10.15

- (instancetype)initWithDevice:(id<MTLDevice>)device;

@end

@interface MPSNNLossGradient : MPSCNNBinaryKernel  // macOS 10.15

@property (nonatomic, readonly) MPSCNNLossType lossType;
@property (nonatomic, readonly) MPSCNNReductionType reductionType;
@property (nonatomic, readonly) BOOL reduceAcrossBatch;  // macOS 11.0
@property (nonatomic, readonly) NSUInteger numberOfClasses;
@property (nonatomic) float weight;
@property (nonatomic) float labelSmoothing;
@property (nonatomic) float epsilon;
@property (nonatomic) float delta;
@property (nonatomic) BOOL computeLabelGradients;

- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;
- (instancetype)initWithDevice:(id<MTLDevice>)device lossDescriptor:(MPSCNNLossDescriptor *)lossDescriptor;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

- (MPSImageBatch *)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                              sourceGradients:(MPSImageBatch *)sourceGradients
                                 sourceImages:(MPSImageBatch *)sourceImages
                                       labels:(MPSImageBatch *)labels
                                      weights:(nullable MPSImageBatch *)weights
                                 sourceStates:(nullable MPSStateBatch *)sourceStates;
- (void)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                   sourceGradients:(MPSImageBatch *)sourceGradients
                      sourceImages:(MPSImageBatch *)sourceImages
                            labels:(MPSImageBatch *)labels
                           weights:(nullable MPSImageBatch *)weights
                      sourceStates:(nullable MPSStateBatch *)sourceStates
              destinationGradients:(MPSImageBatch *)destinationGradients;

@end

NS_ASSUME_NONNULL_END
