// SPDX-License-Identifier: Apache-2.0
// Metal and MPSCore of openmps from the outside: Apple's interfaces only, errors included. Prints "N passed, N failed".

#import <Foundation/Foundation.h>
#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

@interface MPSImage (Sharing)
- (instancetype)initWithDevice:(id<MTLDevice>)device
               imageDescriptor:(const MPSImageDescriptor *)imageDescriptor
                   bytesNoCopy:(void *)bytes
                 bytesPerPixel:(NSUInteger)bytesPerPixel
                   bytesPerRow:(NSUInteger)bytesPerRow
                 bytesPerImage:(NSUInteger)bytesPerImage
                      readOnly:(BOOL)readOnly
                   deallocator:(void (^)(void))deallocator;
@end

#pragma clang diagnostic ignored "-Wnonnull"  // nil is passed on purpose

/// Selectors that Apple has, or nobody, and openmps has not.
@protocol Unknown
- (void)drawPatches;
- (void)gpuAddress;
- (void)renderCommandEncoder;
- (void)foo;
+ (void)foo;
@end

namespace {

int passed = 0, failed = 0;
const char *section = "";

void check(bool good, const char *what, int line) {
  if (good) {
    ++passed;
  } else {
    ++failed;
    std::printf("FAILED %s, line %d: %s\n", section, line, what);
  }
}
#define CHECK(...) check((__VA_ARGS__), #__VA_ARGS__, __LINE__)

struct Raised {
  std::string name, reason;
};

Raised raised_by(const std::function<void()> &body) {
  Raised raised;
  @try {
    body();
  } @catch (NSException *exception) {
    raised.name = [[exception name] UTF8String];
    raised.reason = [[exception reason] UTF8String];
  }
  return raised;
}

/// The body raises `name` with a reason that contains each of `parts`.
void check_raises(const char *name, std::initializer_list<const char *> parts, const std::function<void()> &body,
                  int line) {
  NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
  const Raised raised = raised_by(body);
  bool good = raised.name == name && !raised.reason.empty() && raised.reason.back() == '.';
  for (const char *part : parts) good = good && raised.reason.find(part) != std::string::npos;
  if (!good) std::printf("  raised %s: %s\n", raised.name.c_str(), raised.reason.c_str());
  check(good, name, line);
  [pool drain];
}
#define CHECK_RAISES(NAME, PARTS, ...) check_raises(NAME, PARTS, [&] { __VA_ARGS__; }, __LINE__)
#define PARTS(...) {__VA_ARGS__}
constexpr const char *kArgument = "NSInvalidArgumentException";
constexpr const char *kUsage = "MPSUsageException";
constexpr const char *kMissing = "MPSNotImplementedException";

struct Pool {
  NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
  ~Pool() { [pool drain]; }
};

id<MTLDevice> device;

double microseconds(const std::function<void()> &body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

MPSImageDescriptor *described(MPSImageFeatureChannelFormat format, NSUInteger h, NSUInteger w, NSUInteger c,
                              NSUInteger n = 1) {
  return [MPSImageDescriptor imageDescriptorWithChannelFormat:format
                                                        width:w
                                                       height:h
                                              featureChannels:c
                                               numberOfImages:n
                                                        usage:MTLTextureUsageShaderRead | MTLTextureUsageShaderWrite];
}

MPSImage *made(MPSImageDescriptor *descriptor) {
  return [[[MPSImage alloc] initWithDevice:device imageDescriptor:descriptor] autorelease];
}

constexpr auto kFloat32 = MPSImageFeatureChannelFormatFloat32;
constexpr auto kFloat16 = MPSImageFeatureChannelFormatFloat16;
constexpr auto kUnorm8 = MPSImageFeatureChannelFormatUnorm8;
constexpr auto kHWC = MPSDataLayoutHeightxWidthxFeatureChannels;
constexpr auto kCHW = MPSDataLayoutFeatureChannelsxHeightxWidth;

// ------------------------------------------------------------------------------------------------ devices

void test_device() {
  section = "device";
  id<MTLDevice> again = MTLCreateSystemDefaultDevice();
  CHECK(device != nil && again == device);
  NSArray *all = [MTLCopyAllDevices() autorelease];
  CHECK([all count] >= 1 && [all objectAtIndex:0] == device);
  CHECK([[device name] length] > 0);
  CHECK([device hasUnifiedMemory] && [device recommendedMaxWorkingSetSize] > 0 && [device maxBufferLength] > 0);
  CHECK([device supportsFamily:MTLGPUFamilyMac2] && [device supportsFamily:MTLGPUFamilyCommon3]);
  CHECK(![device supportsFamily:MTLGPUFamilyApple7] && [device supportsFeatureSet:MTLFeatureSet_macOS_GPUFamily2_v1]);
  CHECK(MPSSupportsMTLDevice(device) && !MPSSupportsMTLDevice(nil));
  CHECK(MPSGetPreferredDevice(MPSDeviceOptionsDefault) == device);
  CHECK_RAISES(kMissing, PARTS("newDefaultLibrary", "not implemented"), [device newDefaultLibrary]);
  // A selector of Metal that is not in the headers.
  CHECK_RAISES(kMissing, PARTS("drawPatches"), [(id<Unknown>)device drawPatches]);
  CHECK_RAISES(kArgument, PARTS("maxCommandBufferCount (0)", "(1)"),
               [device newCommandQueueWithMaxCommandBufferCount:0]);
  MTLTimestamp cpu = 0, gpu = 0;
  [device sampleTimestamps:&cpu gpuTimestamp:&gpu];
  CHECK(cpu > 0 && cpu == gpu);
  id<MTLFence> fence = [[device newFence] autorelease];
  [fence setLabel:@"f"];
  CHECK([fence device] == device && [[fence label] isEqual:@"f"]);
}

// ------------------------------------------------------------------------------------------------ buffers

void test_buffers() {
  section = "buffers";
  const NSUInteger before = [device currentAllocatedSize];
  {
    const Pool pool;
    id<MTLBuffer> buffer = [[device newBufferWithLength:100000 options:MTLResourceStorageModeShared] autorelease];
    CHECK([buffer length] == 100000 && [device currentAllocatedSize] == before);  // lazy
    const auto *bytes = static_cast<const unsigned char *>([buffer contents]);
    bool zero = true;
    for (int i = 0; i < 100000; ++i) zero = zero && bytes[i] == 0;
    CHECK(zero);
    CHECK([device currentAllocatedSize] >= before + 100000);
    CHECK([buffer storageMode] == MTLStorageModeShared && [buffer device] == device);
    CHECK([buffer hazardTrackingMode] == MTLHazardTrackingModeTracked);
    [buffer setLabel:@"b"];
    CHECK([[buffer label] isEqual:@"b"]);
    CHECK([buffer setPurgeableState:MTLPurgeableStateVolatile] == MTLPurgeableStateNonVolatile);
    CHECK([buffer setPurgeableState:MTLPurgeableStateKeepCurrent] == MTLPurgeableStateVolatile);
    CHECK_RAISES(kUsage, PARTS("didModifyRange", "managed"), [buffer didModifyRange:NSMakeRange(0, 1)]);
    CHECK_RAISES(kUsage, PARTS("makeAliasable"), [buffer makeAliasable]);
    CHECK_RAISES(kMissing, PARTS("gpuAddress"), [(id<Unknown>)buffer gpuAddress]);
  }
  CHECK([device currentAllocatedSize] == before);
  const Pool pool;
  id<MTLBuffer> managed = [[device newBufferWithLength:64 options:MTLResourceStorageModeManaged] autorelease];
  [managed didModifyRange:NSMakeRange(60, 4)];
  CHECK_RAISES(kArgument, PARTS("(60, 5)", "(64)"), [managed didModifyRange:NSMakeRange(60, 5)]);
  CHECK_RAISES(kArgument, PARTS("(64)"), [managed didModifyRange:NSRange{1, NSUIntegerMax}]);
  CHECK([[[device newBufferWithLength:64 options:MTLResourceStorageModePrivate] autorelease] contents] == nullptr);
  CHECK([device newBufferWithLength:[device maxBufferLength] + 1 options:0] == nil);
  CHECK([device newBufferWithLength:NSUIntegerMax options:0] == nil);
  CHECK_RAISES(kArgument, PARTS("length (0)"), [device newBufferWithLength:0 options:0]);
  CHECK_RAISES(kArgument, PARTS("storage mode 3"),
               [device newBufferWithLength:4 options:MTLResourceStorageModeMemoryless]);
  const int values[3] = {1, 2, 3};
  id<MTLBuffer> copy = [[device newBufferWithBytes:values length:sizeof values options:0] autorelease];
  CHECK([copy contents] != values && std::memcmp([copy contents], values, sizeof values) == 0);
  CHECK_RAISES(kArgument, PARTS("NULL"), [device newBufferWithBytes:nullptr length:4 options:0]);
}

void test_no_copy() {
  section = "bytesNoCopy";
  const Pool outer;
  const NSUInteger page = static_cast<NSUInteger>(sysconf(_SC_PAGESIZE));
  char *memory =
      static_cast<char *>(mmap(nullptr, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  __block int calls = 0;
  __block void *pointer = nullptr;
  __block NSUInteger length = 0;
  void (^deallocator)(void *, NSUInteger) = ^(void *p, NSUInteger n) {
    ++calls;
    pointer = p;
    length = n;
  };
  id<MTLCommandQueue> queue = [[device newCommandQueue] autorelease];
  {
    const Pool pool;
    id<MTLBuffer> buffer = [device newBufferWithBytesNoCopy:memory length:2 * page options:0 deallocator:deallocator];
    CHECK([buffer contents] == memory && [buffer length] == 2 * page);
    id<MTLSharedEvent> event = [[device newSharedEvent] autorelease];
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    [commands encodeWaitForEvent:event value:1];
    id<MTLBlitCommandEncoder> blit = [commands blitCommandEncoder];
    [blit fillBuffer:buffer range:NSMakeRange(page, page) value:7];
    [blit endEncoding];
    [commands commit];
    [buffer release];
    CHECK(calls == 0);  // the command buffer still needs it
    [event setSignaledValue:1];
    [commands waitUntilCompleted];
    CHECK(calls == 1 && pointer == memory && length == 2 * page);
    CHECK(memory[page - 1] == 0 && memory[page] == 7 && memory[2 * page - 1] == 7 && memory[2 * page] == 0);
  }
  CHECK(calls == 1);
  CHECK_RAISES(kArgument, PARTS("pointer", "page"),
               [device newBufferWithBytesNoCopy:memory + 16 length:page options:0 deallocator:deallocator]);
  CHECK_RAISES(kArgument, PARTS("length (100)", "page"),
               [device newBufferWithBytesNoCopy:memory length:100 options:0 deallocator:deallocator]);
  CHECK(calls == 1);
  const NSUInteger huge = ([device maxBufferLength] / page + 1) * page;
  CHECK([device newBufferWithBytesNoCopy:memory length:huge options:0 deallocator:deallocator] == nil && calls == 2);
  [[device newBufferWithBytesNoCopy:memory length:page options:0 deallocator:nil] release];
  munmap(memory, 4 * page);
}

// ------------------------------------------------------------------------------------------------ textures, heaps

void test_textures() {
  section = "textures";
  const Pool pool;
  MTLTextureDescriptor *descriptor = [MTLTextureDescriptor texture2DDescriptorWithPixelFormat:MTLPixelFormatRGBA16Float
                                                                                        width:5
                                                                                       height:3
                                                                                    mipmapped:NO];
  CHECK([descriptor arrayLength] == 1 && [descriptor textureType] == MTLTextureType2D);
  [descriptor setStorageMode:MTLStorageModePrivate];
  CHECK([descriptor resourceOptions] == MTLResourceStorageModePrivate);
  MTLTextureDescriptor *copied = [[descriptor copy] autorelease];
  [copied setStorageMode:MTLStorageModeShared];
  CHECK([descriptor storageMode] == MTLStorageModePrivate && [copied width] == 5);
  [copied setTextureType:MTLTextureType2DArray];
  [copied setArrayLength:3];
  id<MTLTexture> texture = [[device newTextureWithDescriptor:copied] autorelease];
  CHECK([texture width] == 5 && [texture height] == 3 && [texture arrayLength] == 3 && [texture depth] == 1);
  CHECK([texture pixelFormat] == MTLPixelFormatRGBA16Float && [texture usage] == MTLTextureUsageShaderRead);
  uint16_t in[3][3][5][4], out[3][3][5][4];
  for (int i = 0; i < 180; ++i) (&in[0][0][0][0])[i] = static_cast<uint16_t>(i);
  for (NSUInteger s = 0; s < 3; ++s)
    [texture replaceRegion:MTLRegionMake2D(0, 0, 5, 3)
               mipmapLevel:0
                     slice:s
                 withBytes:in[s]
               bytesPerRow:40
             bytesPerImage:0];
  for (NSUInteger s = 0; s < 3; ++s)
    [texture getBytes:out[s]
          bytesPerRow:40
        bytesPerImage:0
           fromRegion:MTLRegionMake2D(0, 0, 5, 3)
          mipmapLevel:0
                slice:s];
  CHECK(std::memcmp(in, out, sizeof in) == 0);
  uint16_t part[2][12] = {};  // two columns of two rows into padded rows
  [texture getBytes:part bytesPerRow:24 bytesPerImage:0 fromRegion:MTLRegionMake2D(3, 1, 2, 2) mipmapLevel:0 slice:2];
  CHECK(std::memcmp(part[0], in[2][1][3], 16) == 0 && std::memcmp(part[1], in[2][2][3], 16) == 0 && part[0][8] == 0);

  // The same memory as an image of 9 channels: slices are groups of four channels.
  MPSImage *image = [[[MPSImage alloc] initWithTexture:texture featureChannels:9] autorelease];
  CHECK([image numberOfImages] == 1 && [image featureChannels] == 9 && [image texture] == texture);
  CHECK([image featureChannelFormat] == kFloat16);
  uint16_t hwc[3][5][9];
  [image readBytes:hwc dataLayout:kHWC imageIndex:0];
  CHECK(hwc[1][2][5] == in[1][1][2][1] && hwc[2][4][8] == in[2][2][4][0]);
  // ... and as three images of three.
  MPSImage *three = [[[MPSImage alloc] initWithTexture:texture featureChannels:3] autorelease];
  CHECK([three numberOfImages] == 3);
  uint16_t chw[3][3][5];
  [three readBytes:chw dataLayout:kCHW imageIndex:2];
  CHECK(chw[1][2][3] == in[2][2][3][1]);
  CHECK_RAISES(kArgument, PARTS("featureChannels (13)", "arrayLength is 3"),
               [[MPSImage alloc] initWithTexture:texture featureChannels:13]);

  id<MTLTexture> view = [[texture newTextureViewWithPixelFormat:MTLPixelFormatRGBA16Float
                                                    textureType:MTLTextureType2D
                                                         levels:NSMakeRange(0, 1)
                                                         slices:NSMakeRange(1, 1)] autorelease];
  CHECK([view parentTexture] == texture && [view parentRelativeSlice] == 1 && [view arrayLength] == 1);
  [view getBytes:out bytesPerRow:40 fromRegion:MTLRegionMake2D(0, 0, 5, 3) mipmapLevel:0];
  CHECK(std::memcmp(out, in[1], sizeof in[1]) == 0);
  CHECK_RAISES(kArgument, PARTS("pixelFormat (70)", "(115)"),
               [texture newTextureViewWithPixelFormat:MTLPixelFormatRGBA8Unorm]);

  CHECK_RAISES(kArgument, PARTS("ends beyond", "5 x 3"),
               [texture getBytes:out bytesPerRow:40 fromRegion:MTLRegionMake2D(1, 0, 5, 3) mipmapLevel:0]);
  CHECK_RAISES(kArgument, PARTS("bytesPerRow (39)", "(40)"),
               [texture getBytes:out bytesPerRow:39 fromRegion:MTLRegionMake2D(0, 0, 5, 3) mipmapLevel:0]);
  CHECK_RAISES(kUsage, PARTS("private"),
               [[[device newTextureWithDescriptor:descriptor] autorelease] getBytes:out
                                                                        bytesPerRow:40
                                                                         fromRegion:MTLRegionMake2D(0, 0, 5, 3)
                                                                        mipmapLevel:0]);
  [copied setArrayLength:2049];
  CHECK_RAISES(kArgument, PARTS("arrayLength (2049)", "(2048)"), [device newTextureWithDescriptor:copied]);
  [copied setArrayLength:1];
  [copied setWidth:0];
  CHECK_RAISES(kArgument, PARTS("width (0)"), [device newTextureWithDescriptor:copied]);
  [copied setWidth:16385];
  CHECK_RAISES(kArgument, PARTS("width (16385)", "(16384)"), [device newTextureWithDescriptor:copied]);
  [copied setWidth:1];
  [copied setPixelFormat:MTLPixelFormatBGRA8Unorm];
  CHECK_RAISES(kArgument, PARTS("pixelFormat (80)"), [device newTextureWithDescriptor:copied]);

  // A linear texture on a buffer.
  id<MTLBuffer> buffer = [[device newBufferWithLength:64 options:0] autorelease];
  MTLTextureDescriptor *linear = [MTLTextureDescriptor texture2DDescriptorWithPixelFormat:MTLPixelFormatR32Float
                                                                                    width:3
                                                                                   height:2
                                                                                mipmapped:NO];
  id<MTLTexture> on_buffer = [[buffer newTextureWithDescriptor:linear offset:16 bytesPerRow:20] autorelease];
  const float six[6] = {1, 2, 3, 4, 5, 6};
  [on_buffer replaceRegion:MTLRegionMake2D(0, 0, 3, 2) mipmapLevel:0 withBytes:six bytesPerRow:12];
  const auto *floats = static_cast<const float *>([buffer contents]);
  CHECK(floats[4] == 1 && floats[6] == 3 && floats[9] == 4 && floats[11] == 6 && [on_buffer buffer] == buffer);
  CHECK_RAISES(kArgument, PARTS("beyond length (64)"),
               [buffer newTextureWithDescriptor:linear offset:40 bytesPerRow:20]);
  CHECK_RAISES(kArgument, PARTS("bytesPerRow (8)"), [buffer newTextureWithDescriptor:linear offset:0 bytesPerRow:8]);
}

void test_heaps() {
  section = "heaps";
  const NSUInteger before = [device currentAllocatedSize];
  {
    const Pool pool;
    MTLHeapDescriptor *descriptor = [[[MTLHeapDescriptor alloc] init] autorelease];
    CHECK([descriptor storageMode] == MTLStorageModePrivate);
    CHECK_RAISES(kArgument, PARTS("size (0)"), [device newHeapWithDescriptor:descriptor]);
    [descriptor setSize:4096];
    [descriptor setStorageMode:MTLStorageModeShared];
    id<MTLHeap> heap = [[device newHeapWithDescriptor:descriptor] autorelease];
    CHECK([heap size] == 4096 && [heap usedSize] == 0 && [heap maxAvailableSizeWithAlignment:16] == 4096);
    id<MTLBuffer> first = [[heap newBufferWithLength:1000 options:0] autorelease];
    {
      const Pool inner;
      id<MTLBuffer> second = [[heap newBufferWithLength:1024 options:0] autorelease];
      CHECK([heap usedSize] == 2048 && [second heapOffset] == 1024 && [second heap] == heap);
      CHECK([first contents] != [second contents]);
      CHECK([heap newBufferWithLength:2049 options:0] == nil);
      CHECK([heap newBufferWithLength:NSUIntegerMax options:0] == nil);
    }
    CHECK([heap usedSize] == 1024 && [heap maxAvailableSizeWithAlignment:256] == 3072);
    [first makeAliasable];
    CHECK([first isAliasable] && [heap usedSize] == 0);
    CHECK([[[heap newBufferWithLength:16 options:0] autorelease] heapOffset] == 0);
    {
      // The largest gap is not the last one.
      const Pool inner;
      id<MTLHeap> holes = [[device newHeapWithDescriptor:descriptor] autorelease];
      id<MTLBuffer> low = [holes newBufferWithLength:2048 options:0];
      [[holes newBufferWithLength:1024 options:0] autorelease];
      [low release];
      CHECK([holes maxAvailableSizeWithAlignment:256] == 2048);
    }
    MTLTextureDescriptor *texture = [MTLTextureDescriptor texture2DDescriptorWithPixelFormat:MTLPixelFormatRGBA8Unorm
                                                                                       width:4
                                                                                      height:4
                                                                                   mipmapped:NO];
    CHECK([[[heap newTextureWithDescriptor:texture] autorelease] heap] == heap);
    CHECK([device heapTextureSizeAndAlignWithDescriptor:texture].size == 256);
    CHECK_RAISES(kArgument, PARTS("options"), [heap newBufferWithLength:16 options:MTLResourceStorageModePrivate]);
    CHECK_RAISES(kUsage, PARTS("placement"), [heap newBufferWithLength:16 options:0 offset:0]);
    [descriptor setType:MTLHeapTypePlacement];
    id<MTLHeap> placed = [[device newHeapWithDescriptor:descriptor] autorelease];
    CHECK([[[placed newBufferWithLength:16 options:0 offset:512] autorelease] heapOffset] == 512);
    CHECK_RAISES(kArgument, PARTS("offset 3840", "size (4096)"),
                 [placed newBufferWithLength:512 options:0 offset:3840]);
    [descriptor setSize:NSUIntegerMax];
    CHECK([device newHeapWithDescriptor:descriptor] == nil);
  }
  CHECK([device currentAllocatedSize] == before);
}

// ------------------------------------------------------------------------------------------------ queues

void test_command_buffers() {
  section = "command buffers";
  const Pool outer;
  id<MTLCommandQueue> queue = [[device newCommandQueue] autorelease];
  {
    const Pool pool;
    id<MTLCommandBuffer> buffer = [queue commandBuffer];
    CHECK([buffer status] == MTLCommandBufferStatusNotEnqueued && [buffer retainedReferences] && [buffer error] == nil);
    CHECK([buffer commandQueue] == queue && [buffer device] == device && [buffer GPUEndTime] == 0);
    CHECK_RAISES(kUsage, PARTS("not been committed"), [buffer waitUntilCompleted]);
    CHECK_RAISES(kUsage, PARTS("not been committed"), [buffer waitUntilScheduled]);
    CHECK_RAISES(kUsage, PARTS("popDebugGroup"), [buffer popDebugGroup]);
    CHECK_RAISES(kMissing, PARTS("computeCommandEncoder"), [buffer computeCommandEncoder]);
    __block int order = 0;
    __block int scheduled = 0, completed = 0;
    __block MTLCommandBufferStatus seen = MTLCommandBufferStatusNotEnqueued;
    [buffer addScheduledHandler:^(id<MTLCommandBuffer>) {
      scheduled = ++order;
    }];
    [buffer addCompletedHandler:^(id<MTLCommandBuffer> b) {
      completed = ++order;
      seen = [b status];
      [b waitUntilCompleted];  // of itself: the work is done
    }];
    [buffer enqueue];
    CHECK([buffer status] == MTLCommandBufferStatusEnqueued);
    CHECK_RAISES(kUsage, PARTS("enqueued already"), [buffer enqueue]);
    [buffer commit];
    [buffer waitUntilScheduled];
    [buffer waitUntilCompleted];
    CHECK(scheduled == 1 && completed == 2 && seen == MTLCommandBufferStatusCompleted);
    CHECK([buffer status] == MTLCommandBufferStatusCompleted && [buffer error] == nil);
    CHECK([buffer kernelStartTime] > 0 && [buffer kernelStartTime] <= [buffer kernelEndTime]);
    CHECK([buffer kernelEndTime] <= [buffer GPUStartTime] && [buffer GPUStartTime] <= [buffer GPUEndTime]);
    CHECK_RAISES(kUsage, PARTS("committed already"), [buffer commit]);
    CHECK_RAISES(kUsage, PARTS("committed already"), [buffer enqueue]);
    CHECK_RAISES(kUsage, PARTS("committed already"), [buffer blitCommandEncoder]);
    CHECK_RAISES(kUsage, PARTS("committed already"),
                 [buffer addCompletedHandler:^(id<MTLCommandBuffer>){
                 }]);
    CHECK_RAISES(kMissing, PARTS("renderCommandEncoder"), [(id<Unknown>)buffer renderCommandEncoder]);
  }
  {
    // Handlers that raise are told by -error.
    const Pool pool;
    id<MTLCommandBuffer> buffer = [queue commandBuffer];
    [buffer addCompletedHandler:^(id<MTLCommandBuffer>) {
      [NSException raise:@"Boom" format:@"boom"];
    }];
    [buffer commit];
    [buffer waitUntilCompleted];
    CHECK([buffer status] == MTLCommandBufferStatusError);
    CHECK([[[buffer error] domain] isEqual:MTLCommandBufferErrorDomain]);
    CHECK([[[buffer error] localizedDescription] rangeOfString:@"boom"].length > 0);
  }
  {
    // 1000 in the order of their commits; the last is waited for.
    std::vector<int> ran;
    ran.reserve(1000);
    std::vector<int> *pointer = &ran;
    {
      const Pool pool;
      id<MTLCommandBuffer> last = nil;
      for (int i = 0; i < 1000; ++i) {
        last = [queue commandBuffer];
        [last addCompletedHandler:^(id<MTLCommandBuffer>) {
          pointer->push_back(i);
        }];
        [last commit];
      }
      [last waitUntilCompleted];
    }
    bool sorted = ran.size() == 1000;
    for (int i = 0; sorted && i < 1000; ++i) sorted = ran[static_cast<std::size_t>(i)] == i;
    CHECK(sorted);
  }
  {
    // enqueue reserves a place; one that is dropped gives it up.
    const Pool pool;
    std::vector<int> ran;
    std::vector<int> *pointer = &ran;
    id<MTLCommandBuffer> first = [queue commandBuffer], second = [queue commandBuffer];
    {
      const Pool inner;
      [[queue commandBuffer] enqueue];
      [first enqueue];
      [second enqueue];
    }
    [first addCompletedHandler:^(id<MTLCommandBuffer>) {
      pointer->push_back(1);
    }];
    [second addCompletedHandler:^(id<MTLCommandBuffer>) {
      pointer->push_back(2);
    }];
    [second commit];
    usleep(2000);
    CHECK(ran.empty() && [second status] == MTLCommandBufferStatusCommitted);
    [first commit];
    [second waitUntilCompleted];
    CHECK(ran.size() == 2 && ran[0] == 1 && ran[1] == 2);
  }
  {
    // Several threads on one queue.
    std::atomic<int> completed{0};
    std::atomic<int> *pointer = &completed;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, pointer] {
        GSRegisterCurrentThread();
        for (int i = 0; i < 100; ++i) {
          const Pool pool;
          id<MTLCommandBuffer> buffer = [queue commandBuffer];
          [buffer addCompletedHandler:^(id<MTLCommandBuffer>) {
            pointer->fetch_add(1);
          }];
          [buffer commit];
          if (i % 3 == 0) [buffer waitUntilCompleted];
          if (i == 99) [buffer waitUntilCompleted];
        }
        GSUnregisterCurrentThread();
      });
    }
    for (std::thread &thread : threads) thread.join();
    CHECK(completed == 400);
  }
  {
    // A queue that is released at once still runs what was committed.
    std::atomic<int> completed{0};
    std::atomic<int> *pointer = &completed;
    {
      const Pool pool;
      id<MTLCommandQueue> brief = [device newCommandQueue];
      for (int i = 0; i < 10; ++i) {
        id<MTLCommandBuffer> buffer = [brief commandBuffer];
        [buffer addCompletedHandler:^(id<MTLCommandBuffer>) {
          pointer->fetch_add(1);
        }];
        [buffer commit];
      }
      [brief release];
    }
    for (int i = 0; i < 1000 && completed < 10; ++i) usleep(1000);
    CHECK(completed == 10);
  }
  {
    // In flight no more than the queue allows: commandBuffer waits.
    const Pool pool;
    id<MTLCommandQueue> narrow = [[device newCommandQueueWithMaxCommandBufferCount:2] autorelease];
    id<MTLSharedEvent> event = [[device newSharedEvent] autorelease];
    for (int i = 0; i < 2; ++i) {
      id<MTLCommandBuffer> buffer = [narrow commandBuffer];
      [buffer encodeWaitForEvent:event value:1];
      [buffer commit];
    }
    std::thread opener([&] {
      usleep(20000);
      GSRegisterCurrentThread();
      [event setSignaledValue:1];
      GSUnregisterCurrentThread();
    });
    const double waited = microseconds([&] { [narrow commandBuffer]; });
    opener.join();
    CHECK(waited > 10000);
  }
}

void test_blits() {
  section = "blits";
  const Pool pool;
  id<MTLCommandQueue> queue = [[device newCommandQueue] autorelease];
  id<MTLBuffer> a = [[device newBufferWithLength:256 options:0] autorelease];
  id<MTLBuffer> b = [[device newBufferWithLength:256 options:MTLResourceStorageModePrivate] autorelease];
  id<MTLBuffer> c = [[device newBufferWithLength:256 options:0] autorelease];
  auto *bytes = static_cast<unsigned char *>([a contents]);
  for (int i = 0; i < 256; ++i) bytes[i] = static_cast<unsigned char>(i);
  MTLTextureDescriptor *descriptor = [MTLTextureDescriptor texture2DDescriptorWithPixelFormat:MTLPixelFormatRGBA8Unorm
                                                                                        width:4
                                                                                       height:4
                                                                                    mipmapped:NO];
  id<MTLTexture> t = [[device newTextureWithDescriptor:descriptor] autorelease];
  id<MTLTexture> u = [[device newTextureWithDescriptor:descriptor] autorelease];
  const MTLOrigin zero = MTLOriginMake(0, 0, 0);
  id<MTLCommandBuffer> buffer = [queue commandBuffer];
  id<MTLBlitCommandEncoder> blit = [buffer blitCommandEncoder];
  CHECK_RAISES(kUsage, PARTS("encoder is open"), [buffer commit]);
  CHECK_RAISES(kUsage, PARTS("encoder is open"), [buffer blitCommandEncoder]);
  [blit copyFromBuffer:a sourceOffset:10 toBuffer:b destinationOffset:0 size:100];
  [blit copyFromBuffer:b sourceOffset:0 toBuffer:c destinationOffset:1 size:100];
  [blit fillBuffer:c range:NSMakeRange(0, 1) value:99];
  [blit copyFromBuffer:a
             sourceOffset:0
        sourceBytesPerRow:16
      sourceBytesPerImage:64
               sourceSize:MTLSizeMake(4, 4, 1)
                toTexture:t
         destinationSlice:0
         destinationLevel:0
        destinationOrigin:zero];
  [blit copyFromTexture:t toTexture:u];
  [blit copyFromTexture:u
                   sourceSlice:0
                   sourceLevel:0
                  sourceOrigin:MTLOriginMake(1, 2, 0)
                    sourceSize:MTLSizeMake(2, 2, 1)
                      toBuffer:c
             destinationOffset:200
        destinationBytesPerRow:20
      destinationBytesPerImage:40];
  [blit synchronizeResource:c];
  CHECK_RAISES(kArgument, PARTS("beyond length (256)"),
               [blit copyFromBuffer:a sourceOffset:200 toBuffer:c destinationOffset:0 size:100]);
  CHECK_RAISES(kArgument, PARTS("overlap"),
               [blit copyFromBuffer:a sourceOffset:0 toBuffer:a destinationOffset:50 size:100]);
  CHECK_RAISES(kArgument, PARTS("nil"),
               [blit copyFromBuffer:nil sourceOffset:0 toBuffer:a destinationOffset:50 size:100]);
  CHECK_RAISES(kArgument, PARTS("size (0)"),
               [blit copyFromBuffer:a sourceOffset:0 toBuffer:c destinationOffset:0 size:0]);
  [blit endEncoding];
  CHECK_RAISES(kUsage, PARTS("endEncoding"), [blit fillBuffer:c range:NSMakeRange(0, 1) value:0]);
  unsigned char texels[4][4][4];
  CHECK_RAISES(kUsage, PARTS("not completed"),
               [u getBytes:texels bytesPerRow:16 fromRegion:MTLRegionMake2D(0, 0, 4, 4) mipmapLevel:0]);
  [buffer commit];
  [buffer waitUntilCompleted];
  const auto *result = static_cast<const unsigned char *>([c contents]);
  CHECK([buffer status] == MTLCommandBufferStatusCompleted);
  CHECK(result[0] == 99 && result[1] == 10 && result[100] == 109 && result[101] == 0);
  CHECK(result[200] == 36 && result[207] == 43 && result[208] == 0 && result[220] == 52);
  [u getBytes:texels bytesPerRow:16 fromRegion:MTLRegionMake2D(0, 0, 4, 4) mipmapLevel:0];
  CHECK(std::memcmp(texels, bytes, 64) == 0);
}

void test_events() {
  section = "events";
  const Pool pool;
  id<MTLCommandQueue> one = [[device newCommandQueue] autorelease], two = [[device newCommandQueue] autorelease];
  id<MTLSharedEvent> event = [[device newSharedEvent] autorelease];
  std::atomic<int> notified{0};
  std::atomic<int> *pointer = &notified;
  MTLSharedEventListener *listener = [[[MTLSharedEventListener alloc] init] autorelease];
  [event notifyListener:listener
                atValue:5
                  block:^(id<MTLSharedEvent>, uint64_t value) {
                    pointer->store(static_cast<int>(value));
                  }];
  id<MTLBuffer> buffer = [[device newBufferWithLength:4 options:0] autorelease];
  id<MTLCommandBuffer> late = [two commandBuffer], early = [one commandBuffer];
  [late encodeWaitForEvent:event value:5];
  id<MTLBlitCommandEncoder> blit = [late blitCommandEncoder];
  [blit fillBuffer:buffer range:NSMakeRange(0, 4) value:2];
  [blit endEncoding];
  [late commit];
  blit = [early blitCommandEncoder];
  [blit fillBuffer:buffer range:NSMakeRange(0, 4) value:1];
  [blit endEncoding];
  [early encodeSignalEvent:event value:5];
  usleep(2000);
  CHECK([late status] < MTLCommandBufferStatusCompleted && [event signaledValue] == 0);
  [early commit];
  [late waitUntilCompleted];
  CHECK(*static_cast<const char *>([buffer contents]) == 2 && [event signaledValue] == 5);
  for (int i = 0; i < 1000 && notified == 0; ++i) usleep(1000);
  CHECK(notified == 5);
  [event setLabel:@"e"];
  MTLSharedEventHandle *handle = [[event newSharedEventHandle] autorelease];
  id<MTLSharedEvent> same = [[device newSharedEventWithHandle:handle] autorelease];
  [same setSignaledValue:9];
  CHECK([event signaledValue] == 9 && [[handle label] isEqual:@"e"]);
  CHECK_RAISES(kArgument, PARTS("event is nil"), [[one commandBuffer] encodeSignalEvent:nil value:1]);
}

// ------------------------------------------------------------------------------------------------ images

template <class T>
void round_trip(MPSImageFeatureChannelFormat format, NSUInteger h, NSUInteger w, NSUInteger c, NSUInteger n) {
  const Pool pool;
  MPSImage *image = made(described(format, h, w, c, n));
  std::vector<T> in(n * h * w * c), out(in.size()), planes(in.size());
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<T>(i * 7 + 3);
  for (NSUInteger i = 0; i < n; ++i) [image writeBytes:in.data() + i * h * w * c dataLayout:kHWC imageIndex:i];
  for (NSUInteger i = 0; i < n; ++i) [image readBytes:out.data() + i * h * w * c dataLayout:kHWC imageIndex:i];
  for (NSUInteger i = 0; i < n; ++i) [image readBytes:planes.data() + i * h * w * c dataLayout:kCHW imageIndex:i];
  CHECK(in == out);
  bool good = true;
  for (NSUInteger i = 0; i < n; ++i)
    for (NSUInteger y = 0; y < h; ++y)
      for (NSUInteger x = 0; x < w; ++x)
        for (NSUInteger k = 0; k < c; ++k)
          good = good && planes[((i * c + k) * h + y) * w + x] == in[((i * h + y) * w + x) * c + k];
  CHECK(good);
  MPSImage *other = made(described(format, h, w, c, n));
  for (NSUInteger i = 0; i < n; ++i) [other writeBytes:planes.data() + i * h * w * c dataLayout:kCHW imageIndex:i];
  std::fill(out.begin(), out.end(), T());
  for (NSUInteger i = 0; i < n; ++i) [other readBytes:out.data() + i * h * w * c dataLayout:kHWC imageIndex:i];
  CHECK(in == out);
}

void test_image_bytes() {
  section = "image bytes";
  // Odd extents, channels around the tiles of the transposition (4 and 8) and of the texels.
  for (NSUInteger c : {1, 2, 3, 4, 5, 8, 9, 16, 19, 64}) {
    round_trip<float>(kFloat32, 5, 7, c, 2);
    round_trip<uint16_t>(kFloat16, 3, 13, c, 1);
    round_trip<uint8_t>(kUnorm8, 4, 70, c, 3);
  }
  round_trip<float>(kFloat32, 300, 301, 33, 1);   // several threads
  round_trip<float>(kFloat32, 1, 16000, 130, 1);  // one row of them
  const Pool pool;
  MPSImage *image = made(described(kFloat32, 4, 5, 6, 3));
  std::vector<float> all(3 * 4 * 5 * 6);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<float>(i);
  const MTLRegion whole = MTLRegionMake3D(0, 0, 0, 5, 4, 3);
  const MPSImageReadWriteParams six = {0, 6};
  [image writeBytes:all.data()
              dataLayout:kHWC
             bytesPerRow:5 * 6 * 4
           bytesPerImage:4 * 5 * 6 * 4
                  region:whole
      featureChannelInfo:six
              imageIndex:0];
  const auto at = [&](std::size_t n, std::size_t y, std::size_t x, std::size_t c) {
    return all[((n * 4 + y) * 5 + x) * 6 + c];
  };

  // A region of two images with padded rows and images.
  std::vector<float> part(2 * 100, -1);
  [image readBytes:part.data()
              dataLayout:kHWC
             bytesPerRow:20 * 4
           bytesPerImage:100 * 4
                  region:MTLRegionMake3D(1, 2, 1, 3, 2, 2)
      featureChannelInfo:six
              imageIndex:0];
  CHECK(part[0] == at(1, 2, 1, 0) && part[17] == at(1, 2, 3, 5) && part[18] == -1 && part[20] == at(1, 3, 1, 0));
  CHECK(part[100] == at(2, 2, 1, 0) && part[137] == at(2, 3, 3, 5) && part[138] == -1);

  // Planes with padded rows; channels 4 to 7, of which the image has two.
  std::vector<float> planes(4 * 3 * 8, -1);
  [image readBytes:planes.data()
              dataLayout:kCHW
             bytesPerRow:8 * 4
                  region:MTLRegionMake2D(1, 0, 4, 3)
      featureChannelInfo:MPSImageReadWriteParams{4, 4}
              imageIndex:2];
  CHECK(planes[0] == at(2, 0, 1, 4) && planes[3] == at(2, 0, 4, 4) && planes[4] == -1 && planes[8] == at(2, 1, 1, 4));
  CHECK(planes[24] == at(2, 0, 1, 5) && planes[48] == 0 && planes[72 + 16 + 3] == 0);

  // Writing a part leaves the rest.
  std::vector<float> patch(2 * 2 * 4, 1000);
  [image writeBytes:patch.data()
              dataLayout:kHWC
             bytesPerRow:2 * 4 * 4
                  region:MTLRegionMake2D(0, 1, 2, 2)
      featureChannelInfo:MPSImageReadWriteParams{0, 4}
              imageIndex:1];
  std::vector<float> now(4 * 5 * 6);
  [image readBytes:now.data() dataLayout:kHWC imageIndex:1];
  CHECK(now[(1 * 5 + 0) * 6 + 3] == 1000 && now[(2 * 5 + 1) * 6 + 0] == 1000 &&
        now[(1 * 5 + 0) * 6 + 4] == at(1, 1, 0, 4));
  CHECK(now[(1 * 5 + 2) * 6] == at(1, 1, 2, 0) && now[0] == at(1, 0, 0, 0));

  // bytesPerColumn: every other pixel of the buffer.
  MPSImage *gray = made(described(kFloat32, 2, 3, 1));
  const float spread[12] = {1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0};
  for (MPSDataLayout layout : {kHWC, kCHW}) {
    [gray writeBytes:spread
                dataLayout:layout
            bytesPerColumn:8
               bytesPerRow:24
             bytesPerImage:48
                    region:MTLRegionMake2D(0, 0, 3, 2)
        featureChannelInfo:MPSImageReadWriteParams{0, 1}
                imageIndex:0];
    float six_values[6];
    [gray readBytes:six_values dataLayout:kHWC imageIndex:0];
    CHECK(six_values[0] == 1 && six_values[2] == 3 && six_values[3] == 4 && six_values[5] == 6);
  }
  // Padding lanes of one- and two-channel images are Metal's default texel, of three-channel images 0.
  float texel[6][4];
  [gray readBytes:texel
              dataLayout:kHWC
             bytesPerRow:48
                  region:MTLRegionMake2D(0, 0, 3, 2)
      featureChannelInfo:MPSImageReadWriteParams{0, 4}
              imageIndex:0];
  CHECK(texel[1][0] == 2 && texel[1][1] == 0 && texel[1][2] == 0 && texel[1][3] == 1);
  MPSImage *rgb = made(described(kUnorm8, 1, 1, 3));
  const unsigned char three[3] = {1, 2, 3};
  unsigned char four[4] = {9, 9, 9, 9};
  [rgb writeBytes:three dataLayout:kHWC imageIndex:0];
  [rgb readBytes:four
              dataLayout:kHWC
             bytesPerRow:1
                  region:MTLRegionMake2D(0, 0, 1, 1)
      featureChannelInfo:MPSImageReadWriteParams{0, 4}
              imageIndex:0];
  CHECK(four[0] == 1 && four[2] == 3 && four[3] == 0);

  float *out = all.data();
  CHECK_RAISES(kArgument, PARTS("imageIndex (3)", "(3)"), [image readBytes:out dataLayout:kHWC imageIndex:3]);
  CHECK_RAISES(kArgument, PARTS("dataBytes is NULL"), [image readBytes:nullptr dataLayout:kHWC imageIndex:0]);
  CHECK_RAISES(kArgument, PARTS("dataLayout (2)"), [image readBytes:out dataLayout:(MPSDataLayout)2 imageIndex:0]);
  const auto read = [&](NSUInteger row, MTLRegion region, NSUInteger offset, NSUInteger count, MPSDataLayout layout) {
    [image readBytes:out
                dataLayout:layout
               bytesPerRow:row
                    region:region
        featureChannelInfo:MPSImageReadWriteParams{offset, count}
                imageIndex:0];
  };
  const MTLRegion plane = MTLRegionMake2D(0, 0, 5, 4);
  CHECK_RAISES(kArgument, PARTS("featureChannelOffset (2)", "4"), read(120, plane, 2, 4, kHWC));
  CHECK_RAISES(kArgument, PARTS("numberOfFeatureChannelsToReadWrite (0)"), read(120, plane, 0, 0, kHWC));
  CHECK_RAISES(kArgument, PARTS("numberOfFeatureChannelsToReadWrite (2)", "featureChannelOffset (4)"),
               read(120, plane, 4, 2, kHWC));
  CHECK_RAISES(kArgument, PARTS("featureChannels (6"), read(400, plane, 8, 4, kHWC));
  CHECK_RAISES(kArgument, PARTS("featureChannels (6"), read(400, plane, 0, NSUIntegerMax, kHWC));
  CHECK_RAISES(kArgument, PARTS("bytesPerRow (119)", "(120)"), read(119, plane, 0, 6, kHWC));
  CHECK_RAISES(kArgument, PARTS("bytesPerRow (122)", "(4)"), read(122, plane, 0, 6, kHWC));
  CHECK_RAISES(kArgument, PARTS("bytesPerRow (16)", "(20)"), read(16, plane, 0, 6, kCHW));
  CHECK_RAISES(kArgument, PARTS("(5 x 4)"), read(120, MTLRegionMake2D(3, 0, 3, 1), 0, 6, kHWC));
  CHECK_RAISES(kArgument, PARTS("(5 x 4)"), read(120, MTLRegionMake2D(NSUIntegerMax, 0, 2, 1), 0, 6, kHWC));
  CHECK_RAISES(kArgument, PARTS("extent of 0"), read(120, MTLRegionMake2D(0, 0, 0, 1), 0, 6, kHWC));
  CHECK_RAISES(kArgument, PARTS("numberOfImages (3)"), read(120, MTLRegionMake3D(0, 0, 2, 5, 4, 2), 0, 6, kHWC));
  CHECK_RAISES(kArgument, PARTS("bytesPerImage (100)"),
               [image readBytes:out
                           dataLayout:kHWC
                          bytesPerRow:120
                        bytesPerImage:100
                               region:whole
                   featureChannelInfo:six
                           imageIndex:0]);
}

void test_image_properties() {
  section = "image properties";
  const Pool pool;
  MPSImageDescriptor *plain = [[[MPSImageDescriptor alloc] init] autorelease];
  CHECK([plain width] == 1 && [plain height] == 1 && [plain featureChannels] == 1 && [plain numberOfImages] == 1);
  CHECK([plain usage] == (MTLTextureUsageShaderRead | MTLTextureUsageShaderWrite) &&
        [plain pixelFormat] == MTLPixelFormatInvalid);
  CHECK_RAISES(kArgument, PARTS("MPSImage: channelFormat (0"), made(plain));
  const struct {
    MPSImageFeatureChannelFormat format;
    NSUInteger channels;
    MTLPixelFormat pixel_format;
    NSUInteger precision, pixel_size;
  } rows[] = {{kUnorm8, 1, MTLPixelFormatR8Unorm, 8, 1},
              {MPSImageFeatureChannelFormatUnorm16, 2, MTLPixelFormatRG16Unorm, 16, 4},
              {kFloat16, 1, MTLPixelFormatR16Float, 11, 2},
              {kFloat16, 3, MTLPixelFormatRGBA16Float, 11, 8},
              {kFloat32, 17, MTLPixelFormatRGBA32Float, 24, 16}};
  for (const auto &row : rows) {
    MPSImage *image = made(described(row.format, 2, 3, row.channels, 2));
    CHECK([image pixelFormat] == row.pixel_format && [image precision] == row.precision &&
          [image pixelSize] == row.pixel_size);
    CHECK([image featureChannelFormat] == row.format && [image numberOfImages] == 2 && [image width] == 3 &&
          [image height] == 2);
  }
  MPSImageDescriptor *copied = [[described(kFloat16, 2, 3, 5, 4) copy] autorelease];
  CHECK([copied width] == 3 && [copied height] == 2 && [copied featureChannels] == 5 && [copied numberOfImages] == 4);
  MPSImage *image = made(copied);
  CHECK([image setPurgeableState:MPSPurgeableStateVolatile] == MPSPurgeableStateAllocationDeferred);
  CHECK([image textureType] == MTLTextureType2DArray && [[image texture] arrayLength] == 8 && [image parent] == nil);
  CHECK([made(described(kFloat16, 2, 3, 4)) textureType] == MTLTextureType2D);
  CHECK([image resourceSize] >= 4 * 2 * 3 * 5 * 2 && [image device] == device);
  [image setLabel:@"im"];
  CHECK([[image label] isEqual:@"im"]);
  CHECK(MPSGetImageType(image) == (MPSImageType_ArrayMask | MPSImageType_BatchMask | MPSImageType_texelFormatFloat16));
  CHECK_RAISES(kArgument, PARTS("width (0)", "(1)"), made(described(kFloat16, 2, 0, 1)));
  CHECK_RAISES(kArgument, PARTS("height (16385)", "(16384)"), made(described(kFloat16, 16385, 1, 1)));
  CHECK_RAISES(kArgument, PARTS("featureChannels (0)"), made(described(kFloat16, 2, 1, 0)));
  CHECK_RAISES(kArgument, PARTS("numberOfImages (0)"), made(described(kFloat16, 2, 1, 1, 0)));
  CHECK_RAISES(kArgument, PARTS("channelFormat (5)"), made(described(MPSImageFeatureChannelFormat_reserved0, 2, 1, 1)));
  CHECK_RAISES(kArgument, PARTS("2050 slices", "2048"), made(described(kFloat16, 1, 1, 8, 1025)));
  CHECK_RAISES(kArgument, PARTS("recommendedMaxWorkingSetSize"), made(described(kFloat32, 16384, 16384, 8192)));
  CHECK_RAISES(kArgument, PARTS("imageDescriptor is nil"), made(nil));
  CHECK_RAISES(kArgument, PARTS("device is nil"), [[MPSImage alloc] initWithDevice:nil imageDescriptor:copied]);
  CHECK_RAISES(kArgument, PARTS("unavailable"), [[MPSImage alloc] init]);
  CHECK_RAISES(kMissing, PARTS("MPSImage foo"), [(id<Unknown>)image foo]);
  CHECK_RAISES(kMissing, PARTS("+[MPSImage foo"), [(id)[MPSImage class] foo]);

  // The texture shows the image's memory.
  std::vector<uint16_t> in(2 * 3 * 5);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint16_t>(i + 1);
  [image writeBytes:in.data() dataLayout:kHWC imageIndex:1];
  uint16_t texels[2][3][4];
  [[image texture] getBytes:texels
                bytesPerRow:24
              bytesPerImage:0
                 fromRegion:MTLRegionMake2D(0, 0, 3, 2)
                mipmapLevel:0
                      slice:2];
  CHECK(texels[1][2][3] == in[(1 * 3 + 2) * 5 + 3]);
  [[image texture] getBytes:texels
                bytesPerRow:24
              bytesPerImage:0
                 fromRegion:MTLRegionMake2D(0, 0, 3, 2)
                mipmapLevel:0
                      slice:3];
  CHECK(texels[1][2][0] == in[(1 * 3 + 2) * 5 + 4] && texels[1][2][1] == 0 && texels[0][0][3] == 0);

  // Views.
  MPSImageBatch *batch = [image batchRepresentation];
  CHECK([batch count] == 4 && [[batch objectAtIndex:1] numberOfImages] == 1 &&
        [[batch objectAtIndex:1] parent] == image);
  std::vector<uint16_t> out(in.size());
  [[batch objectAtIndex:1] readBytes:out.data() dataLayout:kHWC imageIndex:0];
  CHECK(out == in);
  CHECK([[image batchRepresentationWithSubRange:NSMakeRange(1, 2)] count] == 2);
  CHECK_RAISES(kArgument, PARTS("(2, 3)", "(4)"), [image batchRepresentationWithSubRange:NSMakeRange(2, 3)]);
  MPSImage *sub = [image subImageWithFeatureChannelRange:NSMakeRange(4, 8)];
  CHECK([sub featureChannels] == 1 && [sub numberOfImages] == 4);
  std::vector<uint16_t> last(6);
  [sub readBytes:last.data() dataLayout:kHWC imageIndex:1];
  CHECK(last[5] == in[29]);
  CHECK_RAISES(kArgument, PARTS("range.location (2)"), [image subImageWithFeatureChannelRange:NSMakeRange(2, 4)]);
  CHECK_RAISES(kArgument, PARTS("range.length (3)"), [image subImageWithFeatureChannelRange:NSMakeRange(0, 3)]);
  MPSImage *slices = [[[MPSImage alloc] initWithParentImage:image sliceRange:NSMakeRange(2, 4)
                                            featureChannels:5] autorelease];
  CHECK([slices numberOfImages] == 2 && [slices featureChannels] == 5);
  [slices readBytes:out.data() dataLayout:kHWC imageIndex:0];
  CHECK(out == in);
  CHECK_RAISES(kArgument, PARTS("sliceRange (1, 4)"),
               [[MPSImage alloc] initWithParentImage:image sliceRange:NSMakeRange(1, 4) featureChannels:5]);

  MPSImageBatch *doubled = [NSArray arrayWithObjects:image, image, nil];
  CHECK(MPSImageBatchResourceSize(doubled) == [image resourceSize]);
  CHECK(MPSImageBatchIncrementReadCount(doubled, 3) == 1);
  __block NSUInteger visited = 0;
  CHECK(MPSImageBatchIterate(batch, ^NSInteger(MPSImage *, NSUInteger index) {
          ++visited;
          return index == 2 ? 42 : 0;
        }) == 42);
  CHECK(visited == 3);
  id allocator = [MPSImage defaultAllocator];
  id archived = [NSKeyedUnarchiver unarchiveObjectWithData:[NSKeyedArchiver archivedDataWithRootObject:allocator]];
  CHECK([archived respondsToSelector:@selector(imageForCommandBuffer:imageDescriptor:kernel:)]);
  CHECK([archived class] == [allocator class]);
}

void test_image_hazards() {
  section = "image hazards";
  const Pool pool;
  id<MTLCommandQueue> queue = [[device newCommandQueue] autorelease];
  MPSImage *image = made(described(kFloat32, 2, 2, 4));
  float values[16] = {1, 2, 3}, out[16];
  [image writeBytes:values dataLayout:kHWC imageIndex:0];
  id<MTLBuffer> source = [[device newBufferWithLength:64 options:0] autorelease];
  const auto write = [&](id<MTLCommandBuffer> commands) {
    id<MTLBlitCommandEncoder> blit = [commands blitCommandEncoder];
    [blit copyFromBuffer:source
               sourceOffset:0
          sourceBytesPerRow:32
        sourceBytesPerImage:64
                 sourceSize:MTLSizeMake(2, 2, 1)
                  toTexture:[image texture]
           destinationSlice:0
           destinationLevel:0
          destinationOrigin:MTLOriginMake(0, 0, 0)];
    [blit endEncoding];
  };
  {
    const Pool inner;
    write([queue commandBuffer]);
    CHECK_RAISES(kUsage,
                 PARTS("MPSImage", "was written by a command buffer that has not completed", "not been committed"),
                 [image readBytes:out dataLayout:kHWC imageIndex:0]);
    CHECK_RAISES(kUsage, PARTS("is written by a command buffer that has not completed"),
                 [[image subImageWithFeatureChannelRange:NSMakeRange(0, 4)] writeBytes:out
                                                                            dataLayout:kHWC
                                                                            imageIndex:0]);
  }
  // That command buffer is gone without having run.
  [image readBytes:out dataLayout:kHWC imageIndex:0];
  CHECK(out[1] == 2);
  id<MTLSharedEvent> event = [[device newSharedEvent] autorelease];
  id<MTLCommandBuffer> commands = [queue commandBuffer];
  [commands encodeWaitForEvent:event value:1];
  write(commands);
  [commands commit];
  CHECK_RAISES(kUsage, PARTS("was written by a command buffer that has not completed"),
               [image readBytes:out dataLayout:kHWC imageIndex:0]);
  [event setSignaledValue:1];
  [commands waitUntilCompleted];
  [image readBytes:out dataLayout:kHWC imageIndex:0];
  CHECK(out[1] == 0);
  MPSImageDescriptor *hidden = described(kFloat32, 2, 2, 4);
  [hidden setStorageMode:MTLStorageModePrivate];
  CHECK_RAISES(kUsage, PARTS("private"), [made(hidden) readBytes:out dataLayout:kHWC imageIndex:0]);
}

void test_shared_images() {
  section = "shared images";
  const Pool pool;
  CHECK([MPSImage instancesRespondToSelector:@selector
                  (initWithDevice:
                      imageDescriptor:bytesNoCopy:bytesPerPixel:bytesPerRow:bytesPerImage:readOnly:deallocator:)]);
  std::vector<float> memory(2 * 4 * 3 * 5);
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<float>(i);
  int calls = 0;
  int *const counter = &calls;
  const auto share = [&](NSUInteger pixel, NSUInteger row, NSUInteger image, BOOL read_only) {
    return [[MPSImage alloc] initWithDevice:device
                            imageDescriptor:described(kFloat32, 4, 3, 5, 2)
                                bytesNoCopy:memory.data()
                              bytesPerPixel:pixel
                                bytesPerRow:row
                              bytesPerImage:image
                                   readOnly:read_only
                                deallocator:^{
                                  ++*counter;
                                }];
  };
  MPSImage *image = share(20, 60, 240, NO);
  std::vector<float> out(60);
  [image readBytes:out.data() dataLayout:kHWC imageIndex:1];
  CHECK(std::memcmp(out.data(), memory.data() + 60, 240) == 0);
  out[0] = 77;
  [image writeBytes:out.data() dataLayout:kHWC imageIndex:0];
  CHECK(memory[0] == 77);
  id<MTLTexture> texture = [[image texture] retain];
  [image release];
  CHECK(calls == 0);  // the texture still needs it
  [texture release];
  CHECK(calls == 1);
  MPSImage *transposed = share(4 * 20, 20, 240, YES);  // rows and columns exchanged
  [transposed readBytes:out.data() dataLayout:kHWC imageIndex:0];
  CHECK(out[5] == memory[20] && out[15] == memory[5]);
  CHECK_RAISES(kUsage, PARTS("read-only"), [transposed writeBytes:out.data() dataLayout:kHWC imageIndex:0]);
  CHECK_RAISES(kUsage, PARTS("read-only"),
               [[transposed texture] replaceRegion:MTLRegionMake2D(0, 0, 1, 1)
                                       mipmapLevel:0
                                         withBytes:out.data()
                                       bytesPerRow:16]);
  [transposed release];
  CHECK(calls == 2);
  CHECK_RAISES(kArgument, PARTS("bytesPerRow (62)", "(4)"), share(20, 62, 240, NO));
  CHECK_RAISES(kArgument, PARTS("bytesPerRow (0)"), share(20, 0, 240, YES));
  CHECK_RAISES(kArgument, PARTS("bytesPerPixel (16)", "overlap"), share(16, 60, 240, NO));
  CHECK(calls == 2);
}

void test_temporaries() {
  section = "temporary images";
  const Pool pool;
  id<MTLCommandQueue> queue = [[device newCommandQueue] autorelease];
  id<MTLCommandBuffer> buffer = [queue commandBuffer];
  MPSTemporaryImage *image = [MPSTemporaryImage temporaryImageWithCommandBuffer:buffer
                                                                imageDescriptor:described(kFloat32, 2, 3, 8, 2)];
  CHECK([image readCount] == 1 && [image isKindOfClass:[MPSTemporaryImage class]] && [image numberOfImages] == 2);
  float bytes[96];
  CHECK_RAISES(kUsage, PARTS("temporary", "CPU"), [image readBytes:bytes dataLayout:kHWC imageIndex:0]);
  CHECK_RAISES(kUsage, PARTS("temporary", "CPU"), [image writeBytes:bytes dataLayout:kHWC imageIndex:0]);
  [image setLabel:@"middle"];
  CHECK([[image texture] storageMode] == MTLStorageModePrivate);
  CHECK_RAISES(kUsage, PARTS("MPSTemporaryImage", "middle", "readCount 1", "must be 0"), [buffer commit]);
  CHECK([buffer status] == MTLCommandBufferStatusNotEnqueued);  // and may still be mended
  CHECK(MPSImageBatchIncrementReadCount([NSArray arrayWithObjects:image, image, nil], 2) == 1 &&
        [image readCount] == 3);
  MPSImage *sub = [image subImageWithFeatureChannelRange:NSMakeRange(4, 4)];
  CHECK([sub isKindOfClass:[MPSTemporaryImage class]] && [(MPSTemporaryImage *)sub readCount] == 1 &&
        [image readCount] == 4);
  [(MPSTemporaryImage *)sub setReadCount:0];
  CHECK([image readCount] == 3);
  CHECK([[image batchRepresentation] count] == 2 && [image readCount] == 5);
  for (MPSTemporaryImage *one in [image batchRepresentation]) [one setReadCount:0];
  CHECK([image readCount] == 5);
  [image setReadCount:0];
  CHECK_RAISES(kUsage, PARTS("middle", "readCount of 0"), [image setReadCount:1]);
  CHECK_RAISES(kUsage, PARTS("readCount of 0"), [image texture]);
  CHECK(MPSImageBatchIncrementReadCount([NSArray arrayWithObject:image], 1) == 1 && [image readCount] == 0);
  // The two views of the first batchRepresentation were never read.
  CHECK_RAISES(kUsage, PARTS("readCount 1"), [buffer commit]);

  buffer = [queue commandBuffer];
  image = [MPSTemporaryImage temporaryImageWithCommandBuffer:buffer imageDescriptor:described(kFloat32, 2, 3, 8)];
  [image setReadCount:0];
  [buffer commit];
  [buffer waitUntilCompleted];
  CHECK([buffer status] == MTLCommandBufferStatusCompleted);
  CHECK_RAISES(kUsage, PARTS("committed already"),
               [MPSTemporaryImage temporaryImageWithCommandBuffer:buffer imageDescriptor:described(kFloat32, 2, 3, 8)]);
  CHECK_RAISES(kArgument, PARTS("MPSTemporaryImage: width (0)"),
               [MPSTemporaryImage temporaryImageWithCommandBuffer:[queue commandBuffer]
                                                  imageDescriptor:described(kFloat32, 2, 0, 8)]);
  CHECK_RAISES(kArgument, PARTS("commandBuffer is nil"),
               [MPSTemporaryImage temporaryImageWithCommandBuffer:nil imageDescriptor:described(kFloat32, 2, 3, 8)]);
  {
    // Deallocated with readers to come: told at the commit.
    id<MTLCommandBuffer> other = [queue commandBuffer];
    {
      const Pool inner;
      [MPSTemporaryImage temporaryImageWithCommandBuffer:other imageDescriptor:described(kFloat16, 9, 9, 8)];
    }
    CHECK_RAISES(kUsage, PARTS("(1 x 9 x 9 x 8)", "readCount 1"), [other commit]);
  }
  MTLTextureDescriptor *texture = [MTLTextureDescriptor texture2DDescriptorWithPixelFormat:MTLPixelFormatRGBA16Float
                                                                                     width:6
                                                                                    height:5
                                                                                 mipmapped:NO];
  [texture setTextureType:MTLTextureType2DArray];
  [texture setArrayLength:6];
  [texture setUsage:MTLTextureUsageShaderRead | MTLTextureUsageShaderWrite];
  buffer = [queue commandBuffer];
  image = [MPSTemporaryImage temporaryImageWithCommandBuffer:buffer textureDescriptor:texture featureChannels:7];
  CHECK([image numberOfImages] == 3 && [image featureChannels] == 7 && [image width] == 6);
  image = [MPSTemporaryImage temporaryImageWithCommandBuffer:buffer textureDescriptor:texture];
  CHECK([image numberOfImages] == 1 && [image featureChannels] == 24);
  [MPSTemporaryImage prefetchStorageWithCommandBuffer:buffer
                                  imageDescriptorList:[NSArray arrayWithObject:described(kFloat16, 1, 1, 1)]];
  MPSImage *allocated = [[MPSTemporaryImage defaultAllocator] imageForCommandBuffer:buffer
                                                                    imageDescriptor:described(kFloat16, 1, 1, 1)
                                                                             kernel:(MPSKernel *)nil];
  CHECK([allocated isKindOfClass:[MPSTemporaryImage class]]);
}

// ------------------------------------------------------------------------------------------------ states,
// MPSCommandBuffer

void test_states() {
  section = "states";
  const Pool pool;
  id<MTLCommandQueue> queue = [[device newCommandQueue] autorelease];
  MTLTextureDescriptor *texture = [MTLTextureDescriptor texture2DDescriptorWithPixelFormat:MTLPixelFormatR32Float
                                                                                     width:6
                                                                                    height:5
                                                                                 mipmapped:NO];
  MPSStateResourceList *list = [MPSStateResourceList resourceListWithBufferSizes:16, (NSUInteger)32, (NSUInteger)0];
  [list appendTexture:texture];
  MPSState *state = [[[MPSState alloc] initWithDevice:device resourceList:list] autorelease];
  CHECK([state resourceCount] == 3 && ![state isTemporary] && [state readCount] == 0);
  CHECK([state bufferSizeAtIndex:1] == 32 && [state resourceTypeAtIndex:2] == MPSStateResourceTypeTexture);
  CHECK([state textureInfoAtIndex:2].width == 6 && [state textureInfoAtIndex:2].pixelFormat == MTLPixelFormatR32Float);
  CHECK([state resourceAtIndex:0 allocateMemory:NO] == nil && [state resourceSize] == 16 + 32 + 120);
  id<MTLBuffer> first = (id<MTLBuffer>)[state resourceAtIndex:0 allocateMemory:YES];
  CHECK([first length] == 16 && [state resource] == first && [first contents] != nullptr);
  [state setReadCount:7];
  CHECK([state readCount] == 0);
  CHECK_RAISES(kArgument, PARTS("index (3)", "resourceCount (3)"), [state resourceAtIndex:3 allocateMemory:YES]);
  CHECK_RAISES(kArgument, PARTS("bufferSize (0)"), [[MPSState alloc] initWithDevice:device bufferSize:0]);
  CHECK([[MPSStateResourceList resourceListWithTextureDescriptors:texture, texture, nil]
      isKindOfClass:[MPSStateResourceList class]]);
  CHECK([[[[MPSState alloc] initWithResource:first] autorelease] resourceCount] == 1);
  CHECK([[[[MPSState alloc] initWithResources:nil] autorelease] resourceCount] == 0);
  CHECK([[[[MPSState alloc] initWithDevice:device
                         textureDescriptor:texture] autorelease] resourceTypeAtIndex:0] == MPSStateResourceTypeTexture);
  id<MTLCommandBuffer> buffer = [queue commandBuffer];
  MPSState *temporary = [MPSState temporaryStateWithCommandBuffer:buffer bufferSize:64];
  CHECK([temporary isTemporary] && [temporary readCount] == 1);
  CHECK([(id<MTLBuffer>)[temporary resourceAtIndex:0 allocateMemory:YES] contents] == nullptr);
  CHECK(![[MPSState temporaryStateWithCommandBuffer:buffer] isTemporary]);
  CHECK_RAISES(kUsage, PARTS("MPSState", "readCount 1"), [buffer commit]);
  NSArray *batch = [NSArray arrayWithObjects:temporary, temporary, state, nil];
  CHECK(MPSStateBatchIncrementReadCount(batch, 1) == 2 && [temporary readCount] == 2);
  CHECK(MPSStateBatchResourceSize(batch) == 64 + [state resourceSize]);
  MPSStateBatchSynchronize(batch, buffer);
  [temporary setReadCount:0];
  CHECK_RAISES(kUsage, PARTS("readCount of 0"), [temporary setReadCount:1]);
  CHECK_RAISES(kUsage, PARTS("readCount of 0"), [temporary resourceAtIndex:0 allocateMemory:YES]);
  [buffer commit];
  [buffer waitUntilCompleted];
  CHECK_RAISES(kMissing, PARTS("MPSState foo"), [(id<Unknown>)state foo]);
}

void test_mps_command_buffer() {
  section = "MPSCommandBuffer";
  const Pool pool;
  id<MTLCommandQueue> queue = [[device newCommandQueue] autorelease];
  MPSCommandBuffer *buffer = [MPSCommandBuffer commandBufferFromCommandQueue:queue];
  id<MTLCommandBuffer> first = [buffer commandBuffer];
  CHECK([buffer device] == device && [buffer commandQueue] == queue && [buffer rootCommandBuffer] == first);
  MPSTemporaryImage *image = [MPSTemporaryImage temporaryImageWithCommandBuffer:buffer
                                                                imageDescriptor:described(kFloat16, 2, 2, 4)];
  [buffer commitAndContinue];  // temporaries live on
  CHECK([buffer commandBuffer] != first && [first status] >= MTLCommandBufferStatusCommitted);
  CHECK([image readCount] == 1 && [image texture] != nil);
  CHECK_RAISES(kUsage, PARTS("readCount 1"), [buffer commit]);
  [image setReadCount:0];
  __block int completed = 0;
  [buffer addCompletedHandler:^(id<MTLCommandBuffer>) {
    ++completed;
  }];
  [buffer commit];
  [buffer waitUntilCompleted];
  CHECK(completed == 1 && [first status] == MTLCommandBufferStatusCompleted &&
        [buffer status] == MTLCommandBufferStatusCompleted);
  CHECK_RAISES(kUsage, PARTS("committed already"), [buffer commitAndContinue]);
  MPSCommandBuffer *nested = [MPSCommandBuffer
      commandBufferWithCommandBuffer:[MPSCommandBuffer commandBufferWithCommandBuffer:[queue commandBuffer]]];
  CHECK(![(id)[nested commandBuffer] isKindOfClass:[MPSCommandBuffer class]]);
}

// ------------------------------------------------------------------------------------------------ latency, leaks

void report_latency() {
  section = "latency";
  const Pool pool;
  id<MTLCommandQueue> queue = [[device newCommandQueue] autorelease];
  const auto once = [&] {
    const Pool inner;
    id<MTLCommandBuffer> buffer = [queue commandBuffer];
    [buffer commit];
    [buffer waitUntilCompleted];
  };
  for (int i = 0; i < 200; ++i) once();
  std::vector<double> busy, idle;
  for (int i = 0; i < 2000; ++i) busy.push_back(microseconds(once));
  for (int i = 0; i < 100; ++i) {
    usleep(1000);
    idle.push_back(microseconds(once));
  }
  std::sort(busy.begin(), busy.end());
  std::sort(idle.begin(), idle.end());
  std::printf("commit + waitUntilCompleted of nothing: median %.1f us in a row, %.1f us after a pause\n",
              busy[busy.size() / 2], idle[idle.size() / 2]);
  timespec before, after;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
  usleep(200000);
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
  const double seconds =
      static_cast<double>(after.tv_sec - before.tv_sec) + static_cast<double>(after.tv_nsec - before.tv_nsec) * 1e-9;
  CHECK(seconds < 0.02);  // idle queues cost nothing

  std::vector<float> planes(64 * 112 * 112);
  MPSImage *image = made(described(kFloat32, 112, 112, 64));
  [image writeBytes:planes.data() dataLayout:kHWC imageIndex:0];
  for (MPSDataLayout layout : {kHWC, kCHW}) {
    double best = 1e9;
    for (int i = 0; i < 20; ++i)
      best = std::min(best, microseconds([&] { [image readBytes:planes.data() dataLayout:layout imageIndex:0]; }));
    std::printf("readBytes of 112 x 112 x 64 floats, %s: %.2f GB/s\n", layout == kHWC ? "HWC" : "CHW",
                static_cast<double>(planes.size() * 4) / best * 1e-3);
  }
}

/// Objects of our classes that live, by class.
int alive() {
  int count = 0;
  for (NSString *name in
       [NSArray arrayWithObjects:@"MTLCommandBufferOnEngine", @"MTLCommandQueueOnEngine", @"MTLBufferOnEngine",
                                 @"MTLTextureOnEngine", @"MTLBlitCommandEncoderOnEngine", @"MTLHeapOnEngine",
                                 @"MTLSharedEventOnEngine", @"MTLSharedEventListener", @"MTLTextureDescriptor",
                                 @"MTLHeapDescriptor", @"MPSImage", @"MPSImageDescriptor", @"MPSTemporaryImage",
                                 @"MPSState", @"MPSStateResourceList", @"MPSCommandBuffer", nil]) {
    const int of_class = GSDebugAllocationCount(NSClassFromString(name));
    if (of_class != 0) std::printf("  %d of %s\n", of_class, [name UTF8String]);
    count += of_class;
  }
  return count;
}

}  // namespace

int main() {
  GSDebugAllocationActive(YES);
  const Pool pool;
  device = MTLCreateSystemDefaultDevice();
  std::printf("device: %s\n", [[device name] UTF8String]);
  void (*const tests[])() = {
      test_device,          test_buffers,       test_no_copy,     test_textures,    test_heaps,
      test_command_buffers, test_blits,         test_events,      test_image_bytes, test_image_properties,
      test_image_hazards,   test_shared_images, test_temporaries, test_states,      test_mps_command_buffer,
      report_latency};
  const NSUInteger bytes_before = [device currentAllocatedSize];
  for (void (*test)() : tests) {
    test();  // an exception here ends the program: it would not outlive the pool that it passes through
  }
  section = "leaks";
  for (int i = 0; i < 1000 && GSDebugAllocationCount(NSClassFromString(@"MTLCommandQueueOnEngine")) != 0; ++i)
    usleep(1000);
  CHECK(alive() == 0);
  CHECK([device currentAllocatedSize] == bytes_before);

  // A wait that never comes must not keep the process from ending.
  id<MTLCommandQueue> queue = [device newCommandQueue];
  id<MTLCommandBuffer> stuck = [queue commandBuffer];
  [stuck encodeWaitForEvent:[device newSharedEvent] value:1];
  [stuck commit];
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}
