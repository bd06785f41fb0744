// SPDX-License-Identifier: Apache-2.0
// Gradients of soft max, upsampling, reshape, pad and dropout: the properties that place them, states,
// refused calls. Values are in tests/rows/objc_gradients.py. Prints "N passed, N failed".

#import "mps_test.hh"

namespace {

template <class Kernel>
Kernel *make() {
  return [[[Kernel alloc] initWithDevice:device] autorelease];
}

// ------------------------------------------------------------------------------------------------------ soft max

void test_soft_max() {
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
  MPSCNNUpsamplingNearestGradient *kernel = upsampling<MPSCNNUpsamplingNearestGradient>(3, 2);
  check([kernel scaleFactorX] == 3 && [kernel scaleFactorY] == 2, "scale factors");

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

void test_dropout_places() {
  const Tensor x = Tensor(2, 4, 5, 6, 3), e = Tensor::random(2, 3, 3, 6, 43);
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
  check_equal("dropout, the second image", read_image(second), read_image(made).image(1), 0);

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

int main() { return run_tests({test_soft_max, test_upsampling, test_reshape, test_pad, test_dropout_places}); }
