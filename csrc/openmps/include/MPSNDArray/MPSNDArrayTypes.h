// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>

NS_ASSUME_NONNULL_BEGIN

typedef struct {
    NSInteger dimensions[16];
} MPSNDArrayOffsets;

typedef struct {
    NSUInteger dimensions[16];
} MPSNDArraySizes;

NS_ASSUME_NONNULL_END
