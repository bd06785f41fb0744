// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>
#import <Metal/MTLDataType.h>

NS_ASSUME_NONNULL_BEGIN

@interface MTLFunctionConstantValues : NSObject <NSCopying> {  // macOS 10.12
  @protected
    void *_Nullable _openmps;
}

- (void)setConstantValue:(const void *)value type:(MTLDataType)type atIndex:(NSUInteger)index;
- (void)setConstantValues:(const void *)values type:(MTLDataType)type withRange:(NSRange)range;
- (void)setConstantValue:(const void *)value type:(MTLDataType)type withName:(NSString *)name;
- (void)reset;

@end

NS_ASSUME_NONNULL_END
