// SPDX-License-Identifier: Apache-2.0
// The gradients of instance and group normalization: a state for each image, read counts, refused calls.
// Values are in tests/rows/objc_gradients.py. Prints "N passed, N failed".

#import "norm_test.hh"

namespace {

template <class Forward, class Gradient, class State>
void check_class(Forward *forward) {
  const std::string name = [NSStringFromClass([Gradient class]) UTF8String];
  [forward setDestinationImageAllocator:[MPSImage defaultAllocator]];
  const Tensor x = Tensor::random(3, 4, 5, 8, 1), e = Tensor::random(3, 4, 5, 8, 2);
  Gradient *kernel = [[[Gradient alloc] initWithDevice:device] autorelease];
  [kernel setDestinationImageAllocator:[MPSImage defaultAllocator]];
  check([kernel isStateModified], name + ": writes the state");

  // A batch has gradients of gamma and beta in a state for each image; an object of three images has their sums.
  MPSImage *whole_x = make_image(x), *whole_e = make_image(e), *result = make_nan_image(3, 4, 5, 8);
  MPSStateBatch *states = nil;
  MPSState *state = nil, *temporary = nil;
  id<MTLCommandBuffer> buffer = command_buffer();
  [forward encodeBatchToCommandBuffer:buffer
                         sourceImages:make_batch(x)
                    destinationStates:&states
          destinationStateIsTemporary:NO];
  [kernel encodeBatchToCommandBuffer:buffer
                     sourceGradients:make_batch(e)
                        sourceImages:make_batch(x)
                      gradientStates:states];
  [forward encodeToCommandBuffer:buffer sourceImage:whole_x destinationState:&state destinationStateIsTemporary:NO];
  [kernel encodeToCommandBuffer:buffer sourceGradient:whole_e sourceImage:whole_x gradientState:state];
  [forward encodeToCommandBuffer:buffer
                      sourceImage:whole_x
                 destinationState:&temporary
      destinationStateIsTemporary:YES];
  [kernel encodeToCommandBuffer:buffer sourceGradient:whole_e sourceImage:whole_x gradientState:temporary];
  check([temporary readCount] == 0, name + ": reads the state");
  run(buffer);
  Numbers gamma(8), beta(8);
  for (State *one in states)
    for (std::size_t k = 0; k < 8; ++k) {
      gamma[k] += floats_in([one gradientForGamma])[k];
      beta[k] += floats_in([one gradientForBeta])[k];
    }
  check_numbers(name + ", gamma of three images", floats_in([(State *)state gradientForGamma]), gamma, 2e-5);
  check_numbers(name + ", beta of three images", floats_in([(State *)state gradientForBeta]), beta, 2e-5);
  check(floats_in([(State *)[states objectAtIndex:0] gradientForGamma]) !=
            floats_in([(State *)[states objectAtIndex:1] gradientForGamma]),
        name + ": each image has its own");

  State *unused = [forward resultStateForSourceImage:whole_x sourceStates:nil destinationImage:whole_x];
  check_raises(name + ", a state of no encode", kArgument, "holds mean and variance of 0 images, and the source has 3",
               [&] {
                 [kernel encodeToCommandBuffer:command_buffer()
                                sourceGradient:whole_e
                                   sourceImage:whole_x
                                 gradientState:unused
                           destinationGradient:result];
               });
  check_raises(name + ", no state", kArgument, "gradientState is nil", [&] {
    [kernel encodeToCommandBuffer:command_buffer() primaryImage:whole_e secondaryImage:whole_x destinationImage:result];
  });
  check_raises(name + ", other channels", kArgument, "have 4 feature channels, and gradientState was made for 8", [&] {
    MPSImage *few = make_image(x.channels(0, 4));
    [kernel encodeToCommandBuffer:command_buffer()
                   sourceGradient:few
                      sourceImage:few
                    gradientState:state
              destinationGradient:make_nan_image(3, 4, 5, 4)];
  });
}

void test_instance_normalization() {
  check_class<MPSCNNInstanceNormalization, MPSCNNInstanceNormalizationGradient,
              MPSCNNInstanceNormalizationGradientState>(
      make_norm<MPSCNNInstanceNormalization>(make_norm_source<PlainNormSource>(Affine(8, 3))));
}

void test_group_normalization() {
  GroupSource *source = make_norm_source<GroupSource>(Affine(8, 4));
  source->groups = 2;
  check_class<MPSCNNGroupNormalization, MPSCNNGroupNormalizationGradient, MPSCNNGroupNormalizationGradientState>(
      make_norm<MPSCNNGroupNormalization>(source));
}

/// A state of the other class is refused, and a later reload has no effect.
void test_states() {
  const Affine values(4, 5), later(4, 6);
  const Tensor x = Tensor::random(1, 3, 4, 4, 7), e = Tensor::random(1, 3, 4, 4, 8);
  PlainNormSource *source = make_norm_source<PlainNormSource>(values);
  MPSCNNInstanceNormalization *forward = make_norm<MPSCNNInstanceNormalization>(source);
  [forward setDestinationImageAllocator:[MPSImage defaultAllocator]];
  MPSImage *image = make_image(x), *result = make_nan_image(1, 3, 4, 4), *before = make_nan_image(1, 3, 4, 4);
  MPSState *state = nil;
  id<MTLCommandBuffer> buffer = command_buffer();
  [forward encodeToCommandBuffer:buffer sourceImage:image destinationState:&state destinationStateIsTemporary:NO];
  MPSCNNInstanceNormalizationGradient *kernel =
      [[[MPSCNNInstanceNormalizationGradient alloc] initWithDevice:device] autorelease];
  const auto differentiate = [&](MPSImage *to) {
    [kernel encodeToCommandBuffer:buffer
                   sourceGradient:make_image(e)
                      sourceImage:image
                    gradientState:state
              destinationGradient:to];
  };
  differentiate(before);
  source->gammas = floats(later.gamma);
  [forward reloadGammaAndBetaFromDataSource];
  [forward setEpsilon:1];
  differentiate(result);
  MPSCNNGroupNormalizationGradient *group =
      [[[MPSCNNGroupNormalizationGradient alloc] initWithDevice:device] autorelease];
  check_raises("a state of another class", kArgument, "is no MPSCNNGroupNormalizationGradientState", [&] {
    [group encodeToCommandBuffer:buffer
                  sourceGradient:make_image(e)
                     sourceImage:image
                   gradientState:state
             destinationGradient:result];
  });
  run(buffer);
  check_equal("gamma and epsilon as they were", read_image(result), read_image(before), 0);
}

}  // namespace

int main() { return run_tests({test_instance_normalization, test_group_normalization, test_states}); }
