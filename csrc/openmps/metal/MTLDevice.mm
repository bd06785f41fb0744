// SPDX-License-Identifier: Apache-2.0
// Devices: one per engine, made once [MTLDevice.h].

#include "engine/engine.hpp"
#include "engine/plan/strided_copy.hpp"
#include "engine/shared/env.hpp"
#include "engine/shared/team.hpp"
#import "metal/MTLCommandBufferOnEngine.hh"
#import "metal/MTLEventOnEngine.hh"
#import "metal/MTLFenceOnEngine.hh"
#import "metal/MTLHeapOnEngine.hh"
#import "metal/MTLLibraryOnEngine.hh"
#import "metal/MTLSamplerOnEngine.hh"

#include <algorithm>
#include <climits>
#include <cstring>
#include <ctime>
#include <map>
#include <mutex>
#include <string>
#include <vector>

@interface MTLDeviceOnEngine : NSObject<OpenMPSDevice> {
  std::shared_ptr<openmps::Engine> _engine;
  uint64_t _registryID;
}
- (instancetype)initWithEngine:(std::shared_ptr<openmps::Engine>)engine registryID:(uint64_t)registryID;
@end

namespace openmps {
namespace {

// Metal's default [newCommandQueue].
constexpr NSUInteger kMaxCommandBuffers = 64;

/// Return the engine's device, one object per engine; make it on the first call.
MTLDeviceOnEngine *device_named(const std::string &name) {
  static auto *const made = new std::map<std::string, MTLDeviceOnEngine *>;
  static std::mutex mutex;
  std::string failure;
  MTLDeviceOnEngine *device = nil;
  {
    const std::lock_guard lock(mutex);
    auto &known = (*made)[name];
    if (known == nil) {
      if (const auto engine = try_engine(name, &failure))
        known = [[MTLDeviceOnEngine alloc] initWithEngine:engine registryID:made->size()];
    }
    device = known;
  }
  if (device == nil && !failure.empty())
    raise_argument(@"The device %s cannot be made: %s", name.c_str(), failure.c_str());
  return device;
}

MTLDeviceOnEngine *default_device() {
  static MTLDeviceOnEngine *const device = [] {
    std::string failure = env::failure();
    const auto list = failure.empty() ? try_engine_names(false, &failure) : std::vector<std::string>();
    if (list.empty()) raise_argument(@"%s", failure.c_str());
    return device_named(list.front());
  }();
  return device;
}

NSArray *devices() {
  static NSArray *const all = [] {
    std::string failure = env::failure();
    const auto list = failure.empty() ? try_engine_names(true, &failure) : std::vector<std::string>();
    if (list.empty()) raise_argument(@"%s", failure.c_str());
    const Pool pool;  // not around the raise, which autoreleases the exception
    NSMutableArray *made = [[NSMutableArray alloc] init];
    for (const std::string &name : list) [made addObject:device_named(name)];
    return made;
  }();
  return all;
}

/// Open a pool if the main thread has none: without one, GNUstep prints a line for each object that is autoreleased. It
/// is never drained, so that such objects live as long as without a pool.
void open_outermost_pool() {
  if ([NSThread isMainThread] && [NSAutoreleasePool currentPool] == nil) [[NSAutoreleasePool alloc] init];
}

}  // namespace
}  // namespace openmps

id<MTLDevice> MTLCreateSystemDefaultDevice(void) {
  openmps::open_outermost_pool();
  return openmps::default_device();
}

NSArray<id<MTLDevice>> *MTLCopyAllDevices(void) {
  openmps::open_outermost_pool();
  return [openmps::devices() copy];
}

MTLDeviceNotificationName const MTLDeviceWasAddedNotification = @"MTLDeviceWasAddedNotification";
MTLDeviceNotificationName const MTLDeviceRemovalRequestedNotification = @"MTLDeviceRemovalRequestedNotification";
MTLDeviceNotificationName const MTLDeviceWasRemovedNotification = @"MTLDeviceWasRemovedNotification";

// The devices of a process never change: the observer is a plain object, and the handler is never called.
NSArray<id<MTLDevice>> *MTLCopyAllDevicesWithObserver(id<NSObject> *observer, MTLDeviceNotificationHandler handler) {
  if (observer == nullptr) openmps::raise_argument(@"MTLCopyAllDevicesWithObserver: observer is NULL.");
  if (handler == nullptr) openmps::raise_argument(@"MTLCopyAllDevicesWithObserver: handler is nil.");
  NSArray *all = MTLCopyAllDevices();
  *observer = [[NSObject alloc] init];
  return all;
}

void MTLRemoveDeviceObserver(id<NSObject> observer) {
  if (observer == nil) openmps::raise_argument(@"MTLRemoveDeviceObserver: observer is nil.");
}

@implementation MTLDeviceOnEngine

- (instancetype)initWithEngine:(std::shared_ptr<openmps::Engine>)engine registryID:(uint64_t)registryID {
  if ((self = [super init])) {
    _engine = std::move(engine);
    _registryID = registryID;
  }
  return self;
}

// Devices live as long as the process, so that one release too many does no harm.
- (id)retain {
  return self;
}

- (oneway void)release {
}

- (NSUInteger)retainCount {
  return NSUIntegerMax;
}

OPENMPS_UNKNOWN_SELECTORS

- (const std::shared_ptr<openmps::Engine> &)openmps_engine {
  return _engine;
}

- (NSString *)name {
  return [NSString stringWithUTF8String:_engine->device_name().c_str()];
}

- (uint64_t)registryID {
  return _registryID;
}

- (MTLSize)maxThreadsPerThreadgroup {
  return MTLSizeMake(1024, 1024, 1024);  // Metal Feature Set Tables, Mac2
}

- (BOOL)isLowPower {
  return NO;
}

- (BOOL)isHeadless {
  return YES;
}

- (BOOL)isRemovable {
  return NO;
}

- (MTLDeviceLocation)location {
  return MTLDeviceLocationBuiltIn;
}

- (NSUInteger)locationNumber {
  return 0;  // the built-in device
}

- (id<MTLDevice>)deviceOfEngine:(NSString *)name {
  return openmps::device_named(name.UTF8String);
}

- (BOOL)hasUnifiedMemory {
  return YES;
}

- (uint64_t)recommendedMaxWorkingSetSize {
  return _engine->working_set_limit();
}

- (MTLReadWriteTextureTier)readWriteTextureSupport {
  return MTLReadWriteTextureTier2;
}

- (MTLArgumentBuffersTier)argumentBuffersSupport {
  return MTLArgumentBuffersTier1;
}

- (BOOL)areBarycentricCoordsSupported {
  return NO;
}

- (BOOL)supportsShaderBarycentricCoordinates {
  return NO;
}

- (NSUInteger)currentAllocatedSize {
  return _engine->memory_use().allocated;
}

// Beyond Apple's interface: csrc/core/data_source/sharing.hh uses them.
- (NSUInteger)peakAllocatedSize {
  openmps::check_offered(self, _cmd);
  return _engine->memory_use().peak;
}

- (void)resetPeakAllocatedSize {
  openmps::check_offered(self, _cmd);
  _engine->reset_peak_bytes();
}

- (NSUInteger)computeThreads {
  openmps::check_offered(self, _cmd);
  return openmps::process_threads();
}

- (void)setComputeThreads:(NSUInteger)threads {
  openmps::check_offered(self, _cmd);
  openmps::set_process_threads(static_cast<int>(std::min<NSUInteger>(threads, INT_MAX)));
}

- (BOOL)computesOnThreads {
  openmps::check_offered(self, _cmd);
  return _engine->computes_on_threads();
}

- (NSUInteger)cachedSize {
  openmps::check_offered(self, _cmd);
  return _engine->memory_use().cached;
}

- (void)freeCachedMemory {
  openmps::check_offered(self, _cmd);
  _engine->free_cached_bytes();
}

- (BOOL)sharesImages {
  openmps::check_offered(self, _cmd);
  return _engine->image_storage() == openmps::Storage::host;
}

- (int32_t)dlpackType {
  openmps::check_offered(self, _cmd);
  return _engine->dlpack_device().type;
}

- (int32_t)dlpackNumber {
  return _engine->dlpack_device().number;
}

- (int32_t)dlpackNumberOfAddress:(const void *)address {
  std::int32_t number = -1;
  openmps::raise_failure("MTLDevice", openmps::failure_of([&] { number = _engine->device_number_of(address); }));
  return number;
}

- (void)waitForStream:(uintptr_t)stream {
  openmps::raise_failure("MTLDevice", openmps::failure_of([&] { _engine->wait_for_stream(stream); }));
}

- (void)copyFromDeviceBytes:(const void *)bytes length:(NSUInteger)length toHost:(void *)host {
  openmps::raise_failure("MTLDevice", openmps::failure_of([&] {
                           _engine->download(host, static_cast<const std::byte *>(bytes), length);
                         }));
}

- (id<MTLBuffer>)newBufferWithDeviceBytesNoCopy:(void *)bytes
                                         length:(NSUInteger)length
                                    deallocator:(void (^)(void))deallocator {
  [self openmps_checkLength:length options:MTLResourceStorageModePrivate];
  const openmps::Block<void (^)(void)> copy(deallocator);
  const auto memory =
      openmps::Memory::wrap_device(_engine, static_cast<std::byte *>(bytes), length, [copy] { copy.get()(); });
  return openmps::new_buffer(self, memory, MTLResourceStorageModePrivate, false);
}

- (void *)deviceBytesOfBuffer:(id<MTLBuffer>)buffer {
  [buffer contents];  // moves a shared buffer to the host now, so that its address stays valid
  const auto &memory = [openmps::buffer_of(buffer, "MTLDevice: buffer") openmps_memory];
  openmps::touch(memory, @"MTLBuffer");
  openmps::raise_failure("MTLDevice", openmps::failure_of([&] { _engine->synchronize(); }));  // uploads
  openmps::wait_at_release(*memory, _engine);
  return memory->address();
}

- (BOOL)hasStatesOfSeveralImages {
  openmps::check_offered(self, _cmd);
  return YES;
}

- (BOOL)plansTemporaryImages {
  openmps::check_offered(self, _cmd);
  return YES;
}

- (BOOL)differentiatesBounds {
  openmps::check_offered(self, _cmd);
  return YES;
}

- (BOOL)hasNoTimeLimit {
  openmps::check_offered(self, _cmd);
  return YES;
}

- (NSUInteger)maxThreadgroupMemoryLength {
  return openmps::kMaxThreadgroupMemory;
}

- (NSUInteger)maxArgumentBufferSamplerCount {
  return 16;  // Metal Feature Set Tables, tier 1
}

- (NSUInteger)maxBufferLength {
  return _engine->working_set_limit();
}

- (id<MTLCommandQueue>)newCommandQueue {
  return [self newCommandQueueWithMaxCommandBufferCount:openmps::kMaxCommandBuffers];
}

- (id<MTLCommandQueue>)newCommandQueueWithMaxCommandBufferCount:(NSUInteger)maxCommandBufferCount {
  if (maxCommandBufferCount == 0)
    openmps::raise_argument(@"MTLDevice: maxCommandBufferCount (0) is less than the minimum (1).");
  return [[MTLCommandQueueOnEngine alloc] initWithDevice:self maxCommandBufferCount:maxCommandBufferCount threads:0];
}

- (id<MTLCommandQueue>)newCommandQueueWithMaxCommandBufferCount:(NSUInteger)maxCommandBufferCount
                                                 computeThreads:(NSUInteger)threads {
  openmps::check_offered(self, _cmd);
  if (maxCommandBufferCount == 0 || threads == 0)
    openmps::raise_argument(@"MTLDevice: %s (0) is less than the minimum (1).",
                            maxCommandBufferCount == 0 ? "maxCommandBufferCount" : "threads");
  return [[MTLCommandQueueOnEngine alloc] initWithDevice:self
                                   maxCommandBufferCount:maxCommandBufferCount
                                                 threads:static_cast<int>(std::min<NSUInteger>(threads, INT_MAX))];
}

- (MTLSizeAndAlign)heapTextureSizeAndAlignWithDescriptor:(MTLTextureDescriptor *)desc {
  openmps::ImageView view;
  const NSUInteger bytes = openmps::check_texture_descriptor(desc, &view);
  return [self heapBufferSizeAndAlignWithLength:bytes options:[desc resourceOptions]];
}

- (MTLSizeAndAlign)heapBufferSizeAndAlignWithLength:(NSUInteger)length options:(MTLResourceOptions)options {
  openmps::check_options("MTLDevice", options);
  constexpr NSUInteger kAlign = openmps::kHeapAlignment;
  if (length > NSUIntegerMax - kAlign)
    openmps::raise_argument(@"MTLDevice: length (%lu) is more than maxBufferLength (%lu).", (unsigned long)length,
                            (unsigned long)[self maxBufferLength]);
  return {(length + kAlign - 1) / kAlign * kAlign, kAlign};
}

- (id<MTLHeap>)newHeapWithDescriptor:(MTLHeapDescriptor *)descriptor {
  return openmps::new_heap(self, descriptor);
}

- (void)openmps_checkLength:(NSUInteger)length options:(MTLResourceOptions)options {
  if (length == 0) openmps::raise_argument(@"MTLDevice: length (0) of a buffer is less than the minimum (1).");
  openmps::check_options("MTLDevice", options);
}

- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options {
  [self openmps_checkLength:length options:options];
  if (length > [self maxBufferLength]) return nil;
  const auto memory = openmps::new_buffer_memory(_engine, length, options);
  if (openmps::is_copied(options)) memory->separate_cpu_copy(std::byte{0});
  return openmps::new_buffer(self, memory, options, true);
}

- (id<MTLBuffer>)newBufferWithBytes:(const void *)pointer
                             length:(NSUInteger)length
                            options:(MTLResourceOptions)options {
  [self openmps_checkLength:length options:options];
  if (pointer == nullptr) openmps::raise_argument(@"MTLDevice: pointer of a buffer's bytes is NULL.");
  if (length > [self maxBufferLength]) return nil;
  const auto memory = openmps::new_buffer_memory(_engine, length, options);
  {
    const openmps::HostAccess access(memory, openmps::HostAccess::Mode::write);
    if (!access.data()) return nil;
    std::memcpy(access.data(), pointer, length);
  }
  if (openmps::is_copied(options)) {
    memory->separate_cpu_copy(std::byte{0});
    std::memcpy(openmps::touch_cpu(memory, @"MTLBuffer"), pointer, length);
  }
  return openmps::new_buffer(self, memory, options, false);
}

- (id<MTLBuffer>)newBufferWithBytesNoCopy:(void *)pointer
                                   length:(NSUInteger)length
                                  options:(MTLResourceOptions)options
                              deallocator:(void (^)(void *, NSUInteger))deallocator {
  [self openmps_checkLength:length options:options];
  const NSUInteger page = openmps::device_rules().page_size;
  if (pointer == nullptr) openmps::raise_argument(@"MTLDevice: pointer of a buffer's bytes is NULL.");
  if (reinterpret_cast<uintptr_t>(pointer) % page != 0)
    openmps::raise_argument(@"MTLDevice: pointer (%p) is not aligned to a page (%lu bytes).", pointer,
                            (unsigned long)page);
  if (length % page != 0)
    openmps::raise_argument(@"MTLDevice: length (%lu) is not a multiple of a page (%lu bytes).", (unsigned long)length,
                            (unsigned long)page);
  if (((options >> MTLResourceStorageModeShift) & 0xf) == MTLStorageModePrivate)
    openmps::raise_argument(@"MTLDevice: options (0x%lx) ask for private storage of the program's own memory.",
                            (unsigned long)options);
  if (length > [self maxBufferLength]) {
    // The call takes over the memory even if it fails.
    if (deallocator) deallocator(pointer, length);
    return nil;
  }
  const openmps::Block<void (^)(void *, NSUInteger)> copy(deallocator);
  const auto memory = openmps::Memory::wrap(pointer, length, [copy, pointer, length] {
    if (copy.get()) copy.get()(pointer, length);
  });
  return openmps::new_buffer(self, memory, options, false);
}

- (id<MTLTexture>)newTextureWithDescriptor:(MTLTextureDescriptor *)descriptor {
  openmps::ImageView view;
  const NSUInteger bytes = openmps::check_texture_descriptor(descriptor, &view);
  if (bytes > [self maxBufferLength]) return nil;
  view.memory = openmps::Memory::lazy_image(_engine, bytes);
  if (openmps::is_copied([descriptor resourceOptions])) view.memory->separate_cpu_copy(openmps::kUnsynchronized);
  return openmps::new_texture(self, descriptor, view, [descriptor resourceOptions]);
}

- (id<MTLTexture>)newSharedTextureWithDescriptor:(MTLTextureDescriptor *)descriptor {
  (void)descriptor;
  openmps::raise_not_implemented(self, _cmd);
}

// Compiled libraries are not read: return nil and an error, as Metal does without the file.
- (id<MTLLibrary>)newDefaultLibrary {
  return nil;
}

- (id<MTLLibrary>)newDefaultLibraryWithBundle:(NSBundle *)bundle error:(NSError **)error {
  return openmps::no_library_file([[bundle resourcePath] stringByAppendingPathComponent:@"default.metallib"], error);
}

- (id<MTLLibrary>)newLibraryWithFile:(NSString *)filepath error:(NSError **)error {
  if (filepath == nil) openmps::raise_argument(@"MTLDevice: filepath of a library is nil.");
  return openmps::no_library_file(filepath, error);
}

- (id<MTLLibrary>)newLibraryWithURL:(NSURL *)url error:(NSError **)error {
  if (url == nil) openmps::raise_argument(@"MTLDevice: url of a library is nil.");
  return openmps::no_library_file([url isFileURL] ? [url path] : [url absoluteString], error);
}

- (id<MTLLibrary>)newLibraryWithData:(dispatch_data_t)data error:(NSError **)error {
  (void)data;
  return openmps::no_library(MTLLibraryErrorUnsupported, @"Compiled Metal libraries are not read by openmps.", error);
}

- (id<MTLLibrary>)newLibraryWithSource:(NSString *)source options:(MTLCompileOptions *)options error:(NSError **)error {
  return openmps::new_library(self, source, options, error);
}

- (void)newLibraryWithSource:(NSString *)source
                     options:(MTLCompileOptions *)options
           completionHandler:(MTLNewLibraryCompletionHandler)completionHandler {
  if (completionHandler == nullptr) openmps::raise_argument(@"MTLDevice: completionHandler of a library is nil.");
  NSError *error = nil;
  id<MTLLibrary> library = [self newLibraryWithSource:source options:options error:&error];
  completionHandler(library, error);  // at once
  [library release];
}

- (id<MTLComputePipelineState>)newComputePipelineStateWithFunction:(id<MTLFunction>)computeFunction
                                                             error:(NSError **)error {
  return openmps::new_pipeline(self, computeFunction, error);
}

- (id<MTLComputePipelineState>)newComputePipelineStateWithFunction:(id<MTLFunction>)computeFunction
                                                           options:(MTLPipelineOption)options
                                                        reflection:
                                                            (MTLAutoreleasedComputePipelineReflection *)reflection
                                                             error:(NSError **)error {
  id<MTLComputePipelineState> pipeline = openmps::new_pipeline(self, computeFunction, error);
  const MTLPipelineOption info = MTLPipelineOptionBindingInfo | MTLPipelineOptionBufferTypeInfo;
  if (reflection != nullptr && (options & info) != 0) *reflection = openmps::reflection_of(pipeline);
  return pipeline;
}

- (void)newComputePipelineStateWithFunction:(id<MTLFunction>)computeFunction
                          completionHandler:(MTLNewComputePipelineStateCompletionHandler)completionHandler {
  if (completionHandler == nullptr) openmps::raise_argument(@"MTLDevice: completionHandler of a pipeline is nil.");
  NSError *error = nil;
  id<MTLComputePipelineState> pipeline = openmps::new_pipeline(self, computeFunction, &error);
  completionHandler(pipeline, error);
  [pipeline release];
}

- (id<MTLSamplerState>)newSamplerStateWithDescriptor:(MTLSamplerDescriptor *)descriptor {
  return openmps::new_sampler(self, descriptor);
}

- (id<MTLFence>)newFence {
  return [[MTLFenceOnEngine alloc] initWithDevice:self];
}

// The Mac families: programs for Linux are desktop programs, and Apple families promise tile memory and other features
// of Apple's GPUs. MPS itself requires no more than Mac2.
- (BOOL)supportsFeatureSet:(MTLFeatureSet)featureSet {
  return featureSet >= MTLFeatureSet_macOS_GPUFamily1_v1 && featureSet <= MTLFeatureSet_macOS_GPUFamily2_v1;
}

- (BOOL)supportsFamily:(MTLGPUFamily)gpuFamily {
  switch (gpuFamily) {
    case MTLGPUFamilyMac1:
    case MTLGPUFamilyMac2:
    case MTLGPUFamilyCommon1:
    case MTLGPUFamilyCommon2:
    case MTLGPUFamilyCommon3: return YES;
    default: return NO;
  }
}

- (NSUInteger)minimumLinearTextureAlignmentForPixelFormat:(MTLPixelFormat)format {
  openmps::Format storage;
  NSUInteger lanes = 0;
  if (!openmps::texture_format(format, &storage, &lanes))
    openmps::raise_argument(@"MTLDevice: format (%lu) is not one that linear textures can have.",
                            (unsigned long)format);
  return lanes * openmps::size_of(storage);  // one texel: nothing here needs more
}

- (NSUInteger)minimumTextureBufferAlignmentForPixelFormat:(MTLPixelFormat)format {
  return [self minimumLinearTextureAlignmentForPixelFormat:format];
}

- (id<MTLEvent>)newEvent {
  return [[MTLEventOnEngine alloc] initWithDevice:self value:std::make_shared<openmps::EventValue>()];
}

- (id<MTLSharedEvent>)newSharedEvent {
  return openmps::new_shared_event(self, nil);
}

- (id<MTLSharedEvent>)newSharedEventWithHandle:(MTLSharedEventHandle *)sharedEventHandle {
  if (sharedEventHandle == nil) openmps::raise_argument(@"MTLDevice: sharedEventHandle is nil.");
  return openmps::new_shared_event(self, sharedEventHandle);
}

- (void)sampleTimestamps:(MTLTimestamp *)cpuTimestamp gpuTimestamp:(MTLTimestamp *)gpuTimestamp {
  const auto now = static_cast<MTLTimestamp>(openmps::now_seconds() * 1e9);  // one clock for both, nanoseconds
  if (cpuTimestamp) *cpuTimestamp = now;
  if (gpuTimestamp) *gpuTimestamp = now;
}

@end
