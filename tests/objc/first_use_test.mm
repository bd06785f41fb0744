// SPDX-License-Identifier: Apache-2.0
// Threads may use Foundation, Metal and MPS first at the same time: in this program's children, four do.
//   objc_first_use           start the children
//   objc_first_use USE       be such a child
#import <Foundation/Foundation.h>
#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace {

/// A first use, and whether its result is right.
struct Use {
  const char *name;
  bool (*run)();
};

bool count(NSUInteger expected, id collection) { return [collection count] == expected; }

const Use kUses[] = {
    {"array", [] { return count(0, [[[NSMutableArray alloc] init] autorelease]); }},
    {"array of one", [] { return count(1, [NSArray arrayWithObject:@"a"]); }},
    {"copy of an array", [] { return count(1, [[[NSMutableArray arrayWithObject:@"a"] copy] autorelease]); }},
    {"dictionary", [] { return count(1, [NSMutableDictionary dictionaryWithObject:@"a" forKey:@"b"]); }},
    {"set", [] { return count(1, [NSMutableSet setWithObject:@"a"]); }},
    {"counted set", [] { return count(0, [[[NSCountedSet alloc] init] autorelease]); }},
    {"ordered set", [] { return count(1, [NSOrderedSet orderedSetWithObject:@"a"]); }},
    {"index set", [] { return count(2, [NSIndexSet indexSetWithIndexesInRange:NSMakeRange(3, 2)]); }},
    {"string", [] { return [[NSString stringWithFormat:@"%d %@", 7, @"a"] isEqual:@"7 a"] == YES; }},
    {"mutable string", [] { return [[NSMutableString stringWithString:@"abc"] length] == 3; }},
    {"data", [] { return [[NSMutableData dataWithLength:100] length] == 100; }},
    {"number", [] { return [[NSNumber numberWithDouble:0.5] floatValue] == 0.5f; }},
    {"value", [] { return [[NSValue valueWithRange:NSMakeRange(3, 4)] rangeValue].length == 4; }},
    {"error", [] { return [[NSError errorWithDomain:@"a" code:3 userInfo:nil] code] == 3; }},
    {"URL", [] { return [[NSURL fileURLWithPath:@"/a"] isFileURL] == YES; }},
    {"date", [] { return [[NSDate date] timeIntervalSince1970] > 0; }},
    {"lock", [] { return [[[[NSRecursiveLock alloc] init] autorelease] tryLock] == YES; }},
    {"exception",
     [] {
       @try {
         [NSException raise:NSInvalidArgumentException format:@"%d", 3];
       } @catch (NSException *exception) {
         return [[exception reason] isEqual:@"3"] == YES;
       }
       return false;
     }},
    {"device", [] { return [[MTLCopyAllDevices() autorelease] count] >= 1; }},
    {"command buffer",
     [] {
       id<MTLDevice> device = MTLCreateSystemDefaultDevice();
       id<MTLCommandQueue> queue = [[device newCommandQueue] autorelease];
       MPSImageDescriptor *const descriptor =
           [MPSImageDescriptor imageDescriptorWithChannelFormat:MPSImageFeatureChannelFormatFloat32
                                                          width:8
                                                         height:8
                                                featureChannels:4];
       MPSImage *const source = [[[MPSImage alloc] initWithDevice:device imageDescriptor:descriptor] autorelease];
       MPSCNNNeuronReLU *const relu = [[[MPSCNNNeuronReLU alloc] initWithDevice:device a:0] autorelease];
       id<MTLCommandBuffer> commands = [queue commandBuffer];
       MPSImage *const result = [[[MPSImage alloc] initWithDevice:device imageDescriptor:descriptor] autorelease];
       [relu encodeToCommandBuffer:commands sourceImage:source destinationImage:result];
       [commands commit];
       [commands waitUntilCompleted];
       return [commands status] == MTLCommandBufferStatusCompleted;
     }},
};

/// Let four threads begin the use at the same time. Return how many found a wrong result.
int be_child(const Use &use) {
  alarm(60);  // instead of waiting forever
  constexpr int kThreads = 4;
  std::atomic<int> ready{0}, wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      ++ready;
      while (ready < kThreads) {
      }
      NSAutoreleasePool *const pool = [[NSAutoreleasePool alloc] init];
      if (!use.run()) ++wrong;
      [pool release];
    });
  }
  for (std::thread &thread : threads) thread.join();
  return wrong;
}

/// Return the child's wait status.
int run_child(const char *program, const char *use) {
  const pid_t child = fork();
  if (child == 0) {
    execl(program, program, use, static_cast<char *>(nullptr));
    _exit(97);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

}  // namespace

int main(int argc, char **argv) {
  constexpr int kRounds = 10;
  int passed = 0, failed = 0;
  for (const Use &use : kUses) {
    if (argc == 2 && std::string(argv[1]) == use.name) return be_child(use);
    if (argc == 2) continue;
    for (int round = 0; round < kRounds; ++round) {
      const int status = run_child(argv[0], use.name);
      ++(status == 0 ? passed : failed);
      if (status != 0) std::printf("%s, round %d: wait status %d\n", use.name, round, status);
    }
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed == 0 && passed > 0 ? 0 : 1;
}
