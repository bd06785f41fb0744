// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>
#import <Metal/MTLDataType.h>
#import <Metal/MTLTexture.h>

NS_ASSUME_NONNULL_BEGIN

typedef NS_ENUM(NSInteger, MTLBindingType) {
    MTLBindingTypeBuffer = 0,
    MTLBindingTypeThreadgroupMemory = 1,
    MTLBindingTypeTexture = 2,
    MTLBindingTypeSampler = 3,
};

typedef NS_ENUM(NSUInteger, MTLBindingAccess) {
    MTLBindingAccessReadOnly = 0,
    MTLBindingAccessReadWrite = 1,
    MTLBindingAccessWriteOnly = 2,
};

@protocol MTLBinding <NSObject>  // macOS 13.0

@property (readonly) NSString *name;
@property (readonly) MTLBindingType type;
@property (readonly) MTLBindingAccess access;
@property (readonly) NSUInteger index;
@property (readonly, getter=isUsed) BOOL used;
@property (readonly, getter=isArgument) BOOL argument;

@end

@protocol MTLBufferBinding <MTLBinding>  // macOS 13.0

@property (readonly) NSUInteger bufferAlignment;
@property (readonly) NSUInteger bufferDataSize;
@property (readonly) MTLDataType bufferDataType;

@end

@protocol MTLThreadgroupBinding <MTLBinding>  // macOS 13.0

@property (readonly) NSUInteger threadgroupMemoryAlignment;
@property (readonly) NSUInteger threadgroupMemoryDataSize;

@end

@protocol MTLTextureBinding <MTLBinding>  // macOS 13.0

@property (readonly) MTLTextureType textureType;
@property (readonly) MTLDataType textureDataType;
@property (readonly, getter=isDepthTexture) BOOL depthTexture;
@property (readonly) NSUInteger arrayLength;

@end

NS_ASSUME_NONNULL_END
