// SPDX-License-Identifier: Apache-2.0
// Command queues: a thread that runs command buffers in order [MTLCommandQueue.h].

#import "metal/MTLCommandBufferOnEngine.hh"
#import "metal/MTLEventOnEngine.hh"

@implementation MTLCommandQueueOnEngine

- (instancetype)initWithDevice:(id<OpenMPSDevice>)device maxCommandBufferCount:(NSUInteger)count threads:(int)threads {
  if ((self = [super init])) {
    _device = openmps::Ref<id<OpenMPSDevice>>(device);
    const openmps::ThreadHooks hooks = {openmps::thread_begin, openmps::thread_end, openmps::in_pool};
    _queue = std::make_shared<openmps::Queue>(hooks, count, openmps::device_rules());
    _queue->set_threads(threads);
  }
  return self;
}

- (void)dealloc {
  if (_queue) _queue->close();
  [super dealloc];
}

- (id<MTLDevice>)device {
  return _device.get();
}

OPENMPS_LABEL
OPENMPS_UNKNOWN_SELECTORS

// Beyond Apple's interface: csrc/core/data_source/sharing.hh uses them.
- (BOOL)isIdle {
  openmps::check_offered(self, _cmd);
  return _queue->is_idle();
}

- (id<MTLCommandBuffer>)openmps_commandBufferRetaining:(BOOL)retained {
  openmps::raise_breach();
  _queue->take_place();
  return [[[MTLCommandBufferOnEngine alloc] initWithQueue:self retainedReferences:retained] autorelease];
}

- (id<MTLCommandBuffer>)commandBuffer {
  return [self openmps_commandBufferRetaining:YES];
}

- (id<MTLCommandBuffer>)commandBufferWithUnretainedReferences {
  return [self openmps_commandBufferRetaining:NO];
}

@end
