// SPDX-License-Identifier: Apache-2.0
// Data sources, affine parameters and the formulas of normalization by mean and variance, for
// mps_*normalization_test.mm and mps_batch_statistics_test.mm.
#pragma once

#import "mps_test.hh"

#include <cfloat>

// ---------------------------------------------------------------------------------------------- data sources

/// The methods that instance normalization requires.
@interface PlainNormSource : NSObject <MPSCNNInstanceNormalizationDataSource> {
 @public
  NSUInteger channels;
  std::vector<float> gammas, betas, means, variances;
  int copies;
}
@end

/// The methods that batch normalization requires.
@interface NormSource : PlainNormSource <MPSCNNBatchNormalizationDataSource> {
 @public
  int loads, purges;
  BOOL refuses_load;
}
@end

/// With all optional methods.
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

using Numbers = std::vector<double>;

inline std::vector<float> floats(const Numbers &values) { return {values.begin(), values.end()}; }

/// The parameters of all channels.
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

inline Numbers floats_in(id<MTLBuffer> buffer) {
  const float *first = static_cast<const float *>([buffer contents]);
  return Numbers(first, first + [buffer length] / sizeof(float));
}

inline id<MTLBuffer> make_buffer(const Numbers &values) {
  const std::vector<float> all = floats(values);
  return [[device newBufferWithBytes:all.data() length:all.size() * sizeof(float) options:MTLResourceStorageModeShared]
      autorelease];
}

inline void check_numbers(const std::string &what, const Numbers &got, const Numbers &expected,
                          double tolerance = 1e-6) {
  double worst = got.size() == expected.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < std::min(got.size(), expected.size()); ++i)
    if (const double d = std::fabs(got[i] - expected[i]); !(d <= worst)) worst = std::isnan(d) ? INFINITY : d;
  check(worst <= tolerance, what + ", largest difference " + std::to_string(worst));
}

/// Read the images of a batch into one tensor.
inline Tensor read_batch(MPSImageBatch *batch) {
  Tensor all;
  for (MPSImage *image in batch) {
    const Tensor one = read_image(image);
    if (all.values.size() <= 1) all = Tensor(0, one.h, one.w, one.c);
    ++all.n;
    all.values.insert(all.values.end(), one.values.begin(), one.values.end());
  }
  return all;
}

inline MPSImageBatch *nan_batch(long n, long h, long w, long c) {
  NSMutableArray *batch = [NSMutableArray array];
  for (long i = 0; i < n; ++i) [batch addObject:make_nan_image(1, h, w, c)];
  return batch;
}

inline Tensor run_kernel(MPSCNNKernel *kernel, const Tensor &x) {
  MPSImage *result = make_nan_image(x.n, x.h, x.w, x.c);
  id<MTLCommandBuffer> buffer = command_buffer();
  [kernel encodeToCommandBuffer:buffer sourceImage:make_image(x) destinationImage:result];
  run(buffer);
  return read_image(result);
}

// ------------------------------------------------------------------------------------------------ the formulas

struct Moments {
  double mean = 0, variance = 0;
};

/// Return the moments of images [first, first + images) and channels [channel, channel + channels).
inline Moments moments_of(const Tensor &x, long first, long images, long channel, long channels) {
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

inline Tensor affine(const Tensor &x, const Affine &a, double epsilon) {
  Tensor r = x;
  for (std::size_t i = 0; i < r.values.size(); ++i) {
    const std::size_t c = i % a.gamma.size();
    r.values[i] = (x.values[i] - a.mean[c]) * a.gamma[c] / std::sqrt(a.variance[c] + epsilon) + a.beta[c];
  }
  return r;
}

inline Numbers means_of(const Tensor &x, long first, long images) {
  Numbers result;
  for (long k = 0; k < x.c; ++k) result.push_back(moments_of(x, first, images, k, 1).mean);
  return result;
}

inline Numbers variances_of(const Tensor &x, long first, long images) {
  Numbers result;
  for (long k = 0; k < x.c; ++k) result.push_back(moments_of(x, first, images, k, 1).variance);
  return result;
}

inline MPSCNNBatchNormalizationStatistics *make_statistics() {
  return [[[MPSCNNBatchNormalizationStatistics alloc] initWithDevice:device] autorelease];
}
