// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>
#import <MPSNeuralNetwork/MPSCNNKernel.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLDevice;

@interface MPSCNNUpsampling : MPSCNNKernel  // macOS 10.13

@property (nonatomic, readonly) double scaleFactorX;
@property (nonatomic, readonly) double scaleFactorY;
@property (nonatomic, readonly) BOOL alignCorners;

- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;

@end

@interface MPSCNNUpsamplingBilinear : MPSCNNUpsampling  // macOS 10.13

- (instancetype)initWithDevice:(id<MTLDevice>)device
           integerScaleFactorX:(NSUInteger)integerScaleFactorX
           integerScaleFactorY:(NSUInteger)integerScaleFactorY;
- (instancetype)initWithDevice:(id<MTLDevice>)device
           integerScaleFactorX:(NSUInteger)integerScaleFactorX
           integerScaleFactorY:(NSUInteger)integerScaleFactorY
                  alignCorners:(BOOL)alignCorners;

@end

@interface MPSCNNUpsamplingGradient : MPSCNNGradientKernel  // macOS 10.13.4

@property (nonatomic, readonly) double scaleFactorX;
@property (nonatomic, readonly) double scaleFactorY;

- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;

@end

@interface MPSCNNUpsamplingBilinearGradient : MPSCNNUpsamplingGradient  // macOS 10.13.4

- (instancetype)initWithDevice:(id<MTLDevice>)device
           integerScaleFactorX:(NSUInteger)integerScaleFactorX
           integerScaleFactorY:(NSUInteger)integerScaleFactorY;

@end

@interface MPSCNNUpsamplingNearest : MPSCNNUpsampling  // macOS 10.13

- (instancetype)initWithDevice:(id<MTLDevice>)device
           integerScaleFactorX:(NSUInteger)integerScaleFactorX
           integerScaleFactorY:(NSUInteger)integerScaleFactorY;

@end

@interface MPSCNNUpsamplingNearestGradient : MPSCNNUpsamplingGradient  // macOS 10.13.4

- (instancetype)initWithDevice:(id<MTLDevice>)device
           integerScaleFactorX:(NSUInteger)integerScaleFactorX
           integerScaleFactorY:(NSUInteger)integerScaleFactorY;

@end

NS_ASSUME_NONNULL_END
