// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/Metal.h>
#import <MPSCore/MPSCore.h>
#import <MPSImage/MPSImage.h>
#import <MPSMatrix/MPSMatrix.h>
#import <MPSNDArray/MPSNDArray.h>
#import <MPSNeuralNetwork/MPSNeuralNetwork.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLCommandBuffer, MTLDevice;

typedef NS_OPTIONS(NSUInteger, MPSDeviceOptions) {
    MPSDeviceOptionsDefault = 0,
    MPSDeviceOptionsLowPower = 1,
    MPSDeviceOptionsSkipRemovable = 2,
};

OPENMPS_EXTERN id<MTLDevice> _Nullable MPSGetPreferredDevice(MPSDeviceOptions options);  // macOS 10.14.4
OPENMPS_EXTERN void MPSHintTemporaryMemoryHighWaterMark(id<MTLCommandBuffer> cmdBuf, NSUInteger bytes);
OPENMPS_EXTERN void MPSSetHeapCacheDuration(id<MTLCommandBuffer> cmdBuf, double seconds);
OPENMPS_EXTERN BOOL MPSSupportsMTLDevice(id<MTLDevice> _Nullable device);  // macOS 10.13

NS_ASSUME_NONNULL_END
