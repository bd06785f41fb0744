// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLDevice, MTLHeap;

#define MTLResourceCPUCacheModeShift 0
#define MTLResourceStorageModeShift 4
#define MTLResourceHazardTrackingModeShift 8

typedef NS_ENUM(NSUInteger, MTLCPUCacheMode) {
    MTLCPUCacheModeDefaultCache = 0,
    MTLCPUCacheModeWriteCombined = 1,
};

typedef NS_ENUM(NSUInteger, MTLHazardTrackingMode) {
    MTLHazardTrackingModeDefault = 0,
    MTLHazardTrackingModeUntracked = 1,
    MTLHazardTrackingModeTracked = 2,
};

typedef NS_ENUM(NSUInteger, MTLPurgeableState) {
    MTLPurgeableStateKeepCurrent = 1,
    MTLPurgeableStateNonVolatile = 2,
    MTLPurgeableStateVolatile = 3,
    MTLPurgeableStateEmpty = 4,
};

typedef NS_OPTIONS(NSUInteger, MTLResourceOptions) {
    MTLResourceCPUCacheModeDefaultCache = 0,
    MTLResourceHazardTrackingModeDefault = 0,
    MTLResourceOptionCPUCacheModeDefault = MTLResourceCPUCacheModeDefaultCache,
    MTLResourceStorageModeShared = 0,
    MTLResourceCPUCacheModeWriteCombined = 1,
    MTLResourceOptionCPUCacheModeWriteCombined = MTLResourceCPUCacheModeWriteCombined,
    MTLResourceStorageModeManaged = 0x10,
    MTLResourceStorageModePrivate = 0x20,
    MTLResourceStorageModeMemoryless = 0x30,
    MTLResourceHazardTrackingModeUntracked = 0x100,
    MTLResourceHazardTrackingModeTracked = 0x200,
};

typedef NS_ENUM(NSUInteger, MTLStorageMode) {
    MTLStorageModeShared = 0,
    MTLStorageModeManaged = 1,
    MTLStorageModePrivate = 2,
    MTLStorageModeMemoryless = 3,
};

@protocol MTLResource <NSObject>  // macOS 10.11

@property (atomic, copy, nullable) NSString *label;
@property (readonly) id<MTLDevice> device;
@property (readonly) MTLCPUCacheMode cpuCacheMode;
@property (readonly) MTLStorageMode storageMode;
@property (readonly) MTLHazardTrackingMode hazardTrackingMode;  // macOS 10.15
@property (readonly) MTLResourceOptions resourceOptions;  // macOS 10.15
@property (readonly, nullable) id<MTLHeap> heap;  // macOS 10.13
@property (readonly) NSUInteger heapOffset;  // macOS 10.15
@property (readonly) NSUInteger allocatedSize;  // macOS 10.13

- (MTLPurgeableState)setPurgeableState:(MTLPurgeableState)state;
- (void)makeAliasable;  // macOS 10.13
- (BOOL)isAliasable;  // macOS 10.13

@end

NS_ASSUME_NONNULL_END
