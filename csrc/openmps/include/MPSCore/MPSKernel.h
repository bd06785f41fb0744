// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>
#import <MPSCore/MPSCoreTypes.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLDevice;

@interface MPSKernel : NSObject <NSCopying, NSSecureCoding> {  // macOS 10.13
  @protected
    void *_Nullable _openmps;
}

@property (nonatomic) MPSKernelOptions options;
@property (nonatomic, retain, readonly) id<MTLDevice> device;
@property (atomic, copy, nullable) NSString *label;

- (instancetype)initWithDevice:(id<MTLDevice>)device;
- (instancetype)initWithCoder:(NSCoder *)aDecoder;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

- (instancetype)copyWithZone:(nullable NSZone *)zone device:(nullable id<MTLDevice>)device;

@end

NS_ASSUME_NONNULL_END
