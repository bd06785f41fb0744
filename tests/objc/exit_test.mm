// SPDX-License-Identifier: Apache-2.0
// Programs may end while their command buffers are under way: this one does, hundreds of times, as its own child.
//   objc_exit [MODE]              start the children, of all modes or of one
//   objc_exit MODE KIND DELAY     be such a child
#import <Foundation/Foundation.h>
#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

@interface ConstantWeights : NSObject<MPSCNNConvolutionDataSource> {
 @public
  std::vector<float> values;
  MPSCNNConvolutionDescriptor *descriptor;
}
@end

@implementation ConstantWeights
- (BOOL)load {
  return YES;
}
- (void)purge {
}
- (MPSDataType)dataType {
  return MPSDataTypeFloat32;
}
- (MPSCNNConvolutionDescriptor *)descriptor {
  return descriptor;
}
- (void *)weights {
  return values.data();
}
- (float *)biasTerms {
  return nullptr;
}
- (NSString *)label {
  return nil;
}
- (id)copyWithZone:(NSZone *)zone {
  (void)zone;
  return [self retain];
}
- (void)dealloc {
  [descriptor release];
  [super dealloc];
}
@end

// -------------------------------------------------------------------------------------------- work in progress

enum Kind { convolution, fully_connected, transposed, neuron, kKinds };
static const char *const kKindNames[kKinds] = {"convolution", "fully connected", "transposed convolution", "neuron"};

static id<MTLDevice> device;
static id<MTLCommandQueue> queue;

/// A kernel of the kind, its source and its result.
struct Work {
  MPSCNNKernel *kernel;
  MPSImage *source, *result;
};

static MPSImage *make_image(NSUInteger side, NSUInteger channels) {
  return [[MPSImage alloc]
       initWithDevice:device
      imageDescriptor:[MPSImageDescriptor imageDescriptorWithChannelFormat:MPSImageFeatureChannelFormatFloat32
                                                                     width:side
                                                                    height:side
                                                           featureChannels:channels]];
}

/// With a neuron, which has its own code in the engine's library too.
static ConstantWeights *make_weights(NSUInteger side, NSUInteger inputs, NSUInteger outputs) {
  ConstantWeights *weights = [[[ConstantWeights alloc] init] autorelease];
  weights->values.assign(side * side * inputs * outputs, 0.1f);
  weights->descriptor = [[MPSCNNConvolutionDescriptor cnnConvolutionDescriptorWithKernelWidth:side
                                                                                 kernelHeight:side
                                                                         inputFeatureChannels:inputs
                                                                        outputFeatureChannels:outputs] retain];
  [weights->descriptor setFusedNeuronDescriptor:[MPSNNNeuronDescriptor cnnNeuronDescriptorWithType:MPSCNNNeuronTypeELU
                                                                                                 a:1]];
  return weights;
}

static Work make_work(Kind kind) {
  switch (kind) {
    case fully_connected:
      return {[[MPSCNNFullyConnected alloc] initWithDevice:device weights:make_weights(16, 32, 64)], make_image(16, 32),
              make_image(1, 64)};
    case transposed: {
      ConstantWeights *weights = make_weights(4, 32, 32);
      [weights->descriptor setStrideInPixelsX:2];
      [weights->descriptor setStrideInPixelsY:2];
      return {[[MPSCNNConvolutionTranspose alloc] initWithDevice:device weights:weights], make_image(32, 32),
              make_image(64, 32)};
    }
    case neuron:
      return {[[MPSCNNNeuronTanH alloc] initWithDevice:device a:1 b:1], make_image(96, 64), make_image(96, 64)};
    default:
      return {[[MPSCNNConvolution alloc] initWithDevice:device weights:make_weights(3, 64, 64)], make_image(96, 64),
              make_image(96, 64)};
  }
}

static id<MTLCommandBuffer> commit(const Work &work) {
  id<MTLCommandBuffer> commands = [queue commandBuffer];
  [work.kernel encodeToCommandBuffer:commands sourceImage:work.source destinationImage:work.result];
  [commands commit];
  return commands;
}

// ------------------------------------------------------------------------------------------------ the children

/// From now on the process has one second.
static void hurry() { alarm(1); }

static void spend(long microseconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(microseconds);
  while (std::chrono::steady_clock::now() < end) std::this_thread::yield();
}

/// End inside the first command buffer, where the engine's library initializes itself.
static int leave(Kind kind, long delay) {
  commit(make_work(kind));
  spend(delay);
  return 0;
}

/// End with many command buffers pending.
static int leave_many(Kind kind, long delay) {
  const Work work = make_work(kind);
  [commit(work) waitUntilCompleted];
  for (int i = 0; i < 20; ++i) commit(work);
  spend(delay);
  return 0;
}

/// Call exit() on another thread while this one waits.
static int leave_by_thread(Kind kind, long delay) {
  id<MTLCommandBuffer> commands = commit(make_work(kind));
  std::thread([delay] {
    spend(delay);
    std::exit(0);
  }).detach();
  [commands waitUntilCompleted];
  for (;;) pause();
}

/// No exit handler runs, and none is needed.
static int leave_without_handlers(Kind kind, long delay) {
  commit(make_work(kind));
  spend(delay);
  hurry();
  _exit(0);
}

/// exit() does not wait for the handler that calls it.
static int leave_by_handler(Kind kind, long) {
  const Work work = make_work(kind);
  id<MTLCommandBuffer> commands = [queue commandBuffer];
  [work.kernel encodeToCommandBuffer:commands sourceImage:work.source destinationImage:work.result];
  [commands addCompletedHandler:^(id<MTLCommandBuffer>) {
    hurry();
    std::exit(0);
  }];
  [commands commit];
  [commands waitUntilCompleted];
  for (;;) pause();
}

/// exit() does not wait for an event that is never signaled.
static int leave_an_event(Kind kind, long) {
  commit(make_work(kind));
  id<MTLCommandBuffer> commands = [queue commandBuffer];
  [commands encodeWaitForEvent:[device newEvent] value:1];
  [commands commit];
  [commands waitUntilScheduled];
  hurry();
  return 0;
}

static std::atomic<bool> slow_threads{false}, thread_begins{false}, work_is_done{false};

/// Register the queue's thread with the Objective-C runtime; if `slow_threads`, slowly, and with an exit handler, as if
/// the runtime registered one.
extern "C" BOOL GSRegisterCurrentThread(void) {
  static const auto next = reinterpret_cast<BOOL (*)()>(dlsym(RTLD_NEXT, "GSRegisterCurrentThread"));
  if (!slow_threads.exchange(false)) return next();
  thread_begins = true;
  std::atexit([] {
    if (!work_is_done) _exit(3);
  });
  spend(50000);
  const BOOL is_new = next();
  thread_begins = false;
  return is_new;
}

/// exit() waits for a thread that begins, because exit handlers of the runtime use data that it changes. It also waits
/// for work in progress before it calls the handlers that the beginning thread registered.
static int leave_a_beginning(Kind kind, long) {
  std::atexit([] {
    if (thread_begins) _exit(1);
  });
  const Work work = make_work(kind);
  slow_threads = true;
  id<MTLCommandBuffer> commands = [queue commandBuffer];
  [work.kernel encodeToCommandBuffer:commands sourceImage:work.source destinationImage:work.result];
  [commands addCompletedHandler:^(id<MTLCommandBuffer>) {
    spend(20000);
    work_is_done = true;
  }];
  [commands commit];
  [commands waitUntilScheduled];
  return slow_threads ? 2 : 0;
}

static void *borrowed_memory;
static constexpr NSUInteger kBorrowedBytes = 16 << 20;

/// When exit handlers older than all work run, nothing is under way: they may free memory that buffers borrow.
static int leave_memory(Kind kind, long delay) {
  borrowed_memory = mmap(nullptr, kBorrowedBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  std::atexit([] {
    munmap(borrowed_memory, kBorrowedBytes);
    spend(20000);  // time for late writes
  });
  id<MTLBuffer> buffer = [device newBufferWithBytesNoCopy:borrowed_memory
                                                   length:kBorrowedBytes
                                                  options:MTLResourceStorageModeShared
                                              deallocator:nil];
  const Work work = make_work(kind);
  for (int i = 0; i < 20; ++i) {
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    id<MTLBlitCommandEncoder> blit = [commands blitCommandEncoder];
    [blit fillBuffer:buffer range:NSMakeRange(0, kBorrowedBytes) value:static_cast<uint8_t>(i)];
    [blit endEncoding];
    [commands commit];
    commit(work);
  }
  spend(delay);
  return 0;
}

static Work late_work;
static id<MTLCommandBuffer> late_commands;

/// An exit handler older than all work waits for committed work, and commits more.
static int leave_to_a_handler(Kind kind, long) {
  // The child's pool no longer exists then.
  std::atexit([] {
    NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
    [late_commands waitUntilCompleted];
    [commit(late_work) waitUntilCompleted];
    commit(late_work);
    [queue release];  // waits for its work
    [pool release];
    hurry();
  });
  late_work = make_work(kind);
  for (int i = 0; i < 20; ++i) late_commands = commit(late_work);
  [late_commands retain];
  return 0;
}

/// Return whether `action` is refused because of the fork.
static bool is_refused(const std::function<void()> &action) {
  @try {
    action();
  } @catch (NSException *exception) {
    return [[exception name] isEqual:@"MPSUsageException"] &&
           [[exception reason] rangeOfString:@"forked"].location != NSNotFound;
  }
  return false;
}

static int status_of(pid_t child) {
  int status = -1;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? 100 + WTERMSIG(status) : WEXITSTATUS(status);
}

/// A fork ends without waiting for its parent's work.
static int leave_a_fork(Kind kind, long delay) {
  const Work work = make_work(kind);
  for (int i = 0; i < 20; ++i) commit(work);
  spend(delay);
  const pid_t child = fork();
  if (child != 0) return status_of(child);
  hurry();
  std::exit(0);
}

/// A fork raises for calls that would never end there. The parent's queue is idle, because a fork may only end itself
/// if other threads held locks of the Objective-C runtime.
static int refuse_a_fork(Kind kind, long) {
  const Work work = make_work(kind);
  id<MTLCommandBuffer> commands = [queue commandBuffer];
  [commands encodeWaitForEvent:[device newEvent] value:1];
  [commands commit];
  [commands waitUntilScheduled];
  spend(10000);
  const pid_t child = fork();
  if (child != 0) return status_of(child);
  hurry();
  int problems = 0;
  if (!is_refused([&] { [commands waitUntilCompleted]; })) problems |= 1;
  if (!is_refused([&] { commit(work); })) problems |= 2;
  [queue release];
  std::exit(problems);
}

/// A fork of a process with an idle device has its own queues.
static int work_in_a_fork(Kind kind, long) {
  const Work work = make_work(kind);
  [commit(work) waitUntilCompleted];
  spend(10000);
  const pid_t child = fork();
  if (child != 0) return status_of(child);
  queue = [device newCommandQueue];
  [commit(work) waitUntilCompleted];
  commit(work);
  std::exit(0);
}

// Registrations of libraries with exit(), including the engine's: see below.
static std::atomic<int> late_registrations{0};

/// The engine's library must not register anything with exit() once there is a device: it would be undone before the
/// device is halted.
static int count_registrations(Kind, long) {
  late_registrations = 0;
  for (int kind = 0; kind < kKinds; ++kind) [commit(make_work(static_cast<Kind>(kind))) waitUntilCompleted];
  return std::min(late_registrations.load(), 99);
}

static bool is_of_engine(const void *code) {
  Dl_info info;
  return dladdr(code, &info) && info.dli_fname && std::strstr(info.dli_fname, "libdnnl");
}

extern "C" int __cxa_atexit(void (*function)(void *), void *object, void *library) {
  using Register = int (*)(void (*)(void *), void *, void *);
  static const auto next = reinterpret_cast<Register>(dlsym(RTLD_NEXT, "__cxa_atexit"));
  if (is_of_engine(__builtin_return_address(0))) ++late_registrations;
  return next(function, object, library);
}

// -------------------------------------------------------------------------------------------------- the parent

struct Mode {
  const char *name;
  int (*run)(Kind kind, long delay);
  int rounds;  // per kind; the delay grows with each
  long step;   // microseconds
};

static constexpr Mode kModes[] = {
    {"leave", leave, 60, 50},
    {"leave_many", leave_many, 5, 200},
    {"leave_by_thread", leave_by_thread, 20, 150},
    {"leave_without_handlers", leave_without_handlers, 5, 500},
    {"leave_by_handler", leave_by_handler, 2, 0},
    {"leave_an_event", leave_an_event, 2, 0},
    {"leave_a_beginning", leave_a_beginning, 1, 0},
    {"leave_memory", leave_memory, 2, 2000},
    {"leave_to_a_handler", leave_to_a_handler, 2, 0},
    {"leave_a_fork", leave_a_fork, 5, 500},
    {"refuse_a_fork", refuse_a_fork, 1, 0},
    {"work_in_a_fork", work_in_a_fork, 2, 0},
    {"count_registrations", count_registrations, 1, 0},
};

static int be_child(const char *name, Kind kind, long delay) {
  alarm(120);  // instead of waiting forever
  NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
  device = MTLCreateSystemDefaultDevice();
  queue = [device newCommandQueue];
  int status = 98;
  for (const Mode &mode : kModes) {
    if (std::strcmp(mode.name, name) == 0) status = mode.run(kind, delay);
  }
  [pool release];
  return status;
}

/// Return the child's wait status.
static int run_child(const char *program, const Mode &mode, int kind, long delay) {
  const pid_t child = fork();
  if (child == 0) {
    const std::string kind_text = std::to_string(kind), delay_text = std::to_string(delay);
    execl(program, program, mode.name, kind_text.c_str(), delay_text.c_str(), static_cast<char *>(nullptr));
    _exit(97);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

int main(int argc, char **argv) {
  if (argc == 4) return be_child(argv[1], static_cast<Kind>(std::atoi(argv[2])), std::atol(argv[3]));
  int passed = 0, failed = 0;
  for (const Mode &mode : kModes) {
    if (argc == 2 && std::strcmp(argv[1], mode.name) != 0) continue;
    for (int kind = 0; kind < kKinds; ++kind) {
      for (int round = 0; round < mode.rounds; ++round) {
        const int status = run_child(argv[0], mode, kind, round * mode.step);
        ++(status == 0 ? passed : failed);
        if (status == 0) continue;
        std::printf("%s, %s, %ld us: %s %d\n", mode.name, kKindNames[kind], round * mode.step,
                    WIFSIGNALED(status) ? "signal" : "status",
                    WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
      }
    }
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}
