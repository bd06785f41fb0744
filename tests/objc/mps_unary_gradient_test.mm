// SPDX-License-Identifier: Apache-2.0
// Gradients of soft max, upsampling, reshape, pad and dropout: against small steps of the forward kernels in every
// encode form, the properties that place them, copies, archives, and what they refuse. Prints "N passed, N failed".

#import "gradient_test.hh"

namespace {

template <class Kernel>
Kernel *make() {
  return [[[Kernel alloc] initWithDevice:device] autorelease];
}

// ------------------------------------------------------------------------------------------------------ soft max

void test_soft_max() {
  for (const long channels : {3l, 40l}) {
    const Tensor x = Tensor::random(2, 1, 2, channels, 1);
    check_pair({"soft max", make<MPSCNNSoftMax>(), make<MPSCNNSoftMaxGradient>(), 1.0 / 64, 1e-3, true}, x);
    check_pair({"log soft max", make<MPSCNNLogSoftMax>(), make<MPSCNNLogSoftMaxGradient>(), 1.0 / 64, 1e-3, true}, x);
  }
  MPSCNNSoftMax *part = make<MPSCNNSoftMax>();
  [part setSourceFeatureChannelOffset:4];
  [part setSourceFeatureChannelMaxCount:3];
  check_pair({"soft max of some channels", part, make<MPSCNNSoftMaxGradient>(), 1.0 / 64, 1e-3, true},
             Tensor::random(2, 2, 3, 8, 2));
}

/// The forward kernel read from an offset on: its result lies there on the source. With edge mode Clamp, a pixel of the
/// source gets what all pixels that saw it from beyond the source give back.
void check_soft_max_offset(MPSOffset offset, MPSImageEdgeMode edge, long height, long width, const std::string &what) {
  const Tensor x = Tensor::random(1, 4, 5, 6, 3), e = Tensor::random(1, height, width, 6, 4);
  for (const bool log : {false, true}) {
    MPSCNNKernel *forward = log ? (MPSCNNKernel *)make<MPSCNNLogSoftMax>() : (MPSCNNKernel *)make<MPSCNNSoftMax>();
    MPSCNNGradientKernel *gradient = log ? (MPSCNNGradientKernel *)make<MPSCNNLogSoftMaxGradient>()
                                         : (MPSCNNGradientKernel *)make<MPSCNNSoftMaxGradient>();
    [forward setOffset:offset];
    [forward setEdgeMode:edge];
    const auto run_forward = [&](const Tensor &several) {
      MPSImage *destination = make_nan_image(several.n, height, width, 6);
      encode(forward, make_image(several), destination);
      return read_image(destination);
    };
    const Tensor expected = by_steps(x, e, 1.0 / 64, run_forward);
    MPSImage *source = make_image(x), *result = make_image(run_forward(x));
    MPSState *state = [forward resultStateForSourceImage:source sourceStates:nil destinationImage:result];
    [gradient setDestinationImageAllocator:[MPSImage defaultAllocator]];
    id<MTLCommandBuffer> buffer = command_buffer();
    MPSImage *made = [gradient encodeToCommandBuffer:buffer
                                      sourceGradient:make_image(e)
                                         sourceImage:result
                                       gradientState:state];
    MPSImage *from_archive = make_nan_image(1, 4, 5, 6);
    [archived([[gradient copy] autorelease]) encodeToCommandBuffer:buffer
                                                    sourceGradient:make_image(e)
                                                       sourceImage:result
                                                     gradientState:state
                                               destinationGradient:from_archive];
    run(buffer);
    check_equal((log ? "log soft max, " : "soft max, ") + what, read_image(made), expected, 1e-3);
    check_equal(what + ", out of a copy's archive", read_image(from_archive), read_image(made), 0);
  }
}

void test_soft_max_offset() {
  check_soft_max_offset({2, 1, 0}, MPSImageEdgeModeZero, 3, 3, "offset");
  check_soft_max_offset({-2, 1, 0}, MPSImageEdgeModeClamp, 5, 8, "clamped");
  check_soft_max_offset({3, -2, 0}, MPSImageEdgeModeClamp, 3, 4, "clamped, of a part");
  check_soft_max_offset({0, 0, 0}, MPSImageEdgeModeClamp, 6, 7, "clamped, larger than the source");
  check_soft_max_offset({7, -9, 0}, MPSImageEdgeModeClamp, 3, 4, "clamped, all of it beyond");
  const Tensor x = Tensor::random(1, 4, 5, 6, 3);
  MPSCNNSoftMaxGradient *strided = make<MPSCNNSoftMaxGradient>();
  [strided setSecondaryStrideInPixelsX:2];
  MPSImage *a = make_image(x);
  check_raises("a strided soft max", kArgument, "secondaryStrideInPixelsX (2)", [&] {
    [strided encodeToCommandBuffer:command_buffer()
                      primaryImage:a
                    secondaryImage:a
                  destinationImage:make_nan_image(1, 4, 5, 6)];
  });
}

// ---------------------------------------------------------------------------------------------------- upsampling

template <class Kernel>
Kernel *upsampling(NSUInteger x, NSUInteger y) {
  return [[[Kernel alloc] initWithDevice:device integerScaleFactorX:x integerScaleFactorY:y] autorelease];
}

void test_upsampling() {
  const Tensor x = Tensor::random(2, 3, 4, 5, 10);
  for (const MPSImageEdgeMode edge : {MPSImageEdgeModeZero, MPSImageEdgeModeClamp}) {
    for (const bool align : {false, true}) {
      MPSCNNUpsamplingBilinear *bilinear = [[[MPSCNNUpsamplingBilinear alloc] initWithDevice:device
                                                                         integerScaleFactorX:2
                                                                         integerScaleFactorY:3
                                                                                alignCorners:align] autorelease];
      [bilinear setEdgeMode:edge];
      check_pair({align ? "bilinear, corners aligned" : "bilinear", bilinear,
                  upsampling<MPSCNNUpsamplingBilinearGradient>(2, 3)},
                 x);
    }
    MPSCNNUpsamplingNearest *nearest = upsampling<MPSCNNUpsamplingNearest>(3, 2);
    [nearest setEdgeMode:edge];
    check_pair({"nearest", nearest, upsampling<MPSCNNUpsamplingNearestGradient>(3, 2)}, x);
  }
  MPSCNNUpsamplingNearestGradient *kernel = upsampling<MPSCNNUpsamplingNearestGradient>(3, 2);
  check([kernel scaleFactorX] == 3 && [kernel scaleFactorY] == 2, "scale factors");

  // A part of the gradient, a part of the result: rows 2 and 3 of six are row 1 of the source.
  Tensor e = Tensor::random(1, 6, 12, 5, 11), expected(1, 1, 2, 5);
  for (long i = 0; i < 2; ++i)
    for (long c = 0; c < 5; ++c)
      for (long dy = 0; dy < 2; ++dy)
        for (long dx = 0; dx < 3; ++dx) expected.at(0, 0, i, c) += e.at(0, 2 + dy, 3 * (i + 1) + dx, c);
  Tensor larger(1, 7, 14, 5, 100);
  paste(larger, e, 0, 1, 2, 0);
  MPSImage *result = make_nan_image(1, 3, 4, 5);
  [kernel setPrimaryOffset:MPSOffset{2, 1, 0}];
  [kernel setClipRect:MTLRegionMake3D(1, 1, 0, 2, 1, 1)];
  id<MTLCommandBuffer> buffer = command_buffer();
  [kernel encodeToCommandBuffer:buffer
                   primaryImage:make_image(larger)
                 secondaryImage:make_nan_image(1, 3, 4, 5)
               destinationImage:result];
  run(buffer);
  const Tensor got = read_image(result);
  Tensor part(1, 1, 2, 5);
  for (long i = 0; i < 2; ++i)
    for (long c = 0; c < 5; ++c) part.at(0, 0, i, c) = got.at(0, 1, 1 + i, c);
  check_equal("a part of an upsampling's gradient", part, expected, 1e-5);
  check(std::isnan(got.at(0, 0, 1, 0)) && std::isnan(got.at(0, 1, 0, 0)), "and nothing else");

  check_raises("the base class", kArgument, "unavailable",
               [] { [[(id)[MPSCNNUpsamplingGradient alloc] initWithDevice:device] autorelease]; });
  check_raises("a factor of 0", kArgument, "integerScaleFactorY (0)",
               [] { upsampling<MPSCNNUpsamplingBilinearGradient>(1, 0); });
}

// ------------------------------------------------------------------------------------------------- reshape, pad

void test_reshape() {
  const Tensor x = Tensor::random(1, 4, 6, 5, 20), e = Tensor::random(1, 3, 2, 20, 21);
  MPSNNReshape *forward = make<MPSNNReshape>();
  MPSNNReshapeGradient *gradient = archived([[make<MPSNNReshapeGradient>() copy] autorelease]);
  [forward setDestinationImageAllocator:[MPSImage defaultAllocator]];
  [gradient setDestinationImageAllocator:[MPSImage defaultAllocator]];
  id<MTLCommandBuffer> buffer = command_buffer();
  MPSState *state = nil;
  MPSImage *source = make_image(x);
  [forward encodeToCommandBuffer:buffer
                      sourceImage:source
                 destinationState:&state
      destinationStateIsTemporary:YES
                    reshapedWidth:2
                   reshapedHeight:3
          reshapedFeatureChannels:20];
  MPSImage *made = [gradient encodeToCommandBuffer:buffer
                                    sourceGradient:make_image(e)
                                       sourceImage:source
                                     gradientState:state];
  run(buffer);
  Tensor expected = x;
  expected.values = e.values;
  check_equal("gradient of a reshape", read_image(made), expected, 0);
  MPSImage *other = make_nan_image(1, 4, 6, 4);
  check_raises("another number of values", kArgument, "The 120 values of sourceGradient", [&] {
    [gradient encodeToCommandBuffer:command_buffer()
                       primaryImage:make_image(e)
                     secondaryImage:other
                   destinationImage:make_nan_image(1, 4, 6, 4)];
  });
  [gradient setPrimaryOffset:MPSOffset{1, 0, 0}];
  check_raises("an offset", kArgument, "primaryOffset (1, 0)", [&] {
    [gradient encodeToCommandBuffer:command_buffer()
                       primaryImage:make_image(e)
                     secondaryImage:source
                   destinationImage:make_nan_image(1, 4, 6, 5)];
  });
}

void test_pad() {
  const Tensor x = Tensor::random(2, 3, 4, 5, 30);
  const MPSImageEdgeMode modes[] = {MPSImageEdgeModeZero, MPSImageEdgeModeClamp, MPSImageEdgeModeMirror,
                                    MPSImageEdgeModeMirrorWithEdge, MPSImageEdgeModeConstant};
  for (const MPSImageEdgeMode mode : modes) {
    for (const NSUInteger channels : {0, 3}) {
      MPSNNPad *pad = [[[MPSNNPad alloc] initWithDevice:device
                                      paddingSizeBefore:{4, 2, channels}
                                       paddingSizeAfter:{3, 5, channels + 1}] autorelease];
      [pad setEdgeMode:mode];
      [pad setFillValue:7];
      check_pair({"pad, edge mode " + std::to_string(mode), pad, make<MPSNNPadGradient>()}, x);
    }
  }
  MPSNNPad *part = [[[MPSNNPad alloc] initWithDevice:device paddingSizeBefore:{1, 1, 2}
                                    paddingSizeAfter:{1, 1, 0}] autorelease];
  [part setSourceFeatureChannelOffset:1];
  [part setSourceFeatureChannelMaxCount:3];
  [part setEdgeMode:MPSImageEdgeModeMirror];
  check_pair({"pad of some channels", part, make<MPSNNPadGradient>()}, x);

  MPSNNPadGradient *kernel = make<MPSNNPadGradient>();
  MPSImage *e = make_nan_image(1, 5, 5, 4), *source = make_nan_image(1, 3, 3, 5);
  check_raises("too few channels", kArgument, "sourceGradient has 4 feature channels, fewer than the 0", [&] {
    [kernel encodeToCommandBuffer:command_buffer()
                     primaryImage:e
                   secondaryImage:source
                 destinationImage:make_nan_image(1, 3, 3, 5)];
  });
  [kernel setPrimaryOffset:MPSOffset{5, 0, 0}];
  [kernel setSecondaryEdgeMode:MPSImageEdgeModeMirror];
  check_raises("nothing of the gradient", kArgument, "Columns: primaryOffset (5)", [&] {
    [kernel encodeToCommandBuffer:command_buffer()
                     primaryImage:e
                   secondaryImage:make_nan_image(1, 3, 3, 4)
                 destinationImage:make_nan_image(1, 3, 3, 4)];
  });
}

// ------------------------------------------------------------------------------------------------------- dropout

void test_dropout() {
  const Tensor x = distinct(2, 4, 5, 6, 40, 100), e = Tensor::random(2, 4, 5, 6, 41);
  for (const MTLSize stride : {MTLSize{1, 1, 1}, MTLSize{0, 1, 1}, MTLSize{1, 1, 0}, MTLSize{0, 0, 1}}) {
    MPSCNNDropout *forward = [[[MPSCNNDropout alloc] initWithDevice:device
                                                    keepProbability:0.625f
                                                               seed:9
                                                 maskStrideInPixels:stride] autorelease];
    MPSCNNDropoutGradient *made_gradient = [[[MPSCNNDropoutGradient alloc] initWithDevice:device
                                                                          keepProbability:0.625f
                                                                                     seed:9
                                                                       maskStrideInPixels:stride] autorelease];
    MPSCNNDropoutGradient *gradient = archived([[made_gradient copy] autorelease]);
    check([gradient keepProbability] == 0.625f && [gradient seed] == 9 &&
              [gradient maskStrideInPixels].width == stride.width,
          "parameters are kept");
    [forward setDestinationImageAllocator:[MPSImage defaultAllocator]];
    [gradient setDestinationImageAllocator:[MPSImage defaultAllocator]];
    MPSState *state = nil;
    MPSStateBatch *states = nil;
    id<MTLCommandBuffer> buffer = command_buffer();
    MPSImage *y = [forward encodeToCommandBuffer:buffer
                                     sourceImage:make_image(x)
                                destinationState:&state
                     destinationStateIsTemporary:NO];
    MPSImage *made = [gradient encodeToCommandBuffer:buffer
                                      sourceGradient:make_image(e)
                                         sourceImage:make_image(x)
                                       gradientState:state];
    MPSImageBatch *several = [forward encodeBatchToCommandBuffer:buffer
                                                    sourceImages:make_batch(x)
                                               destinationStates:&states
                                     destinationStateIsTemporary:YES];
    MPSImageBatch *batch = [gradient encodeBatchToCommandBuffer:buffer
                                                sourceGradients:make_batch(e)
                                                   sourceImages:make_batch(x)
                                                 gradientStates:states];
    run(buffer);
    const auto expected = [&](const Tensor &result, const Tensor &diff) {
      Tensor t = diff;
      for (std::size_t i = 0; i < t.values.size(); ++i) t.values[i] = result.values[i] == 0 ? 0 : t.values[i] / 0.625;
      return t;
    };
    check_equal("dropout", read_image(made), expected(read_image(y), e), 1e-6);
    for (NSUInteger i = 0; i < 2; ++i)
      check_equal("dropout of a batch", read_image([batch objectAtIndex:i]),
                  expected(read_image([several objectAtIndex:i]), e.image(static_cast<long>(i))), 1e-6);
  }
}

/// The forward kernel read from (2, 1) on; then the second of two images.
void test_dropout_places() {
  const Tensor x = distinct(2, 4, 5, 6, 42, 100), e = Tensor::random(2, 3, 3, 6, 43);
  MPSCNNDropout *forward = [[[MPSCNNDropout alloc] initWithDevice:device
                                                  keepProbability:0.5f
                                                             seed:1
                                               maskStrideInPixels:MTLSizeMake(1, 1, 1)] autorelease];
  MPSCNNDropoutGradient *gradient = [[[MPSCNNDropoutGradient alloc] initWithDevice:device
                                                                   keepProbability:0.5f
                                                                              seed:1
                                                                maskStrideInPixels:MTLSizeMake(1, 1, 1)] autorelease];
  [forward setOffset:MPSOffset{2, 1, 0}];
  MPSImage *source = make_image(x), *y = make_nan_image(2, 3, 3, 6), *second = make_nan_image(1, 4, 5, 6);
  MPSState *state = [forward resultStateForSourceImage:source sourceStates:nil destinationImage:y];
  check_raises("before the forward encode", kArgument, "gradientState is that of an encode of 0 images", [&] {
    [gradient encodeToCommandBuffer:command_buffer()
                     sourceGradient:make_image(e)
                        sourceImage:source
                      gradientState:state];
  });
  [gradient setDestinationImageAllocator:[MPSImage defaultAllocator]];
  id<MTLCommandBuffer> buffer = command_buffer();
  [forward encodeToCommandBuffer:buffer sourceImage:source destinationState:state destinationImage:y];
  MPSImage *made = [gradient encodeToCommandBuffer:buffer
                                    sourceGradient:make_image(e)
                                       sourceImage:source
                                     gradientState:state];
  [gradient setPrimaryOffset:MPSOffset{0, 0, 1}];
  [gradient encodeToCommandBuffer:buffer
                   sourceGradient:make_image(e)
                      sourceImage:source
                    gradientState:state
              destinationGradient:second];
  run(buffer);
  const Tensor kept = read_image(y);
  Tensor expected(2, 4, 5, 6);
  for (long n = 0; n < 2; ++n)
    for (long j = 0; j < 3; ++j)
      for (long i = 0; i < 3; ++i)
        for (long c = 0; c < 6; ++c)
          expected.at(n, j + 1, i + 2, c) = kept.at(n, j, i, c) == 0 ? 0 : 2 * e.at(n, j, i, c);
  check_equal("dropout, offset", read_image(made), expected, 1e-6);
  check_equal("dropout, the second image", read_image(second), expected.image(1), 1e-6);

  // From beyond the source the nearest pixel was seen, by several, each with bits of its own.
  [forward setOffset:MPSOffset{-1, 2, 0}];
  [forward setEdgeMode:MPSImageEdgeModeClamp];
  y = make_nan_image(2, 3, 7, 6);
  const Tensor wide = Tensor::random(2, 3, 7, 6, 44);
  state = [forward resultStateForSourceImage:source sourceStates:nil destinationImage:y];
  buffer = command_buffer();
  [forward encodeToCommandBuffer:buffer sourceImage:source destinationState:state destinationImage:y];
  made = [gradient encodeToCommandBuffer:buffer
                          sourceGradient:make_image(wide)
                             sourceImage:source
                           gradientState:state];
  run(buffer);
  const Tensor clamped = read_image(y);
  expected = Tensor(2, 4, 5, 6);
  for (long n = 0; n < 2; ++n)
    for (long j = 0; j < 3; ++j)
      for (long i = 0; i < 7; ++i)
        for (long c = 0; c < 6; ++c)
          expected.at(n, std::min(j + 2, 3l), std::clamp(i - 1, 0l, 4l), c) +=
              clamped.at(n, j, i, c) == 0 ? 0 : 2 * wide.at(n, j, i, c);
  check_equal("dropout, clamped", read_image(made), expected, 1e-6);

  MPSImage *result = make_nan_image(1, 4, 5, 6);
  [gradient setPrimaryOffset:MPSOffset{0, 0, 0}];
  check_raises("no state", kArgument, "gradientState is nil", [&] {
    [gradient encodeToCommandBuffer:command_buffer()
                       primaryImage:make_image(e)
                     secondaryImage:source
                   destinationImage:result];
  });
  MPSNNReshape *reshape = make<MPSNNReshape>();
  MPSState *strange = [reshape resultStateForSourceImage:source sourceStates:nil destinationImage:y];
  check_raises("another state", kArgument, "expected MPSCNNDropoutGradientState", [&] {
    [gradient encodeToCommandBuffer:command_buffer()
                     sourceGradient:make_image(e)
                        sourceImage:source
                      gradientState:strange
                destinationGradient:result];
  });
  MPSCNNDropoutGradient *more = [[[MPSCNNDropoutGradient alloc] initWithDevice:device
                                                               keepProbability:0.75f
                                                                          seed:1
                                                            maskStrideInPixels:MTLSizeMake(1, 1, 1)] autorelease];
  check_raises("another probability", kArgument, "keepProbability (0.75) is not that of the forward kernel (0.5)", [&] {
    [more encodeToCommandBuffer:command_buffer()
                 sourceGradient:make_image(e)
                    sourceImage:source
                  gradientState:state
            destinationGradient:result];
  });
  check_raises("no parameters", kArgument, "unavailable",
               [] { [[(id)[MPSCNNDropoutGradient alloc] initWithDevice:device] autorelease]; });
  check_raises("a probability of 1", kArgument, "keepProbability (1) is not between 0 and 1", [] {
    [[[MPSCNNDropoutGradient alloc] initWithDevice:device
                                   keepProbability:1
                                              seed:0
                                maskStrideInPixels:MTLSizeMake(1, 1, 1)] autorelease];
  });
}

}  // namespace

int main() {
  return run_tests({test_soft_max, test_soft_max_offset, test_upsampling, test_reshape, test_pad, test_dropout,
                    test_dropout_places});
}
