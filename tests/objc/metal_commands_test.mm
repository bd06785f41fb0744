// SPDX-License-Identifier: Apache-2.0
// Command queues and buffers, blits and events, and the cost of a command buffer. Prints "N passed, N failed".

#import "metal_test.hh"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

namespace {

// ------------------------------------------------------------------------------------------------ queues

/// Numbers that handlers note, possibly on a thread of their own.
class Notes {
 public:
  void add(int number) {
    const std::lock_guard lock(mutex_);
    numbers_.push_back(number);
  }
  std::vector<int> all() const {
    const std::lock_guard lock(mutex_);
    return numbers_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<int> numbers_;
};

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
    Notes notes;
    Notes *pointer = &notes;
    constexpr int kScheduled = 100;
    [buffer addScheduledHandler:^(id<MTLCommandBuffer>) {
      pointer->add(kScheduled);
    }];
    [buffer addCompletedHandler:^(id<MTLCommandBuffer> b) {
      [b waitUntilCompleted];  // of itself: the work is done
      pointer->add(static_cast<int>([b status]));
    }];
    [buffer enqueue];
    CHECK([buffer status] == MTLCommandBufferStatusEnqueued);
    CHECK_RAISES(kUsage, PARTS("enqueued already"), [buffer enqueue]);
    [buffer commit];
    [buffer waitUntilScheduled];
    [buffer waitUntilCompleted];
    wait_for_handlers([&] { return notes.all().size() == 2; });
    CHECK(notes.all() == std::vector<int>({kScheduled, static_cast<int>(MTLCommandBufferStatusCompleted)}));
    CHECK([buffer status] == MTLCommandBufferStatusCompleted && [buffer error] == nil);
    CHECK([buffer kernelStartTime] > 0 && [buffer kernelStartTime] <= [buffer kernelEndTime]);
    CHECK([buffer kernelEndTime] <= [buffer GPUStartTime] && [buffer GPUStartTime] <= [buffer GPUEndTime]);
    CHECK_RAISES(kUsage, PARTS("committed already"), [buffer commit]);
    CHECK_RAISES(kUsage, PARTS("committed already"), [buffer enqueue]);
    CHECK_RAISES(kUsage, PARTS("committed already"), [buffer blitCommandEncoder]);
    CHECK_RAISES(kUsage, PARTS("committed already"), [buffer computeCommandEncoder]);
    CHECK_RAISES(kUsage, PARTS("committed already"),
                 [buffer addCompletedHandler:^(id<MTLCommandBuffer>){
                 }]);
    CHECK_RAISES(kMissing, PARTS("renderCommandEncoder"), [(id<Unknown>)buffer renderCommandEncoder]);
  }
  {
    // -error reports exceptions in handlers.
    const Pool pool;
    id<MTLCommandBuffer> buffer = [queue commandBuffer];
    [buffer addCompletedHandler:^(id<MTLCommandBuffer>) {
      [NSException raise:@"Boom" format:@"boom"];
    }];
    [buffer commit];
    [buffer waitUntilCompleted];
    wait_for_handlers([&] { return [buffer status] == MTLCommandBufferStatusError; });
    CHECK([buffer status] == MTLCommandBufferStatusError);
    CHECK([[[buffer error] domain] isEqual:MTLCommandBufferErrorDomain]);
    CHECK([[[buffer error] localizedDescription] rangeOfString:@"boom"].length > 0);
  }
  {
    // 1000 in the order of their commits; only the last is waited for.
    Notes notes;
    Notes *pointer = &notes;
    {
      const Pool pool;
      id<MTLCommandBuffer> last = nil;
      for (int i = 0; i < 1000; ++i) {
        last = [queue commandBuffer];
        [last addCompletedHandler:^(id<MTLCommandBuffer>) {
          pointer->add(i);
        }];
        [last commit];
      }
      [last waitUntilCompleted];
    }
    wait_for_handlers([&] { return notes.all().size() == 1000; });
    const std::vector<int> ran = notes.all();
    bool sorted = ran.size() == 1000;
    for (int i = 0; sorted && i < 1000; ++i) sorted = ran[static_cast<std::size_t>(i)] == i;
    CHECK(sorted);
  }
  {
    // enqueue reserves a place; a dropped command buffer gives it up.
    const Pool pool;
    Notes notes;
    Notes *pointer = &notes;
    id<MTLCommandBuffer> first = [queue commandBuffer], second = [queue commandBuffer];
    {
      const Pool inner;
      [[queue commandBuffer] enqueue];
      [first enqueue];
      [second enqueue];
    }
    [first addCompletedHandler:^(id<MTLCommandBuffer>) {
      pointer->add(1);
    }];
    [second addCompletedHandler:^(id<MTLCommandBuffer>) {
      pointer->add(2);
    }];
    [second commit];
    usleep(2000);
    CHECK(notes.all().empty() && [second status] == MTLCommandBufferStatusCommitted);
    [first commit];
    [second waitUntilCompleted];
    wait_for_handlers([&] { return notes.all().size() == 2; });
    CHECK(notes.all() == std::vector<int>({1, 2}));
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
    wait_for_handlers([&] { return completed == 400; });
    CHECK(completed == 400);
  }
  {
    // A queue that is released at once still runs committed work.
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
    // No more in flight than the queue allows: commandBuffer waits.
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
  [blit synchronizeResource:u];
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
  // Apple's rules look at temporary images when they are freed.
  if (!has_apples_rules()) CHECK_RAISES(kUsage, PARTS("readCount 1"), [buffer commit]);
  [image setReadCount:0];
  Notes notes;
  Notes *pointer = &notes;
  [buffer addCompletedHandler:^(id<MTLCommandBuffer>) {
    pointer->add(1);
  }];
  [buffer commit];
  [buffer waitUntilCompleted];
  wait_for_handlers([&] { return !notes.all().empty(); });
  CHECK(notes.all().size() == 1 && [first status] == MTLCommandBufferStatusCompleted &&
        [buffer status] == MTLCommandBufferStatusCompleted);
  CHECK_RAISES(kUsage, PARTS("committed already"), [buffer commitAndContinue]);
  MPSCommandBuffer *nested = [MPSCommandBuffer
      commandBufferWithCommandBuffer:[MPSCommandBuffer commandBufferWithCommandBuffer:[queue commandBuffer]]];
  CHECK(![(id)[nested commandBuffer] isKindOfClass:[MPSCommandBuffer class]]);
}

// ------------------------------------------------------------------------------------------------ latency

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

}  // namespace

int main() {
  return run_tests({test_command_buffers, test_blits, test_events, test_mps_command_buffer, report_latency});
}
