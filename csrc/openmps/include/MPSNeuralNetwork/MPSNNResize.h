// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>
#import <MPSCore/MPSCoreTypes.h>
#import <MPSNeuralNetwork/MPSCNNKernel.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLDevice;

@interface MPSNNCropAndResizeBilinear : MPSCNNKernel  // macOS 10.14

@property (nonatomic, readonly) NSUInteger resizeWidth;
@property (nonatomic, readonly) NSUInteger resizeHeight;
@property (nonatomic, readonly) NSUInteger numberOfRegions;
@property (nonatomic, readonly) const MPSRegion *regions;

- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;
- (instancetype)initWithDevice:(id<MTLDevice>)device
                   resizeWidth:(NSUInteger)resizeWidth
                  resizeHeight:(NSUInteger)resizeHeight
               numberOfRegions:(NSUInteger)numberOfRegions
                       regions:(const MPSRegion *)regions;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

@end

@interface MPSNNResizeBilinear : MPSCNNKernel  // macOS 10.14

@property (nonatomic, readonly) NSUInteger resizeWidth;
@property (nonatomic, readonly) NSUInteger resizeHeight;
@property (nonatomic, readonly) BOOL alignCorners;

- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;
- (instancetype)initWithDevice:(id<MTLDevice>)device
                   resizeWidth:(NSUInteger)resizeWidth
                  resizeHeight:(NSUInteger)resizeHeight
                  alignCorners:(BOOL)alignCorners;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

@end

NS_ASSUME_NONNULL_END
