// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>
#import <MPSImage/MPSImageKernel.h>
#import <MPSImage/MPSImageTypes.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLDevice;

@interface MPSImageConversion : MPSUnaryImageKernel  // macOS 10.13

@property (nonatomic, readonly) MPSAlphaType sourceAlpha;
@property (nonatomic, readonly) MPSAlphaType destinationAlpha;

- (instancetype)initWithDevice:(id<MTLDevice>)device
                      srcAlpha:(MPSAlphaType)srcAlpha
                     destAlpha:(MPSAlphaType)destAlpha
               backgroundColor:(nullable CGFloat *)backgroundColor
                conversionInfo:(nullable CGColorConversionInfoRef)conversionInfo;

@end

NS_ASSUME_NONNULL_END
