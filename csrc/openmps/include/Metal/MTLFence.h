// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLDevice;

@protocol MTLFence <NSObject>  // macOS 10.13

@property (readonly) id<MTLDevice> device;
@property (atomic, copy, nullable) NSString *label;

@end

NS_ASSUME_NONNULL_END
