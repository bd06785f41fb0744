// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>
#import <MPSCore/MPSCoreTypes.h>
#import <MPSImage/MPSImageKernel.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLDevice;

@interface MPSImageScale : MPSUnaryImageKernel  // macOS 10.13

@property (nonatomic, nullable) const MPSScaleTransform *scaleTransform;

- (instancetype)initWithDevice:(id<MTLDevice>)device;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

@end

@interface MPSImageLanczosScale : MPSImageScale  // macOS 10.13

- (instancetype)initWithDevice:(id<MTLDevice>)device;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

@end

@interface MPSImageBilinearScale : MPSImageScale  // macOS 10.13

- (instancetype)initWithDevice:(id<MTLDevice>)device;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

@end

NS_ASSUME_NONNULL_END
