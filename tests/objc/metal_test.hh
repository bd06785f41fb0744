// SPDX-License-Identifier: Apache-2.0
// Common parts of the tests of Metal and MPSCore: checks, the device, images, the count of live objects.
#pragma once

#import <Foundation/Foundation.h>
#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#pragma clang diagnostic ignored "-Wnonnull"  // nil is passed on purpose

/// Selectors that openmps lacks; Apple has some of them.
@protocol Unknown
- (void)drawPatches;
- (void)gpuAddress;
- (void)renderCommandEncoder;
- (void)foo;
+ (void)foo;
@end

inline int passed = 0, failed = 0;
inline const char *section = "";

inline void check(bool good, const char *what, int line) {
  if (good) {
    ++passed;
  } else {
    ++failed;
    std::printf("FAILED %s, line %d: %s\n", section, line, what);
  }
}
#define CHECK(...) check((__VA_ARGS__), #__VA_ARGS__, __LINE__)

/// Whether the device has Apple's rules (MPSCNN_DEVICE).
inline bool has_apples_rules() {
  const char *rules = std::getenv("MPSCNN_DEVICE");
  return rules != nullptr && std::string(rules) == "apple";
}
/// Wait for completion handlers. With openmps's rules they have run before -waitUntilCompleted returns.
template <class Condition>
void wait_for_handlers(Condition have_run) {
  for (int i = 0; has_apples_rules() && i < 10000 && !have_run(); ++i) usleep(1000);
}

struct Raised {
  std::string name, reason;
};

inline Raised raised_by(const std::function<void()> &body) {
  Raised raised;
  @try {
    body();
  } @catch (NSException *exception) {
    raised.name = [[exception name] UTF8String];
    raised.reason = [[exception reason] UTF8String];
  }
  return raised;
}

/// Check that the body raises `name` with a reason that contains each of `parts`.
inline void check_raises(const char *name, std::initializer_list<const char *> parts, const std::function<void()> &body,
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

inline id<MTLDevice> device;

inline double microseconds(const std::function<void()> &body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

inline MPSImageDescriptor *described(MPSImageFeatureChannelFormat format, NSUInteger h, NSUInteger w, NSUInteger c,
                                     NSUInteger n = 1) {
  return [MPSImageDescriptor imageDescriptorWithChannelFormat:format
                                                        width:w
                                                       height:h
                                              featureChannels:c
                                               numberOfImages:n
                                                        usage:MTLTextureUsageShaderRead | MTLTextureUsageShaderWrite];
}

inline MPSImage *made(MPSImageDescriptor *descriptor) {
  return [[[MPSImage alloc] initWithDevice:device imageDescriptor:descriptor] autorelease];
}

constexpr auto kFloat32 = MPSImageFeatureChannelFormatFloat32;
constexpr auto kFloat16 = MPSImageFeatureChannelFormatFloat16;
constexpr auto kUnorm8 = MPSImageFeatureChannelFormatUnorm8;
constexpr auto kHWC = MPSDataLayoutHeightxWidthxFeatureChannels;
constexpr auto kCHW = MPSDataLayoutFeatureChannelsxHeightxWidth;

// -------------------------------------------------------------------------------------------------- leaks

/// Return the number of live objects of our classes.
inline int alive() {
  int count = 0;
  for (NSString *name in
       [NSArray arrayWithObjects:@"MTLCommandBufferOnEngine", @"MTLCommandQueueOnEngine", @"MTLBufferOnEngine",
                                 @"MTLTextureOnEngine", @"MTLBlitCommandEncoderOnEngine", @"MTLHeapOnEngine",
                                 @"MTLLibraryOnEngine", @"MTLFunctionOnEngine", @"MTLComputePipelineStateOnEngine",
                                 @"MTLComputeCommandEncoderOnEngine", @"MTLFunctionConstantValues",
                                 @"MTLSharedEventOnEngine", @"MTLSharedEventListener", @"MTLTextureDescriptor",
                                 @"MTLHeapDescriptor", @"MPSImage", @"MPSImageDescriptor", @"MPSTemporaryImage",
                                 @"MPSState", @"MPSStateResourceList", @"MPSCommandBuffer", nil]) {
    const int of_class = GSDebugAllocationCount(NSClassFromString(name));
    if (of_class != 0) std::printf("  %d of %s\n", of_class, [name UTF8String]);
    count += of_class;
  }
  return count;
}

/// Run the tests. An exception in a test ends the program: it would not outlive the pool that it passes through.
inline int run_tests(const std::vector<void (*)()> &tests) {
  GSDebugAllocationActive(YES);
  const Pool pool;
  device = MTLCreateSystemDefaultDevice();
  std::printf("device: %s\n", [[device name] UTF8String]);
  const NSUInteger bytes_before = [device currentAllocatedSize];
  for (void (*test)() : tests) test();
  section = "leaks";
  for (int i = 0; i < 1000 && GSDebugAllocationCount(NSClassFromString(@"MTLCommandQueueOnEngine")) != 0; ++i)
    usleep(1000);
  CHECK(alive() == 0);
  CHECK([device currentAllocatedSize] == bytes_before);
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}
