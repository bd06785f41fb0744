// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>

NS_ASSUME_NONNULL_BEGIN

@class MPSImage;

typedef NS_ENUM(uint32_t, MPSImageType) {
    MPSImageType2d = 0,
    MPSImageType_texelFormatStandard = 0,
    MPSImageType2d_array = 1,
    MPSImageType_ArrayMask = 1,
    MPSImageTypeArray2d = 2,
    MPSImageType_BatchMask = 2,
    MPSImageTypeArray2d_array = 3,
    MPSImageType_texelFormatShift = 3,
    MPSImageType_typeMask = 3,
    MPSImageType2d_noAlpha = 4,
    MPSImageType_noAlpha = 4,
    MPSImageType2d_array_noAlpha = 5,
    MPSImageTypeArray2d_noAlpha = 6,
    MPSImageType_bitCount = 6,
    MPSImageTypeArray2d_array_noAlpha = 7,
    MPSImageType_texelFormatUnorm8 = 8,
    MPSImageType_texelFormatFloat16 = 16,
    MPSImageType_texelFormatBFloat16 = 24,
    MPSImageType_texelFormatMask = 56,
    MPSImageType_mask = 63,
};

typedef struct {
    uint32_t rowOffset;
    uint32_t columnOffset;
} MPSMatrixOffset;

typedef uint32_t MPSDeviceCaps;

OPENMPS_EXTERN MPSImageType MPSGetImageType(MPSImage *image);

NS_ASSUME_NONNULL_END
