// SPDX-License-Identifier: Apache-2.0
// MPSCNN_DEVICE=apple: hidden extensions and enforced rules, as on Apple's devices. Prints "N passed, N failed".

#import "metal_test.hh"
#import "sharing.hh"

#include <stdlib.h>

#include <atomic>
#include <cmath>
#include <thread>

/// As in csrc/core/data_source/sharing.hh.
@protocol AwaitedCommit
- (void)commitAwaited;
@end

namespace {

id<MTLCommandQueue> queue;

std::vector<float> read_floats(MPSImage *image) {
  std::vector<float> values([image width] * [image height] * [image featureChannels] * [image numberOfImages]);
  for (NSUInteger i = 0; i < [image numberOfImages]; ++i)
    [image readBytes:values.data() + i * values.size() / [image numberOfImages] dataLayout:kHWC imageIndex:i];
  return values;
}

MPSImage *filled(float value, NSUInteger images = 1) {
  MPSImage *image = made(described(kFloat32, 2, 2, 4, images));
  const std::vector<float> values(16, value);
  for (NSUInteger i = 0; i < images; ++i) [image writeBytes:values.data() dataLayout:kHWC imageIndex:i];
  return image;
}

MPSCNNNeuron *negation() { return [[[MPSCNNNeuronLinear alloc] initWithDevice:device a:-1 b:0] autorelease]; }

void run(id<MTLCommandBuffer> buffer) {
  [buffer commit];
  [buffer waitUntilCompleted];
}

void test_hidden_selectors() {
  section = "hidden selectors";
  const Pool pool;
  CHECK(![MPSImage instancesRespondToSelector:@selector(initWithDevice:imageDescriptor:bytesNoCopy:bytesPerPixel:
                                                        bytesPerRow:bytesPerImage:readOnly:deallocator:)]);
  CHECK([MPSImage instancesRespondToSelector:@selector(initWithDevice:imageDescriptor:)]);
  float memory[16] = {};
  CHECK_RAISES(kMissing, PARTS("bytesNoCopy"),
               [[MPSImage alloc] initWithDevice:device
                                imageDescriptor:described(kFloat32, 2, 2, 4)
                                    bytesNoCopy:memory
                                  bytesPerPixel:16
                                    bytesPerRow:32
                                  bytesPerImage:64
                                       readOnly:NO
                                    deallocator:nil]);
  for (const SEL selector :
       { @selector(peakAllocatedSize), @selector(cachedSize), @selector(setComputeThreads:),
        @selector(hasStatesOfSeveralImages) })
    CHECK(![(id)device respondsToSelector:selector]);
  id buffer = [queue commandBuffer];
  CHECK(![buffer respondsToSelector:@selector(commitAwaited)] && [buffer respondsToSelector:@selector(commit)]);
  CHECK_RAISES(kMissing, PARTS("commitAwaited"), [static_cast<id<AwaitedCommit>>(buffer) commitAwaited]);
}

void test_in_place() {
  section = "in place";
  const Pool pool;
  MPSImage *image = [[[MPSImage alloc] initWithDevice:device imageDescriptor:described(kFloat32, 2, 2, 4)] autorelease];
  MPSCNNNeuronReLU *relu = [[[MPSCNNNeuronReLU alloc] initWithDevice:device a:0] autorelease];
  id<MTLCommandBuffer> buffer = [queue commandBuffer];
  CHECK_RAISES(kArgument, PARTS("sourceImage and the destination share memory"),
               [relu encodeToCommandBuffer:buffer sourceImage:image destinationImage:image]);
  [buffer commit];
  [buffer waitUntilCompleted];
}

void test_managed_images() {
  section = "managed images";
  const Pool pool;
  MPSImage *to = filled(5);
  CHECK([[to texture] storageMode] == MTLStorageModeManaged && read_floats(to)[3] == 5);
  id<MTLCommandBuffer> buffer = [queue commandBuffer];
  [negation() encodeToCommandBuffer:buffer sourceImage:filled(2) destinationImage:to];
  run(buffer);
  CHECK(read_floats(to)[3] == 5);
  buffer = [queue commandBuffer];
  [to synchronizeOnCommandBuffer:buffer];
  run(buffer);
  CHECK(read_floats(to)[3] == -2);

  MPSImage *unwritten = made(described(kFloat32, 2, 2, 4));
  buffer = [queue commandBuffer];
  [negation() encodeToCommandBuffer:buffer sourceImage:to destinationImage:unwritten];
  run(buffer);
  CHECK(std::isnan(read_floats(unwritten)[0]));
  buffer = [queue commandBuffer];
  id<MTLBlitCommandEncoder> blit = [buffer blitCommandEncoder];
  [blit synchronizeResource:[unwritten texture]];
  [blit endEncoding];
  run(buffer);
  float texel[4];
  [[unwritten texture] getBytes:texel bytesPerRow:16 fromRegion:MTLRegionMake2D(1, 1, 1, 1) mipmapLevel:0];
  CHECK(texel[0] == 2 && read_floats(unwritten)[0] == 2);

  MPSImageDescriptor *shared = described(kFloat32, 2, 2, 4);
  [shared setStorageMode:MTLStorageModeShared];
  MPSImage *one = made(shared);
  buffer = [queue commandBuffer];
  [negation() encodeToCommandBuffer:buffer sourceImage:to destinationImage:one];
  run(buffer);
  CHECK(read_floats(one)[0] == 2);
}

void test_managed_buffers() {
  section = "managed buffers";
  const Pool pool;
  id<MTLBuffer> managed = [[device newBufferWithLength:64 options:MTLResourceStorageModeManaged] autorelease];
  auto *bytes = static_cast<unsigned char *>([managed contents]);
  const auto fill = [&](unsigned char value, bool synchronizes) {
    id<MTLCommandBuffer> buffer = [queue commandBuffer];
    id<MTLBlitCommandEncoder> blit = [buffer blitCommandEncoder];
    [blit fillBuffer:managed range:NSMakeRange(0, 32) value:value];
    if (synchronizes) [blit synchronizeResource:managed];
    [blit endEncoding];
    run(buffer);
  };
  fill(7, false);
  CHECK(bytes[0] == 0);
  fill(8, true);
  CHECK(bytes[0] == 8 && bytes[32] == 0);
  // didModifyRange: copies the CPU's writes.
  bytes[40] = 1, bytes[41] = 2;
  [managed didModifyRange:NSMakeRange(41, 1)];
  fill(9, true);
  CHECK(bytes[0] == 9 && bytes[40] == 0 && bytes[41] == 2);
  CHECK([[[device newBufferWithLength:16 options:MTLResourceStorageModePrivate] autorelease] contents] == nullptr);
  CHECK([[[[[MPSState alloc] initWithDevice:device
                                 bufferSize:16] autorelease] resource] storageMode] == MTLStorageModeManaged);
}

void test_places_of_a_queue() {
  section = "places of a queue";
  const Pool pool;
  id<MTLCommandQueue> small = [[device newCommandQueueWithMaxCommandBufferCount:2] autorelease];
  for (const bool commits : {true, false}) {
    const auto open = [&] {
      const Pool own;  // nothing else retains them
      return [[small commandBuffer] retain];
    };
    id<MTLCommandBuffer> first = open(), second = open();
    std::atomic<bool> came = false;
    std::thread third([&] {
      const Pool own;
      [small commandBuffer];
      came = true;
    });
    usleep(50000);
    CHECK(!came);
    if (commits) run(first);
    [first release];
    third.join();
    CHECK(came);
    [second release];
  }
}

void test_handlers() {
  section = "handlers";
  const Pool pool;
  static std::atomic<bool> go = false, has_run = false, has_waited = false;  // static: a block would copy locals
  static std::atomic<std::thread::id> thread = {};
  id<MTLCommandBuffer> buffer = [queue commandBuffer];
  [buffer addCompletedHandler:^(id<MTLCommandBuffer> done) {
    while (!go) usleep(100);
    [done waitUntilCompleted];
    has_waited = true;
    thread = std::this_thread::get_id();
    has_run = true;
  }];
  run(buffer);
  CHECK([buffer status] == MTLCommandBufferStatusCompleted && !has_run);
  run([queue commandBuffer]);  // the queue is not blocked
  go = true;
  for (int i = 0; i < 10000 && !has_run; ++i) usleep(100);
  CHECK(has_run && has_waited && thread.load() != std::this_thread::get_id());
}

void test_memory_of_the_program() {
  section = "pages";
  const Pool pool;
  void *memory = nullptr;
  CHECK(posix_memalign(&memory, 16384, 32768) == 0);
  const auto share = [&](char *pointer, NSUInteger length) {
    return [[device newBufferWithBytesNoCopy:pointer length:length options:0 deallocator:nil] autorelease];
  };
  CHECK([share(static_cast<char *>(memory), 32768) length] == 32768);
  CHECK_RAISES(kArgument, PARTS("not aligned to a page (16384 bytes)"),
               share(static_cast<char *>(memory) + 4096, 16384));
  CHECK_RAISES(kArgument, PARTS("length (4096)", "16384"), share(static_cast<char *>(memory), 4096));
  free(memory);
}

void test_unread_temporaries() {
  section = "unread temporaries";
  {
    const Pool pool;
    id<MTLCommandBuffer> buffer = [queue commandBuffer];
    MPSTemporaryImage *image = [MPSTemporaryImage temporaryImageWithCommandBuffer:buffer
                                                                  imageDescriptor:described(kFloat32, 2, 2, 4)];
    [image setLabel:@"middle"];
    run(buffer);  // nothing is freed yet
  }
  CHECK_RAISES(kUsage, PARTS("MPSTemporaryImage (1 x 2 x 2 x 4) 'middle' was freed with readCount 1"),
               [queue commandBuffer]);
  const Pool pool;
  CHECK([queue commandBuffer] != nil);
  MPSTemporaryImage *read = [MPSTemporaryImage temporaryImageWithCommandBuffer:[queue commandBuffer]
                                                               imageDescriptor:described(kFloat32, 2, 2, 4)];
  [read setReadCount:0];
}

void test_states_of_single_images() {
  section = "states";
  const Pool pool;
  MPSCNNNeuron *kernel = negation();
  MPSImage *one = filled(1), *two = filled(2, 2), *to = filled(0), *to_two = filled(0, 2);
  CHECK_RAISES(kArgument, PARTS("sourceImage has 2 images"),
               [kernel resultStateForSourceImage:two sourceStates:nil destinationImage:to_two]);
  MPSState *state = [kernel resultStateForSourceImage:one sourceStates:nil destinationImage:to];
  MPSStateBatch *states = [kernel resultStateBatchForSourceImage:[two batchRepresentation]
                                                    sourceStates:nil
                                                destinationImage:[to_two batchRepresentation]];
  CHECK([states count] == 2 && [states objectAtIndex:0] != [states objectAtIndex:1]);
  id<MTLCommandBuffer> buffer = [queue commandBuffer];
  CHECK_RAISES(kArgument, PARTS("sourceImage has 2 images"),
               [kernel encodeToCommandBuffer:buffer sourceImage:two destinationState:state destinationImage:to_two]);
  [kernel encodeBatchToCommandBuffer:buffer
                        sourceImages:[two batchRepresentation]
                   destinationStates:states
                   destinationImages:[to_two batchRepresentation]];
  [kernel encodeToCommandBuffer:buffer sourceImage:two destinationImage:to_two];
  run(buffer);
}

}  // namespace

int main() {
  setenv("MPSCNN_DEVICE", "apple", 1);
  const auto make_queue = [] { queue = [device newCommandQueue]; };
  const auto release_queue = [] { [queue release]; };
  return run_tests({make_queue, test_hidden_selectors, test_in_place, test_managed_images, test_managed_buffers,
                    test_places_of_a_queue, test_handlers, test_memory_of_the_program, test_unread_temporaries,
                    test_states_of_single_images, release_queue});
}
