// SPDX-License-Identifier: Apache-2.0
// Gradients of the arithmetic of two images: properties and refused calls. Values are in tests/rows/objc_gradients.py
// and objc_places.py. Prints "N passed, N failed".

#import "mps_test.hh"

namespace {

MPSCNNArithmeticGradient *new_gradient(Class kind, BOOL is_secondary) {
  MPSCNNArithmeticGradient *kernel = [[(MPSCNNAddGradient *)[kind alloc] initWithDevice:device
                                                                isSecondarySourceFilter:is_secondary] autorelease];
  [kernel setDestinationImageAllocator:[MPSImage defaultAllocator]];
  return kernel;
}

void test_defaults() {
  MPSCNNArithmeticGradient *add = new_gradient([MPSCNNAddGradient class], YES);
  check([add primaryScale] == 1 && [add secondaryScale] == 1 && [add bias] == 0 &&
            [add secondaryStrideInFeatureChannels] == 1 && [add minimumValue] == -std::numeric_limits<float>::max() &&
            [add maximumValue] == std::numeric_limits<float>::max() && [add isBackwards],
        "defaults");
}

void test_refusals() {
  check_raises("the base class", kArgument, "unavailable",
               [] { [[(id)[MPSCNNArithmeticGradient alloc] initWithDevice:device] autorelease]; });
  check_raises("no filter", kArgument, "unavailable",
               [] { [[(id)[MPSCNNAddGradient alloc] initWithDevice:device] autorelease]; });
  MPSImage *e = make_nan_image(1, 3, 4, 8), *y = make_nan_image(1, 3, 4, 8), *to = make_nan_image(1, 3, 4, 8);
  const auto refuse = [&](const char *what, Class kind, const char *part, auto set) {
    MPSCNNArithmeticGradient *kernel = new_gradient(kind, NO);
    set(kernel);
    check_raises(what, kArgument, part, [&] {
      [kernel encodeToCommandBuffer:command_buffer() primaryImage:e secondaryImage:y destinationImage:to];
    });
  };
  refuse("a stride of 2", [MPSCNNAddGradient class], "secondaryStrideInPixelsX (2) is neither 0 nor 1",
         [](id k) { [k setSecondaryStrideInPixelsX:2]; });
  refuse("a repeated gradient", [MPSCNNAddGradient class], "primaryStrideInPixelsX (0) and primaryStrideInPixelsY (1)",
         [](id k) { [k setPrimaryStrideInPixelsX:0]; });
  refuse("a sum with rows", [MPSCNNAddGradient class],
         "repeated its source along the rows, so its gradient has 1 of them",
         [](id k) { [k setSecondaryStrideInPixelsY:0]; });
  refuse("channels that differ", [MPSCNNMultiplyGradient class],
         "8 feature channels of sourceGradient and 4 of sourceImage",
         [](id k) { [k setSecondarySourceFeatureChannelMaxCount:4]; });

  MPSCNNAdd *forward = [[[MPSCNNAdd alloc] initWithDevice:device] autorelease];
  MPSNNReshape *reshape = [[[MPSNNReshape alloc] initWithDevice:device] autorelease];
  MPSState *strange = [reshape resultStateForSourceImage:e sourceStates:nil destinationImage:to];
  check_raises("another kernel's state", kArgument, "destinationState is an object of class MPSNNGradientState", [&] {
    [forward encodeToCommandBuffer:command_buffer()
                      primaryImage:e
                    secondaryImage:y
                  destinationState:(MPSCNNArithmeticGradientState *)strange
                  destinationImage:to];
  });
  MPSCNNArithmeticGradient *kernel = new_gradient([MPSCNNAddGradient class], NO);
  check_raises("another state", kArgument, "gradientState is an object of class MPSNNGradientState", [&] {
    [kernel encodeToCommandBuffer:command_buffer()
                   sourceGradient:e
                      sourceImage:y
                    gradientState:strange
              destinationGradient:to];
  });
  // A mask of one image is not enough for two.
  [forward setMaximumValue:1];
  MPSState *state = nil;
  id<MTLCommandBuffer> buffer = command_buffer();
  [forward setDestinationImageAllocator:[MPSImage defaultAllocator]];
  [forward encodeToCommandBuffer:buffer
                     primaryImage:e
                   secondaryImage:y
                 destinationState:&state
      destinationStateIsTemporary:NO];
  run(buffer);
  check_raises("a mask of fewer images", kArgument, "gradientState is that of an encode of 1 images with 8", [&] {
    [kernel encodeToCommandBuffer:command_buffer()
                   sourceGradient:make_nan_image(2, 3, 4, 8)
                      sourceImage:make_nan_image(2, 3, 4, 8)
                    gradientState:state
              destinationGradient:make_nan_image(2, 3, 4, 8)];
  });
  MPSStateBatch *twice = [NSArray arrayWithObjects:state, state, nil];
  check_raises("one mask for two images", kArgument, "one state for several images", [&] {
    [forward encodeBatchToCommandBuffer:command_buffer()
                          primaryImages:[NSArray arrayWithObjects:e, e, nil]
                        secondaryImages:[NSArray arrayWithObjects:y, y, nil]
                      destinationStates:(MPSCNNArithmeticGradientStateBatch *)twice
                      destinationImages:[NSArray arrayWithObjects:to, make_nan_image(1, 3, 4, 8), nil]];
  });
}

}  // namespace

int main() { return run_tests({test_defaults, test_refusals}); }
