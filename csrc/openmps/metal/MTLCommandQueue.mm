// SPDX-License-Identifier: Apache-2.0
// Command queues: a thread that runs command buffers in order [MTLCommandQueue.h].

#import "metal/MTLCommandBufferOnEngine.hh"
#import "metal/MTLEventOnEngine.hh"

@implementation MTLCommandQueueOnEngine

- (instancetype)initWithDevice:(id<OpenMPSDevice>)device maxCommandBufferCount:(NSUInteger)count {
  if ((self = [super init])) {
    _device = openmps::Ref<id<OpenMPSDevice>>(device);
    const openmps::ThreadHooks hooks = {openmps::thread_begin, openmps::thread_end, openmps::in_pool};
    _queue = std::make_shared<openmps::Queue>(hooks, count);
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

- (id<MTLCommandBuffer>)commandBuffer {
  _queue->wait_for_room();
  return [[[MTLCommandBufferOnEngine alloc] initWithQueue:self retainedReferences:YES] autorelease];
}

- (id<MTLCommandBuffer>)commandBufferWithUnretainedReferences {
  _queue->wait_for_room();
  return [[[MTLCommandBufferOnEngine alloc] initWithQueue:self retainedReferences:NO] autorelease];
}

@end
