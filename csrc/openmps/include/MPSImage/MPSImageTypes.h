// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>

NS_ASSUME_NONNULL_BEGIN

typedef NS_ENUM(NSUInteger, MPSAlphaType) {
    MPSAlphaTypeNonPremultiplied = 0,
    MPSAlphaTypeAlphaIsOne = 1,
    MPSAlphaTypePremultiplied = 2,
};

NS_ASSUME_NONNULL_END
