// SPDX-License-Identifier: Apache-2.0
// Gradients of pooling: against small steps of the forward kernels in every encode form, the properties that place
// them, copies, archives, and what they refuse. Prints "N passed, N failed".

#import "gradient_test.hh"

namespace {

template <class Kernel>
Kernel *pooling(long kw, long kh, long sx, long sy) {
  return [[(id)[Kernel alloc] initWithDevice:device
                                 kernelWidth:static_cast<NSUInteger>(kw)
                                kernelHeight:static_cast<NSUInteger>(kh)
                             strideInPixelsX:static_cast<NSUInteger>(sx)
                             strideInPixelsY:static_cast<NSUInteger>(sy)] autorelease];
}

template <class Kernel>
Kernel *dilated(NSUInteger dx, NSUInteger dy) {
  return [[[Kernel alloc] initWithDevice:device
                             kernelWidth:2
                            kernelHeight:3
                           dilationRateX:dx
                           dilationRateY:dy
                         strideInPixelsX:1
                         strideInPixelsY:2] autorelease];
}

void test_every_form() {
  const Tensor x = distinct(2, 5, 7, 6, 1);
  for (const MPSImageEdgeMode edge : {MPSImageEdgeModeZero, MPSImageEdgeModeClamp}) {
    const std::string mode = edge == MPSImageEdgeModeZero ? ", zero" : ", clamp";
    const auto with_edge = [&](Pair pair) {
      [pair.forward setEdgeMode:edge];
      pair.name += mode;
      check_pair(pair, x);
    };
    // The gradient kernels' own sizes are replaced by the forward kernels'.
    with_edge({"max 2x2", pooling<MPSCNNPoolingMax>(2, 2, 2, 2), pooling<MPSCNNPoolingMaxGradient>(1, 1, 1, 1)});
    with_edge({"max 3x3", pooling<MPSCNNPoolingMax>(3, 3, 2, 2), pooling<MPSCNNPoolingMaxGradient>(3, 3, 2, 2)});
    with_edge({"max 5x2", pooling<MPSCNNPoolingMax>(5, 2, 1, 3), pooling<MPSCNNPoolingMaxGradient>(3, 3, 2, 2)});
    with_edge({"dilated max", dilated<MPSCNNDilatedPoolingMax>(2, 3), dilated<MPSCNNDilatedPoolingMaxGradient>(1, 1)});
    with_edge(
        {"average 3x2", pooling<MPSCNNPoolingAverage>(3, 2, 2, 1), pooling<MPSCNNPoolingAverageGradient>(1, 1, 1, 1)});
    MPSCNNPoolingAverage *padded = pooling<MPSCNNPoolingAverage>(4, 3, 1, 2);
    [padded setZeroPadSizeX:1];
    [padded setZeroPadSizeY:2];
    MPSCNNPoolingAverageGradient *gradient = pooling<MPSCNNPoolingAverageGradient>(1, 1, 1, 1);
    with_edge({"average, zero pad", padded, gradient});
    check([gradient zeroPadSizeX] == 1 && [gradient zeroPadSizeY] == 2, "zeroPadSize comes with the state");
    MPSCNNPoolingL2Norm *norm = pooling<MPSCNNPoolingL2Norm>(3, 3, 2, 2);
    [norm setEdgeMode:edge];
    check_pair({"norm 3x3" + mode, norm, pooling<MPSCNNPoolingL2NormGradient>(1, 1, 1, 1), 1.0 / 16, 3e-3},
               distinct(2, 5, 7, 6, 1, 40));
  }
  // Some of the channels.
  MPSCNNPoolingMax *part = pooling<MPSCNNPoolingMax>(3, 3, 2, 2);
  [part setSourceFeatureChannelOffset:4];
  [part setSourceFeatureChannelMaxCount:3];
  check_pair({"max of some channels", part, pooling<MPSCNNPoolingMaxGradient>(1, 1, 1, 1)}, distinct(2, 4, 5, 8, 2));
  // The whole image.
  MPSCNNPoolingAverage *global = pooling<MPSCNNPoolingAverage>(7, 5, 7, 5);
  check_pair({"global average", global, pooling<MPSCNNPoolingAverageGradient>(1, 1, 1, 1)}, x);
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
  const MTLSize size = [gradient sourceSize];
  check(size.width == NSUIntegerMax && size.height == NSUIntegerMax && size.depth == NSUIntegerMax,
        "sourceSize is everything");
}

/// A part of the gradient image, of the result, and windows that were moved.
void test_places() {
  const Tensor x = distinct(1, 6, 7, 4, 3), e = Tensor::random(1, 8, 9, 4, 4);
  MPSCNNPoolingMax *forward = pooling<MPSCNNPoolingMax>(2, 3, 2, 1);
  [forward setOffset:MPSOffset{1, -1, 0}];
  // The gradient of 3 x 4 results (height x width) stands at (2, 1) in a larger image.
  Tensor part(1, 3, 4, 4);
  for (long y = 0; y < 3; ++y)
    for (long c = 0; c < 4; ++c)
      for (long i = 0; i < 4; ++i) part.at(0, y, i, c) = e.at(0, 2 + y, 1 + i, c);
  const Tensor expected = by_steps(x, part, 1.0 / 64, [&](const Tensor &several) {
    MPSImage *destination = make_nan_image(several.n, 3, 4, 4);
    encode(forward, make_image(several), destination);
    return read_image(destination);
  });
  MPSCNNPoolingMaxGradient *gradient = pooling<MPSCNNPoolingMaxGradient>(2, 3, 2, 1);
  [gradient setSecondaryOffset:MPSOffset{1, -1, 0}];
  [gradient setPrimaryOffset:MPSOffset{1, 2, 0}];
  [gradient setSourceSize:MTLSizeMake(4, 3, 1)];
  MPSImage *whole = make_nan_image(1, 6, 7, 4), *clipped = make_nan_image(1, 6, 7, 4);
  id<MTLCommandBuffer> buffer = command_buffer();
  [gradient encodeToCommandBuffer:buffer
                     primaryImage:make_image(e)
                   secondaryImage:make_image(x)
                 destinationImage:whole];
  MPSCNNPoolingMaxGradient *twin = archived([[gradient copy] autorelease]);
  [twin setClipRect:MTLRegionMake3D(2, 1, 0, 3, 4, 1)];
  [twin encodeToCommandBuffer:buffer primaryImage:make_image(e) secondaryImage:make_image(x) destinationImage:clipped];
  run(buffer);
  check_equal("a part of the gradient", read_image(whole), expected, 1e-3);
  const Tensor got = read_image(clipped);
  bool is_right = true;
  for (long y = 0; y < 6; ++y)
    for (long i = 0; i < 7; ++i)
      for (long c = 0; c < 4; ++c) {
        const bool inside = y >= 1 && y < 5 && i >= 2 && i < 5;
        const double value = got.at(0, y, i, c);
        is_right = is_right && (inside ? std::fabs(value - expected.at(0, y, i, c)) < 1e-3 : std::isnan(value));
      }
  check(is_right, "clipRect says which pixels of the source are written");

  // Beyond the gradient image there is none; what starts before it keeps its place.
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
  x.at(0, 0, 0, 0) = 1;  // the first channel's greatest begin at (0, 1)
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

  // Zeros beside the source: an equal pixel goes before them, a greater zero takes all.
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

int main() {
  return run_tests({test_every_form, test_properties_come_from_the_state, test_places, test_ties, test_refusals});
}
