// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>
#import <MPSCore/MPSCoreTypes.h>
#import <MPSCore/MPSImage.h>
#import <MPSCore/MPSKernel.h>
#import <MPSCore/MPSState.h>
#import <Metal/MTLTypes.h>

NS_ASSUME_NONNULL_BEGIN

@class MPSImage, MPSImageDescriptor, MPSState;
@protocol MPSImageAllocator, MPSNNPadding, MTLCommandBuffer, MTLDevice;

@interface MPSCNNBinaryKernel : MPSKernel  // macOS 10.13

@property (nonatomic) MPSOffset primaryOffset;
@property (nonatomic) MPSOffset secondaryOffset;
@property (nonatomic) MTLRegion clipRect;
@property (nonatomic) NSUInteger destinationFeatureChannelOffset;
@property (nonatomic) NSUInteger primarySourceFeatureChannelOffset;  // macOS 10.13.4
@property (nonatomic) NSUInteger secondarySourceFeatureChannelOffset;  // macOS 10.13.4
@property (nonatomic) NSUInteger primarySourceFeatureChannelMaxCount;
@property (nonatomic) NSUInteger secondarySourceFeatureChannelMaxCount;
@property (nonatomic) MPSImageEdgeMode primaryEdgeMode;
@property (nonatomic) MPSImageEdgeMode secondaryEdgeMode;
@property (nonatomic, readonly) NSUInteger primaryKernelWidth;  // macOS 10.13.4
@property (nonatomic, readonly) NSUInteger primaryKernelHeight;  // macOS 10.13.4
@property (nonatomic, readonly) NSUInteger secondaryKernelWidth;  // macOS 10.13.4
@property (nonatomic, readonly) NSUInteger secondaryKernelHeight;  // macOS 10.13.4
@property (nonatomic) NSUInteger primaryStrideInPixelsX;  // macOS 10.13.4
@property (nonatomic) NSUInteger primaryStrideInPixelsY;  // macOS 10.13.4
@property (nonatomic) NSUInteger secondaryStrideInPixelsX;  // macOS 10.13.4
@property (nonatomic) NSUInteger secondaryStrideInPixelsY;  // macOS 10.13.4
@property (nonatomic, readonly) NSUInteger primaryDilationRateX;  // macOS 10.13.4
@property (nonatomic, readonly) NSUInteger primaryDilationRateY;  // macOS 10.13.4
@property (nonatomic, readonly) NSUInteger secondaryDilationRateX;  // macOS 10.13.4
@property (nonatomic, readonly) NSUInteger secondaryDilationRateY;  // macOS 10.13.4
@property (nonatomic, readonly) BOOL isBackwards;
@property (nonatomic, readonly) BOOL isStateModified;  // macOS 10.13.4
@property (nonatomic, retain) id<MPSNNPadding> padding;
@property (nonatomic, retain) id<MPSImageAllocator> destinationImageAllocator;

- (instancetype)initWithDevice:(id<MTLDevice>)device;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                 primaryImage:(MPSImage *)primaryImage
               secondaryImage:(MPSImage *)secondaryImage
             destinationImage:(MPSImage *)destinationImage;
- (void)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                     primaryImages:(MPSImageBatch *)primaryImages
                   secondaryImages:(MPSImageBatch *)secondaryImages
                 destinationImages:(MPSImageBatch *)destinationImages;  // macOS 10.13.4
- (MPSImage *)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                       primaryImage:(MPSImage *)primaryImage
                     secondaryImage:(MPSImage *)secondaryImage;
- (MPSImageBatch *)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                primaryImages:(MPSImageBatch *)primaryImage
                              secondaryImages:(MPSImageBatch *)secondaryImage;  // macOS 10.13.4
- (MPSImage *)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                       primaryImage:(MPSImage *)primaryImage
                     secondaryImage:(MPSImage *)secondaryImage
                   destinationState:(MPSState *_Nullable *_Nonnull)outState
        destinationStateIsTemporary:(BOOL)isTemporary;  // macOS 10.13.4
- (MPSImageBatch *)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                primaryImages:(MPSImageBatch *)primaryImages
                              secondaryImages:(MPSImageBatch *)secondaryImages
                            destinationStates:(MPSStateBatch *_Nullable *_Nonnull)outState
                  destinationStateIsTemporary:(BOOL)isTemporary;  // macOS 10.13.4
- (nullable MPSState *)resultStateForPrimaryImage:(MPSImage *)primaryImage
                                   secondaryImage:(MPSImage *)secondaryImage
                                     sourceStates:(nullable NSArray<MPSState *> *)sourceStates
                                 destinationImage:(MPSImage *)destinationImage;  // macOS 10.13.4
- (nullable MPSStateBatch *)resultStateBatchForPrimaryImage:(MPSImageBatch *)primaryImage
                                             secondaryImage:(MPSImageBatch *)secondaryImage
                                               sourceStates:(nullable NSArray<MPSStateBatch *> *)sourceStates
                                           destinationImage:(MPSImageBatch *)destinationImage;  // macOS 10.13.4
- (nullable MPSState *)temporaryResultStateForCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                               primaryImage:(MPSImage *)primaryImage
                                             secondaryImage:(MPSImage *)secondaryImage
                                               sourceStates:(nullable NSArray<MPSState *> *)sourceStates
                                           destinationImage:(MPSImage *)destinationImage;  // macOS 10.13.4
- (nullable MPSStateBatch *)temporaryResultStateBatchForCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
    primaryImage:(MPSImageBatch *)primaryImage
    secondaryImage:(MPSImageBatch *)secondaryImage
    sourceStates:(nullable NSArray<MPSStateBatch *> *)sourceStates
    destinationImage:(MPSImageBatch *)destinationImage;  // macOS 10.13.4
- (BOOL)isResultStateReusedAcrossBatch;  // macOS 10.13.4
- (BOOL)appendBatchBarrier;  // macOS 10.13.4
- (MPSImageDescriptor *)destinationImageDescriptorForSourceImages:(NSArray<MPSImage *> *)sourceImages
                                                     sourceStates:(nullable NSArray<MPSState *> *)sourceStates;
- (NSUInteger)encodingStorageSizeForPrimaryImage:(MPSImage *)primaryImage
                                  secondaryImage:(MPSImage *)secondaryImage
                                    sourceStates:(nullable NSArray<MPSState *> *)sourceStates
                                destinationImage:(nullable MPSImage *)destinationImage;  // macOS 10.15
- (NSUInteger)batchEncodingStorageSizeForPrimaryImage:(MPSImageBatch *)primaryImage
                                       secondaryImage:(MPSImageBatch *)secondaryImage
                                         sourceStates:(nullable NSArray<MPSStateBatch *> *)sourceStates
                                     destinationImage:(nullable MPSImageBatch *)destinationImage;  // macOS 10.15

@end

@interface MPSCNNGradientKernel : MPSCNNBinaryKernel  // macOS 10.13.4

@property (nonatomic) NSInteger kernelOffsetX;
@property (nonatomic) NSInteger kernelOffsetY;

- (instancetype)initWithDevice:(id<MTLDevice>)device;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

- (MPSImage *)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                     sourceGradient:(MPSImage *)sourceGradient
                        sourceImage:(MPSImage *)sourceImage
                      gradientState:(MPSState *)gradientState;
- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
               sourceGradient:(MPSImage *)sourceGradient
                  sourceImage:(MPSImage *)sourceImage
                gradientState:(MPSState *)gradientState
          destinationGradient:(MPSImage *)destinationGradient;
- (MPSImageBatch *)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                              sourceGradients:(MPSImageBatch *)sourceGradients
                                 sourceImages:(MPSImageBatch *)sourceImages
                               gradientStates:(MPSStateBatch *)gradientStates;
- (void)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                   sourceGradients:(MPSImageBatch *)sourceGradients
                      sourceImages:(MPSImageBatch *)sourceImages
                    gradientStates:(MPSStateBatch *)gradientStates
              destinationGradients:(MPSImageBatch *)destinationGradients;

@end

@interface MPSCNNKernel : MPSKernel  // macOS 10.13

@property (nonatomic) MPSOffset offset;
@property (nonatomic) MTLRegion clipRect;
@property (nonatomic) NSUInteger destinationFeatureChannelOffset;
@property (nonatomic) NSUInteger sourceFeatureChannelOffset;
@property (nonatomic) NSUInteger sourceFeatureChannelMaxCount;
@property (nonatomic) MPSImageEdgeMode edgeMode;
@property (nonatomic, readonly) NSUInteger kernelWidth;
@property (nonatomic, readonly) NSUInteger kernelHeight;
@property (nonatomic, readonly) NSUInteger strideInPixelsX;
@property (nonatomic, readonly) NSUInteger strideInPixelsY;
@property (nonatomic, readonly) NSUInteger dilationRateX;
@property (nonatomic, readonly) NSUInteger dilationRateY;
@property (nonatomic, readonly) BOOL isBackwards;
@property (nonatomic, readonly) BOOL isStateModified;  // macOS 10.13.4
@property (nonatomic, retain) id<MPSNNPadding> padding;
@property (nonatomic, retain) id<MPSImageAllocator> destinationImageAllocator;

- (instancetype)initWithDevice:(id<MTLDevice>)device;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                  sourceImage:(MPSImage *)sourceImage
             destinationImage:(MPSImage *)destinationImage;
- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                  sourceImage:(MPSImage *)sourceImage
             destinationState:(MPSState *)destinationState
             destinationImage:(MPSImage *)destinationImage;  // macOS 10.13.4
- (void)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                      sourceImages:(MPSImageBatch *)sourceImages
                 destinationImages:(MPSImageBatch *)destinationImages;  // macOS 10.13.4
- (void)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                      sourceImages:(MPSImageBatch *)sourceImages
                 destinationStates:(nullable MPSStateBatch *)destinationStates
                 destinationImages:(MPSImageBatch *)destinationImages;  // macOS 10.13.4
- (MPSImage *)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer sourceImage:(MPSImage *)sourceImage;
- (MPSImage *)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                        sourceImage:(MPSImage *)sourceImage
                   destinationState:(MPSState *_Nullable *_Nonnull)outState
        destinationStateIsTemporary:(BOOL)isTemporary;  // macOS 10.13.4
- (MPSImageBatch *)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                 sourceImages:(MPSImageBatch *)sourceImages;  // macOS 10.13.4
- (MPSImageBatch *)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                 sourceImages:(MPSImageBatch *)sourceImages
                            destinationStates:(MPSStateBatch *_Nullable *_Nonnull)outStates
                  destinationStateIsTemporary:(BOOL)isTemporary;  // macOS 10.13.4
- (nullable MPSState *)resultStateForSourceImage:(MPSImage *)sourceImage
                                    sourceStates:(nullable NSArray<MPSState *> *)sourceStates
                                destinationImage:(MPSImage *)destinationImage;  // macOS 10.13.4
- (nullable MPSStateBatch *)resultStateBatchForSourceImage:(MPSImageBatch *)sourceImage
                                              sourceStates:(nullable NSArray<MPSStateBatch *> *)sourceStates
                                          destinationImage:(MPSImageBatch *)destinationImage;  // macOS 10.13.4
- (nullable MPSState *)temporaryResultStateForCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                                sourceImage:(MPSImage *)sourceImage
                                               sourceStates:(nullable NSArray<MPSState *> *)sourceStates
                                           destinationImage:(MPSImage *)destinationImage;  // macOS 10.13.4
- (nullable MPSStateBatch *)temporaryResultStateBatchForCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
    sourceImage:(MPSImageBatch *)sourceImage
    sourceStates:(nullable NSArray<MPSStateBatch *> *)sourceStates
    destinationImage:(MPSImageBatch *)destinationImage;  // macOS 10.13.4
- (BOOL)isResultStateReusedAcrossBatch;  // macOS 10.13.4
- (BOOL)appendBatchBarrier;  // macOS 10.13.4
- (MPSImageDescriptor *)destinationImageDescriptorForSourceImages:(NSArray<MPSImage *> *)sourceImages
                                                     sourceStates:(nullable NSArray<MPSState *> *)sourceStates;
- (NSUInteger)encodingStorageSizeForSourceImage:(MPSImage *)sourceImage
                                   sourceStates:(nullable NSArray<MPSState *> *)sourceStates
                               destinationImage:(nullable MPSImage *)destinationImage;  // macOS 10.15
- (NSUInteger)batchEncodingStorageSizeForSourceImage:(MPSImageBatch *)sourceImage
                                        sourceStates:(nullable NSArray<MPSStateBatch *> *)sourceStates
                                    destinationImage:(nullable MPSImageBatch *)destinationImage;  // macOS 10.15

@end

@interface MPSCNNMultiaryKernel : MPSKernel  // macOS 10.15

@property (nonatomic, readonly) NSUInteger sourceCount;
@property (nonatomic) MTLRegion clipRect;
@property (nonatomic) NSUInteger destinationFeatureChannelOffset;
@property (nonatomic, readonly) BOOL isBackwards;
@property (nonatomic, readonly) BOOL isStateModified;
@property (nonatomic, retain) id<MPSNNPadding> padding;
@property (nonatomic, retain) id<MPSImageAllocator> destinationImageAllocator;

- (instancetype)initWithDevice:(id<MTLDevice>)device sourceCount:(NSUInteger)sourceCount;
- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

- (MPSOffset)offsetAtIndex:(NSUInteger)index;
- (void)setOffset:(MPSOffset)offset atIndex:(NSUInteger)index;
- (NSUInteger)sourceFeatureChannelOffsetAtIndex:(NSUInteger)index;
- (void)setSourceFeatureChannelOffset:(NSUInteger)offset atIndex:(NSUInteger)index;
- (NSUInteger)sourceFeatureChannelMaxCountAtIndex:(NSUInteger)index;
- (void)setSourceFeatureChannelMaxCount:(NSUInteger)count atIndex:(NSUInteger)index;
- (MPSImageEdgeMode)edgeModeAtIndex:(NSUInteger)index;
- (void)setEdgeMode:(MPSImageEdgeMode)edgeMode atIndex:(NSUInteger)index;
- (NSUInteger)kernelWidthAtIndex:(NSUInteger)index;
- (void)setKernelWidth:(NSUInteger)width atIndex:(NSUInteger)index;
- (NSUInteger)kernelHeightAtIndex:(NSUInteger)index;
- (void)setKernelHeight:(NSUInteger)height atIndex:(NSUInteger)index;
- (NSUInteger)strideInPixelsXatIndex:(NSUInteger)index;
- (void)setStrideInPixelsX:(NSUInteger)stride atIndex:(NSUInteger)index;
- (NSUInteger)strideInPixelsYatIndex:(NSUInteger)index;
- (void)setStrideInPixelsY:(NSUInteger)stride atIndex:(NSUInteger)index;
- (NSUInteger)dilationRateXatIndex:(NSUInteger)index;
- (void)setDilationRateX:(NSUInteger)dilationRate atIndex:(NSUInteger)index;
- (NSUInteger)dilationRateYatIndex:(NSUInteger)index;
- (void)setDilationRateY:(NSUInteger)dilationRate atIndex:(NSUInteger)index;
- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                 sourceImages:(NSArray<MPSImage *> *)sourceImages
             destinationImage:(MPSImage *)destinationImage;
- (void)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                      sourceImages:(NSArray<MPSImageBatch *> *)sourceImages
                 destinationImages:(MPSImageBatch *)destinationImages;
- (MPSImage *)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                       sourceImages:(NSArray<MPSImage *> *)sourceImages;
- (MPSImageBatch *)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                 sourceImages:(NSArray<MPSImageBatch *> *)sourceImageBatches;
- (MPSImage *)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                       sourceImages:(NSArray<MPSImage *> *)sourceImages
                   destinationState:(MPSState *_Nullable *_Nonnull)outState
        destinationStateIsTemporary:(BOOL)isTemporary;
- (MPSImageBatch *)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                 sourceImages:(NSArray<MPSImageBatch *> *)sourceImageBatches
                            destinationStates:(MPSStateBatch *_Nullable *_Nonnull)outState
                  destinationStateIsTemporary:(BOOL)isTemporary;
- (BOOL)isResultStateReusedAcrossBatch;
- (BOOL)appendBatchBarrier;
- (nullable MPSState *)resultStateForSourceImages:(NSArray<MPSImage *> *)sourceImages
                                     sourceStates:(nullable NSArray<MPSState *> *)sourceStates
                                 destinationImage:(MPSImage *)destinationImage;
- (nullable MPSStateBatch *)resultStateBatchForSourceImages:(NSArray<MPSImageBatch *> *)sourceImages
                                               sourceStates:(nullable NSArray<MPSStateBatch *> *)sourceStates
                                           destinationImage:(MPSImageBatch *)destinationImage;
- (nullable MPSState *)temporaryResultStateForCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                               sourceImages:(NSArray<MPSImage *> *)sourceImage
                                               sourceStates:(nullable NSArray<MPSState *> *)sourceStates
                                           destinationImage:(MPSImage *)destinationImage;
- (nullable MPSStateBatch *)temporaryResultStateBatchForCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
    sourceImages:(NSArray<MPSImageBatch *> *)sourceImage
    sourceStates:(nullable NSArray<MPSStateBatch *> *)sourceStates
    destinationImage:(MPSImageBatch *)destinationImage;
- (MPSImageDescriptor *)destinationImageDescriptorForSourceImages:(NSArray<MPSImage *> *)sourceImages
                                                     sourceStates:(nullable NSArray<MPSState *> *)sourceStates;

@end

NS_ASSUME_NONNULL_END
