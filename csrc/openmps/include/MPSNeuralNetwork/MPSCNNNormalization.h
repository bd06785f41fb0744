// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>
#import <MPSNeuralNetwork/MPSCNNKernel.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLDevice;

@interface MPSCNNCrossChannelNormalization : MPSCNNKernel  // macOS 10.13

@property (nonatomic) float alpha;
@property (nonatomic) float beta;
@property (nonatomic) float delta;
@property (nonatomic, readonly) NSUInteger kernelSize;

- (instancetype)initWithDevice:(id<MTLDevice>)device kernelSize:(NSUInteger)kernelSize;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;
- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;

@end

@interface MPSCNNCrossChannelNormalizationGradient : MPSCNNGradientKernel  // macOS 10.13.4

@property (nonatomic) float alpha;
@property (nonatomic) float beta;
@property (nonatomic) float delta;
@property (nonatomic, readonly) NSUInteger kernelSize;

- (instancetype)initWithDevice:(id<MTLDevice>)device kernelSize:(NSUInteger)kernelSize;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

@end

@interface MPSCNNLocalContrastNormalization : MPSCNNKernel  // macOS 10.13

@property (nonatomic) float alpha;
@property (nonatomic) float beta;
@property (nonatomic) float delta;
@property (nonatomic) float p0;
@property (nonatomic) float pm;
@property (nonatomic) float ps;

- (instancetype)initWithDevice:(id<MTLDevice>)device
                   kernelWidth:(NSUInteger)kernelWidth
                  kernelHeight:(NSUInteger)kernelHeight;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;
- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;

@end

@interface MPSCNNLocalContrastNormalizationGradient : MPSCNNGradientKernel  // macOS 10.13.4

@property (nonatomic) float alpha;
@property (nonatomic) float beta;
@property (nonatomic) float delta;
@property (nonatomic) float p0;
@property (nonatomic) float pm;
@property (nonatomic) float ps;

- (instancetype)initWithDevice:(id<MTLDevice>)device
                   kernelWidth:(NSUInteger)kernelWidth
                  kernelHeight:(NSUInteger)kernelHeight;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

@end

@interface MPSCNNSpatialNormalization : MPSCNNKernel  // macOS 10.12

@property (nonatomic) float alpha;
@property (nonatomic) float beta;
@property (nonatomic) float delta;

- (instancetype)initWithDevice:(id<MTLDevice>)device
                   kernelWidth:(NSUInteger)kernelWidth
                  kernelHeight:(NSUInteger)kernelHeight;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;  // macOS 10.13
- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;

@end

@interface MPSCNNSpatialNormalizationGradient : MPSCNNGradientKernel  // macOS 10.13.4

@property (nonatomic) float alpha;
@property (nonatomic) float beta;
@property (nonatomic) float delta;

- (instancetype)initWithDevice:(id<MTLDevice>)device
                   kernelWidth:(NSUInteger)kernelWidth
                  kernelHeight:(NSUInteger)kernelHeight;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

@end

NS_ASSUME_NONNULL_END
