// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>

NS_ASSUME_NONNULL_BEGIN

@class MPSImage, MPSImageDescriptor, MPSKernel, MPSState;

typedef NS_OPTIONS(NSUInteger, MPSCNNBatchNormalizationFlags) {
    MPSCNNBatchNormalizationFlagsCalculateStatisticsAutomatic = 0,
    MPSCNNBatchNormalizationFlagsDefault = 0,
    MPSCNNBatchNormalizationFlagsCalculateStatisticsAlways = 1,
    MPSCNNBatchNormalizationFlagsCalculateStatisticsNever = 2,
    MPSCNNBatchNormalizationFlagsCalculateStatisticsMask = 3,
};

typedef NS_ENUM(NSUInteger, MPSCNNBinaryConvolutionFlags) {
    MPSCNNBinaryConvolutionFlagsNone = 0,
    MPSCNNBinaryConvolutionFlagsUseBetaScaling = 1,
};

typedef NS_ENUM(NSUInteger, MPSCNNBinaryConvolutionType) {
    MPSCNNBinaryConvolutionTypeBinaryWeights = 0,
    MPSCNNBinaryConvolutionTypeXNOR = 1,
    MPSCNNBinaryConvolutionTypeAND = 2,
};

typedef NS_ENUM(NSUInteger, MPSCNNConvolutionFlags) {
    MPSCNNConvolutionFlagsNone = 0,
};

typedef NS_OPTIONS(NSUInteger, MPSNNConvolutionAccumulatorPrecisionOption) {
    MPSNNConvolutionAccumulatorPrecisionOptionHalf = 0,
    MPSNNConvolutionAccumulatorPrecisionOptionFloat = 1,
};

typedef NS_OPTIONS(NSUInteger, MPSNNPaddingMethod) {
    MPSNNPaddingMethodAddRemainderToTopLeft = 0,
    MPSNNPaddingMethodAlignCentered = 0,
    MPSNNPaddingMethodSizeValidOnly = 0,
    MPSNNPaddingMethodAlignTopLeft = 1,
    MPSNNPaddingMethodAlignBottomRight = 2,
    MPSNNPaddingMethodAlignMask = 3,
    MPSNNPaddingMethodAlign_reserved = 3,
    MPSNNPaddingMethodAddRemainderToTopRight = 4,
    MPSNNPaddingMethodAddRemainderToBottomLeft = 8,
    MPSNNPaddingMethodAddRemainderToBottomRight = 0xc,
    MPSNNPaddingMethodAddRemainderToMask = MPSNNPaddingMethodAddRemainderToBottomRight,
    MPSNNPaddingMethodSizeSame = 0x10,
    MPSNNPaddingMethodSizeFull = 0x20,
    MPSNNPaddingMethodSize_reserved = 0x30,
    MPSNNPaddingMethodSizeMask = 0x7f0,
    MPSNNPaddingMethodCustomAllowForNodeFusion = 0x2000,
    MPSNNPaddingMethodCustomWhitelistForNodeFusion = 0x2000,
    MPSNNPaddingMethodCustom = 0x4000,
    MPSNNPaddingMethodExcludeEdges = 0x8000,
};

typedef NS_OPTIONS(NSUInteger, MPSNNTrainingStyle) {
    MPSNNTrainingStyleUpdateDeviceNone = 0,
    MPSNNTrainingStyleUpdateDeviceCPU = 1,
    MPSNNTrainingStyleUpdateDeviceGPU = 2,
};

@protocol MPSImageSizeEncodingState <NSObject>  // macOS 10.13

@property (nonatomic, readonly) NSUInteger sourceWidth;
@property (nonatomic, readonly) NSUInteger sourceHeight;

@end

@protocol MPSNNPadding <NSObject, NSSecureCoding>  // macOS 10.13

- (MPSNNPaddingMethod)paddingMethod;

@optional
- (NSString *)label;
- (MPSImageDescriptor *)destinationImageDescriptorForSourceImages:(NSArray<MPSImage *> *)sourceImages
                                                     sourceStates:(nullable NSArray<MPSState *> *)sourceStates
                                                        forKernel:(MPSKernel *)kernel
                                              suggestedDescriptor:(MPSImageDescriptor *)inDescriptor;
- (nullable instancetype)inverse;  // macOS 10.13.4

@end

@interface MPSNNDefaultPadding : NSObject <MPSNNPadding> {  // macOS 10.13
  @protected
    void *_Nullable _openmps;
}

+ (instancetype)paddingWithMethod:(MPSNNPaddingMethod)method;
+ (instancetype)paddingForTensorflowAveragePooling;  // macOS 10.13.4
+ (instancetype)paddingForTensorflowAveragePoolingValidOnly;  // macOS 10.13.4

- (NSString *)label;

@end

NS_ASSUME_NONNULL_END
