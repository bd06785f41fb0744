// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>
#import <MPSCore/MPSCoreTypes.h>
#import <MPSCore/MPSImage.h>
#import <MPSCore/MPSKernel.h>
#import <MPSCore/MPSState.h>

NS_ASSUME_NONNULL_BEGIN

@class MPSImage, MPSNNImageNode, MPSState;
@protocol MPSHandle, MPSImageAllocator, MTLCommandBuffer, MTLDevice;

typedef void (^MPSNNGraphCompletionHandler)(MPSImage *_Nullable, NSError *_Nullable);

@interface MPSNNGraph : MPSKernel <NSCopying, NSSecureCoding>  // macOS 10.13

@property (nonatomic, copy, readonly) NSArray<id<MPSHandle>> *sourceImageHandles;
@property (nonatomic, copy, readonly, nullable) NSArray<id<MPSHandle>> *sourceStateHandles;
@property (nonatomic, copy, readonly, nullable) NSArray<id<MPSHandle>> *intermediateImageHandles;
@property (nonatomic, copy, readonly, nullable) NSArray<id<MPSHandle>> *resultStateHandles;
@property (nonatomic, readonly, nullable) id<MPSHandle> resultHandle;
@property (nonatomic) BOOL outputStateIsTemporary;
@property (nonatomic, retain) id<MPSImageAllocator> destinationImageAllocator;
@property (nonatomic) MPSImageFeatureChannelFormat format;
@property (nonatomic, readonly) BOOL resultImageIsNeeded;

- (nullable instancetype)initWithDevice:(id<MTLDevice>)device
                            resultImage:(MPSNNImageNode *)resultImage
                    resultImageIsNeeded:(BOOL)resultIsNeeded;
+ (nullable instancetype)graphWithDevice:(id<MTLDevice>)device
                             resultImage:(MPSNNImageNode *)resultImage
                     resultImageIsNeeded:(BOOL)resultIsNeeded;
- (nullable instancetype)initWithDevice:(id<MTLDevice>)device
                           resultImages:(NSArray<MPSNNImageNode *> *)resultImages
                       resultsAreNeeded:(nullable BOOL *)areResultsNeeded;  // macOS 10.15
+ (nullable instancetype)graphWithDevice:(id<MTLDevice>)device
                            resultImages:(NSArray<MPSNNImageNode *> *)resultImages
                        resultsAreNeeded:(nullable BOOL *)areResultsNeeded;  // macOS 10.15
- (nullable instancetype)initWithDevice:(id<MTLDevice>)device resultImage:(MPSNNImageNode *)resultImage;  // deprecated 10.13.4
+ (nullable instancetype)graphWithDevice:(id<MTLDevice>)device resultImage:(MPSNNImageNode *)resultImage;  // deprecated 10.13.4
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;
- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;

- (void)reloadFromDataSources;
- (nullable MPSImage *)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                sourceImages:(NSArray<MPSImage *> *)sourceImages
                                sourceStates:(nullable NSArray<MPSState *> *)sourceStates
                          intermediateImages:(nullable NSMutableArray<MPSImage *> *)intermediateImages
                           destinationStates:(nullable NSMutableArray<MPSState *> *)destinationStates;
- (nullable MPSImageBatch *)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
    sourceImages:(NSArray<MPSImageBatch *> *)sourceImages
    sourceStates:(nullable NSArray<MPSStateBatch *> *)sourceStates
    intermediateImages:(nullable NSMutableArray<MPSImageBatch *> *)intermediateImages
    destinationStates:(nullable NSMutableArray<MPSStateBatch *> *)destinationStates;  // macOS 10.13.4
- (nullable MPSImage *)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                sourceImages:(NSArray<MPSImage *> *)sourceImages;
- (nullable MPSImageBatch *)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                          sourceImages:(NSArray<MPSImageBatch *> *)sourceImages
                                          sourceStates:(nullable NSArray<MPSStateBatch *> *)sourceStates;
- (MPSImage *)executeAsyncWithSourceImages:(NSArray<MPSImage *> *)sourceImages
                         completionHandler:(MPSNNGraphCompletionHandler)handler;
- (NSUInteger)readCountForSourceImageAtIndex:(NSUInteger)index;  // macOS 10.14.1
- (NSUInteger)readCountForSourceStateAtIndex:(NSUInteger)index;  // macOS 10.14.1

@end

NS_ASSUME_NONNULL_END
