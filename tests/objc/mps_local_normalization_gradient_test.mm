// SPDX-License-Identifier: Apache-2.0
// The gradients of local normalization: properties and refused calls. Values are in tests/rows/objc_gradients.py
// and objc_places.py. Prints "N passed, N failed".

#import "norm_test.hh"

namespace {

template <class Kernel>
Kernel *make_window(NSUInteger size) {
  return [[[Kernel alloc] initWithDevice:device kernelWidth:size kernelHeight:size] autorelease];
}

template <class Kernel>
Kernel *make_cross_channel(NSUInteger size) {
  return [[[Kernel alloc] initWithDevice:device kernelSize:size] autorelease];
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

int main() { return run_tests({test_defaults, test_refusals}); }
