// SPDX-License-Identifier: Apache-2.0
// Tensors, images, data sources and naive loops in double for mps_*test.mm. Public headers only: it also builds on
// Apple's MPS.
#pragma once

#import <Foundation/Foundation.h>
#import <Metal/Metal.h>
#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

// ------------------------------------------------------------------------------------------- the harness

inline int passed, failed;
inline id<MTLDevice> device;
inline id<MTLCommandQueue> queue;

inline void check(bool good, const std::string &what) {
  if (good) {
    ++passed;
  } else {
    ++failed;
    std::printf("FAILED: %s\n", what.c_str());
  }
}

/// Check that `action` raises `name` with a reason that contains `part`.
inline void check_raises(const std::string &what, NSString *name, const char *part,
                         const std::function<void()> &action) {
  std::string got = "nothing";
  bool good = false;
  @try {
    action();
  } @catch (NSException *exception) {
    got = [[exception description] UTF8String];
    if ([exception reason] != nil)
      got = std::string([[exception name] UTF8String]) + ": " + [[exception reason] UTF8String];
    good = [[exception name] isEqual:name] && [[exception reason] rangeOfString:@(part)].location != NSNotFound;
  }
  check(good, what + ": expected \"" + part + "\", got " + got);
}

inline int run_tests(const std::vector<void (*)()> &tests) {
  NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
  device = MTLCreateSystemDefaultDevice();
  queue = [device newCommandQueue];
  for (void (*test)() : tests) {
    NSAutoreleasePool *inner = [[NSAutoreleasePool alloc] init];
    @try {
      test();
    } @catch (NSException *exception) {
      check(false, std::string("an unexpected exception: ") + [[exception reason] UTF8String]);
    }
    [inner drain];
  }
  [queue release];
  std::printf("%d passed, %d failed\n", passed, failed);
  [pool drain];
  return failed == 0 ? 0 : 1;
}

struct Random {
  unsigned long long state;
  explicit Random(unsigned long long seed) : state(seed * 2654435761u + 1) {}
  /// Multiples of 1/64 in [-1, 1): exact in half precision.
  double next() {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<double>(static_cast<int>(state >> 57) - 64) / 64.0;
  }
};

/// Raised for wrong arguments.
inline NSString *const kArgument = NSInvalidArgumentException;
/// Raised for a wrong order of calls.
inline NSString *const kUsage = @"MPSUsageException";

struct Tensor {
  long n = 1, h = 1, w = 1, c = 1;
  std::vector<double> values;
  Tensor() = default;
  Tensor(long n, long h, long w, long c, double value = 0)
      : n(n), h(h), w(w), c(c), values(static_cast<std::size_t>(n * h * w * c), value) {}
  static Tensor random(long n, long h, long w, long c, unsigned seed) {
    Tensor t(n, h, w, c);
    Random random(seed);
    for (double &value : t.values) value = random.next();
    return t;
  }
  double &at(long i, long y, long x, long k) { return values[static_cast<std::size_t>(((i * h + y) * w + x) * c + k)]; }
  double at(long i, long y, long x, long k) const {
    return values[static_cast<std::size_t>(((i * h + y) * w + x) * c + k)];
  }
  Tensor image(long i) const {
    Tensor t(1, h, w, c);
    t.values.assign(values.begin() + i * h * w * c, values.begin() + (i + 1) * h * w * c);
    return t;
  }
  Tensor channels(long first, long count) const {
    Tensor t(n, h, w, count);
    for (long i = 0; i < n; ++i)
      for (long y = 0; y < h; ++y)
        for (long x = 0; x < w; ++x)
          for (long k = 0; k < count; ++k) t.at(i, y, x, k) = at(i, y, x, first + k);
    return t;
  }
};

/// Return the max difference; infinite for other extents or a NaN on one side only.
inline double distance(const Tensor &a, const Tensor &b) {
  if (a.n != b.n || a.h != b.h || a.w != b.w || a.c != b.c) return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (std::size_t i = 0; i < a.values.size(); ++i) {
    if (std::isnan(a.values[i]) && std::isnan(b.values[i])) continue;
    if (a.values[i] == b.values[i]) continue;
    const double d = std::fabs(a.values[i] - b.values[i]);
    if (!(d <= worst)) worst = std::isnan(d) ? std::numeric_limits<double>::infinity() : d;
  }
  return worst;
}

inline void check_equal(const std::string &what, const Tensor &got, const Tensor &expected, double tolerance = 2e-5) {
  const double d = distance(got, expected);
  char text[160];
  std::snprintf(text, sizeof text, ": %ldx%ldx%ldx%ld, expected %ldx%ldx%ldx%ld, largest difference %g", got.n, got.h,
                got.w, got.c, expected.n, expected.h, expected.w, expected.c, d);
  check(d <= tolerance, what + text);
}

// --------------------------------------------------------------------------------------------- images

inline MPSImageDescriptor *describe(long n, long h, long w, long c,
                                    MPSImageFeatureChannelFormat format = MPSImageFeatureChannelFormatFloat32) {
  return [MPSImageDescriptor imageDescriptorWithChannelFormat:format
                                                        width:static_cast<NSUInteger>(w)
                                                       height:static_cast<NSUInteger>(h)
                                              featureChannels:static_cast<NSUInteger>(c)
                                               numberOfImages:static_cast<NSUInteger>(n)
                                                        usage:MTLTextureUsageShaderRead | MTLTextureUsageShaderWrite];
}

/// Make an image with elements T: float or _Float16.
template <class T>
MPSImage *make_image_of(const Tensor &t) {
  const auto format = sizeof(T) == 2 ? MPSImageFeatureChannelFormatFloat16 : MPSImageFeatureChannelFormatFloat32;
  MPSImage *image =
      [[[MPSImage alloc] initWithDevice:device imageDescriptor:describe(t.n, t.h, t.w, t.c, format)] autorelease];
  std::vector<T> values(t.values.begin(), t.values.end());
  const std::size_t count = static_cast<std::size_t>(t.h * t.w * t.c);
  for (long i = 0; i < t.n; ++i)
    [image writeBytes:values.data() + static_cast<std::size_t>(i) * count
           dataLayout:MPSDataLayoutHeightxWidthxFeatureChannels
           imageIndex:static_cast<NSUInteger>(i)];
  return image;
}

template <class T>
Tensor read_image_of(MPSImage *image) {
  Tensor t(static_cast<long>([image numberOfImages]), static_cast<long>([image height]),
           static_cast<long>([image width]), static_cast<long>([image featureChannels]));
  const std::size_t count = static_cast<std::size_t>(t.h * t.w * t.c);
  std::vector<T> values(t.values.size());
  for (long i = 0; i < t.n; ++i)
    [image readBytes:values.data() + static_cast<std::size_t>(i) * count
          dataLayout:MPSDataLayoutHeightxWidthxFeatureChannels
          imageIndex:static_cast<NSUInteger>(i)];
  for (std::size_t i = 0; i < values.size(); ++i) t.values[i] = static_cast<double>(values[i]);
  return t;
}

inline MPSImage *make_image(const Tensor &t) { return make_image_of<float>(t); }
inline Tensor read_image(MPSImage *image) { return read_image_of<float>(image); }

/// Make an image of NaN, which shows the values that a kernel does not write.
inline MPSImage *make_nan_image(long n, long h, long w, long c) { return make_image(Tensor(n, h, w, c, NAN)); }

/// Make an image in half precision, for values that it holds exactly.
inline MPSImage *make_half_image(const Tensor &t) { return make_image_of<_Float16>(t); }
inline Tensor read_half_image(MPSImage *image) { return read_image_of<_Float16>(image); }

/// Return each image of the tensor as a separate image.
inline MPSImageBatch *make_batch(const Tensor &t) {
  NSMutableArray *batch = [NSMutableArray array];
  for (long i = 0; i < t.n; ++i) [batch addObject:make_image(t.image(i))];
  return batch;
}

inline id<MTLCommandBuffer> command_buffer() { return [queue commandBuffer]; }

inline void run(id<MTLCommandBuffer> buffer) {
  [buffer commit];
  [buffer waitUntilCompleted];
  check([buffer status] == MTLCommandBufferStatusCompleted, "a command buffer ends completed");
}

/// Run the kernel from `source` to `destination`.
inline void encode(MPSCNNKernel *kernel, MPSImage *source, MPSImage *destination) {
  id<MTLCommandBuffer> buffer = command_buffer();
  [kernel encodeToCommandBuffer:buffer sourceImage:source destinationImage:destination];
  run(buffer);
}

/// Return the kernel's result for `source`, in an image that the kernel sizes.
inline Tensor result_of(MPSCNNKernel *kernel, MPSImage *source) {
  [kernel setDestinationImageAllocator:[MPSImage defaultAllocator]];
  id<MTLCommandBuffer> buffer = command_buffer();
  MPSImage *result = [kernel encodeToCommandBuffer:buffer sourceImage:source];
  run(buffer);
  return read_image(result);
}

/// Return the object, archived and read again.
template <class Kernel>
inline Kernel *archived(Kernel *object) {
  NSData *data = [NSKeyedArchiver archivedDataWithRootObject:object];
  NSError *error = nil;
  id result = [MPSKeyedUnarchiver unarchivedObjectOfClass:[object class] fromData:data device:device error:&error];
  check(result != nil, std::string("an archive of ") + [NSStringFromClass([object class]) UTF8String] + " is read");
  return result;
}

/// Check that the kernel, its copy and its archive compute the same.
inline void check_twins(const std::string &what, MPSCNNKernel *kernel, const Tensor &x, long h, long w, long c) {
  id twins[] = {kernel, [[kernel copy] autorelease], archived(kernel)};
  MPSImage *results[3];
  id<MTLCommandBuffer> buffer = command_buffer();
  for (int i = 0; i < 3; ++i) {
    check([twins[i] device] == device && [twins[i] isKindOfClass:[kernel class]], what + ": device and class");
    results[i] = make_nan_image(x.n, h, w, c);
    [twins[i] encodeToCommandBuffer:buffer sourceImage:make_image(x) destinationImage:results[i]];
  }
  run(buffer);
  const Tensor expected = read_image(results[0]);
  check(!std::isnan(expected.values.back()), what + ": something is computed");
  check_equal(what + ", copy", read_image(results[1]), expected, 0);
  check_equal(what + ", archive", read_image(results[2]), expected, 0);
}

// ------------------------------------------------------------------------------------------ data sources

/// Returns the values of its fields, and counts the calls.
@interface TestSource : NSObject <MPSCNNConvolutionDataSource> {
 @public
  MPSCNNConvolutionDescriptor *descriptor;
  MPSDataType type;
  std::vector<unsigned char> bytes;
  std::vector<float> bias;
  int loads, purges, copies;
  BOOL refuses_load, raises_in_weights, has_no_weights;
}
@end

/// With all optional methods.
@interface FullTestSource : TestSource {
 @public
  MPSDataType kept;
  MPSCNNWeightsQuantizationType quantization;
  std::vector<float> ranges, table;
}
@end

@implementation TestSource
- (void)dealloc {
  [descriptor release];
  [super dealloc];
}
- (MPSDataType)dataType {
  return type;
}
- (MPSCNNConvolutionDescriptor *)descriptor {
  return descriptor;
}
- (void *)weights {
  if (raises_in_weights) [NSException raise:@"TestException" format:@"from the data source"];
  return has_no_weights ? NULL : bytes.data();
}
- (float *)biasTerms {
  return bias.empty() ? NULL : bias.data();
}
- (BOOL)load {
  if (refuses_load) return NO;
  ++loads;
  return YES;
}
- (void)purge {
  ++purges;
}
- (NSString *)label {
  return @"test source";
}
- (id)copyWithZone:(NSZone *)zone {
  (void)zone;
  ++copies;
  return [self retain];
}
@end

@implementation FullTestSource
- (MPSDataType)kernelWeightsDataType {
  return kept;
}
- (MPSCNNWeightsQuantizationType)weightsQuantizationType {
  return quantization;
}
- (vector_float2 *)rangesForUInt8Kernel {
  return ranges.empty() ? NULL : reinterpret_cast<vector_float2 *>(ranges.data());
}
- (float *)lookupTableForUInt8Kernel {
  return table.empty() ? NULL : table.data();
}
- (MPSCNNConvolutionWeightsLayout)weightsLayout {
  return MPSCNNConvolutionWeightsLayoutOHWI;
}
@end

inline MPSCNNConvolutionDescriptor *descriptor_of(NSUInteger kh, NSUInteger kw, NSUInteger inputs, NSUInteger outputs) {
  return [MPSCNNConvolutionDescriptor cnnConvolutionDescriptorWithKernelWidth:kw
                                                                 kernelHeight:kh
                                                         inputFeatureChannels:inputs
                                                        outputFeatureChannels:outputs];
}

template <class Source = TestSource>
Source *make_source(MPSCNNConvolutionDescriptor *descriptor, const std::vector<double> &weights,
                    const std::vector<double> &bias) {
  Source *source = [[[Source alloc] init] autorelease];
  source->descriptor = [descriptor retain];
  source->type = MPSDataTypeFloat32;
  std::vector<float> values(weights.begin(), weights.end());
  source->bytes.resize(values.size() * sizeof(float));
  if (!values.empty()) std::memcpy(source->bytes.data(), values.data(), source->bytes.size());
  source->bias.assign(bias.begin(), bias.end());
  return source;
}

inline std::vector<double> random_values(std::size_t count, unsigned seed) {
  Random random(seed);
  std::vector<double> values(count);
  for (double &value : values) value = random.next();
  return values;
}

// ------------------------------------------------------------------------------------- formulas in double

struct Geometry {
  long kh = 1, kw = 1, sy = 1, sx = 1, dy = 1, dx = 1;
  long start_y = 0, start_x = 0;  ///< source row and column of the first tap of destination pixel (0, 0)
};

/// Convolve with w[O][kh][kw][I], at every destination pixel, with zeros around the source.
inline Tensor convolve(const Tensor &x, const std::vector<double> &w, const std::vector<double> &b, long outputs,
                       const Geometry &g, long height, long width) {
  Tensor y(x.n, height, width, outputs);
  for (long n = 0; n < x.n; ++n)
    for (long j = 0; j < height; ++j)
      for (long i = 0; i < width; ++i)
        for (long o = 0; o < outputs; ++o) {
          double sum = b.empty() ? 0 : b[static_cast<std::size_t>(o)];
          for (long p = 0; p < g.kh; ++p)
            for (long q = 0; q < g.kw; ++q) {
              const long sy = g.start_y + j * g.sy + p * g.dy, sx = g.start_x + i * g.sx + q * g.dx;
              if (sy < 0 || sy >= x.h || sx < 0 || sx >= x.w) continue;
              for (long c = 0; c < x.c; ++c)
                sum += w[static_cast<std::size_t>(((o * g.kh + p) * g.kw + q) * x.c + c)] * x.at(n, sy, sx, c);
            }
          y.at(n, j, i, o) = sum;
        }
  return y;
}

/// Put `part` into `whole` at (image, row, column, channel).
inline void paste(Tensor &whole, const Tensor &part, long z, long y, long x, long c) {
  for (long n = 0; n < part.n; ++n)
    for (long j = 0; j < part.h; ++j)
      for (long i = 0; i < part.w; ++i)
        for (long k = 0; k < part.c; ++k) whole.at(z + n, y + j, x + i, c + k) = part.at(n, j, i, k);
}
