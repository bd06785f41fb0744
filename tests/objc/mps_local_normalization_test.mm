// SPDX-License-Identifier: Apache-2.0
// Local normalization: properties and refused calls. Values are in tests/cases/MPSCNNNormalization.py. Prints "N
// passed, N failed".

#import "norm_test.hh"

namespace {

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

/// A large mean does not make the contrast less accurate.
void test_contrast_far_from_zero() {
  const Tensor x = Tensor::random(1, 8, 8, 4, 3);
  Tensor far = x;
  for (double &value : far.values) value += 1000;
  MPSCNNLocalContrastNormalization *kernel = make_window<MPSCNNLocalContrastNormalization>(3);
  [kernel setAlpha:1];
  [kernel setEdgeMode:MPSImageEdgeModeClamp];
  check_equal("contrast of values near 1000", run_kernel(kernel, far), run_kernel(kernel, x), 4e-6);
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
  return run_tests(
      {test_local_defaults, test_contrast_far_from_zero, test_local_kernels_are_kept, test_what_local_kernels_refuse});
}
