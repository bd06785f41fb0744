// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>
#import <MPSNeuralNetwork/MPSCNNKernel.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLDevice;

@interface MPSCNNLogSoftMax : MPSCNNKernel  // macOS 10.13
@end

@interface MPSCNNLogSoftMaxGradient : MPSCNNGradientKernel  // macOS 10.13.4

- (instancetype)initWithDevice:(id<MTLDevice>)device;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

@end

@interface MPSCNNSoftMax : MPSCNNKernel  // macOS 10.13
@end

@interface MPSCNNSoftMaxGradient : MPSCNNGradientKernel  // macOS 10.13.4

- (instancetype)initWithDevice:(id<MTLDevice>)device;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

@end

NS_ASSUME_NONNULL_END
