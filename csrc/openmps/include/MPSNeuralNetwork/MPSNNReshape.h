// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>
#import <MPSCore/MPSCoreTypes.h>
#import <MPSCore/MPSImage.h>
#import <MPSCore/MPSState.h>
#import <MPSNeuralNetwork/MPSCNNKernel.h>

NS_ASSUME_NONNULL_BEGIN

@class MPSImage, MPSState;
@protocol MTLCommandBuffer, MTLDevice;

@interface MPSNNPad : MPSCNNKernel  // macOS 10.14.1

@property (nonatomic) MPSImageCoordinate paddingSizeBefore;
@property (nonatomic) MPSImageCoordinate paddingSizeAfter;
@property (nonatomic) float fillValue;

- (instancetype)initWithDevice:(id<MTLDevice>)device;
- (instancetype)initWithDevice:(id<MTLDevice>)device
             paddingSizeBefore:(MPSImageCoordinate)paddingSizeBefore
              paddingSizeAfter:(MPSImageCoordinate)paddingSizeAfter;
- (instancetype)initWithDevice:(id<MTLDevice>)device
             paddingSizeBefore:(MPSImageCoordinate)paddingSizeBefore
              paddingSizeAfter:(MPSImageCoordinate)paddingSizeAfter
                fillValueArray:(nullable NSData *)fillValueArray;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

@end

@interface MPSNNPadGradient : MPSCNNGradientKernel  // macOS 10.14.1

- (instancetype)initWithDevice:(id<MTLDevice>)device;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

@end

@interface MPSNNReshape : MPSCNNKernel  // macOS 10.13.4

- (instancetype)initWithDevice:(id<MTLDevice>)device;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

- (MPSImage *)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                        sourceImage:(MPSImage *)sourceImage
                      reshapedWidth:(NSUInteger)reshapedWidth
                     reshapedHeight:(NSUInteger)reshapedHeight
            reshapedFeatureChannels:(NSUInteger)reshapedFeatureChannels;  // macOS 11.0
- (MPSImage *)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                        sourceImage:(MPSImage *)sourceImage
                   destinationState:(MPSState *_Nullable *_Nonnull)outState
        destinationStateIsTemporary:(BOOL)isTemporary
                      reshapedWidth:(NSUInteger)reshapedWidth
                     reshapedHeight:(NSUInteger)reshapedHeight
            reshapedFeatureChannels:(NSUInteger)reshapedFeatureChannels;  // macOS 11.0
- (MPSImageBatch *)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                 sourceImages:(MPSImageBatch *)sourceImages
                                reshapedWidth:(NSUInteger)reshapedWidth
                               reshapedHeight:(NSUInteger)reshapedHeight
                      reshapedFeatureChannels:(NSUInteger)reshapedFeatureChannels;  // macOS 11.0
- (MPSImageBatch *)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                 sourceImages:(MPSImageBatch *)sourceImages
                            destinationStates:(MPSStateBatch *_Nullable *_Nonnull)outStates
                  destinationStateIsTemporary:(BOOL)isTemporary
                                reshapedWidth:(NSUInteger)reshapedWidth
                               reshapedHeight:(NSUInteger)reshapedHeight
                      reshapedFeatureChannels:(NSUInteger)reshapedFeatureChannels;  // macOS 11.0

@end

@interface MPSNNReshapeGradient : MPSCNNGradientKernel  // macOS 10.14.1

- (instancetype)initWithDevice:(id<MTLDevice>)device;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

@end

NS_ASSUME_NONNULL_END
