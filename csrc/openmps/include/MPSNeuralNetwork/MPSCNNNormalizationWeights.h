// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>
#import <MPSCore/MPSState.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLBuffer, MTLCommandBuffer;

@interface MPSCNNNormalizationGammaAndBetaState : MPSState  // macOS 10.13.4

@property (nonatomic, readonly) id<MTLBuffer> gamma;
@property (nonatomic, readonly) id<MTLBuffer> beta;

- (instancetype)initWithGamma:(id<MTLBuffer>)gamma beta:(id<MTLBuffer>)beta;
+ (instancetype)temporaryStateWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                        numberOfFeatureChannels:(NSUInteger)numberOfFeatureChannels;

@end

NS_ASSUME_NONNULL_END
