// SPDX-License-Identifier: Apache-2.0
// Devices, buffers, textures and heaps through Apple's interfaces only, errors included. Prints "N passed, N failed".

#import "metal_test.hh"

#include <sys/mman.h>

namespace {

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
  CHECK([device location] == MTLDeviceLocationBuiltIn && [device locationNumber] == 0);
  CHECK_RAISES(kMissing, PARTS("newSharedTextureWithDescriptor", "not implemented"),
               [device newSharedTextureWithDescriptor:[[MTLTextureDescriptor new] autorelease]]);
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

void test_observers() {
  section = "observers";
  __block int calls = 0;
  id<NSObject> observer = nil;
  NSArray *all = [MTLCopyAllDevicesWithObserver(&observer, ^(id<MTLDevice>, MTLDeviceNotificationName) {
    ++calls;
  }) autorelease];
  CHECK([all count] >= 1 && [all objectAtIndex:0] == device && observer != nil);
  MTLRemoveDeviceObserver(observer);
  [observer release];
  CHECK(calls == 0);
  NSArray *names = [NSArray arrayWithObjects:MTLDeviceWasAddedNotification, MTLDeviceRemovalRequestedNotification,
                                             MTLDeviceWasRemovedNotification, nil];
  CHECK([[NSSet setWithArray:names] count] == 3);
  CHECK_RAISES(kArgument, PARTS("observer is NULL"), MTLCopyAllDevicesWithObserver(nullptr, nullptr));
  CHECK_RAISES(kArgument, PARTS("handler is nil"), MTLCopyAllDevicesWithObserver(&observer, nullptr));
  CHECK_RAISES(kArgument, PARTS("observer is nil"), MTLRemoveDeviceObserver(nil));
}

bool is_library_error(NSError *error, MTLLibraryError code, const char *part) {
  return [[error domain] isEqual:MTLLibraryErrorDomain] && [error code] == static_cast<NSInteger>(code) &&
         std::strstr([[error localizedDescription] UTF8String], part) != nullptr;
}

void test_libraries() {
  section = "libraries";
  NSString *source = @"kernel void f( {}";
  CHECK([device newDefaultLibrary] == nil);
  NSError *error = nil;
  CHECK([device newDefaultLibraryWithBundle:[NSBundle mainBundle] error:&error] == nil);
  CHECK(is_library_error(error, MTLLibraryErrorFileNotFound, "default.metallib"));
  error = nil;
  CHECK([device newLibraryWithSource:source options:nil error:&error] == nil);
  CHECK(is_library_error(error, MTLLibraryErrorCompileFailure, "program_source:1:"));
  CHECK([device newLibraryWithSource:source options:nil error:NULL] == nil);
  error = nil;
  CHECK([device newLibraryWithFile:@"/no/such.metallib" error:&error] == nil);
  CHECK(is_library_error(error, MTLLibraryErrorFileNotFound, "/no/such.metallib"));
  error = nil;
  CHECK([device newLibraryWithURL:[NSURL fileURLWithPath:@"/proc/self/exe"] error:&error] == nil);
  CHECK(is_library_error(error, MTLLibraryErrorUnsupported, "/proc/self/exe"));
  error = nil;
  CHECK([device newLibraryWithData:nullptr error:&error] == nil);
  CHECK(is_library_error(error, MTLLibraryErrorUnsupported, "Compiled"));
  __block int calls = 0;
  __block bool good = false;
  [device newLibraryWithSource:source
                       options:nil
             completionHandler:^(id<MTLLibrary> library, NSError *failure) {
               ++calls;
               good = library == nil && is_library_error(failure, MTLLibraryErrorCompileFailure, "program_source:1:");
             }];
  CHECK(calls == 1 && good);
  CHECK_RAISES(kArgument, PARTS("source of a library is nil"),
               [device newLibraryWithSource:nil options:nil error:NULL]);
  CHECK_RAISES(kArgument, PARTS("filepath of a library is nil"), [device newLibraryWithFile:nil error:NULL]);
  CHECK_RAISES(kArgument, PARTS("url of a library is nil"), [device newLibraryWithURL:nil error:NULL]);
  CHECK_RAISES(kArgument, PARTS("completionHandler of a library is nil"),
               [device newLibraryWithSource:source options:nil completionHandler:nullptr]);

  MTLCompileOptions *options = [[MTLCompileOptions new] autorelease];
  CHECK([options fastMathEnabled] && [options preprocessorMacros] == nil);
  [options setFastMathEnabled:NO];
  [options setLanguageVersion:MTLLanguageVersion2_0];
  NSMutableDictionary *macros = [NSMutableDictionary dictionaryWithObject:@"1" forKey:@"A"];
  [options setPreprocessorMacros:macros];
  [macros setObject:@"2" forKey:@"A"];
  MTLCompileOptions *copy = [[options copy] autorelease];
  [options setFastMathEnabled:YES];
  CHECK(![copy fastMathEnabled] && [copy languageVersion] == MTLLanguageVersion2_0);
  CHECK([[[copy preprocessorMacros] objectForKey:@"A"] isEqual:@"1"]);
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

}  // namespace

int main() {
  return run_tests(
      {test_device, test_observers, test_libraries, test_buffers, test_no_copy, test_textures, test_heaps});
}
