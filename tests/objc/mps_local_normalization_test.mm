// SPDX-License-Identifier: Apache-2.0
// Normalization by what surrounds a value: numbers against the formulas written out in double and against measured
// ones, properties, and what the kernels refuse. Prints "N passed, N failed".

#import "norm_test.hh"

namespace {

struct LRN {
  double alpha, beta, delta, p0 = 1, pm = 0, ps = 1;
  Place place;
};

Tensor cross_channel(const Tensor &x, long size, const LRN &f, long h, long w) {
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
Tensor in_windows(const Tensor &x, long size, const LRN &f, bool contrast, long h, long w) {
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
    check_equal(
        "local contrast " + name, run_kernel(contrast, x),
        in_windows(x, size, {.alpha = 1.5, .beta = 0.75, .delta = 0.25, .p0 = 0.5, .pm = -0.125, .ps = 2, .place = {}},
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
              in_windows(x, 3, {.alpha = 1, .beta = 0.5, .delta = 1.0 / 1024, .place = {.clamp = true}}, true, 8, 8),
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
    const Place place = placed(clamp);
    const Tensor expected[] = {
        cross_channel(images, 5, {.alpha = 1, .beta = 5, .delta = 1, .place = place}, 6, 5),
        in_windows(images, 3, {.alpha = 1, .beta = 5, .delta = 1, .place = place}, false, 6, 5),
        in_windows(images, 4, {.alpha = 0, .beta = 0.5, .delta = 1.0 / 1024, .place = place}, true, 6, 5)};
    for (int i = 0; i < 3; ++i) check_placed(kernels[i], x, clamp, expected[i], 1e-5);
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
    MPSImage *half =
        [[[MPSImage alloc] initWithDevice:device
                          imageDescriptor:describe(1, 4, 5, 6, MPSImageFeatureChannelFormatFloat16)] autorelease];
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
  check_raises("a kernel of no pixels", kArgument, "kernelWidth (0)",
               [] { make_window<MPSCNNSpatialNormalization>(0); });
  check_raises("a kernel that is not square", kArgument, "kernelWidth (3) is not kernelHeight (5)", [] {
    [[[MPSCNNLocalContrastNormalization alloc] initWithDevice:device kernelWidth:3 kernelHeight:5] autorelease];
  });
  check_raises("initWithDevice:", kArgument, "use -initWithDevice:kernelSize:", [] {
    [[(id)[MPSCNNCrossChannelNormalization alloc] initWithDevice:device] autorelease];
  });
  check_raises("initWithDevice:", kArgument, "use -initWithDevice:kernelWidth:kernelHeight:", [] {
    [[(id)[MPSCNNSpatialNormalization alloc] initWithDevice:device] autorelease];
  });
}

}  // namespace

int main() {
  return run_tests({test_local_defaults, test_measured_numbers, test_cross_channel, test_windows,
                    test_contrast_far_from_zero, test_places, test_batches_and_half, test_local_kernels_are_kept,
                    test_what_local_kernels_refuse});
}
