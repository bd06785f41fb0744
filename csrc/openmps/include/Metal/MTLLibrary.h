// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>

NS_ASSUME_NONNULL_BEGIN

@class MTLFunctionConstantValues;
@protocol MTLComputePipelineState, MTLDevice, MTLFunction, MTLLibrary;

OPENMPS_EXTERN NSErrorDomain const MTLLibraryErrorDomain;  // macOS 10.11

typedef NS_ENUM(NSUInteger, MTLFunctionType) {
    MTLFunctionTypeVertex = 1,
    MTLFunctionTypeFragment = 2,
    MTLFunctionTypeKernel = 3,
    MTLFunctionTypeVisible = 5,
    MTLFunctionTypeIntersection = 6,
    MTLFunctionTypeMesh = 7,
    MTLFunctionTypeObject = 8,
};

typedef NS_ENUM(NSUInteger, MTLLanguageVersion) {
    MTLLanguageVersion1_0 = 0x10000,
    MTLLanguageVersion1_1 = 0x10001,
    MTLLanguageVersion1_2 = 0x10002,
    MTLLanguageVersion2_0 = 0x20000,
    MTLLanguageVersion2_1 = 0x20001,
    MTLLanguageVersion2_2 = 0x20002,
    MTLLanguageVersion2_3 = 0x20003,
    MTLLanguageVersion2_4 = 0x20004,
    MTLLanguageVersion3_0 = 0x30000,
    MTLLanguageVersion3_1 = 0x30001,
    MTLLanguageVersion3_2 = 0x30002,
    MTLLanguageVersion4_0 = 0x40000,
};

typedef NS_ENUM(NSUInteger, MTLLibraryError) {
    MTLLibraryErrorUnsupported = 1,
    MTLLibraryErrorInternal = 2,
    MTLLibraryErrorCompileFailure = 3,
    MTLLibraryErrorCompileWarning = 4,
    MTLLibraryErrorFunctionNotFound = 5,
    MTLLibraryErrorFileNotFound = 6,
};

typedef NS_ENUM(NSInteger, MTLLibraryType) {
    MTLLibraryTypeExecutable = 0,
    MTLLibraryTypeDynamic = 1,
};

typedef void (^MTLNewComputePipelineStateCompletionHandler)(id<MTLComputePipelineState> _Nullable, NSError *_Nullable);
typedef void (^MTLNewLibraryCompletionHandler)(id<MTLLibrary> _Nullable, NSError *_Nullable);

@protocol MTLLibrary <NSObject>  // macOS 10.11

@property (atomic, copy, nullable) NSString *label;
@property (readonly) id<MTLDevice> device;
@property (readonly) NSArray<NSString *> *functionNames;

- (nullable id<MTLFunction>)newFunctionWithName:(NSString *)functionName;
- (nullable id<MTLFunction>)newFunctionWithName:(NSString *)name
                                 constantValues:(MTLFunctionConstantValues *)constantValues
                                          error:(NSError **)error;  // macOS 10.12
- (void)newFunctionWithName:(NSString *)name
             constantValues:(MTLFunctionConstantValues *)constantValues
          completionHandler:(void (^)(id<MTLFunction> _Nullable, NSError *_Nullable))completionHandler;  // macOS 10.12

@end

@protocol MTLFunction <NSObject>  // macOS 10.11

@property (atomic, copy, nullable) NSString *label;  // macOS 10.12
@property (readonly) id<MTLDevice> device;
@property (readonly) MTLFunctionType functionType;
@property (readonly) NSInteger patchControlPointCount;  // macOS 10.12
@property (readonly) NSString *name;

@end

@interface MTLCompileOptions : NSObject <NSCopying> {  // macOS 10.11
  @protected
    void *_Nullable _openmps;
}

@property (nonatomic, copy, nullable) NSDictionary<NSString *, NSObject *> *preprocessorMacros;
@property (nonatomic) BOOL fastMathEnabled;  // deprecated 15.0
@property (nonatomic) MTLLanguageVersion languageVersion;

@end

NS_ASSUME_NONNULL_END
