// SPDX-License-Identifier: Apache-2.0
// A command buffer that can be committed in pieces [MPSCommandBuffer.h].

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#import "metal/OnEngine.hh"

namespace openmps {
namespace {

struct WrappedBuffer {
  Ref<id<OpenMPSCommandBuffer>> buffer;
  Ref<id<MPSHeapProvider>> heap_provider;
};

WrappedBuffer &wrapped_of(void *pointer) { return *static_cast<WrappedBuffer *>(pointer); }

}  // namespace
}  // namespace openmps

@interface MPSCommandBuffer (Engine)<OpenMPSCommandBuffer>
@end

@implementation MPSCommandBuffer

OPENMPS_UNKNOWN_SELECTORS

+ (instancetype)commandBufferWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer {
  return [[[self alloc] initWithCommandBuffer:commandBuffer] autorelease];
}

+ (instancetype)commandBufferFromCommandQueue:(id<MTLCommandQueue>)commandQueue {
  if (commandQueue == nil) openmps::raise_argument(@"MPSCommandBuffer: commandQueue is nil.");
  return [self commandBufferWithCommandBuffer:[commandQueue commandBuffer]];
}

- (instancetype)init {
  const openmps::UnwindRelease half(self);
  openmps::raise_unavailable(self, _cmd, "-initWithCommandBuffer:");
}

- (instancetype)initWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer {
  openmps::UnwindRelease half(self);
  if ([(id)commandBuffer isKindOfClass:[MPSCommandBuffer class]])
    commandBuffer = [(MPSCommandBuffer *)commandBuffer commandBuffer];
  id<OpenMPSCommandBuffer> own = openmps::command_buffer_of(commandBuffer, "MPSCommandBuffer: commandBuffer");
  self = [half.done() openmps_initEmpty];
  openmps::wrapped_of(_openmps).buffer = openmps::Ref<id<OpenMPSCommandBuffer>>(own);
  return self;
}

- (instancetype)openmps_initEmpty {
  if ((self = [super init])) _openmps = new openmps::WrappedBuffer;
  return self;
}

- (void)dealloc {
  delete static_cast<openmps::WrappedBuffer *>(_openmps);
  [super dealloc];
}

- (id<MTLCommandBuffer>)commandBuffer {
  return openmps::wrapped_of(_openmps).buffer.get();
}

- (id<MTLCommandBuffer>)rootCommandBuffer {
  return openmps::wrapped_of(_openmps).buffer.get();
}

- (MPSPredicate *)predicate {
  return nil;
}

- (void)setPredicate:(MPSPredicate *)predicate {
  if (predicate != nil) openmps::raise_not_implemented(self, _cmd);
}

- (id<MPSHeapProvider>)heapProvider {
  return openmps::wrapped_of(_openmps).heap_provider.get();
}

// Stored, not used: the engine plans temporaries' memory itself.
- (void)setHeapProvider:(id<MPSHeapProvider>)heapProvider {
  openmps::wrapped_of(_openmps).heap_provider = openmps::Ref<id<MPSHeapProvider>>(heapProvider);
}

- (void)commitAndContinue {
  openmps::WrappedBuffer &state = openmps::wrapped_of(_openmps);
  id<OpenMPSCommandBuffer> now = state.buffer.get();
  [now openmps_recorder];
  id<OpenMPSCommandBuffer> next =
      openmps::command_buffer_of([[now commandQueue] commandBuffer], "MPSCommandBuffer: next");
  [now openmps_commitContinuingIn:next];
  state.buffer = openmps::Ref<id<OpenMPSCommandBuffer>>(next);
}

- (void)prefetchHeapForWorkloadSize:(size_t)size {
  (void)size;  // a hint
}

// The protocol MTLCommandBuffer, forwarded to the current buffer.

- (id<MTLDevice>)device {
  return [openmps::wrapped_of(_openmps).buffer.get() device];
}

- (id<MTLCommandQueue>)commandQueue {
  return [openmps::wrapped_of(_openmps).buffer.get() commandQueue];
}

- (BOOL)retainedReferences {
  return [openmps::wrapped_of(_openmps).buffer.get() retainedReferences];
}

- (NSString *)label {
  return [openmps::wrapped_of(_openmps).buffer.get() label];
}

- (void)setLabel:(NSString *)label {
  [openmps::wrapped_of(_openmps).buffer.get() setLabel:label];
}

- (CFTimeInterval)kernelStartTime {
  return [openmps::wrapped_of(_openmps).buffer.get() kernelStartTime];
}

- (CFTimeInterval)kernelEndTime {
  return [openmps::wrapped_of(_openmps).buffer.get() kernelEndTime];
}

- (CFTimeInterval)GPUStartTime {
  return [openmps::wrapped_of(_openmps).buffer.get() GPUStartTime];
}

- (CFTimeInterval)GPUEndTime {
  return [openmps::wrapped_of(_openmps).buffer.get() GPUEndTime];
}

- (MTLCommandBufferStatus)status {
  return [openmps::wrapped_of(_openmps).buffer.get() status];
}

- (NSError *)error {
  return [openmps::wrapped_of(_openmps).buffer.get() error];
}

- (void)enqueue {
  [openmps::wrapped_of(_openmps).buffer.get() enqueue];
}

- (void)commit {
  [openmps::wrapped_of(_openmps).buffer.get() commit];
}

- (void)addScheduledHandler:(MTLCommandBufferHandler)block {
  [openmps::wrapped_of(_openmps).buffer.get() addScheduledHandler:block];
}

- (void)waitUntilScheduled {
  [openmps::wrapped_of(_openmps).buffer.get() waitUntilScheduled];
}

- (void)addCompletedHandler:(MTLCommandBufferHandler)block {
  [openmps::wrapped_of(_openmps).buffer.get() addCompletedHandler:block];
}

- (void)waitUntilCompleted {
  [openmps::wrapped_of(_openmps).buffer.get() waitUntilCompleted];
}

- (id<MTLBlitCommandEncoder>)blitCommandEncoder {
  return [openmps::wrapped_of(_openmps).buffer.get() blitCommandEncoder];
}

- (id<MTLComputeCommandEncoder>)computeCommandEncoder {
  return [openmps::wrapped_of(_openmps).buffer.get() computeCommandEncoder];
}

- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:(MTLDispatchType)dispatchType {
  return [openmps::wrapped_of(_openmps).buffer.get() computeCommandEncoderWithDispatchType:dispatchType];
}

- (void)encodeWaitForEvent:(id<MTLEvent>)event value:(uint64_t)value {
  [openmps::wrapped_of(_openmps).buffer.get() encodeWaitForEvent:event value:value];
}

- (void)encodeSignalEvent:(id<MTLEvent>)event value:(uint64_t)value {
  [openmps::wrapped_of(_openmps).buffer.get() encodeSignalEvent:event value:value];
}

- (void)pushDebugGroup:(NSString *)string {
  [openmps::wrapped_of(_openmps).buffer.get() pushDebugGroup:string];
}

- (void)popDebugGroup {
  [openmps::wrapped_of(_openmps).buffer.get() popDebugGroup];
}

@end

@implementation MPSCommandBuffer (Engine)

- (openmps::Recorder &)openmps_recorder {
  return [openmps::wrapped_of(_openmps).buffer.get() openmps_recorder];
}

- (const std::shared_ptr<openmps::Completion> &)openmps_completion {
  return [openmps::wrapped_of(_openmps).buffer.get() openmps_completion];
}

- (const std::shared_ptr<openmps::TemporaryScope> &)openmps_temporaries {
  return [openmps::wrapped_of(_openmps).buffer.get() openmps_temporaries];
}

- (void)openmps_commitContinuingIn:(id<OpenMPSCommandBuffer>)next {
  [openmps::wrapped_of(_openmps).buffer.get() openmps_commitContinuingIn:next];
}

- (void)openmps_adoptTemporaries:(std::shared_ptr<openmps::TemporaryScope>)scope {
  [openmps::wrapped_of(_openmps).buffer.get() openmps_adoptTemporaries:std::move(scope)];
}

@end
