// SPDX-License-Identifier: Apache-2.0
// The common part of blit and compute encoders [MTLCommandEncoder.h].

#import "metal/MTLCommandBufferOnEngine.hh"

@implementation MTLCommandEncoderOnEngine

OPENMPS_LABEL
OPENMPS_UNKNOWN_SELECTORS

- (instancetype)initWithBuffer:(MTLCommandBufferOnEngine *)buffer {
  if ((self = [super init])) {
    _buffer = openmps::Ref<MTLCommandBufferOnEngine *>(buffer);
    buffer->_encoderOpen = YES;
  }
  return self;
}

- (const char *)openmps_name {
  return "MTLCommandEncoder";
}

- (openmps::Recorder &)openmps_recording {
  if (_ended) openmps::raise_usage(@"%s: endEncoding has been called already.", [self openmps_name]);
  return [_buffer.get() openmps_openRecorder];
}

- (id<MTLDevice>)device {
  return [_buffer.get() device];
}

- (void)endEncoding {
  [self openmps_recording];
  _ended = YES;
  _buffer.get()->_encoderOpen = NO;
}

- (void)insertDebugSignpost:(NSString *)string {
  (void)string;
}

- (void)pushDebugGroup:(NSString *)string {
  [_buffer.get() pushDebugGroup:string];
}

- (void)popDebugGroup {
  [_buffer.get() popDebugGroup];
}

// Commands of a device run in order: there is nothing to wait for.
- (void)updateFence:(id<MTLFence>)fence {
  if (fence == nil) openmps::raise_argument(@"%s: fence is nil.", [self openmps_name]);
  [self openmps_recording];
}

- (void)waitForFence:(id<MTLFence>)fence {
  if (fence == nil) openmps::raise_argument(@"%s: fence is nil.", [self openmps_name]);
  [self openmps_recording];
}

@end
