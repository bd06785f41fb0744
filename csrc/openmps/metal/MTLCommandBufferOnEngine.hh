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
/// `threads`: 0 for all of the process.
- (instancetype)initWithDevice:(id<OpenMPSDevice>)device maxCommandBufferCount:(NSUInteger)count threads:(int)threads;
@end

/// The common part of all encoders. A command buffer refuses to commit until its encoder has ended, as under Metal's
/// validation.
@interface MTLCommandEncoderOnEngine : NSObject <MTLCommandEncoder> {
 @public
  openmps::Ref<MTLCommandBufferOnEngine *> _buffer;
  openmps::Label _label;
  BOOL _ended;
}
- (instancetype)initWithBuffer:(MTLCommandBufferOnEngine *)buffer;
/// Apple's name, for errors.
- (const char *)openmps_name;
/// Return the recorder. Raise if the encoder has ended.
- (openmps::Recorder &)openmps_recording;
- (void)updateFence:(id<MTLFence>)fence;
- (void)waitForFence:(id<MTLFence>)fence;
@end

@interface MTLBlitCommandEncoderOnEngine : MTLCommandEncoderOnEngine <MTLBlitCommandEncoder>
@end

namespace openmps {
struct ComputeState;
}

@interface MTLComputeCommandEncoderOnEngine : MTLCommandEncoderOnEngine <MTLComputeCommandEncoder> {
 @public
  MTLDispatchType _dispatchType;
  std::unique_ptr<openmps::ComputeState> _state;
}
- (instancetype)initWithBuffer:(MTLCommandBufferOnEngine *)buffer dispatchType:(MTLDispatchType)type;
@end

@interface MTLCommandBufferOnEngine : NSObject <OpenMPSCommandBuffer> {
 @public
  openmps::Ref<MTLCommandQueueOnEngine *> _queue;
  openmps::Label _label;
  openmps::Recorder *_recorder;
  std::shared_ptr<openmps::Submission> _submission;
  std::vector<openmps::Block<MTLCommandBufferHandler>> _scheduledHandlers, _completedHandlers;
  std::mutex _handlerMutex;  ///< of the next
  openmps::Ref<NSString *> _handlerFailure;
  BOOL _retainedReferences, _enqueued, _encoderOpen;
  NSUInteger _debugGroups;
  std::vector<OpenMPSMemoryCheck> _memoryChecks;
}
- (instancetype)initWithQueue:(MTLCommandQueueOnEngine *)queue retainedReferences:(BOOL)retained;
/// The recorder, also while an encoder is open.
- (openmps::Recorder &)openmps_openRecorder;
@end
