// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>
#import <Metal/MTLTypes.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLDevice;

OPENMPS_EXTERN MTLRegion const MPSRectNoClip;  // macOS 10.13

typedef NS_OPTIONS(NSUInteger, MPSAliasingStrategy) {
    MPSAliasingStrategyDefault = 0,
    MPSAliasingStrategyDontCare = MPSAliasingStrategyDefault,
    MPSAliasingStrategyShallAlias = 1,
    MPSAliasingStrategyShallNotAlias = 2,
    MPSAliasingStrategyAliasingReserved = 3,
    MPSAliasingStrategyPreferTemporaryMemory = 4,
    MPSAliasingStrategyPreferNonTemporaryMemory = 8,
};

typedef NS_ENUM(uint32_t, MPSDataType) {
    MPSDataTypeInvalid = 0,
    MPSDataTypeUInt2 = 2,
    MPSDataTypeUInt4 = 4,
    MPSDataTypeUInt8 = 8,
    MPSDataTypeUInt16 = 0x10,
    MPSDataTypeUInt32 = 0x20,
    MPSDataTypeUInt64 = 0x40,
    MPSDataTypeComplexBit = 0x1000000,
    MPSDataTypeFloatBit = 0x10000000,
    MPSDataTypeFloat16 = 0x10000010,
    MPSDataTypeFloat32 = 0x10000020,
    MPSDataTypeComplexFloat16 = 0x11000020,
    MPSDataTypeComplexFloat32 = 0x11000040,
    MPSDataTypeIntBit = 0x20000000,
    MPSDataTypeSignedBit = 0x20000000,
    MPSDataTypeInt2 = 0x20000002,
    MPSDataTypeInt4 = 0x20000004,
    MPSDataTypeInt8 = 0x20000008,
    MPSDataTypeInt16 = 0x20000010,
    MPSDataTypeInt32 = 0x20000020,
    MPSDataTypeInt64 = 0x20000040,
    MPSDataTypeNormalizedBit = 0x40000000,
    MPSDataTypeUnorm1 = 0x40000001,
    MPSDataTypeUnorm8 = 0x40000008,
    MPSDataTypeAlternateEncodingBit = 0x80000000u,
    MPSDataTypeBool = 0x80000008u,
    MPSDataTypeBFloat16 = 0x90000010u,
    MPSDataTypeComplexBFloat16 = 0x91000020u,
};

typedef NS_ENUM(uint32_t, MPSFloatDataTypeBit) {
    MPSFloatDataTypeMantissaBit = 0x3fc00,
    MPSFloatDataTypeExponentBit = 0x7c0000,
    MPSFloatDataTypeSignBit = 0x800000,
};

typedef NS_ENUM(uint32_t, MPSFloatDataTypeShift) {
    MPSFloatDataTypeMantissaShift = 10,
    MPSFloatDataTypeExponentShift = 18,
    MPSFloatDataTypeSignShift = 23,
};

typedef NS_ENUM(NSUInteger, MPSImageEdgeMode) {
    MPSImageEdgeModeZero = 0,
    MPSImageEdgeModeClamp = 1,
    MPSImageEdgeModeMirror = 2,
    MPSImageEdgeModeMirrorWithEdge = 3,
    MPSImageEdgeModeConstant = 4,
};

typedef NS_ENUM(NSUInteger, MPSImageFeatureChannelFormat) {
    MPSImageFeatureChannelFormatNone = 0,
    MPSImageFeatureChannelFormatUnorm8 = 1,
    MPSImageFeatureChannelFormatUnorm16 = 2,
    MPSImageFeatureChannelFormatFloat16 = 3,
    MPSImageFeatureChannelFormatFloat32 = 4,
    MPSImageFeatureChannelFormat_reserved0 = 5,
    MPSImageFeatureChannelFormatCount = 6,
};

typedef NS_OPTIONS(NSUInteger, MPSKernelOptions) {
    MPSKernelOptionsNone = 0,
    MPSKernelOptionsSkipAPIValidation = 1,
    MPSKernelOptionsAllowReducedPrecision = 2,
    MPSKernelOptionsDisableInternalTiling = 4,
    MPSKernelOptionsInsertDebugGroups = 8,
    MPSKernelOptionsVerbose = 0x10,
};

typedef struct MPSDimensionSlice {
    NSUInteger start;
    NSUInteger length;
} MPSDimensionSlice;

typedef struct MPSImageCoordinate {
    NSUInteger x;
    NSUInteger y;
    NSUInteger channel;
} MPSImageCoordinate;

typedef struct MPSImageRegion {
    MPSImageCoordinate offset;
    MPSImageCoordinate size;
} MPSImageRegion;

typedef struct {
    NSInteger x;
    NSInteger y;
    NSInteger z;
} MPSOffset;

typedef struct MPSOrigin {
    double x;
    double y;
    double z;
} MPSOrigin;

typedef struct MPSSize {
    double width;
    double height;
    double depth;
} MPSSize;

typedef struct MPSRegion {
    MPSOrigin origin;
    MPSSize size;
} MPSRegion;

typedef struct MPSScaleTransform {
    double scaleX;
    double scaleY;
    double translateX;
    double translateY;
} MPSScaleTransform;

typedef NSArray<NSNumber *> MPSShape;

@protocol MPSDeviceProvider  // macOS 10.13

- (nullable id<MTLDevice>)mpsMTLDevice;

@end

OPENMPS_INLINE size_t MPSDataTypeBitsCount(MPSDataType t) {
    return (size_t)t & 0xffff;  // the low half of a data type is its width
}

OPENMPS_INLINE size_t MPSSizeofMPSDataType(MPSDataType t) {
    return (MPSDataTypeBitsCount(t) + 7) / 8;
}

NS_ASSUME_NONNULL_END
