// SPDX-License-Identifier: Apache-2.0
// Gradients of pooling: properties of states, refused calls. Values are in tests/rows/objc_gradients.py, objc_places.py
// and engine_pooling.py. Prints "N passed, N failed".

#import "mps_test.hh"

namespace {

template <class Kernel>
Kernel *pooling(long kw, long kh, long sx, long sy) {
  return [[(id)[Kernel alloc] initWithDevice:device
                                 kernelWidth:static_cast<NSUInteger>(kw)
                                kernelHeight:static_cast<NSUInteger>(kh)
                             strideInPixelsX:static_cast<NSUInteger>(sx)
                             strideInPixelsY:static_cast<NSUInteger>(sy)] autorelease];
}

void test_properties_come_from_the_state() {
  MPSCNNPoolingMax *forward = pooling<MPSCNNPoolingMax>(3, 4, 2, 1);
  [forward setOffset:MPSOffset{1, -2, 0}];
  [forward setEdgeMode:MPSImageEdgeModeClamp];
  MPSCNNPoolingMaxGradient *gradient = pooling<MPSCNNPoolingMaxGradient>(1, 1, 1, 1);
  MPSImage *source = make_nan_image(1, 6, 7, 4), *result = make_nan_image(1, 3, 3, 4);
  MPSState *state = [forward resultStateForSourceImage:source sourceStates:nil destinationImage:result];
  MPSImageDescriptor *d =
      [gradient destinationImageDescriptorForSourceImages:[NSArray arrayWithObjects:result, source, nil]
                                             sourceStates:[NSArray arrayWithObject:state]];
  check([d width] == 7 && [d height] == 6 && [d featureChannels] == 4, "the result is like the source");
  check([gradient secondaryKernelWidth] == 3 && [gradient secondaryKernelHeight] == 4 &&
            [gradient secondaryStrideInPixelsX] == 2 && [gradient secondaryStrideInPixelsY] == 1 &&
            [gradient secondaryOffset].x == 1 && [gradient secondaryOffset].y == -2 &&
            [gradient secondaryEdgeMode] == MPSImageEdgeModeClamp,
        "kernel, strides, offset and edge mode come from the state");
  check([gradient isBackwards], "a gradient runs backwards");
  MPSCNNPoolingAverage *padded = pooling<MPSCNNPoolingAverage>(4, 3, 1, 2);
  [padded setZeroPadSizeX:1];
  [padded setZeroPadSizeY:2];
  MPSCNNPoolingAverageGradient *average = pooling<MPSCNNPoolingAverageGradient>(1, 1, 1, 1);
  state = [padded resultStateForSourceImage:source sourceStates:nil destinationImage:result];
  [average destinationImageDescriptorForSourceImages:[NSArray arrayWithObjects:result, source, nil]
                                        sourceStates:[NSArray arrayWithObject:state]];
  check([average zeroPadSizeX] == 1 && [average zeroPadSizeY] == 2, "zeroPadSize comes with the state");
  const MTLSize size = [gradient sourceSize];
  check(size.width == NSUIntegerMax && size.height == NSUIntegerMax && size.depth == NSUIntegerMax,
        "sourceSize is everything");
}

void test_refusals() {
  check_raises("the base class", kArgument, "computes nothing itself",
               [] { pooling<MPSCNNPoolingGradient>(2, 2, 2, 2); });
  check_raises("no parameters", kArgument, "is unavailable",
               [] { [[(id)[MPSCNNPoolingMaxGradient alloc] initWithDevice:device] autorelease]; });
  check_raises("no dilation", kArgument, "is unavailable",
               [] { pooling<MPSCNNDilatedPoolingMaxGradient>(2, 2, 2, 2); });
  check_raises("a kernel of 0", kArgument, "secondaryKernelWidth (0)",
               [] { pooling<MPSCNNPoolingMaxGradient>(0, 2, 2, 2); });
  check_raises("a stride of 0", kArgument, "secondaryStrideInPixelsY (0)",
               [] { pooling<MPSCNNPoolingMaxGradient>(2, 2, 2, 0); });
  MPSImage *e = make_nan_image(1, 2, 2, 4), *x = make_nan_image(1, 4, 4, 4), *y = make_nan_image(1, 4, 4, 4);
  const auto refuse = [&](const char *what, const char *part, auto set, MPSImage *to) {
    MPSCNNPoolingAverageGradient *kernel = pooling<MPSCNNPoolingAverageGradient>(2, 2, 2, 2);
    set(kernel);
    check_raises(what, kArgument, part, [&] {
      [kernel encodeToCommandBuffer:command_buffer() primaryImage:e secondaryImage:x destinationImage:to];
    });
  };
  refuse(
      "no size", "primaryOffset (0) and sourceSize (0) leave nothing of the 2 pixels of sourceGradient",
      [](id k) { [k setSourceSize:MTLSizeMake(0, 1, 1)]; }, y);
  refuse(
      "an offset beyond", "primaryOffset (2) and sourceSize", [](id k) { [k setPrimaryOffset:MPSOffset{0, 2, 0}]; }, y);
  refuse(
      "no images", "sourceSize.depth (0) is less than the 1 images",
      [](id k) { [k setSourceSize:MTLSizeMake(1, 1, 0)]; }, y);
  refuse("a large zero pad", "zeroPadSizeX (8589934592)", [](id k) { [k setZeroPadSizeX:NSUInteger{1} << 33]; }, y);
  refuse(
      "a larger result", "5 x 4 pixels (width x height) from (0, 0) on reaches beyond sourceImage, 4 x 4", [](id) {},
      make_nan_image(1, 4, 5, 4));
  refuse(
      "other channels", "reads 4 feature channels of sourceGradient and 3 of sourceImage",
      [](id k) { [k setSecondarySourceFeatureChannelMaxCount:3]; }, y);
  refuse("in place", "sourceImage and the destination share memory", [](id) {}, x);
}

}  // namespace

int main() { return run_tests({test_properties_come_from_the_state, test_refusals}); }
