// SPDX-License-Identifier: Apache-2.0
// Instance and group normalization: data sources and states. Values are in
// tests/cases/MPSCNNBatchNormalization.py. Prints "N passed, N failed".

#import "norm_test.hh"

namespace {

void test_data_source() {
  PlainNormSource *source = make_norm_source<PlainNormSource>(Affine(6, 40));
  MPSCNNInstanceNormalization *kernel = make_norm<MPSCNNInstanceNormalization>(source);
  check([kernel epsilon] == FLT_MIN && (id)[kernel dataSource] == source && [[kernel label] isEqual:@"norm source"] &&
            ![kernel isResultStateReusedAcrossBatch],
        "instance normalization: what it takes from the data source");
}

void test_states_of_images() {
  const Affine first(4, 42), second(4, 43);
  const Tensor x = Tensor::random(3, 4, 5, 4, 44);
  const auto fresh = [&](const Affine &values) {
    return run_kernel(make_norm<MPSCNNInstanceNormalization>(make_norm_source<PlainNormSource>(values)), x);
  };
  PlainNormSource *source = make_norm_source<PlainNormSource>(first);
  MPSCNNInstanceNormalization *kernel = make_norm<MPSCNNInstanceNormalization>(source);
  [kernel setDestinationImageAllocator:[MPSImage defaultAllocator]];
  id<MTLCommandBuffer> buffer = command_buffer();
  MPSStateBatch *states = nil;
  MPSImageBatch *results = [kernel encodeBatchToCommandBuffer:buffer
                                                 sourceImages:[make_image(x) batchRepresentation]
                                            destinationStates:&states
                                  destinationStateIsTemporary:NO];
  check([states count] == 3 && [states objectAtIndex:0] != [states objectAtIndex:1], "a state for each image");
  source->gammas = floats(second.gamma), source->betas = floats(second.beta);
  [kernel reloadGammaAndBetaFromDataSource];
  run(buffer);
  check_equal("a batch", read_batch(results), fresh(first), 0);
  for (MPSCNNInstanceNormalizationGradientState *state in states) {
    check([state instanceNormalization] == kernel, "the state's kernel");
    check_numbers("gamma as it was encoded", floats_in([state gamma]), first.gamma);
    check_numbers("beta as it was encoded", floats_in([state beta]), first.beta);
    check_numbers("no gradient yet", floats_in([state gradientForGamma]), Numbers(4, 0));
    check_numbers("no gradient yet", floats_in([state gradientForBeta]), Numbers(4, 0));
  }
  check_equal("after the reload", run_kernel(kernel, x), fresh(second), 0);

  // A given state, temporary states, and those of a group normalization.
  GroupSource *grouped = make_norm_source<GroupSource>(first);
  grouped->groups = 2;
  MPSCNNGroupNormalization *group = make_norm<MPSCNNGroupNormalization>(grouped);
  MPSImage *images = make_image(x), *result = make_nan_image(3, 4, 5, 4);
  MPSCNNGroupNormalizationGradientState *state = [group resultStateForSourceImage:images
                                                                     sourceStates:nil
                                                                 destinationImage:result];
  buffer = command_buffer();
  [group encodeToCommandBuffer:buffer sourceImage:images destinationState:state destinationImage:result];
  MPSState *temporary = nil;
  MPSImage *returned = [group encodeToCommandBuffer:buffer
                                        sourceImage:images
                                   destinationState:&temporary
                        destinationStateIsTemporary:YES];
  check([temporary isKindOfClass:[MPSCNNGroupNormalizationGradientState class]] && [temporary isTemporary] &&
            [temporary readCount] == 1,
        "a temporary state");
  [temporary setReadCount:0];
  [(MPSTemporaryImage *)returned setReadCount:0];
  run(buffer);
  check([state groupNormalization] == group, "the state's kernel");
  check_equal("with a state", read_image(result), run_kernel(group, x), 0);

  MPSCNNGroupNormalizationGradientState *small = [group resultStateForSourceImage:make_image(x.image(0))
                                                                     sourceStates:nil
                                                                 destinationImage:result];
  buffer = command_buffer();
  check_raises("a state of fewer images", kArgument, "was made for 1 images, and the source has 3", [&] {
    [group encodeToCommandBuffer:buffer sourceImage:images destinationState:small destinationImage:result];
  });
  check_raises("a state of another class", kArgument, "is no MPSCNNInstanceNormalizationGradientState", [&] {
    [kernel encodeToCommandBuffer:buffer sourceImage:images destinationState:state destinationImage:result];
  });
  grouped->groups = 3;
  check_raises("groups", kArgument, "numberOfGroups (3) does not divide its numberOfFeatureChannels (4)",
               [&] { make_norm<MPSCNNGroupNormalization>(grouped); });
  MPSCNNNormalizationGammaAndBetaState *weights =
      [[[MPSCNNNormalizationGammaAndBetaState alloc] initWithGamma:make_buffer(first.gamma)
                                                              beta:make_buffer(first.beta)] autorelease];
  [kernel reloadGammaAndBetaWithCommandBuffer:buffer gammaAndBetaState:weights];
  run(buffer);
  check_equal("reloaded on a command buffer", run_kernel(kernel, x), fresh(first), 0);
}

}  // namespace

int main() { return run_tests({test_data_source, test_states_of_images}); }
