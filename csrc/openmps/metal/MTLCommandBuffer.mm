// SPDX-License-Identifier: Apache-2.0
// Command buffers: record, then hand the list to the queue [MTLCommandBuffer.h].

#import "metal/MTLCommandBufferOnEngine.hh"
#import "metal/MTLEventOnEngine.hh"

#import "mps/ImageState.hh"
#import "mps/MPSImage+Engine.hh"

#include <algorithm>

#include "engine/engine.hpp"
#include "engine/problem/problem.hpp"
#include "metal/process_end.hpp"
#include "mps/Geometry.hpp"

#if __has_feature(thread_sanitizer)
#include <sanitizer/tsan_interface.h>
#endif

NSErrorDomain const MTLCommandBufferErrorDomain = @"MTLCommandBufferErrorDomain";
NSErrorUserInfoKey const MTLCommandBufferEncoderInfoErrorKey = @"MTLCommandBufferEncoderInfoErrorKey";

using openmps::Progress;

/// Commands that other command buffers of the queue can encode again.
@interface OpenMPSRecordedCommands : NSObject {
 @public
  std::shared_ptr<openmps::RepeatedList> _list;
  openmps::Ref<MTLCommandQueueOnEngine *> _queue;
  /// Layouts of the images that may be others in each encode, without memory; none if they have to be the same.
  std::vector<openmps::ImageView> _layouts;
  std::vector<OpenMPSMemoryCheck> _memoryChecks;  ///< of memory that is not the images'
}
@end

@implementation OpenMPSRecordedCommands
@end

namespace {

using openmps::ImageView;

std::vector<ImageView> views_of(NSArray<MPSImage *> *sources, NSArray<MPSImage *> *destinations) {
  std::vector<ImageView> views;
  for (MPSImage *source in sources) views.push_back([source openmps_state].view);
  for (MPSImage *destination in destinations) views.push_back([destination openmps_state].view);
  return views;
}

openmps::RepeatedList::Operands memory_of(const std::vector<ImageView> &views) {
  openmps::RepeatedList::Operands memory;
  for (const ImageView &view : views) memory.push_back(view.memory);
  return memory;
}

/// Return whether no two views share memory.
bool are_apart(const std::vector<ImageView> &views) {
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (!views[i].memory) return false;  // a temporary image without reads left
    for (std::size_t j = 0; j < i; ++j)
      if (&views[i].memory->root() == &views[j].memory->root() || openmps::overlap(views[i], views[j])) return false;
  }
  return true;
}

bool same_layout(const ImageView &a, const ImageView &b) {
  return a.format == b.format && a.offset == b.offset && a.n == b.n && a.h == b.h && a.w == b.w && a.c == b.c &&
         a.n_stride == b.n_stride && a.h_stride == b.h_stride && a.w_stride == b.w_stride;
}

bool holds(const ImageView &view, const void *memory) {
  if (!view.memory->is_allocated()) return false;
  const auto *const first = view.memory->address();
  const auto *const byte = static_cast<const std::byte *>(memory);
  return byte >= first && byte < first + view.memory->size();
}

}  // namespace

@implementation MTLCommandBufferOnEngine

- (instancetype)initWithQueue:(MTLCommandQueueOnEngine *)queue retainedReferences:(BOOL)retained {
  if ((self = [super init])) {
    _queue = openmps::Ref<MTLCommandQueueOnEngine *>(queue);
    _recorder = new openmps::Recorder([queue->_device.get() openmps_engine]);
    _submission = std::make_shared<openmps::Submission>();
    _submission->engine = _recorder->engine();
    _submission->completion = _recorder->completion();
    _retainedReferences = retained;
  }
  return self;
}

#if __has_feature(thread_sanitizer)
// GNUstep's count of references is not sanitized: that a thread's last use comes before -dealloc on another, which a
// handler's thread may run, has to be said.
- (oneway void)release {
  __tsan_release(self);
  [super release];
}
#endif

- (void)dealloc {
#if __has_feature(thread_sanitizer)
  __tsan_acquire(self);
#endif
  if (_submission && !_recorder->completion()->is_committed()) _queue.get()->_queue->withdraw(_submission);
  delete _recorder;
  [super dealloc];
}

OPENMPS_LABEL
OPENMPS_UNKNOWN_SELECTORS

- (id<MTLDevice>)device {
  return _queue.get()->_device.get();
}

- (id<MTLCommandQueue>)commandQueue {
  return _queue.get();
}

- (BOOL)retainedReferences {
  return _retainedReferences;
}

- (void)openmps_requireUncommitted:(const char *)what {
  if (!_recorder->is_recording())
    openmps::raise_usage(@"MTLCommandBuffer: %s came too late: the command buffer has been committed already.", what);
}

- (openmps::Recorder &)openmps_recorder {
  [self openmps_requireUncommitted:"encoding"];
  if (_encoderOpen)
    openmps::raise_usage(
        @"MTLCommandBuffer: a command encoder is open; endEncoding comes before other work is encoded.");
  return *_recorder;
}

- (openmps::Recorder &)openmps_openRecorder {
  [self openmps_requireUncommitted:"encoding"];
  return *_recorder;
}

- (const std::shared_ptr<openmps::Completion> &)openmps_completion {
  return _recorder->completion();
}

- (const std::shared_ptr<openmps::TemporaryScope> &)openmps_temporaries {
  return _recorder->temporaries();
}

- (void)openmps_adoptTemporaries:(std::shared_ptr<openmps::TemporaryScope>)scope {
  _recorder->continue_temporaries(std::move(scope));
}

- (void)enqueue {
  [self openmps_requireUncommitted:"enqueue"];
  if (_enqueued) openmps::raise_usage(@"MTLCommandBuffer: the command buffer has been enqueued already.");
  _enqueued = YES;
  _queue.get()->_queue->enqueue(_submission);
}

- (void)openmps_runHandlers:(std::vector<openmps::Block<MTLCommandBufferHandler>>)handlers {
  for (const auto &handler : handlers) {
    @try {
      handler.get()(self);
    } @catch (NSException *exception) {
      // No caller could catch it; -error reports it.
      const openmps::Ref<NSString *> reason([exception reason]);
      const std::lock_guard lock(_handlerMutex);
      _handlerFailure = reason;
    }
  }
}

/// Handlers may still run, on another thread, when the work is done.
- (openmps::Ref<NSString *>)openmps_handlerFailure {
  const std::lock_guard lock(_handlerMutex);
  return _handlerFailure;
}

- (void)openmps_requireThread:(const char *)what {
  if (_queue.get()->_queue->is_orphan())
    openmps::raise_usage(@"MTLCommandBuffer: %s would never end: the command queue was in use when this process was "
                         @"forked, and works in the parent process only.",
                         what);
}

/// `awaited`: the calling thread waits for the result next.
- (void)openmps_submit:(BOOL)awaited {
  [self openmps_requireUncommitted:"commit"];
  [self openmps_requireThread:"commit"];
  if (_encoderOpen)
    openmps::raise_usage(
        @"MTLCommandBuffer: commit came while a command encoder is open (endEncoding was not called).");
  for (const auto &check : _recorder->commit_checks()) check();

  if (!_memoryChecks.empty())
    _recorder->at_completion([checks = std::move(_memoryChecks), submission = _submission.get()] {
      const openmps::Pool pool;
      for (const auto &each : checks) {
        if (submission->failure) return;
        if (NSString *sentence = each.check(each.memory, each.length))
          submission->failure = {openmps::FailureCode::internal, [sentence UTF8String]};
      }
    });
  _submission->repeated = _recorder->take_repeated();
  _submission->operands = _recorder->take_operands();
  _submission->commands = _recorder->take_commands();
  _submission->at_completion = _recorder->take_at_completion();
  const openmps::Ref<MTLCommandBufferOnEngine *> keep(self);
  if (!_scheduledHandlers.empty()) {
    _submission->on_scheduled = [keep] {
      const openmps::Pool pool;
      MTLCommandBufferOnEngine *buffer = keep.get();
      [buffer openmps_runHandlers:std::move(buffer->_scheduledHandlers)];
    };
  }
  // Also without handlers: Metal keeps a committed command buffer alive until it has completed.
  _submission->on_completed = [keep] {
    MTLCommandBufferOnEngine *buffer = keep.get();
    if (buffer->_completedHandlers.empty()) return;
    const openmps::Pool pool;
    [buffer openmps_runHandlers:std::move(buffer->_completedHandlers)];
  };
  if (awaited && _queue.get()->_queue->claim(_submission)) return;
  if (_queue.get()->_queue->commit(_submission)) return;
  _submission->on_scheduled = _submission->on_completed = nullptr;
  openmps::raise_memory(@"MTLCommandBuffer: there is no memory or no thread for the command queue.");
}

- (void)commit {
  [self openmps_checkedSubmit:NO];
}

- (void)commitAwaited {
  openmps::check_offered(self, _cmd);
  [self openmps_checkedSubmit:YES];
}

- (void)openmps_checkedSubmit:(BOOL)awaited {
  [self openmps_requireUncommitted:"commit"];
  openmps::raise_breach();
  if (const auto unread = _recorder->temporaries()->first_unread())
    openmps::raise_usage(
        @"%s%s%s has readCount %lu when its command buffer is committed, the count must be 0: it was made "
        @"for readers that never came.",
        unread->description().c_str(), unread->label.empty() ? "" : " ", unread->label.c_str(),
        (unsigned long)unread->read_count);
  [self openmps_submit:awaited];
}

- (void)openmps_commitContinuingIn:(id<OpenMPSCommandBuffer>)next {
  [self openmps_submit:NO];
  [next openmps_adoptTemporaries:_recorder->temporaries()];
}

- (void)addScheduledHandler:(MTLCommandBufferHandler)block {
  if (block == nil) openmps::raise_argument(@"MTLCommandBuffer: block is nil.");
  [self openmps_requireUncommitted:"addScheduledHandler:"];
  _scheduledHandlers.emplace_back(block);
}

- (void)addCompletedHandler:(MTLCommandBufferHandler)block {
  if (block == nil) openmps::raise_argument(@"MTLCommandBuffer: block is nil.");
  [self openmps_requireUncommitted:"addCompletedHandler:"];
  _completedHandlers.emplace_back(block);
}

- (void)openmps_waitFor:(openmps::Submission::Stage)stage {
  if (_recorder->is_recording())
    openmps::raise_usage(@"MTLCommandBuffer: waiting would never end: the command buffer has not been committed.");
  // A handler that waits for its own command buffer returns at once: the work is done, the handlers are not.
  if (_queue.get()->_queue->is_running_thread()) {
    if (!_recorder->completion()->is_done() && stage == openmps::Submission::finished)
      openmps::raise_usage(@"MTLCommandBuffer: waiting on the command queue's own thread would never end.");
    return;
  }
  if (!_recorder->completion()->is_done()) [self openmps_requireThread:"waiting"];
  if (_queue.get()->_queue->run_claimed(*_submission)) return;
  if (stage == openmps::Submission::finished) _queue.get()->_queue->wait_for_engine(*_submission);
  _submission->wait_for(stage);
}

/// Call `check` when the work is done, which reads or writes the memory. A sentence that it returns makes the command
/// buffer fail; nil means that the memory is valid. Before commit only.
- (void)useMemory:(const void *)memory length:(NSUInteger)length check:(NSString *(*)(const void *, NSUInteger))check {
  openmps::check_offered(self, _cmd);
  [self openmps_requireUncommitted:"useMemory:length:check:"];
  _memoryChecks.push_back({memory, length, check});
}

- (BOOL)recordsCommands {
  openmps::check_offered(self, _cmd);
  return _recorder->engine()->keeps_lists() && _recorder->is_empty();
}

- (BOOL)recordsForOtherImages {
  openmps::check_offered(self, _cmd);
  return _recorder->engine()->moves_operands();
}

- (id)recordedCommandsWithSourceImages:(NSArray<MPSImage *> *)sources
                     destinationImages:(NSArray<MPSImage *> *)destinations {
  openmps::check_offered(self, _cmd);
  std::vector<openmps::ImageView> views;
  if (_recorder->engine()->moves_operands()) {
    views = views_of(sources, destinations);
    if (!are_apart(views)) return nil;
  }
  auto list = [self openmps_recorder].repeat_all(memory_of(views));
  if (!list) return nil;
  OpenMPSRecordedCommands *commands = [[[OpenMPSRecordedCommands alloc] init] autorelease];
  commands->_list = std::move(list);
  commands->_queue = _queue;
  for (const OpenMPSMemoryCheck &check : _memoryChecks)
    if (!views.empty() && std::ranges::none_of(views, [&](const auto &view) { return holds(view, check.memory); }))
      commands->_memoryChecks.push_back(check);
  for (openmps::ImageView &view : views) view.memory = nullptr;
  commands->_layouts = std::move(views);
  return commands;
}

- (BOOL)encodeRecordedCommands:(id)recorded
                  sourceImages:(NSArray<MPSImage *> *)sources
             destinationImages:(NSArray<MPSImage *> *)destinations {
  openmps::check_offered(self, _cmd);
  if (![recorded isKindOfClass:[OpenMPSRecordedCommands class]])
    openmps::raise_argument(@"MTLCommandBuffer: commands (an object of class %@) is not from -recordedCommands.",
                            [recorded class]);
  OpenMPSRecordedCommands *commands = recorded;
  if (commands->_queue.get() != _queue.get())
    openmps::raise_argument(@"MTLCommandBuffer: commands were recorded on another command queue.");
  std::vector<openmps::ImageView> views;
  if (!commands->_layouts.empty()) {
    views = views_of(sources, destinations);
    if (!std::ranges::equal(views, commands->_layouts, same_layout) || !are_apart(views)) return NO;
  }
  for (MPSImage *source in sources) [source openmps_willReadOn:self];
  for (MPSImage *destination in destinations) [destination openmps_willWriteOn:self];
  [self openmps_recorder].append(commands->_list, memory_of(views));
  _memoryChecks.insert(_memoryChecks.end(), commands->_memoryChecks.begin(), commands->_memoryChecks.end());
  return YES;
}

- (void)waitUntilScheduled {
  [self openmps_waitFor:openmps::Submission::scheduled];
}

- (void)waitUntilCompleted {
  [self openmps_waitFor:openmps::Submission::finished];
}

- (MTLCommandBufferStatus)status {
  const Progress progress = _recorder->completion()->progress.load(std::memory_order_acquire);
  if (progress == Progress::completed && [self openmps_handlerFailure]) return MTLCommandBufferStatusError;
  return static_cast<MTLCommandBufferStatus>(progress);
}

- (NSError *)error {
  if (!_recorder->completion()->is_done()) return nil;
  NSString *sentence = nil;
  NSInteger code = MTLCommandBufferErrorInternal;
  if (_submission->failure) {
    sentence = [NSString stringWithUTF8String:_submission->failure.sentence.c_str()];
    if (_submission->failure.code == openmps::FailureCode::out_of_memory) code = MTLCommandBufferErrorOutOfMemory;
    if (_submission->failure.code == openmps::FailureCode::device_lost) code = MTLCommandBufferErrorDeviceRemoved;
  } else if (const auto failure = [self openmps_handlerFailure]) {
    sentence = [@"A handler raised: " stringByAppendingString:failure.get()];
  }
  if (sentence == nil) return nil;
  NSDictionary *info = [NSDictionary dictionaryWithObject:sentence forKey:NSLocalizedDescriptionKey];
  return [NSError errorWithDomain:MTLCommandBufferErrorDomain code:code userInfo:info];
}

// 0 until the times are known, as in Metal.
- (CFTimeInterval)kernelStartTime {
  return _recorder->completion()->is_done() ? _submission->kernel_start : 0;
}

- (CFTimeInterval)kernelEndTime {
  return _recorder->completion()->is_done() ? _submission->kernel_end : 0;
}

- (CFTimeInterval)GPUStartTime {
  return _recorder->completion()->is_done() ? _submission->gpu_start : 0;
}

- (CFTimeInterval)GPUEndTime {
  return _recorder->completion()->is_done() ? _submission->gpu_end : 0;
}

- (id<MTLBlitCommandEncoder>)blitCommandEncoder {
  [self openmps_recorder];
  return [[[MTLBlitCommandEncoderOnEngine alloc] initWithBuffer:self] autorelease];
}

- (id<MTLComputeCommandEncoder>)computeCommandEncoder {
  return [self computeCommandEncoderWithDispatchType:MTLDispatchTypeSerial];
}

- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:(MTLDispatchType)dispatchType {
  [self openmps_recorder];
  return [[[MTLComputeCommandEncoderOnEngine alloc] initWithBuffer:self dispatchType:dispatchType] autorelease];
}

- (void)encodeWaitForEvent:(id<MTLEvent>)event value:(uint64_t)value {
  std::shared_ptr<openmps::EventValue> shared = openmps::value_of(event, "MTLCommandBuffer: event");
  openmps::HostTask task;
  task.run = [shared, value] {
    const openmps::WorkPause pause;
    shared->wait(value);
  };
  task.run_on = [shared, value](openmps::Engine &engine) {
    std::shared_ptr<openmps::Marker> marker;
    {
      const openmps::WorkPause pause;
      marker = shared->wait_or_marker(value);
    }
    return !marker || engine.wait_for(*marker);
  };
  [self openmps_recorder].append(std::move(task), "encodeWaitForEvent");
}

- (void)encodeSignalEvent:(id<MTLEvent>)event value:(uint64_t)value {
  std::shared_ptr<openmps::EventValue> shared = openmps::value_of(event, "MTLCommandBuffer: event");
  openmps::HostTask task;
  task.run = [shared, value] { shared->raise(value); };
  task.run_on = [shared, value](openmps::Engine &engine) {
    auto marker = engine.mark([shared, value] { shared->raise(value); });
    if (marker) shared->announce(value, std::move(marker));
    return marker != nullptr;
  };
  [self openmps_recorder].append(std::move(task), "encodeSignalEvent");
}

- (void)pushDebugGroup:(NSString *)string {
  if (string == nil) openmps::raise_argument(@"MTLCommandBuffer: the name of a debug group is nil.");
  ++_debugGroups;
}

- (void)popDebugGroup {
  if (_debugGroups == 0) openmps::raise_usage(@"MTLCommandBuffer: popDebugGroup has no pushDebugGroup: before it.");
  --_debugGroups;
}

@end
