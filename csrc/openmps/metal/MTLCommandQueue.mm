// SPDX-License-Identifier: Apache-2.0
// Command queues: a thread that runs command buffers in order [MTLCommandQueue.h].

#import "metal/MTLCommandBufferOnEngine.hh"
#import "metal/MTLEventOnEngine.hh"

@implementation MTLCommandQueueOnEngine

- (instancetype)initWithDevice:(id<OpenMPSDevice>)device maxCommandBufferCount:(NSUInteger)count {
  if ((self = [super init])) {
    _device = openmps::Ref<id<OpenMPSDevice>>(device);
    const openmps::ThreadHooks hooks = {openmps::thread_begin, openmps::thread_end, openmps::in_pool};
    _queue = std::make_shared<openmps::Queue>(hooks, count, openmps::device_rules());
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
