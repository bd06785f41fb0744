// SPDX-License-Identifier: Apache-2.0
// Gradients of pooling: properties of states, places, ties, refused calls. Values are in
// tests/rows/objc_gradients.py. Prints "N passed, N failed".

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

/// A part of the gradient image, a part of the result, and moved windows.
void test_places() {
  const Tensor x = Tensor::random(1, 6, 7, 4, 3), e = Tensor::random(1, 8, 9, 4, 4);
  MPSCNNPoolingMax *forward = pooling<MPSCNNPoolingMax>(2, 3, 2, 1);
  [forward setOffset:MPSOffset{1, -1, 0}];
  // The gradient of 3 x 4 results (height x width) is at (2, 1) of a larger image.
  Tensor part(1, 3, 4, 4);
  for (long y = 0; y < 3; ++y)
    for (long c = 0; c < 4; ++c)
      for (long i = 0; i < 4; ++i) part.at(0, y, i, c) = e.at(0, 2 + y, 1 + i, c);
  MPSImage *source = make_image(x);
  MPSState *state = [forward resultStateForSourceImage:source
                                          sourceStates:nil
                                      destinationImage:make_nan_image(1, 3, 4, 4)];
  MPSCNNPoolingMaxGradient *gradient = pooling<MPSCNNPoolingMaxGradient>(2, 3, 2, 1);
  [gradient setSecondaryOffset:MPSOffset{1, -1, 0}];
  [gradient setPrimaryOffset:MPSOffset{1, 2, 0}];
  [gradient setSourceSize:MTLSizeMake(4, 3, 1)];
  MPSImage *whole = make_nan_image(1, 6, 7, 4), *clipped = make_nan_image(1, 6, 7, 4);
  id<MTLCommandBuffer> buffer = command_buffer();
  MPSCNNPoolingMaxGradient *plain = pooling<MPSCNNPoolingMaxGradient>(2, 3, 2, 1);
  [plain setDestinationImageAllocator:[MPSImage defaultAllocator]];
  MPSImage *by_state = [plain encodeToCommandBuffer:buffer
                                     sourceGradient:make_image(part)
                                        sourceImage:source
                                      gradientState:state];
  [gradient encodeToCommandBuffer:buffer
                     primaryImage:make_image(e)
                   secondaryImage:make_image(x)
                 destinationImage:whole];
  MPSCNNPoolingMaxGradient *twin = archived([[gradient copy] autorelease]);
  [twin setClipRect:MTLRegionMake3D(2, 1, 0, 3, 4, 1)];
  [twin encodeToCommandBuffer:buffer primaryImage:make_image(e) secondaryImage:make_image(x) destinationImage:clipped];
  run(buffer);
  const Tensor expected = read_image(by_state);
  check_equal("a part of the gradient", read_image(whole), expected, 0);
  const Tensor got = read_image(clipped);
  bool is_right = true;
  for (long y = 0; y < 6; ++y)
    for (long i = 0; i < 7; ++i)
      for (long c = 0; c < 4; ++c) {
        const bool inside = y >= 1 && y < 5 && i >= 2 && i < 5;
        const double value = got.at(0, y, i, c);
        is_right = is_right && (inside ? value == expected.at(0, y, i, c) : std::isnan(value));
      }
  check(is_right, "clipRect says which pixels of the source are written");

  // Beyond the gradient image there is no gradient; windows that start before it keep their place.
  [gradient setSourceSize:MTLSizeMake(NSUIntegerMax, NSUIntegerMax, NSUIntegerMax)];
  [gradient setPrimaryOffset:MPSOffset{-1, -1, 0}];
  Tensor shifted(1, 9, 10, 4);
  paste(shifted, e, 0, 1, 1, 0);
  MPSImage *before = make_nan_image(1, 6, 7, 4), *moved = make_nan_image(1, 6, 7, 4);
  buffer = command_buffer();
  [gradient encodeToCommandBuffer:buffer
                     primaryImage:make_image(e)
                   secondaryImage:make_image(x)
                 destinationImage:before];
  [gradient setPrimaryOffset:MPSOffset{0, 0, 0}];
  [gradient encodeToCommandBuffer:buffer
                     primaryImage:make_image(shifted)
                   secondaryImage:make_image(x)
                 destinationImage:moved];
  run(buffer);
  check_equal("an offset before the gradient", read_image(before), read_image(moved), 0);
}

void test_ties() {
  MPSCNNPoolingMaxGradient *gradient = pooling<MPSCNNPoolingMaxGradient>(3, 3, 3, 3);
  [gradient setSecondaryOffset:MPSOffset{1, 1, 0}];
  Tensor x(1, 3, 3, 4, 2), e(1, 1, 1, 4, 5);
  x.at(0, 0, 0, 0) = 1;  // the first channel's max is first at (0, 1)
  MPSImage *result = make_nan_image(1, 3, 3, 4);
  id<MTLCommandBuffer> buffer = command_buffer();
  [gradient encodeToCommandBuffer:buffer
                     primaryImage:make_image(e)
                   secondaryImage:make_image(x)
                 destinationImage:result];
  run(buffer);
  Tensor expected(1, 3, 3, 4);
  expected.at(0, 0, 1, 0) = 5;
  for (long c = 1; c < 4; ++c) expected.at(0, 0, 0, c) = 5;
  check_equal("the first of equal pixels has the gradient", read_image(result), expected, 0);

  // Zeros beside the source: an equal pixel has precedence, a greater zero takes all.
  Tensor zeros(1, 3, 3, 4);
  zeros.at(0, 0, 0, 0) = -1;
  for (long y = 0; y < 3; ++y)
    for (long i = 0; i < 3; ++i) zeros.at(0, y, i, 3) = -1;
  [gradient setSecondaryOffset:MPSOffset{0, 0, 0}];
  buffer = command_buffer();
  [gradient encodeToCommandBuffer:buffer
                     primaryImage:make_image(e)
                   secondaryImage:make_image(zeros)
                 destinationImage:result];
  run(buffer);
  const Tensor got = read_image(result);
  check(got.at(0, 0, 0, 0) == 0 && got.at(0, 0, 1, 0) == 5 && got.at(0, 0, 0, 1) == 5 && got.at(0, 0, 0, 3) == 0 &&
            got.at(0, 1, 1, 3) == 0,
        "a pixel goes before what lies outside");

  MPSCNNPoolingL2NormGradient *norm = pooling<MPSCNNPoolingL2NormGradient>(3, 3, 3, 3);
  [norm setSecondaryOffset:MPSOffset{1, 1, 0}];
  buffer = command_buffer();
  [norm encodeToCommandBuffer:buffer
                 primaryImage:make_image(e)
               secondaryImage:make_image(Tensor(1, 3, 3, 4))
             destinationImage:result];
  run(buffer);
  check_equal("a norm of 0 has no gradient", read_image(result), Tensor(1, 3, 3, 4), 0);
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

int main() { return run_tests({test_properties_come_from_the_state, test_places, test_ties, test_refusals}); }
