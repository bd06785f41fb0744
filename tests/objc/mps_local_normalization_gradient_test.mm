// SPDX-License-Identifier: Apache-2.0
// The gradients of normalization by what surrounds a value: numbers against the derivatives written out in double and
// against differences of what the forward kernels make, wherever they look; states, copies, and what the kernels
// refuse. Prints "N passed, N failed".

#import "norm_test.hh"

namespace {

struct Parameters {
  double alpha, beta, delta, p0 = 0, pm = 0, ps = 1;
};

/// The derivative of sum(e * y), y one result for each pixel and channel of x: size channels, or size x size pixels.
Tensor gradient_of(const Tensor &e, const Tensor &x, long size, bool across, bool contrast, const Parameters &p) {
  Tensor r(x.n, x.h, x.w, x.c);
  const double count = static_cast<double>(across ? size : size * size);
  for (long n = 0; n < x.n; ++n)
    for (long j = 0; j < x.h; ++j)
      for (long i = 0; i < x.w; ++i)
        for (long k = 0; k < x.c; ++k) {
          const auto taps = [&](const auto &f) {
            for (long q = -(size / 2); q <= (size - 1) / 2; ++q) {
              if (across && k + q >= 0 && k + q < x.c) f(j, i, k + q);
              for (long s = -(size / 2); !across && s <= (size - 1) / 2; ++s)
                if (j + q >= 0 && j + q < x.h && i + s >= 0 && i + s < x.w) f(j + q, i + s, k);
            }
          };
          double mean = 0, squares = 0;
          taps([&](long y, long z, long c) {
            mean += x.at(n, y, z, c) / count;
            squares += x.at(n, y, z, c) * x.at(n, y, z, c) / count;
          });
          if (!contrast) mean = 0;
          const double base = p.delta + p.alpha * (squares - mean * mean);
          const double own = p.ps * e.at(n, j, i, k) * std::pow(base, -p.beta);
          r.at(n, j, i, k) += own;
          taps([&](long y, long z, long c) {
            r.at(n, y, z, c) -= p.p0 * own / count + 2 * p.alpha * p.beta / count * own *
                                                         (x.at(n, j, i, k) - p.p0 * mean) / base *
                                                         (x.at(n, y, z, c) - mean);
          });
        }
  return r;
}

template <class Kernel>
Kernel *make_window(NSUInteger size) {
  return [[[Kernel alloc] initWithDevice:device kernelWidth:size kernelHeight:size] autorelease];
}

template <class Kernel>
Kernel *make_cross_channel(NSUInteger size) {
  return [[[Kernel alloc] initWithDevice:device kernelSize:size] autorelease];
}

template <class Kernel>
Kernel *with(Kernel *kernel, const Parameters &p) {
  [kernel setAlpha:static_cast<float>(p.alpha)];
  [kernel setBeta:static_cast<float>(p.beta)];
  [kernel setDelta:static_cast<float>(p.delta)];
  if constexpr (std::is_same_v<Kernel, MPSCNNLocalContrastNormalization> ||
                std::is_same_v<Kernel, MPSCNNLocalContrastNormalizationGradient>) {
    [kernel setP0:static_cast<float>(p.p0)];
    [kernel setPm:static_cast<float>(p.pm)];
    [kernel setPs:static_cast<float>(p.ps)];
  }
  return kernel;
}

void test_defaults() {
  MPSCNNCrossChannelNormalizationGradient *channels = make_cross_channel<MPSCNNCrossChannelNormalizationGradient>(7);
  MPSCNNSpatialNormalizationGradient *pixels = make_window<MPSCNNSpatialNormalizationGradient>(3);
  MPSCNNLocalContrastNormalizationGradient *contrast = make_window<MPSCNNLocalContrastNormalizationGradient>(5);
  check([channels alpha] == 1 && [channels beta] == 5 && [channels delta] == 1 && [channels kernelSize] == 7,
        "cross-channel: defaults");
  check([pixels alpha] == 1 && [pixels beta] == 5 && [pixels delta] == 1 && [pixels secondaryKernelWidth] == 3 &&
            [pixels secondaryKernelHeight] == 3,
        "spatial: defaults");
  check([contrast alpha] == 0 && [contrast beta] == 0.5f && [contrast delta] == 1.0f / 1024 && [contrast p0] == 1 &&
            [contrast pm] == 0 && [contrast ps] == 1,
        "local contrast: defaults");
}

void test_numbers() {
  const Tensor x = Tensor::random(2, 5, 4, 9, 1), e = Tensor::random(2, 5, 4, 9, 2);
  const Parameters p = {1.5, 0.75, 1.25}, q = {1.5, 0.75, 1.25, 0.5, 0.25, 2};
  MPSImage *images = make_image(x), *gradients = make_image(e);
  for (const NSUInteger size : {1, 2, 3, 4, 5}) {
    const struct {
      MPSCNNKernel *forward;
      MPSCNNGradientKernel *kernel;
      bool across, contrast;
    } cases[] = {{make_cross_channel<MPSCNNCrossChannelNormalization>(size),
                  with(make_cross_channel<MPSCNNCrossChannelNormalizationGradient>(size), p), true, false},
                 {make_window<MPSCNNSpatialNormalization>(size),
                  with(make_window<MPSCNNSpatialNormalizationGradient>(size), p), false, false},
                 {make_window<MPSCNNLocalContrastNormalization>(size),
                  with(make_window<MPSCNNLocalContrastNormalizationGradient>(size), q), false, true}};
    for (const auto &one : cases) {
      const std::string name =
          std::string([NSStringFromClass([one.kernel class]) UTF8String]) + ", size " + std::to_string(size);
      MPSState *state = [one.forward resultStateForSourceImage:images sourceStates:nil destinationImage:images];
      id<MTLCommandBuffer> buffer = command_buffer();
      id twins[] = {one.kernel, [[one.kernel copy] autorelease], archived(one.kernel)};
      MPSImage *made[3];
      for (int i = 0; i < 3; ++i) {
        [twins[i] setDestinationImageAllocator:[MPSImage defaultAllocator]];
        made[i] = [twins[i] encodeToCommandBuffer:buffer
                                   sourceGradient:gradients
                                      sourceImage:images
                                    gradientState:state];
      }
      // Now the properties are those of the forward kernel.
      MPSImage *given = make_nan_image(2, 5, 4, 9);
      [one.kernel encodeBatchToCommandBuffer:buffer
                             sourceGradients:[gradients batchRepresentation]
                                sourceImages:[images batchRepresentation]
                              gradientStates:[NSArray arrayWithObjects:state, state, nil]
                        destinationGradients:[given batchRepresentation]];
      run(buffer);
      const Tensor expected =
          gradient_of(e, x, static_cast<long>(size), one.across, one.contrast, one.contrast ? q : p);
      check_equal(name, read_image(made[0]), expected, 4e-6);
      check_equal(name + ", copy", read_image(made[1]), expected, 4e-6);
      check_equal(name + ", archive", read_image(made[2]), expected, 4e-6);
      check_equal(name + ", batch", read_image(given), expected, 4e-6);
    }
  }
}

/// Wherever the forward kernel looked, beyond the borders too: the sum of gradient times direction is the difference of
/// what it makes of the source a little further in that direction.
template <class Forward, class Gradient>
void check_differences(Forward *forward, Gradient *kernel, unsigned seed) {
  const Parameters p = {1.25, 0.75, 1, 0.75, 0.5, 1.5};
  with(forward, p), with(kernel, p);
  [kernel setDestinationImageAllocator:[MPSImage defaultAllocator]];
  const Tensor x = Tensor::random(1, 5, 6, 8, seed), e = Tensor::random(1, 4, 7, 4, seed + 1);
  [forward setSourceFeatureChannelOffset:4];
  for (const bool clamp : {false, true})
    for (const MPSOffset offset : {MPSOffset{0, 0, 0}, MPSOffset{-1, 2, 0}, MPSOffset{1, -2, 0}}) {
      [forward setOffset:offset];
      [forward setEdgeMode:clamp ? MPSImageEdgeModeClamp : MPSImageEdgeModeZero];
      MPSImage *source = make_image(x), *result = make_nan_image(1, 4, 7, 4);
      MPSState *state = [forward resultStateForSourceImage:source sourceStates:nil destinationImage:result];
      id<MTLCommandBuffer> buffer = command_buffer();
      MPSImage *gradient = [kernel encodeToCommandBuffer:buffer
                                          sourceGradient:make_image(e)
                                             sourceImage:source
                                           gradientState:state];
      run(buffer);
      const Tensor got = read_image(gradient);
      check(got.h == 5 && got.w == 6 && got.c == 4, "as large as what the forward kernel read");
      const auto total = [&](const Tensor &at) {
        MPSImage *y = make_nan_image(1, 4, 7, 4);
        encode(forward, make_image(at), y);
        const Tensor values = read_image(y);
        double sum = 0;
        for (std::size_t i = 0; i < e.values.size(); ++i) sum += values.values[i] * e.values[i];
        return sum;
      };
      for (unsigned direction = seed + 2; direction < seed + 6; ++direction) {
        const Tensor d = Tensor::random(1, 5, 6, 4, direction);
        const double step = 1.0 / 128;
        Tensor above = x, below = x;
        double expected = 0;
        for (long j = 0; j < 5; ++j)
          for (long i = 0; i < 6; ++i)
            for (long k = 0; k < 4; ++k) {
              above.at(0, j, i, 4 + k) += step * d.at(0, j, i, k);
              below.at(0, j, i, 4 + k) -= step * d.at(0, j, i, k);
              expected += got.at(0, j, i, k) * d.at(0, j, i, k);
            }
        const double difference = (total(above) - total(below)) / (2 * step);
        check(std::fabs(difference - expected) < 1e-3 * (1 + std::fabs(expected)),
              std::string([NSStringFromClass([kernel class]) UTF8String]) + (clamp ? ", clamp" : ", zero") +
                  ", offset " + std::to_string(offset.x) + ": difference " + std::to_string(difference) +
                  ", gradient " + std::to_string(expected));
      }
    }
}

void test_differences() {
  for (const NSUInteger size : {2, 3, 4}) {
    const auto seed = static_cast<unsigned>(10 * size);
    check_differences(make_cross_channel<MPSCNNCrossChannelNormalization>(size),
                      make_cross_channel<MPSCNNCrossChannelNormalizationGradient>(size), seed);
    check_differences(make_window<MPSCNNSpatialNormalization>(size),
                      make_window<MPSCNNSpatialNormalizationGradient>(size), seed + 100);
    check_differences(make_window<MPSCNNLocalContrastNormalization>(size),
                      make_window<MPSCNNLocalContrastNormalizationGradient>(size), seed + 200);
  }
}

/// A part of the destination, and images and channels of both sources.
void test_places() {
  const Tensor x = Tensor::random(3, 6, 5, 12, 50), e = Tensor::random(2, 6, 5, 9, 51);
  const Parameters p = {1, 5, 1};
  MPSCNNSpatialNormalizationGradient *kernel = make_window<MPSCNNSpatialNormalizationGradient>(3);
  [kernel setPrimarySourceFeatureChannelOffset:4];
  [kernel setPrimarySourceFeatureChannelMaxCount:5];
  [kernel setSecondarySourceFeatureChannelOffset:4];
  [kernel setSecondarySourceFeatureChannelMaxCount:5];
  // The result's first pixel is pixel (2, 1) of the source, and so of the gradient; its last row lies beyond.
  [kernel setPrimaryOffset:MPSOffset{1, 2, 0}];
  [kernel setSecondaryOffset:MPSOffset{1, 2, 1}];
  [kernel setClipRect:MTLRegionMake3D(2, 1, 0, 3, 5, 2)];
  [kernel setDestinationFeatureChannelOffset:4];
  MPSImage *result = make_nan_image(2, 7, 6, 10);
  id<MTLCommandBuffer> buffer = command_buffer();
  [kernel encodeToCommandBuffer:buffer primaryImage:make_image(e) secondaryImage:make_image(x) destinationImage:result];
  run(buffer);
  Tensor images(2, 6, 5, 5), part(2, 5, 3, 5);
  for (long n = 0; n < 2; ++n) paste(images, x.channels(4, 5).image(n + 1), n, 0, 0, 0);
  const Tensor all = gradient_of(e.channels(4, 5), images, 3, false, false, p);
  for (long n = 0; n < 2; ++n)
    for (long j = 0; j < 4; ++j)
      for (long i = 0; i < 3; ++i)
        for (long k = 0; k < 5; ++k) part.at(n, j, i, k) = all.at(n, j + 2, i + 1, k);
  Tensor whole(2, 7, 6, 10, NAN);
  paste(whole, part, 0, 1, 2, 4);
  check_equal("places", read_image(result), whole, 4e-6);
}

void test_half() {
  const Tensor x = Tensor::random(1, 4, 5, 6, 60), e = Tensor::random(1, 4, 5, 6, 61);
  MPSCNNLocalContrastNormalizationGradient *kernel =
      with(make_window<MPSCNNLocalContrastNormalizationGradient>(3), {1, 0.5, 1, 1});
  MPSImage *result = make_half_image(Tensor(1, 4, 5, 6));
  id<MTLCommandBuffer> buffer = command_buffer();
  [kernel encodeToCommandBuffer:buffer
                   primaryImage:make_half_image(e)
                 secondaryImage:make_half_image(x)
               destinationImage:result];
  run(buffer);
  check_equal("half", read_half_image(result), gradient_of(e, x, 3, false, true, {1, 0.5, 1, 1}), std::ldexp(1, -11));
}

void test_refusals() {
  check_raises("kernelSize", kArgument, "kernelSize (0) is not between 1",
               [] { make_cross_channel<MPSCNNCrossChannelNormalizationGradient>(0); });
  check_raises("a kernel of no pixels", kArgument, "secondaryKernelWidth (0)",
               [] { make_window<MPSCNNSpatialNormalizationGradient>(0); });
  check_raises("a kernel that is not square", kArgument, "secondaryKernelWidth (3) is not secondaryKernelHeight (5)",
               [] {
                 [[[MPSCNNLocalContrastNormalizationGradient alloc] initWithDevice:device kernelWidth:3
                                                                      kernelHeight:5] autorelease];
               });
  check_raises("initWithDevice:", kArgument, "use -initWithDevice:kernelSize:", [] {
    [[[MPSCNNCrossChannelNormalizationGradient alloc] initWithDevice:device] autorelease];
  });
  check_raises("initWithDevice:", kArgument, "use -initWithDevice:kernelWidth:kernelHeight:", [] {
    [[[MPSCNNSpatialNormalizationGradient alloc] initWithDevice:device] autorelease];
  });
  MPSImage *image = make_nan_image(1, 3, 3, 4);
  const auto encode_with = [&](MPSCNNGradientKernel *kernel, long channels) {
    [kernel encodeToCommandBuffer:command_buffer()
                     primaryImage:image
                   secondaryImage:make_nan_image(1, 3, 3, channels)
                 destinationImage:make_nan_image(1, 3, 3, channels)];
  };
  check_raises("other channels", kArgument, "reads 4 feature channels of sourceGradient and 3 of sourceImage",
               [&] { encode_with(make_window<MPSCNNSpatialNormalizationGradient>(3), 3); });
  MPSCNNSpatialNormalizationGradient *kernel = make_window<MPSCNNSpatialNormalizationGradient>(3);
  [kernel setPrimaryStrideInPixelsY:2];
  check_raises("a stride", kArgument, "primaryStrideInPixelsY (2) are not 1", [&] { encode_with(kernel, 4); });
  [kernel setPrimaryStrideInPixelsY:1];
  [kernel setPrimaryEdgeMode:MPSImageEdgeModeClamp];
  check_raises("values beyond the gradient", kArgument, "primaryEdgeMode (1) is not MPSImageEdgeModeZero",
               [&] { encode_with(kernel, 4); });
  MPSCNNCrossChannelNormalizationGradient *channels = make_cross_channel<MPSCNNCrossChannelNormalizationGradient>(3);
  MPSState *state = [make_window<MPSCNNSpatialNormalization>(3) resultStateForSourceImage:image
                                                                             sourceStates:nil
                                                                         destinationImage:image];
  check_raises("the state of a window", kArgument, "secondaryKernelWidth (3) is not 1", [&] {
    [channels encodeToCommandBuffer:command_buffer() sourceGradient:image sourceImage:image gradientState:state];
  });
}

}  // namespace

int main() { return run_tests({test_defaults, test_numbers, test_differences, test_places, test_half, test_refusals}); }
