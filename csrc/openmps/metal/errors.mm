// SPDX-License-Identifier: Apache-2.0
// Exceptions and the checks that all classes share.

#import "metal/OnEngine.hh"

#include <cstdarg>

#include "engine/problem/problem.hpp"

NSString *const MPSNotImplementedException = @"MPSNotImplementedException";
NSString *const MPSUsageException = @"MPSUsageException";

namespace openmps {
namespace {

[[noreturn]] void raise(NSString *name, NSString *format, va_list arguments) {
  NSString *reason = [[[NSString alloc] initWithFormat:format arguments:arguments] autorelease];
  [[NSException exceptionWithName:name reason:reason userInfo:nil] raise];
  __builtin_unreachable();
}

}  // namespace

void raise_argument(NSString *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  raise(NSInvalidArgumentException, format, arguments);
}

void raise_usage(NSString *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  raise(MPSUsageException, format, arguments);
}

void raise_memory(NSString *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  raise(NSMallocException, format, arguments);
}

void raise_not_implemented(id object, SEL selector) {
  const bool is_class = [object class] == object;
  NSString *reason = [NSString stringWithFormat:@"%c[%@ %@] is not implemented by openmps yet.", is_class ? '+' : '-',
                                                [object class], name_of(selector)];
  [[NSException exceptionWithName:MPSNotImplementedException reason:reason userInfo:nil] raise];
  __builtin_unreachable();
}

void raise_unavailable(id object, SEL selector, const char *instead) {
  raise_argument(@"-[%@ %@] is unavailable; use %s.", [object class], name_of(selector), instead);
}

void check_cpu_may_read(const Usage &usage, NSString *what) {
  switch (usage.before_reading()) {
    case Usage::Blocker::uncommitted_writer:
      raise_usage(@"%@ was written by a command buffer that has not completed (it has not been committed).", what);
    case Usage::Blocker::running_writer:
      raise_usage(@"%@ was written by a command buffer that has not completed (waitUntilCompleted was not called).",
                  what);
    default: return;
  }
}

void check_cpu_may_write(const Usage &usage, NSString *what) {
  switch (usage.before_writing()) {
    case Usage::Blocker::uncommitted_writer:
      raise_usage(@"%@ is written by a command buffer that has not completed (it has not been committed).", what);
    case Usage::Blocker::running_writer:
      raise_usage(@"%@ is written by a command buffer that has not completed.", what);
    case Usage::Blocker::running_reader: raise_usage(@"%@ is read by a command buffer that has not completed.", what);
    case Usage::Blocker::none: return;
  }
}

void touch(const std::shared_ptr<Memory> &memory, NSString *what) {
  if (!try_allocate(memory))
    raise_memory(@"%@: there is no memory for %lu bytes.", what, (unsigned long)memory->size());
}

void raise_failure(const char *who, const Failure &failure) {
  if (failure.code == FailureCode::out_of_memory) raise_memory(@"%s: %s", who, failure.sentence.c_str());
  if (failure) raise_usage(@"%s: %s", who, failure.sentence.c_str());
}

std::byte *checked_data(const HostAccess &access, const std::shared_ptr<Memory> &memory, NSString *what) {
  if (!access.data()) raise_memory(@"%@: there is no memory for %lu bytes.", what, (unsigned long)memory->size());
  return access.data();
}

std::byte *touch_cpu(const std::shared_ptr<Memory> &memory, NSString *what) {
  std::byte *data = cpu_data(memory);
  if (!data) raise_memory(@"%@: there is no memory for %lu bytes.", what, (unsigned long)memory->size());
  return data;
}

void synchronize(Recorder &recorder, const std::shared_ptr<Memory> &memory, NSString *what) {
  if (!memory->has_cpu_copy()) return;
  touch(memory, what);
  touch_cpu(memory, what);
  recorder.append(HostTask{[memory] { memory->copy_to_cpu(); }}, "synchronizeResource");
}

bool is_hidden(SEL selector) {
  if (device_rules().has_extensions) return false;
  static const SEL kExtensions[] = {
      @selector(
          initWithDevice:imageDescriptor:bytesNoCopy:bytesPerPixel:bytesPerRow:bytesPerImage:readOnly:deallocator:),
      @selector(setHasNoSliceLimit:),
      @selector(weightsOwner),
      @selector(readWeightsInPlaceWithCommandBuffer:state:),
      @selector(commitAwaited),
      @selector(recordsCommands),
      @selector(recordsForOtherImages),
      @selector(recordedCommandsWithSourceImages:destinationImages:),
      @selector(encodeRecordedCommands:sourceImages:destinationImages:),
      @selector(useMemory:length:check:),
      @selector(sharesImages),
      @selector(hasStatesOfSeveralImages),
      @selector(encodeToCommandBuffer:sourceImage:batchNormalizationState:),
      @selector(encodeToCommandBuffer:sourceGradient:sourceImage:batchNormalizationState:),
      @selector(plansTemporaryImages),
      @selector(differentiatesBounds),
      @selector(hasNoTimeLimit),
      @selector(peakAllocatedSize),
      @selector(resetPeakAllocatedSize),
      @selector(cachedSize),
      @selector(freeCachedMemory),
      @selector(computeThreads),
      @selector(setComputeThreads:),
      @selector(computesOnThreads),
      @selector(newCommandQueueWithMaxCommandBufferCount:computeThreads:),
      @selector(isIdle),
      @selector(deviceOfEngine:),
      @selector(dlpackType),
      @selector(deviceBytesWithStrides:),
      @selector(copyDeviceBytes:strides:intoImage:),
      @selector(copyHostBytes:strides:intoImage:),
  };
  for (const SEL extension : kExtensions)
    if (sel_isEqual(selector, extension)) return true;
  return false;
}

void check_offered(id object, SEL selector) {
  if (is_hidden(selector)) [object doesNotRecognizeSelector:selector];
}

void raise_breach() {
  const std::string sentence = take_breach();
  if (!sentence.empty()) raise_usage(@"%s", sentence.c_str());
}

namespace {

/// Return `object` if it responds to the selector, which only openmps's objects do; raise otherwise.
id checked(id object, SEL selector, const char *what, const char *kind) {
  if (object == nil) raise_argument(@"%s is nil.", what);
  if (![object respondsToSelector:selector])
    raise_argument(@"%s (an object of class %@) is not a %s of openmps.", what, [object class], kind);
  return object;
}

}  // namespace

id<OpenMPSDevice> device_of(id<MTLDevice> device, const char *what) {
  return checked(device, @selector(openmps_engine), what, "device");
}

id<OpenMPSCommandBuffer> command_buffer_of(id<MTLCommandBuffer> buffer, const char *what) {
  // MPSCommandBuffer forwards these selectors to the buffer that it currently wraps.
  return checked(buffer, @selector(openmps_recorder), what, "command buffer");
}

id<OpenMPSBuffer> buffer_of(id<MTLBuffer> buffer, const char *what) {
  return checked(buffer, @selector(openmps_memory), what, "buffer");
}

id<OpenMPSTexture> texture_of(id<MTLTexture> texture, const char *what) {
  return checked(texture, @selector(openmps_viewWithImages:channels:), what, "texture");
}

}  // namespace openmps
