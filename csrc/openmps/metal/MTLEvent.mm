// SPDX-License-Identifier: Apache-2.0
// Events: a number that command buffers and the CPU raise and wait for [MTLEvent.h].

#import "metal/MTLEventOnEngine.hh"

@interface MTLSharedEventHandle (Engine)
- (void *)openmps_state;
@end

namespace openmps {
namespace {

/// State of an MTLSharedEventHandle.
struct HandleState {
  std::shared_ptr<EventValue> value;
  Label label;
};

}  // namespace

const std::shared_ptr<EventValue> &value_of(id<MTLEvent> event, const char *what) {
  if (event == nil) raise_argument(@"%s is nil.", what);
  if (![(id)event isKindOfClass:[MTLEventOnEngine class]])
    raise_argument(@"%s (an object of class %@) is not an event of openmps.", what, [(id)event class]);
  return ((MTLEventOnEngine *)event)->_value;
}

void thread_begin() { GSRegisterCurrentThread(); }
void thread_end() { GSUnregisterCurrentThread(); }

void in_pool(void (*body)(void *), void *context) {
  const Pool pool;
  body(context);
}

}  // namespace openmps

@implementation MTLEventOnEngine

- (instancetype)initWithDevice:(id<MTLDevice>)device value:(std::shared_ptr<openmps::EventValue>)value {
  if ((self = [super init])) {
    _device = openmps::Ref<id<MTLDevice>>(device);
    _value = std::move(value);
  }
  return self;
}

- (id<MTLDevice>)device {
  return _device.get();
}

OPENMPS_LABEL
OPENMPS_UNKNOWN_SELECTORS

@end

@implementation MTLSharedEventOnEngine

- (uint64_t)signaledValue {
  return _value->value();
}

- (void)setSignaledValue:(uint64_t)value {
  _value->set(value);
}

- (void)notifyListener:(MTLSharedEventListener *)listener
               atValue:(uint64_t)value
                 block:(MTLSharedEventNotificationBlock)block {
  if (listener == nil) openmps::raise_argument(@"MTLSharedEvent: listener is nil.");
  if (block == nil) openmps::raise_argument(@"MTLSharedEvent: block is nil.");
  // The notification thread runs the block, never the signaling thread, which may hold the program's locks.
  const openmps::Block<MTLSharedEventNotificationBlock> copy(block);
  const openmps::Ref<id<MTLSharedEvent>> event(self);  // lives until the block has run
  _value->listen(value, [copy, event, shared = std::weak_ptr<openmps::EventValue>(_value), value] {
    const std::shared_ptr<openmps::EventValue> now = shared.lock();
    const uint64_t reached = now ? now->value() : value;
    openmps::notify_later(
        [copy, event, reached] {
          @try {
            copy.get()(event.get(), reached);
          } @catch (NSException *) {
            // No caller could catch it.
          }
        },
        openmps::thread_begin, openmps::in_pool);
  });
}

- (MTLSharedEventHandle *)newSharedEventHandle {
  MTLSharedEventHandle *handle = [[MTLSharedEventHandle alloc] init];
  auto *state = static_cast<openmps::HandleState *>([handle openmps_state]);
  state->value = _value;
  state->label.set([self label]);
  return handle;
}

@end

@implementation MTLSharedEventHandle

OPENMPS_UNKNOWN_SELECTORS

+ (BOOL)supportsSecureCoding {
  return YES;
}

- (instancetype)init {
  if ((self = [super init])) _openmps = new openmps::HandleState;
  return self;
}

- (void)dealloc {
  delete static_cast<openmps::HandleState *>(_openmps);
  [super dealloc];
}

- (void *)openmps_state {
  return _openmps;
}

- (NSString *)label {
  return static_cast<openmps::HandleState *>(_openmps)->label.get();
}

// Apple's handles travel over XPC only; they cannot reach another process here.
- (instancetype)initWithCoder:(NSCoder *)coder {
  (void)coder;
  const openmps::UnwindRelease half(self);
  openmps::raise_not_implemented(self, _cmd);
}

- (void)encodeWithCoder:(NSCoder *)coder {
  (void)coder;
  openmps::raise_not_implemented(self, _cmd);
}

@end

@implementation MTLSharedEventListener

OPENMPS_UNKNOWN_SELECTORS

- (instancetype)init {
  return [super init];  // without a dispatch queue: dispatchQueue stays null
}

- (instancetype)initWithDispatchQueue:(dispatch_queue_t)dispatchQueue {
  if ((self = [super init])) _openmps = dispatchQueue;
  return self;
}

- (dispatch_queue_t)dispatchQueue {
  return static_cast<dispatch_queue_t>(_openmps);
}

@end

namespace openmps {

id<MTLSharedEvent> new_shared_event(id<MTLDevice> device, MTLSharedEventHandle *handle) {
  std::shared_ptr<EventValue> value = std::make_shared<EventValue>();
  NSString *label = nil;
  if (handle) {
    auto *state = static_cast<HandleState *>([handle openmps_state]);
    value = state->value;
    label = state->label.get();
    if (!value) raise_argument(@"MTLDevice: sharedEventHandle does not belong to an event.");
  }
  MTLSharedEventOnEngine *event = [[MTLSharedEventOnEngine alloc] initWithDevice:device value:std::move(value)];
  [event setLabel:label];
  return event;
}

}  // namespace openmps
