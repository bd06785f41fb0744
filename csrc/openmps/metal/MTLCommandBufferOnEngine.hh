// SPDX-License-Identifier: Apache-2.0
#pragma once

#import "metal/OnEngine.hh"
#include "metal/queue.hpp"

@class MTLCommandBufferOnEngine;

/// Memory that the work uses, and its check after the work.
struct OpenMPSMemoryCheck {
  const void *memory;
  NSUInteger length;
  NSString *(*check)(const void *memory, NSUInteger length);
};

@interface MTLCommandQueueOnEngine : NSObject <MTLCommandQueue> {
 @public
  openmps::Ref<id<OpenMPSDevice>> _device;
  openmps::Label _label;
  std::shared_ptr<openmps::Queue> _queue;
}
- (instancetype)initWithDevice:(id<OpenMPSDevice>)device maxCommandBufferCount:(NSUInteger)count;
@end

@interface MTLBlitCommandEncoderOnEngine : NSObject <MTLBlitCommandEncoder> {
 @public
  openmps::Ref<MTLCommandBufferOnEngine *> _buffer;
  openmps::Label _label;
  BOOL _ended;
}
@end

@interface MTLCommandBufferOnEngine : NSObject <OpenMPSCommandBuffer> {
 @public
  openmps::Ref<MTLCommandQueueOnEngine *> _queue;
  openmps::Label _label;
  openmps::Recorder *_recorder;
  std::shared_ptr<openmps::Submission> _submission;
  std::vector<openmps::Block<MTLCommandBufferHandler>> _scheduledHandlers, _completedHandlers;
  openmps::Ref<NSString *> _handlerFailure;
  BOOL _retainedReferences, _enqueued, _encoderOpen;
  NSUInteger _debugGroups;
  std::vector<OpenMPSMemoryCheck> _memoryChecks;
}
- (instancetype)initWithQueue:(MTLCommandQueueOnEngine *)queue retainedReferences:(BOOL)retained;
/// The recorder, also while an encoder is open.
- (openmps::Recorder &)openmps_openRecorder;
@end
