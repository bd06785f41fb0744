// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>
#import <MPSCore/MPSKernel.h>
#import <Metal/MTLTypes.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLDevice;

@interface MPSMatrixBinaryKernel : MPSKernel  // macOS 10.13

@property (nonatomic) MTLOrigin primarySourceMatrixOrigin;
@property (nonatomic) MTLOrigin secondarySourceMatrixOrigin;
@property (nonatomic) MTLOrigin resultMatrixOrigin;
@property (nonatomic) NSUInteger batchStart;
@property (nonatomic) NSUInteger batchSize;

- (instancetype)initWithDevice:(id<MTLDevice>)device;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

@end

NS_ASSUME_NONNULL_END
