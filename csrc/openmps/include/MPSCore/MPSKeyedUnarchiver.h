// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>
#import <MPSCore/MPSCoreTypes.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLDevice;

@interface MPSKeyedUnarchiver : NSKeyedUnarchiver <MPSDeviceProvider> {  // macOS 10.13.4
  @protected
    void *_Nullable _openmps;
}

+ (nullable id)unarchivedObjectOfClasses:(NSSet<Class> *)classes
                                fromData:(NSData *)data
                                  device:(id<MTLDevice>)device
                                   error:(NSError **)error;  // macOS 10.14
+ (nullable id)unarchivedObjectOfClass:(Class)cls
                              fromData:(NSData *)data
                                device:(id<MTLDevice>)device
                                 error:(NSError **)error;  // macOS 10.14
- (instancetype)initForReadingFromData:(NSData *)data device:(id<MTLDevice>)device error:(NSError **)error;  // macOS 10.14
+ (id)unarchivedObjectOfClasses:(NSSet<Class> *)classes
                       fromData:(NSData *)data
                          error:(NSError **)error NS_UNAVAILABLE;
+ (id)unarchivedObjectOfClass:(Class)cls fromData:(NSData *)data error:(NSError **)error NS_UNAVAILABLE;
- (instancetype)init NS_UNAVAILABLE;
- (instancetype)initForReadingFromData:(NSData *)data error:(NSError **)error NS_UNAVAILABLE;
+ (id)unarchiveObjectWithData:(NSData *)data NS_UNAVAILABLE;
+ (nullable id)unarchiveObjectWithData:(NSData *)data device:(id<MTLDevice>)device;  // deprecated 10.14
+ (id)unarchiveTopLevelObjectWithData:(NSData *)data error:(NSError **)error NS_UNAVAILABLE;
+ (nullable id)unarchiveTopLevelObjectWithData:(NSData *)data
                                        device:(id<MTLDevice>)device
                                         error:(NSError **)error;  // deprecated 10.14
+ (id)unarchiveObjectWithFile:(NSString *)path NS_UNAVAILABLE;
- (instancetype)initForReadingWithData:(NSData *)data NS_UNAVAILABLE;
+ (nullable id)unarchiveObjectWithFile:(NSString *)path device:(id<MTLDevice>)device;  // deprecated 10.14
- (nullable instancetype)initWithDevice:(id<MTLDevice>)device;  // deprecated 10.14
- (instancetype)initForReadingWithData:(NSData *)data device:(id<MTLDevice>)device;  // deprecated 10.14

- (id<MTLDevice>)mpsMTLDevice;

@end

NS_ASSUME_NONNULL_END
