// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#import "metal/OnEngine.hh"
#include "metal/event.hpp"

/// Both kinds of event. Several objects may share a value (newSharedEventWithHandle:).
@interface MTLEventOnEngine : NSObject <MTLEvent> {
 @public
  openmps::Ref<id<MTLDevice>> _device;
  openmps::Label _label;
  std::shared_ptr<openmps::EventValue> _value;
}
- (instancetype)initWithDevice:(id<MTLDevice>)device value:(std::shared_ptr<openmps::EventValue>)value;
@end

@interface MTLSharedEventOnEngine : MTLEventOnEngine <MTLSharedEvent>
@end

namespace openmps {
const std::shared_ptr<EventValue> &value_of(id<MTLEvent> event, const char *what);
id<MTLSharedEvent> new_shared_event(id<MTLDevice> device, MTLSharedEventHandle *handle);

/// Register a thread that the library started with the Objective-C runtime, and unregister it.
void thread_begin();
void thread_end();
void in_pool(void (*body)(void *), void *context);
}  // namespace openmps
