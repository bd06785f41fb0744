// SPDX-License-Identifier: Apache-2.0
// Fences: no-ops, because the encoders of a queue run one after the other [MTLFence.h].

#import "metal/MTLFenceOnEngine.hh"

@implementation MTLFenceOnEngine

- (instancetype)initWithDevice:(id<MTLDevice>)device {
  if ((self = [super init])) _device = openmps::Ref<id<MTLDevice>>(device);
  return self;
}

- (id<MTLDevice>)device {
  return _device.get();
}

OPENMPS_LABEL
OPENMPS_UNKNOWN_SELECTORS

@end
