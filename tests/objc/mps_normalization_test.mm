// SPDX-License-Identifier: Apache-2.0
// Normalization: numbers against the formulas written out in double, properties, data sources, states, statistics in
// parts, and what the kernels refuse. Prints "N passed, N failed".

#import "mps_test.hh"

#include <cfloat>

// ---------------------------------------------------------------------------------------------- data sources

/// Instance normalization asks for no more than this.
@interface PlainNormSource : NSObject <MPSCNNInstanceNormalizationDataSource> {
 @public
  NSUInteger channels;
  std::vector<float> gammas, betas, means, variances;
  int copies;
}
@end

/// Batch normalization asks for this.
@interface NormSource : PlainNormSource <MPSCNNBatchNormalizationDataSource> {
 @public
  int loads, purges;
  BOOL refuses_load;
}
@end

/// With every optional method.
@interface FullNormSource : NormSource {
 @public
  float epsilon_value;
}
@end

@interface GroupSource : PlainNormSource <MPSCNNGroupNormalizationDataSource> {
 @public
  NSUInteger groups;
}
@end

@implementation PlainNormSource
- (NSUInteger)numberOfFeatureChannels {
  return channels;
}
- (float *)gamma {
  return gammas.empty() ? NULL : gammas.data();
}
- (float *)beta {
  return betas.empty() ? NULL : betas.data();
}
- (NSString *)label {
  return @"norm source";
}
- (id)copyWithZone:(NSZone *)zone {
  (void)zone;
  ++copies;
  return [self retain];
}
@end

@implementation NormSource
- (float *)mean {
  return means.empty() ? NULL : means.data();
}
- (float *)variance {
  return variances.empty() ? NULL : variances.data();
}
- (BOOL)load {
  if (refuses_load) return NO;
  ++loads;
  return YES;
}
- (void)purge {
  ++purges;
}
@end

@implementation FullNormSource
- (float)epsilon {
  return epsilon_value;
}
@end

@implementation GroupSource
- (NSUInteger)numberOfGroups {
  return groups;
}
- (void)setNumberOfGroups:(NSUInteger)value {
  groups = value;
}
@end

namespace {

NSString *const kUsage = @"MPSUsageException";

using Numbers = std::vector<double>;

std::vector<float> floats(const Numbers &values) { return {values.begin(), values.end()}; }

/// The numbers of every channel.
struct Affine {
  Numbers gamma, beta, mean, variance;

  Affine(std::size_t channels, unsigned seed)
      : gamma(random_values(channels, seed)),
        beta(random_values(channels, seed + 1)),
        mean(random_values(channels, seed + 2)),
        variance(random_values(channels, seed + 3)) {
    for (double &value : gamma) value += 1.5;
    for (double &value : variance) value = std::fabs(value) + 0.25;
  }
};

template <class Source>
Source *make_norm_source(const Affine &values) {
  Source *source = [[[Source alloc] init] autorelease];
  source->channels = values.gamma.size();
  source->gammas = floats(values.gamma);
  source->betas = floats(values.beta);
  source->means = floats(values.mean);
  source->variances = floats(values.variance);
  return source;
}

template <class Kernel>
Kernel *make_norm(id source) {
  return [[[Kernel alloc] initWithDevice:device dataSource:source] autorelease];
}

Numbers floats_in(id<MTLBuffer> buffer) {
  const float *first = static_cast<const float *>([buffer contents]);
  return Numbers(first, first + [buffer length] / sizeof(float));
}

id<MTLBuffer> make_buffer(const Numbers &values) {
  const std::vector<float> all = floats(values);
  return [[device newBufferWithBytes:all.data()
                              length:all.size() * sizeof(float)
                             options:MTLResourceStorageModeShared] autorelease];
}

void check_numbers(const std::string &what, const Numbers &got, const Numbers &expected, double tolerance = 1e-6) {
  double worst = got.size() == expected.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < std::min(got.size(), expected.size()); ++i)
    if (const double d = std::fabs(got[i] - expected[i]); !(d <= worst)) worst = std::isnan(d) ? INFINITY : d;
  check(worst <= tolerance, what + ", largest difference " + std::to_string(worst));
}

/// The images one after the other in memory, and one by one.
Tensor read_batch(MPSImageBatch *batch) {
  Tensor all;
  for (MPSImage *image in batch) {
    const Tensor one = read_image(image);
    if (all.values.size() <= 1) all = Tensor(0, one.h, one.w, one.c);
    ++all.n;
    all.values.insert(all.values.end(), one.values.begin(), one.values.end());
  }
  return all;
}

MPSImageBatch *nan_batch(long n, long h, long w, long c) {
  NSMutableArray *batch = [NSMutableArray array];
  for (long i = 0; i < n; ++i) [batch addObject:make_nan_image(1, h, w, c)];
  return batch;
}

Tensor run_kernel(MPSCNNKernel *kernel, const Tensor &x, long h = 0, long w = 0, long c = 0) {
  MPSImage *result = make_nan_image(x.n, h ? h : x.h, w ? w : x.w, c ? c : x.c);
  id<MTLCommandBuffer> buffer = command_buffer();
  [kernel encodeToCommandBuffer:buffer sourceImage:make_image(x) destinationImage:result];
  run(buffer);
  return read_image(result);
}

// ------------------------------------------------------------------------------------------------ the formulas

/// Where the kernel looks: pixel (0, 0) of the result lies over `y`, `x` of the source.
struct Place {
  long y = 0, x = 0;
  bool clamp = false;

  double operator()(const Tensor &t, long n, long j, long i, long k) const {
    long row = y + j, column = x + i;
    if (clamp) {
      row = std::min(std::max(row, 0l), t.h - 1);
      column = std::min(std::max(column, 0l), t.w - 1);
    } else if (row < 0 || row >= t.h || column < 0 || column >= t.w) {
      return 0;
    }
    return t.at(n, row, column, k);
  }
};

struct LocalNorm {
  double alpha, beta, delta, p0 = 1, pm = 0, ps = 1;
  Place place;
};

Tensor cross_channel(const Tensor &x, long size, const LocalNorm &f, long h, long w) {
  Tensor r(x.n, h, w, x.c);
  for (long n = 0; n < x.n; ++n)
    for (long j = 0; j < h; ++j)
      for (long i = 0; i < w; ++i)
        for (long k = 0; k < x.c; ++k) {
          double sum = 0;
          for (long q = std::max(0l, k - size / 2); q <= std::min(x.c - 1, k + (size - 1) / 2); ++q)
            sum += std::pow(f.place(x, n, j, i, q), 2);
          r.at(n, j, i, k) =
              f.place(x, n, j, i, k) / std::pow(f.delta + f.alpha / static_cast<double>(size) * sum, f.beta);
        }
  return r;
}

/// With `contrast` the local contrast normalization, else the spatial one.
Tensor in_windows(const Tensor &x, long size, const LocalNorm &f, bool contrast, long h, long w) {
  Tensor r(x.n, h, w, x.c);
  const double count = static_cast<double>(size * size);
  for (long n = 0; n < x.n; ++n)
    for (long j = 0; j < h; ++j)
      for (long i = 0; i < w; ++i)
        for (long k = 0; k < x.c; ++k) {
          double sum = 0, squares = 0;
          for (long p = -(size / 2); p <= (size - 1) / 2; ++p)
            for (long q = -(size / 2); q <= (size - 1) / 2; ++q) {
              const double value = f.place(x, n, j + p, i + q, k);
              sum += value, squares += value * value;
            }
          const double value = f.place(x, n, j, i, k), mean = sum / count;
          if (contrast)
            r.at(n, j, i, k) = f.pm + f.ps * (value - f.p0 * mean) /
                                          std::pow(f.delta + f.alpha * (squares / count - mean * mean), f.beta);
          else
            r.at(n, j, i, k) = value / std::pow(f.delta + f.alpha / count * squares, f.beta);
        }
  return r;
}

struct Moments {
  double mean = 0, variance = 0;
};

/// Of images [first, first + images) and channels [channel, channel + channels).
Moments moments_of(const Tensor &x, long first, long images, long channel, long channels) {
  Moments m;
  const double count = static_cast<double>(images * x.h * x.w * channels);
  const auto each = [&](const auto &f) {
    for (long n = first; n < first + images; ++n)
      for (long j = 0; j < x.h; ++j)
        for (long i = 0; i < x.w; ++i)
          for (long k = channel; k < channel + channels; ++k) f(x.at(n, j, i, k));
  };
  each([&](double v) { m.mean += v / count; });
  each([&](double v) { m.variance += (v - m.mean) * (v - m.mean) / count; });
  return m;
}

Tensor affine(const Tensor &x, const Affine &a, double epsilon, const Place &place, long h, long w) {
  Tensor r(x.n, h, w, x.c);
  for (long n = 0; n < x.n; ++n)
    for (long j = 0; j < h; ++j)
      for (long i = 0; i < w; ++i)
        for (long k = 0; k < x.c; ++k) {
          const auto c = static_cast<std::size_t>(k);
          r.at(n, j, i, k) =
              (place(x, n, j, i, k) - a.mean[c]) * a.gamma[c] / std::sqrt(a.variance[c] + epsilon) + a.beta[c];
        }
  return r;
}

Tensor affine(const Tensor &x, const Affine &a, double epsilon) { return affine(x, a, epsilon, {}, x.h, x.w); }

/// `groups` of neighbouring channels; as many as channels: instance normalization.
Tensor by_image(const Tensor &x, long groups, const Affine &a, double epsilon, const Place &place, long h, long w) {
  Tensor r(x.n, h, w, x.c);
  const long each = x.c / groups;
  for (long n = 0; n < x.n; ++n) {
    Affine own = a;
    for (long k = 0; k < x.c; ++k) {
      const Moments m = moments_of(x, n, 1, k / each * each, each);
      own.mean[static_cast<std::size_t>(k)] = m.mean, own.variance[static_cast<std::size_t>(k)] = m.variance;
    }
    paste(r, affine(x.image(n), own, epsilon, place, h, w), n, 0, 0, 0);
  }
  return r;
}

Tensor by_image(const Tensor &x, long groups, const Affine &a, double epsilon) {
  return by_image(x, groups, a, epsilon, {}, x.h, x.w);
}

Numbers means_of(const Tensor &x, long first, long images) {
  Numbers result;
  for (long k = 0; k < x.c; ++k) result.push_back(moments_of(x, first, images, k, 1).mean);
  return result;
}

Numbers variances_of(const Tensor &x, long first, long images) {
  Numbers result;
  for (long k = 0; k < x.c; ++k) result.push_back(moments_of(x, first, images, k, 1).variance);
  return result;
}

// ------------------------------------------------------------------------------------- by what surrounds a value

MPSCNNCrossChannelNormalization *make_cross_channel(NSUInteger size) {
  return [[[MPSCNNCrossChannelNormalization alloc] initWithDevice:device kernelSize:size] autorelease];
}

template <class Kernel>
Kernel *make_window(NSUInteger size) {
  return [[[Kernel alloc] initWithDevice:device kernelWidth:size kernelHeight:size] autorelease];
}

void test_local_defaults() {
  MPSCNNCrossChannelNormalization *channels = make_cross_channel(3);
  check([channels alpha] == 1 && [channels beta] == 5 && [channels delta] == 1 && [channels kernelSize] == 3 &&
            [channels kernelWidth] == 1 && [channels kernelHeight] == 1,
        "cross-channel: defaults");
  MPSCNNSpatialNormalization *spatial = make_window<MPSCNNSpatialNormalization>(3);
  check([spatial alpha] == 1 && [spatial beta] == 5 && [spatial delta] == 1 && [spatial kernelWidth] == 3 &&
            [spatial kernelHeight] == 3,
        "spatial: defaults");
  MPSCNNLocalContrastNormalization *contrast = make_window<MPSCNNLocalContrastNormalization>(5);
  check([contrast alpha] == 0 && [contrast beta] == 0.5f && [contrast delta] == 1.0f / 1024 && [contrast p0] == 1 &&
            [contrast pm] == 0 && [contrast ps] == 1 && [contrast kernelWidth] == 5,
        "local contrast: defaults");
}

/// Numbers that others have measured on Apple's implementation, of a ramp 1 ... 16 on 4 x 4 pixels.
void test_measured_numbers() {
  Tensor ramp(1, 4, 4, 1);
  for (std::size_t i = 0; i < 16; ++i) ramp.values[i] = static_cast<double>(i + 1);
  const double spatial = run_kernel(make_window<MPSCNNSpatialNormalization>(3), ramp).at(0, 0, 0, 0);
  // Exactly 0.12^5; the measured number is 1e-6 of it off.
  check(std::fabs(spatial - 2.48832257e-05) < 5e-11, "spatial, k = 3, at (0, 0)");
  const double contrast = run_kernel(make_window<MPSCNNLocalContrastNormalization>(3), ramp).at(0, 0, 0, 0);
  check(std::fabs(contrast + 17.7777786) < 2e-6, "local contrast, k = 3, at (0, 0)");
  MPSCNNSpatialNormalization *even = make_window<MPSCNNSpatialNormalization>(2);
  [even setBeta:1];
  const Tensor r = run_kernel(even, ramp);
  const double sums[] = {1, 5, 26, 66};
  for (int i = 0; i < 4; ++i) {
    const double value = ramp.at(0, i / 2, i % 2, 0);
    check(std::fabs(r.at(0, i / 2, i % 2, 0) - value / (1 + sums[i] / 4)) < 1e-6, "a window of 2 lies up and left");
  }
  MPSCNNCrossChannelNormalization *channels = make_cross_channel(3);
  [channels setBeta:1];
  Tensor ones(1, 1, 1, 4, 1);
  check(std::fabs(run_kernel(channels, ones).at(0, 0, 0, 0) - 1 / (1 + 2.0 / 3)) < 1e-6,
        "the divisor is the size at the first channel too");
}

void test_cross_channel() {
  for (const long channels : {1, 2, 7, 32}) {
    const Tensor x = Tensor::random(2, 5, 6, channels, 1);
    for (const long size : {1, 2, 3, 4, 5, 9, 70}) {
      MPSCNNCrossChannelNormalization *kernel = make_cross_channel(static_cast<NSUInteger>(size));
      [kernel setAlpha:2.5f];
      [kernel setBeta:0.75f];
      [kernel setDelta:1.5f];
      check_equal("cross-channel " + std::to_string(size) + " of " + std::to_string(channels), run_kernel(kernel, x),
                  cross_channel(x, size, {.alpha = 2.5, .beta = 0.75, .delta = 1.5, .place = {}}, 5, 6), 2e-7);
    }
  }
}

void test_windows() {
  const Tensor x = Tensor::random(2, 7, 9, 19, 2);
  for (const long size : {1, 2, 3, 4, 5, 11}) {
    const std::string name = std::to_string(size) + " x " + std::to_string(size);
    MPSCNNSpatialNormalization *spatial = make_window<MPSCNNSpatialNormalization>(static_cast<NSUInteger>(size));
    [spatial setAlpha:2];
    [spatial setBeta:1.25f];
    [spatial setDelta:0.5f];
    check_equal("spatial " + name, run_kernel(spatial, x),
                in_windows(x, size, {.alpha = 2, .beta = 1.25, .delta = 0.5, .place = {}}, false, 7, 9), 3e-7);
    MPSCNNLocalContrastNormalization *contrast =
        make_window<MPSCNNLocalContrastNormalization>(static_cast<NSUInteger>(size));
    [contrast setAlpha:1.5f];
    [contrast setBeta:0.75f];
    [contrast setDelta:0.25f];
    [contrast setP0:0.5f];
    [contrast setPm:-0.125f];
    [contrast setPs:2];
    check_equal("local contrast " + name, run_kernel(contrast, x),
                in_windows(x, size,
                           {.alpha = 1.5, .beta = 0.75, .delta = 0.25, .p0 = 0.5, .pm = -0.125, .ps = 2, .place = {}},
                           true, 7, 9),
                1e-6);
  }
}

/// A large mean costs the contrast nothing.
void test_contrast_far_from_zero() {
  Tensor x = Tensor::random(1, 8, 8, 4, 3);
  for (double &value : x.values) value += 1000;
  MPSCNNLocalContrastNormalization *kernel = make_window<MPSCNNLocalContrastNormalization>(3);
  [kernel setAlpha:1];
  [kernel setEdgeMode:MPSImageEdgeModeClamp];
  check_equal("contrast of values near 1000", run_kernel(kernel, x),
              in_windows(x, 3,
                         {.alpha = 1, .beta = 0.5, .delta = 1.0 / 1024, .place = {.clamp = true}}, true, 8, 8),
              2e-6);
}

/// Offset, clip, channels and images, both edge modes, source and destination of other extents.
void test_places() {
  const Tensor x = Tensor::random(4, 6, 7, 13, 4);
  Tensor part = x.channels(4, 6);
  Tensor images(2, 6, 7, 6);
  paste(images, part.image(1), 0, 0, 0, 0), paste(images, part.image(2), 1, 0, 0, 0);
  for (const bool clamp : {false, true}) {
    MPSCNNKernel *kernels[] = {make_cross_channel(5), make_window<MPSCNNSpatialNormalization>(3),
                               make_window<MPSCNNLocalContrastNormalization>(4)};
    const Place place = {.y = -2, .x = 3, .clamp = clamp};
    const Tensor expected[] = {cross_channel(images, 5, {.alpha = 1, .beta = 5, .delta = 1, .place = place}, 6, 5),
                               in_windows(images, 3, {.alpha = 1, .beta = 5, .delta = 1, .place = place}, false, 6, 5),
                               in_windows(images, 4, {.alpha = 0, .beta = 0.5, .delta = 1.0 / 1024, .place = place},
                                          true, 6, 5)};
    for (int i = 0; i < 3; ++i) {
      MPSCNNKernel *kernel = kernels[i];
      [kernel setOffset:MPSOffset{3, -2, 1}];
      [kernel setClipRect:MTLRegionMake3D(1, 2, 0, 5, 1000, 2)];
      [kernel setSourceFeatureChannelOffset:4];
      [kernel setSourceFeatureChannelMaxCount:6];
      [kernel setDestinationFeatureChannelOffset:8];
      [kernel setEdgeMode:clamp ? MPSImageEdgeModeClamp : MPSImageEdgeModeZero];
      MPSImage *result = make_nan_image(2, 8, 8, 14);
      id<MTLCommandBuffer> buffer = command_buffer();
      [kernel encodeToCommandBuffer:buffer sourceImage:make_image(x) destinationImage:result];
      run(buffer);
      Tensor whole(2, 8, 8, 14, NAN);
      paste(whole, expected[i], 0, 2, 1, 8);
      check_equal(std::string([NSStringFromClass([kernel class]) UTF8String]) + (clamp ? ", clamp" : ", zero"),
                  read_image(result), whole, 1e-5);
    }
  }
}

void test_batches_and_half() {
  const Tensor x = Tensor::random(3, 4, 5, 6, 5);
  MPSCNNSpatialNormalization *kernel = make_window<MPSCNNSpatialNormalization>(3);
  MPSImage *all = make_image(x);
  MPSImageBatch *views = [all batchRepresentation];
  MPSImageBatch *alone = nan_batch(3, 4, 5, 6);
  id<MTLCommandBuffer> buffer = command_buffer();
  [kernel encodeBatchToCommandBuffer:buffer sourceImages:views destinationImages:alone];
  MPSImageBatch *returned = nil;
  [kernel setDestinationImageAllocator:[MPSImage defaultAllocator]];
  MPSStateBatch *states = nil;
  returned = [kernel encodeBatchToCommandBuffer:buffer
                                   sourceImages:make_batch(x)
                              destinationStates:&states
                    destinationStateIsTemporary:NO];
  run(buffer);
  const Tensor expected = in_windows(x, 3, {.alpha = 1, .beta = 5, .delta = 1, .place = {}}, false, 4, 5);
  check_equal("a batch that lies together", read_batch(alone), expected, 1e-6);
  check_equal("a batch that is returned", read_batch(returned), expected, 1e-6);
  check([states count] == 3 && [[states objectAtIndex:0] isKindOfClass:[MPSNNGradientState class]],
        "a gradient state for each image");

  // Half in, half out: the arithmetic is float.
  for (MPSCNNKernel *each in [NSArray arrayWithObjects:make_cross_channel(3), kernel, nil]) {
    [each setDestinationImageAllocator:[MPSImage defaultAllocator]];
    MPSImage *half = [[[MPSImage alloc] initWithDevice:device
                                       imageDescriptor:describe(1, 4, 5, 6, MPSImageFeatureChannelFormatFloat16)]
        autorelease];
    std::vector<_Float16> values(x.values.begin(), x.values.begin() + 4 * 5 * 6);
    [half writeBytes:values.data() dataLayout:MPSDataLayoutHeightxWidthxFeatureChannels imageIndex:0];
    buffer = command_buffer();
    MPSImage *result = [each encodeToCommandBuffer:buffer sourceImage:half];
    run(buffer);
    check([result featureChannelFormat] == MPSImageFeatureChannelFormatFloat16, "the result is half too");
    [result readBytes:values.data() dataLayout:MPSDataLayoutHeightxWidthxFeatureChannels imageIndex:0];
    Tensor got(1, 4, 5, 6);
    std::copy(values.begin(), values.end(), got.values.begin());
    check_equal("half", got,
                each == kernel ? expected.image(0)
                               : cross_channel(x.image(0), 3, {.alpha = 1, .beta = 5, .delta = 1, .place = {}}, 4, 5),
                std::ldexp(1, -12));
  }
}

void test_local_kernels_are_kept() {
  MPSCNNLocalContrastNormalization *kernel = make_window<MPSCNNLocalContrastNormalization>(3);
  [kernel setAlpha:2];
  [kernel setBeta:3];
  [kernel setDelta:4];
  [kernel setP0:5];
  [kernel setPm:6];
  [kernel setPs:7];
  MPSCNNLocalContrastNormalization *copy = [[kernel copy] autorelease];
  [kernel setAlpha:0];
  for (MPSCNNLocalContrastNormalization *twin in [NSArray arrayWithObjects:copy, archived(copy), nil])
    check([twin alpha] == 2 && [twin beta] == 3 && [twin delta] == 4 && [twin p0] == 5 && [twin pm] == 6 &&
              [twin ps] == 7 && [twin kernelWidth] == 3 && [twin kernelHeight] == 3,
          "local contrast: copies and archives keep the properties");
  MPSCNNCrossChannelNormalization *channels = archived(make_cross_channel(7));
  check([channels kernelSize] == 7 && [channels beta] == 5, "cross-channel: archives keep the properties");
  const Tensor x = Tensor::random(1, 2, 3, 8, 6);
  check_equal("a kernel out of an archive", run_kernel(channels, x),
              cross_channel(x, 7, {.alpha = 1, .beta = 5, .delta = 1, .place = {}}, 2, 3), 1e-6);
}

void test_what_local_kernels_refuse() {
  check_raises("kernelSize", kArgument, "kernelSize (0) is not between 1", [] { make_cross_channel(0); });
  check_raises("a kernel of no pixels", kArgument, "kernelWidth (0)", [] {
    make_window<MPSCNNSpatialNormalization>(0);
  });
  check_raises("a kernel that is not square", kArgument, "kernelWidth (3) is not kernelHeight (5)", [] {
    [[[MPSCNNLocalContrastNormalization alloc] initWithDevice:device kernelWidth:3 kernelHeight:5] autorelease];
  });
  check_raises("initWithDevice:", kArgument, "use -initWithDevice:kernelSize:", [] {
    [[[MPSCNNCrossChannelNormalization alloc] initWithDevice:device] autorelease];
  });
  check_raises("initWithDevice:", kArgument, "use -initWithDevice:kernelWidth:kernelHeight:", [] {
    [[[MPSCNNSpatialNormalization alloc] initWithDevice:device] autorelease];
  });
}

// --------------------------------------------------------------------------------------- batch normalization

void test_batch_normalization() {
  for (const long channels : {1, 3, 8, 50}) {
    const Affine values(static_cast<std::size_t>(channels), 10);
    const Tensor x = Tensor::random(2, 5, 6, channels, 11);
    NormSource *source = make_norm_source<NormSource>(values);
    MPSCNNBatchNormalization *kernel = make_norm<MPSCNNBatchNormalization>(source);
    check([kernel numberOfFeatureChannels] == static_cast<NSUInteger>(channels) && [kernel epsilon] == FLT_MIN &&
              (id)[kernel dataSource] == source && [[kernel label] isEqual:@"norm source"],
          "batch normalization: what it takes from the data source");
    check(source->loads == 1 && source->purges == 1, "loaded once, purged once");
    check_equal("batch normalization", run_kernel(kernel, x), affine(x, values, FLT_MIN), 2e-6);
    [kernel setEpsilon:0.5f];
    check_equal("batch normalization, epsilon set", run_kernel(kernel, x), affine(x, values, 0.5), 2e-6);
  }
  FullNormSource *full = make_norm_source<FullNormSource>(Affine(4, 12));
  full->epsilon_value = 0.125f;
  check([make_norm<MPSCNNBatchNormalization>(full) epsilon] == 0.125f, "epsilon of the data source");

  Affine values(4, 13);
  values.gamma.assign(4, 1), values.beta.assign(4, 0);
  NormSource *bare = make_norm_source<NormSource>(values);
  bare->gammas.clear(), bare->betas.clear();
  const Tensor x = Tensor::random(1, 3, 3, 4, 14);
  check_equal("without gamma and beta", run_kernel(make_norm<MPSCNNBatchNormalization>(bare), x),
              affine(x, values, FLT_MIN), 2e-6);
}

void test_batch_normalization_places() {
  const Affine values(6, 15);
  const Tensor x = Tensor::random(4, 6, 7, 13, 16);
  const Tensor part = x.channels(4, 6);
  Tensor images(2, 6, 7, 6);
  paste(images, part.image(1), 0, 0, 0, 0), paste(images, part.image(2), 1, 0, 0, 0);
  GroupSource *groups = make_norm_source<GroupSource>(values);
  groups->groups = 2;
  for (const bool clamp : {false, true}) {
    const Place place = {.y = -2, .x = 3, .clamp = clamp};
    MPSCNNKernel *kernels[] = {make_norm<MPSCNNBatchNormalization>(make_norm_source<NormSource>(values)),
                               make_norm<MPSCNNInstanceNormalization>(make_norm_source<PlainNormSource>(values)),
                               make_norm<MPSCNNGroupNormalization>(groups)};
    // Statistics are over the whole source images, wherever the result lies.
    const Tensor expected[] = {affine(images, values, FLT_MIN, place, 6, 5),
                               by_image(images, 6, values, FLT_MIN, place, 6, 5),
                               by_image(images, 2, values, FLT_MIN, place, 6, 5)};
    for (int i = 0; i < 3; ++i) {
      MPSCNNKernel *kernel = kernels[i];
      [kernel setOffset:MPSOffset{3, -2, 1}];
      [kernel setClipRect:MTLRegionMake3D(1, 2, 0, 5, 1000, 2)];
      [kernel setSourceFeatureChannelOffset:4];
      [kernel setSourceFeatureChannelMaxCount:6];
      [kernel setDestinationFeatureChannelOffset:8];
      [kernel setEdgeMode:clamp ? MPSImageEdgeModeClamp : MPSImageEdgeModeZero];
      MPSImage *result = make_nan_image(2, 8, 8, 14);
      id<MTLCommandBuffer> buffer = command_buffer();
      [kernel encodeToCommandBuffer:buffer sourceImage:make_image(x) destinationImage:result];
      run(buffer);
      Tensor whole(2, 8, 8, 14, NAN);
      paste(whole, expected[i], 0, 2, 1, 8);
      check_equal(std::string([NSStringFromClass([kernel class]) UTF8String]) + (clamp ? ", clamp" : ", zero"),
                  read_image(result), whole, 4e-6);
    }
  }
}

void test_fused_neuron() {
  const Affine values(5, 17);
  const Tensor x = Tensor::random(2, 4, 5, 5, 18);
  MPSNNNeuronDescriptor *relu = [MPSNNNeuronDescriptor cnnNeuronDescriptorWithType:MPSCNNNeuronTypeReLU a:0.25f];
  MPSCNNBatchNormalization *kernel =
      [[[MPSCNNBatchNormalization alloc] initWithDevice:device
                                             dataSource:make_norm_source<NormSource>(values)
                                  fusedNeuronDescriptor:relu] autorelease];
  const Tensor expected = activate(affine(x, values, FLT_MIN), MPSCNNNeuronTypeReLU, 0.25, 0, 0);
  check_equal("the neuron comes last", run_kernel(kernel, x), expected, 2e-6);
  check_equal("out of a copy's archive", run_kernel(archived([[kernel copy] autorelease]), x), expected, 2e-6);
  const float slopes[] = {1, 2, 3};
  MPSNNNeuronDescriptor *prelu =
      [MPSNNNeuronDescriptor cnnNeuronPReLUDescriptorWithData:[NSData dataWithBytes:slopes length:sizeof slopes]
                                                       noCopy:false];
  check_raises("a PReLU of other channels", kArgument, "data has 3 values, and the source has 5", [&] {
    [[[MPSCNNBatchNormalization alloc] initWithDevice:device
                                           dataSource:make_norm_source<NormSource>(values)
                                fusedNeuronDescriptor:prelu] autorelease];
  });
}

void test_reloads() {
  const Affine first(4, 20), second(4, 21);
  const Tensor x = Tensor::random(1, 3, 4, 4, 22);
  NormSource *source = make_norm_source<NormSource>(first);
  MPSCNNBatchNormalization *kernel = make_norm<MPSCNNBatchNormalization>(source);
  [kernel setEpsilon:0.25f];
  source->gammas = floats(second.gamma), source->betas = floats(second.beta);
  source->means = floats(second.mean), source->variances = floats(second.variance);
  check_equal("before a reload", run_kernel(kernel, x), affine(x, first, 0.25), 2e-6);
  [kernel reloadGammaAndBetaFromDataSource];
  Affine mixed = first;
  mixed.gamma = second.gamma, mixed.beta = second.beta;
  check_equal("gamma and beta reloaded", run_kernel(kernel, x), affine(x, mixed, 0.25), 2e-6);
  [kernel reloadMeanAndVarianceFromDataSource];
  check_equal("mean and variance reloaded", run_kernel(kernel, x), affine(x, second, 0.25), 2e-6);
  check(source->loads == 3 && source->purges == 3, "each reload loads and purges");

  // In the order of the command buffer: what was encoded before keeps its values.
  MPSCNNNormalizationGammaAndBetaState *weights =
      [[[MPSCNNNormalizationGammaAndBetaState alloc] initWithGamma:make_buffer(first.gamma)
                                                              beta:make_buffer(first.beta)] autorelease];
  MPSCNNNormalizationMeanAndVarianceState *statistics =
      [[[MPSCNNNormalizationMeanAndVarianceState alloc] initWithMean:make_buffer(first.mean)
                                                            variance:make_buffer(first.variance)] autorelease];
  check([weights resourceCount] == 2 && [statistics resourceCount] == 2 && ![weights isTemporary], "states of buffers");
  MPSImage *results[3];
  for (MPSImage *&result : results) result = make_nan_image(1, 3, 4, 4);
  id<MTLCommandBuffer> buffer = command_buffer();
  [kernel encodeToCommandBuffer:buffer sourceImage:make_image(x) destinationImage:results[0]];
  [kernel reloadGammaAndBetaWithCommandBuffer:buffer gammaAndBetaState:weights];
  [kernel encodeToCommandBuffer:buffer sourceImage:make_image(x) destinationImage:results[1]];
  [kernel reloadMeanAndVarianceWithCommandBuffer:buffer meanAndVarianceState:statistics];
  [kernel encodeToCommandBuffer:buffer sourceImage:make_image(x) destinationImage:results[2]];
  // The buffers are read when the command buffer runs.
  static_cast<float *>([[weights beta] contents])[0] = 42;
  run(buffer);
  Affine late = first;
  late.beta[0] = 42;
  mixed = second;
  mixed.gamma = late.gamma, mixed.beta = late.beta;
  check_equal("encoded before the reloads", read_image(results[0]), affine(x, second, 0.25), 2e-6);
  check_equal("encoded after the first", read_image(results[1]), affine(x, mixed, 0.25), 5e-6);
  check_equal("encoded after both", read_image(results[2]), affine(x, late, 0.25), 5e-6);
  check_equal("out of an archive", run_kernel(archived(kernel), x), affine(x, late, 0.25), 5e-6);

  buffer = command_buffer();
  MPSCNNNormalizationGammaAndBetaState *temporary =
      [MPSCNNNormalizationGammaAndBetaState temporaryStateWithCommandBuffer:buffer numberOfFeatureChannels:4];
  check([temporary isTemporary] && [[temporary gamma] length] == 16 && [[temporary beta] length] == 16,
        "a temporary state of 4 channels");
  [kernel reloadGammaAndBetaWithCommandBuffer:buffer gammaAndBetaState:temporary];
  check([temporary readCount] == 0, "a reload reads a temporary state");
  MPSCNNNormalizationMeanAndVarianceState *other =
      [MPSCNNNormalizationMeanAndVarianceState temporaryStateWithCommandBuffer:buffer numberOfFeatureChannels:3];
  check_raises("a state of other channels", kArgument, "mean of the state has 12 bytes, expected 16", [&] {
    [kernel reloadMeanAndVarianceWithCommandBuffer:buffer meanAndVarianceState:other];
  });
  [other setReadCount:0];
  run(buffer);

  const Affine third(6, 23);
  FullNormSource *larger = make_norm_source<FullNormSource>(third);
  larger->epsilon_value = 0.0625f;
  [kernel reloadDataSource:larger];
  const Tensor wide = Tensor::random(1, 3, 4, 6, 24);
  check([kernel numberOfFeatureChannels] == 6 && (id)[kernel dataSource] == larger, "another data source");
  check_equal("another data source", run_kernel(kernel, wide), affine(wide, third, 0.0625), 2e-6);
  larger->channels = 4;
  check_raises("a data source that changes", kArgument, "numberOfFeatureChannels (4) is not the kernel's (6)", [&] {
    [kernel reloadGammaAndBetaFromDataSource];
  });
  check(larger->purges == larger->loads, "purged when something is wrong too");
}

void test_copies_of_kernels() {
  const Affine values(4, 25);
  const Tensor x = Tensor::random(1, 3, 4, 4, 26);
  NormSource *source = make_norm_source<NormSource>(values);
  MPSCNNBatchNormalization *kernel = make_norm<MPSCNNBatchNormalization>(source);
  [kernel setEpsilon:0.5f];
  MPSCNNBatchNormalization *copy = [[kernel copyWithZone:NULL device:device] autorelease];
  check(source->copies == 1, "a kernel's copy copies the data source");
  [kernel setEpsilon:0];
  check([copy epsilon] == 0.5f && [[copy label] isEqual:@"norm source"], "a copy is independent");
  check_equal("a copy", run_kernel(copy, x), affine(x, values, 0.5), 2e-6);
  check_equal("a copy's archive", run_kernel(archived(copy), x), affine(x, values, 0.5), 2e-6);
  GroupSource *groups = make_norm_source<GroupSource>(values);
  groups->groups = 2;
  MPSCNNGroupNormalization *group = archived([[make_norm<MPSCNNGroupNormalization>(groups) copy] autorelease]);
  check_equal("group normalization out of a copy's archive", run_kernel(group, x), by_image(x, 2, values, FLT_MIN),
              4e-6);
}

// ------------------------------------------------------------------------------------- statistics of a batch

MPSCNNBatchNormalizationStatistics *make_statistics() {
  return [[[MPSCNNBatchNormalizationStatistics alloc] initWithDevice:device] autorelease];
}

void test_statistics() {
  const Affine values(5, 30);
  Tensor x = Tensor::random(4, 5, 3, 5, 31);
  for (double &value : x.values) value += 100;
  NormSource *source = make_norm_source<NormSource>(values);
  source->means.clear(), source->variances.clear();
  MPSCNNBatchNormalization *kernel = make_norm<MPSCNNBatchNormalization>(source);
  [kernel setEpsilon:0.001f];
  MPSImageBatch *images = make_batch(x), *results = nan_batch(4, 5, 3, 5);
  MPSCNNBatchNormalizationState *state = [kernel resultStateForSourceImage:[images objectAtIndex:0]
                                                              sourceStates:nil
                                                          destinationImage:[results objectAtIndex:0]];
  check([kernel isResultStateReusedAcrossBatch] && [state batchNormalization] == kernel && ![state isTemporary],
        "a state for the whole batch");
  check([state mean] == nil && [state variance] == nil && [state gradientForGamma] == nil &&
            [state gradientForBeta] == nil,
        "a new state has no statistics and no gradients");
  check_numbers("gamma of the state", floats_in([state gamma]), values.gamma);
  check_numbers("beta of the state", floats_in([state beta]), values.beta);
  id<MTLCommandBuffer> buffer = command_buffer();
  check_raises("no statistics", kArgument, "no MPSCNNBatchNormalizationStatistics has been encoded", [&] {
    [kernel encodeBatchToCommandBuffer:buffer
                          sourceImages:images
               batchNormalizationState:state
                     destinationImages:results];
  });
  MPSCNNBatchNormalizationStatistics *statistics = make_statistics();
  check([statistics appendBatchBarrier], "statistics wait for the batch");
  [statistics encodeBatchToCommandBuffer:buffer sourceImages:images batchNormalizationState:state];
  [kernel encodeBatchToCommandBuffer:buffer
                        sourceImages:images
             batchNormalizationState:state
                   destinationImages:results];
  run(buffer);
  Affine expected = values;
  expected.mean = means_of(x, 0, 4), expected.variance = variances_of(x, 0, 4);
  check_numbers("mean", floats_in([state mean]), expected.mean, 1e-5);
  check_numbers("variance", floats_in([state variance]), expected.variance, 1e-6);
  check_equal("normalized by the statistics", read_batch(results), affine(x, expected, 0.001), 3e-5);
  check_raises("no values of its own", kArgument, "has no mean and variance", [&] { run_kernel(kernel, x); });
}

void test_statistics_in_parts() {
  const Affine values(3, 32);
  const Tensor x = Tensor::random(5, 4, 4, 3, 33);
  MPSCNNBatchNormalization *kernel = make_norm<MPSCNNBatchNormalization>(make_norm_source<NormSource>(values));
  MPSCNNBatchNormalizationStatistics *statistics = archived(make_statistics());
  MPSImageBatch *images = make_batch(x);
  const auto part = [&](NSUInteger first, NSUInteger count) {
    return [images subarrayWithRange:NSMakeRange(first, count)];
  };
  MPSCNNBatchNormalizationState *state = [kernel resultStateForSourceImage:[images objectAtIndex:0]
                                                              sourceStates:nil
                                                          destinationImage:[images objectAtIndex:0]];
  check_numbers("mean before statistics: the kernel's", floats_in([state mean]), values.mean);
  check_numbers("variance before statistics: the kernel's", floats_in([state variance]), values.variance);

  const auto encode = [&](id<MTLCommandBuffer> buffer, NSUInteger first, NSUInteger count) {
    [statistics encodeBatchToCommandBuffer:buffer sourceImages:part(first, count) batchNormalizationState:state];
  };
  const auto normalize = [&](id<MTLCommandBuffer> buffer) {
    MPSImage *result = make_nan_image(1, 4, 4, 3);
    [kernel encodeToCommandBuffer:buffer
                      sourceImage:[images objectAtIndex:0]
          batchNormalizationState:state
                 destinationImage:result];
    return result;
  };
  id<MTLCommandBuffer> buffer = command_buffer();
  encode(buffer, 0, 2), encode(buffer, 2, 1), encode(buffer, 3, 2);
  MPSImage *result = normalize(buffer);
  run(buffer);
  check_numbers("mean of the parts", floats_in([state mean]), means_of(x, 0, 5));
  check_numbers("variance of the parts", floats_in([state variance]), variances_of(x, 0, 5));
  Affine own = values;
  own.mean = means_of(x, 0, 5), own.variance = variances_of(x, 0, 5);
  check_equal("by the statistics of the parts", read_image(result), affine(x.image(0), own, FLT_MIN), 4e-6);

  // The batch has been used: a new one begins, in two command buffers.
  buffer = command_buffer();
  encode(buffer, 1, 1);
  run(buffer);
  check_numbers("a new batch begins after a normalization", floats_in([state mean]), means_of(x, 1, 1));
  buffer = command_buffer();
  encode(buffer, 2, 2);
  run(buffer);
  check_numbers("and goes on in another command buffer", floats_in([state variance]), variances_of(x, 1, 3));

  [state reset];
  check_numbers("reset: the kernel's mean again", floats_in([state mean]), values.mean);
  buffer = command_buffer();
  result = normalize(buffer);
  run(buffer);
  check_equal("reset: the kernel's statistics", read_image(result), affine(x.image(0), values, FLT_MIN), 4e-6);
  buffer = command_buffer();
  encode(buffer, 4, 1);
  [state reset];
  encode(buffer, 3, 1);
  run(buffer);
  check_numbers("statistics after reset begin anew", floats_in([state mean]), means_of(x, 3, 1));
}

/// Images of one memory, channel ranges, temporary images and states.
void test_statistics_of_temporaries() {
  const Affine values(4, 34);
  const Tensor x = Tensor::random(3, 4, 5, 12, 35);
  MPSCNNBatchNormalization *kernel = make_norm<MPSCNNBatchNormalization>(make_norm_source<NormSource>(values));
  MPSCNNBatchNormalizationStatistics *statistics = make_statistics();
  [statistics setSourceFeatureChannelOffset:4];
  [statistics setSourceFeatureChannelMaxCount:4];
  [kernel setSourceFeatureChannelOffset:4];
  [kernel setSourceFeatureChannelMaxCount:4];
  MPSImage *image = make_image(x);
  MPSImageBatch *views = [image batchRepresentation];
  id<MTLCommandBuffer> buffer = command_buffer();
  MPSCNNBatchNormalizationState *state = [kernel temporaryResultStateForCommandBuffer:buffer
                                                                          sourceImage:[views objectAtIndex:0]
                                                                         sourceStates:nil
                                                                     destinationImage:image];
  check([state isTemporary] && [state readCount] == 1, "a temporary state");
  [statistics encodeBatchToCommandBuffer:buffer sourceImages:views batchNormalizationState:state];
  check([state readCount] == 1, "statistics write the state");
  MPSImageBatch *results = nan_batch(3, 4, 5, 4);
  [kernel encodeBatchToCommandBuffer:buffer
                        sourceImages:views
             batchNormalizationState:state
                   destinationImages:results];
  check([state readCount] == 0, "a normalization of a batch reads it once");
  run(buffer);
  const Tensor part = x.channels(4, 4);
  Affine own = values;
  own.mean = means_of(part, 0, 3), own.variance = variances_of(part, 0, 3);
  check_equal("a range of channels of a batch that lies together", read_batch(results), affine(part, own, FLT_MIN),
              4e-6);

  buffer = command_buffer();
  state = [kernel resultStateForSourceImage:image sourceStates:nil destinationImage:image];
  MPSTemporaryImage *temporary = [MPSTemporaryImage temporaryImageWithCommandBuffer:buffer
                                                                    imageDescriptor:describe(1, 4, 5, 12)];
  [statistics encodeBatchToCommandBuffer:buffer
                            sourceImages:[NSArray arrayWithObject:temporary]
                 batchNormalizationState:state];
  check([temporary readCount] == 0, "statistics read temporary images");
}

void test_what_batch_normalization_refuses() {
  const Affine values(4, 36);
  NormSource *source = make_norm_source<NormSource>(values);
  source->refuses_load = YES;
  check(make_norm<MPSCNNBatchNormalization>(source) == nil && source->purges == 0, "load answers NO: nil");
  source->refuses_load = NO;
  check_raises("a nil data source", kArgument, "dataSource is nil", [] { make_norm<MPSCNNBatchNormalization>(nil); });
  check_raises("initWithDevice:", kArgument, "use -initWithDevice:dataSource:", [] {
    [[[MPSCNNBatchNormalization alloc] initWithDevice:device] autorelease];
  });
  source->means.clear();
  check_raises("a mean alone", kArgument, "mean is NULL, and its variance is there", [&] {
    make_norm<MPSCNNBatchNormalization>(source);
  });
  check(source->loads == source->purges, "purged when something is wrong");
  source->means = floats(values.mean);
  source->variances[2] = -0.5f;
  check_raises("a variance below 0", kArgument, "variance[2] (-0.5) is less than 0", [&] {
    make_norm<MPSCNNBatchNormalization>(source);
  });
  source->variances[2] = 0.5f;
  source->channels = 0;
  check_raises("no channels", kArgument, "numberOfFeatureChannels (0)", [&] {
    make_norm<MPSCNNBatchNormalization>(source);
  });
  source->channels = 4;

  MPSCNNBatchNormalization *kernel = make_norm<MPSCNNBatchNormalization>(source);
  check_raises("epsilon", kArgument, "epsilon (-1) is less than 0", [&] { [kernel setEpsilon:-1]; });
  source->refuses_load = YES;
  check_raises("a reload that does not load", kUsage, "did not load", [&] {
    [kernel reloadGammaAndBetaFromDataSource];
  });
  const Tensor x = Tensor::random(1, 2, 2, 5, 37), y = Tensor::random(1, 2, 2, 4, 38);
  check_raises("other channels", kArgument, "source has 5 feature channels", [&] { run_kernel(kernel, x); });
  MPSImage *image = make_image(y), *result = make_nan_image(1, 2, 2, 4);
  id<MTLCommandBuffer> buffer = command_buffer();
  MPSCNNBatchNormalizationState *none = nil;
  check_raises("a nil state", kArgument, "batchNormalizationState is nil", [&] {
    [kernel encodeToCommandBuffer:buffer sourceImage:image batchNormalizationState:none destinationImage:result];
  });
  MPSCNNBatchNormalizationState *state = [kernel resultStateForSourceImage:image
                                                              sourceStates:nil
                                                          destinationImage:result];
  check_raises("a destinationState", kArgument, "destinationState are unavailable", [&] {
    [(MPSCNNKernel *)kernel encodeToCommandBuffer:buffer
                                      sourceImage:image
                                 destinationState:state
                                 destinationImage:result];
  });
  const Affine others(8, 39);
  MPSCNNBatchNormalization *other = make_norm<MPSCNNBatchNormalization>(make_norm_source<NormSource>(others));
  MPSImage *wide = make_nan_image(1, 2, 2, 8);
  check_raises("a state of other channels", kArgument, "was made for 4 feature channels in 0 groups", [&] {
    [other encodeToCommandBuffer:buffer sourceImage:wide batchNormalizationState:state destinationImage:wide];
  });
  MPSCNNBatchNormalizationStatistics *statistics = make_statistics();
  check_raises("images of other channels", kArgument, "sourceImages have 8 feature channels", [&] {
    [statistics encodeBatchToCommandBuffer:buffer
                              sourceImages:[NSArray arrayWithObject:wide]
                   batchNormalizationState:state];
  });
  check_raises("no images", kArgument, "sourceImages has 0 images", [&] {
    [statistics encodeBatchToCommandBuffer:buffer sourceImages:[NSArray array] batchNormalizationState:state];
  });
  check_raises("statistics have no destination", kArgument, "There is no destination", [&] {
    [(MPSCNNKernel *)statistics encodeToCommandBuffer:buffer sourceImage:image destinationImage:result];
  });
  MPSCNNBatchNormalizationState *stranger =
      [[[MPSCNNBatchNormalizationState alloc] initWithResources:[NSArray arrayWithObject:make_buffer(values.mean)]]
          autorelease];
  check_raises("a state that no kernel made", kUsage, "only a kernel can make this state", [&] {
    [kernel encodeToCommandBuffer:buffer sourceImage:image batchNormalizationState:stranger destinationImage:result];
  });
  id<MTLBuffer> no_buffer = nil;
  check_raises("a nil buffer", kArgument, "beta is nil", [&] {
    [[[MPSCNNNormalizationGammaAndBetaState alloc] initWithGamma:make_buffer(values.gamma)
                                                            beta:no_buffer] autorelease];
  });
  check_raises("a state of no channels", kArgument, "numberOfFeatureChannels (0)", [&] {
    [MPSCNNNormalizationMeanAndVarianceState temporaryStateWithCommandBuffer:buffer numberOfFeatureChannels:0];
  });
}

// ------------------------------------------------------------------------- by each image's mean and variance

void test_instance_and_group_normalization() {
  for (const long channels : {1, 6, 40}) {
    const Affine values(static_cast<std::size_t>(channels), 40);
    Tensor x = Tensor::random(3, 6, 7, channels, 41);
    for (double &value : x.values) value += 50;
    PlainNormSource *source = make_norm_source<PlainNormSource>(values);
    MPSCNNInstanceNormalization *instance = make_norm<MPSCNNInstanceNormalization>(source);
    check([instance epsilon] == FLT_MIN && (id)[instance dataSource] == source &&
              [[instance label] isEqual:@"norm source"] && ![instance isResultStateReusedAcrossBatch],
          "instance normalization: what it takes from the data source");
    [instance setEpsilon:0.01f];
    check_equal("instance normalization", run_kernel(instance, x), by_image(x, channels, values, 0.01), 3e-6);
    for (const long groups : {1l, 2l, channels}) {
      if (channels % groups != 0) continue;
      GroupSource *grouped = make_norm_source<GroupSource>(values);
      grouped->groups = static_cast<NSUInteger>(groups);
      MPSCNNGroupNormalization *group = make_norm<MPSCNNGroupNormalization>(grouped);
      [group setEpsilon:0.01f];
      check_equal("group normalization", run_kernel(group, x), by_image(x, groups, values, 0.01), 3e-6);
    }
  }
}

void test_states_of_images() {
  const Affine first(4, 42), second(4, 43);
  const Tensor x = Tensor::random(3, 4, 5, 4, 44);
  PlainNormSource *source = make_norm_source<PlainNormSource>(first);
  MPSCNNInstanceNormalization *kernel = make_norm<MPSCNNInstanceNormalization>(source);
  [kernel setDestinationImageAllocator:[MPSImage defaultAllocator]];
  id<MTLCommandBuffer> buffer = command_buffer();
  MPSStateBatch *states = nil;
  MPSImageBatch *results = [kernel encodeBatchToCommandBuffer:buffer
                                                 sourceImages:[make_image(x) batchRepresentation]
                                            destinationStates:&states
                                  destinationStateIsTemporary:NO];
  check([states count] == 3 && [states objectAtIndex:0] != [states objectAtIndex:1], "a state for each image");
  source->gammas = floats(second.gamma), source->betas = floats(second.beta);
  [kernel reloadGammaAndBetaFromDataSource];
  run(buffer);
  check_equal("a batch", read_batch(results), by_image(x, 4, first, FLT_MIN), 3e-6);
  for (MPSCNNInstanceNormalizationGradientState *state in states) {
    check([state instanceNormalization] == kernel, "the state's kernel");
    check_numbers("gamma as it was encoded", floats_in([state gamma]), first.gamma);
    check_numbers("beta as it was encoded", floats_in([state beta]), first.beta);
    check_numbers("no gradient yet", floats_in([state gradientForGamma]), Numbers(4, 0));
    check_numbers("no gradient yet", floats_in([state gradientForBeta]), Numbers(4, 0));
  }
  check_equal("after the reload", run_kernel(kernel, x), by_image(x, 4, second, FLT_MIN), 3e-6);

  // A state that is given, temporary ones, and those of a group normalization.
  GroupSource *grouped = make_norm_source<GroupSource>(first);
  grouped->groups = 2;
  MPSCNNGroupNormalization *group = make_norm<MPSCNNGroupNormalization>(grouped);
  MPSImage *images = make_image(x), *result = make_nan_image(3, 4, 5, 4);
  MPSCNNGroupNormalizationGradientState *state = [group resultStateForSourceImage:images
                                                                     sourceStates:nil
                                                                 destinationImage:result];
  buffer = command_buffer();
  [group encodeToCommandBuffer:buffer sourceImage:images destinationState:state destinationImage:result];
  MPSState *temporary = nil;
  MPSImage *returned = [group encodeToCommandBuffer:buffer
                                        sourceImage:images
                                   destinationState:&temporary
                        destinationStateIsTemporary:YES];
  check([temporary isKindOfClass:[MPSCNNGroupNormalizationGradientState class]] && [temporary isTemporary] &&
            [temporary readCount] == 1,
        "a temporary state");
  [temporary setReadCount:0];
  [(MPSTemporaryImage *)returned setReadCount:0];
  run(buffer);
  check([state groupNormalization] == group, "the state's kernel");
  check_equal("with a state", read_image(result), by_image(x, 2, first, FLT_MIN), 3e-6);

  MPSCNNGroupNormalizationGradientState *small = [group resultStateForSourceImage:make_image(x.image(0))
                                                                     sourceStates:nil
                                                                 destinationImage:result];
  buffer = command_buffer();
  check_raises("a state of fewer images", kArgument, "was made for 1 images, and the source has 3", [&] {
    [group encodeToCommandBuffer:buffer sourceImage:images destinationState:small destinationImage:result];
  });
  check_raises("a state of another class", kArgument, "is no MPSCNNInstanceNormalizationGradientState", [&] {
    [kernel encodeToCommandBuffer:buffer sourceImage:images destinationState:state destinationImage:result];
  });
  grouped->groups = 3;
  check_raises("groups", kArgument, "numberOfGroups (3) does not divide its numberOfFeatureChannels (4)", [&] {
    make_norm<MPSCNNGroupNormalization>(grouped);
  });
  MPSCNNNormalizationGammaAndBetaState *weights =
      [[[MPSCNNNormalizationGammaAndBetaState alloc] initWithGamma:make_buffer(first.gamma)
                                                              beta:make_buffer(first.beta)] autorelease];
  [kernel reloadGammaAndBetaWithCommandBuffer:buffer gammaAndBetaState:weights];
  run(buffer);
  check_equal("reloaded on a command buffer", run_kernel(kernel, x), by_image(x, 4, first, FLT_MIN), 3e-6);
}

}  // namespace

int main() {
  return run_tests({test_local_defaults, test_measured_numbers, test_cross_channel, test_windows,
                    test_contrast_far_from_zero, test_places, test_batches_and_half, test_local_kernels_are_kept,
                    test_what_local_kernels_refuse, test_batch_normalization, test_batch_normalization_places,
                    test_fused_neuron, test_reloads, test_copies_of_kernels, test_statistics, test_statistics_in_parts,
                    test_statistics_of_temporaries, test_what_batch_normalization_refuses,
                    test_instance_and_group_normalization, test_states_of_images});
}
