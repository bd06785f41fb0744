// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>

NS_ASSUME_NONNULL_BEGIN

@class MTLSharedEventHandle, MTLSharedEventListener;
@protocol MTLDevice, MTLSharedEvent;

typedef void (^MTLSharedEventNotificationBlock)(id<MTLSharedEvent>, uint64_t);

@protocol MTLEvent <NSObject>  // macOS 10.14

@property (readonly, nullable) id<MTLDevice> device;
@property (atomic, copy, nullable) NSString *label;

@end

@protocol MTLSharedEvent <MTLEvent>  // macOS 10.14

@property uint64_t signaledValue;

- (void)notifyListener:(MTLSharedEventListener *)listener
               atValue:(uint64_t)value
                 block:(MTLSharedEventNotificationBlock)block;
- (MTLSharedEventHandle *)newSharedEventHandle;

@end

@interface MTLSharedEventHandle : NSObject <NSSecureCoding> {  // macOS 10.14
  @protected
    void *_Nullable _openmps;
}

@property (readonly, nullable) NSString *label;

@end

@interface MTLSharedEventListener : NSObject {  // macOS 10.14
  @protected
    void *_Nullable _openmps;
}

@property (readonly) dispatch_queue_t dispatchQueue;

- (instancetype)init;
- (instancetype)initWithDispatchQueue:(dispatch_queue_t)dispatchQueue;

@end

NS_ASSUME_NONNULL_END
