// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>
#import <MPSCore/MPSImage.h>
#import <MPSCore/MPSKernel.h>
#import <Metal/MTLTypes.h>

NS_ASSUME_NONNULL_BEGIN

@class MPSImage, MPSMatrix;
@protocol MTLCommandBuffer, MTLDevice;

@interface MPSImageCopyToMatrix : MPSKernel  // macOS 10.13

@property (nonatomic) MTLOrigin destinationMatrixOrigin;
@property (nonatomic) NSUInteger destinationMatrixBatchIndex;
@property (nonatomic, readonly) MPSDataLayout dataLayout;

- (instancetype)initWithDevice:(id<MTLDevice>)device dataLayout:(MPSDataLayout)dataLayout;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                  sourceImage:(MPSImage *)sourceImage
            destinationMatrix:(MPSMatrix *)destinationMatrix;
- (void)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                      sourceImages:(MPSImageBatch *)sourceImages
                 destinationMatrix:(MPSMatrix *)destinationMatrix;  // macOS 10.14

@end

@interface MPSMatrixCopyToImage : MPSKernel  // macOS 10.14

@property (nonatomic) MTLOrigin sourceMatrixOrigin;
@property (nonatomic) NSUInteger sourceMatrixBatchIndex;
@property (nonatomic, readonly) MPSDataLayout dataLayout;

- (instancetype)initWithDevice:(id<MTLDevice>)device dataLayout:(MPSDataLayout)dataLayout;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                 sourceMatrix:(MPSMatrix *)sourceMatrix
             destinationImage:(MPSImage *)destinationImage;
- (void)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                      sourceMatrix:(MPSMatrix *)sourceMatrix
                 destinationImages:(MPSImageBatch *)destinationImages;

@end

NS_ASSUME_NONNULL_END
