// SPDX-License-Identifier: Apache-2.0
// Batch normalization: data sources, reloads, copies, refused calls. Values are in
// tests/cases/MPSCNNBatchNormalization.py. Prints "N passed, N failed".

#import "norm_test.hh"

namespace {

void test_batch_normalization() {
  for (const long channels : {3, 50}) {
    const Affine values(static_cast<std::size_t>(channels), 10);
    NormSource *source = make_norm_source<NormSource>(values);
    MPSCNNBatchNormalization *kernel = make_norm<MPSCNNBatchNormalization>(source);
    check([kernel numberOfFeatureChannels] == static_cast<NSUInteger>(channels) && [kernel epsilon] == FLT_MIN &&
              (id)[kernel dataSource] == source && [[kernel label] isEqual:@"norm source"],
          "batch normalization: what it takes from the data source");
    check(source->loads == 1 && source->purges == 1, "loaded once, purged once");
  }
  FullNormSource *full = make_norm_source<FullNormSource>(Affine(4, 12));
  full->epsilon_value = 0.125f;
  check([make_norm<MPSCNNBatchNormalization>(full) epsilon] == 0.125f, "epsilon of the data source");

  Affine values(4, 13);
  values.gamma.assign(4, 1), values.beta.assign(4, 0);
  NormSource *bare = make_norm_source<NormSource>(values);
  bare->gammas.clear(), bare->betas.clear();
  const Tensor x = Tensor::random(1, 3, 3, 4, 14);
  check_equal("without gamma and beta", run_kernel(make_norm<MPSCNNBatchNormalization>(bare), x),
              affine(x, values, FLT_MIN), 2e-6);
}

void test_fused_neuron() {
  const Affine values(5, 17);
  const float slopes[] = {1, 2, 3};
  MPSNNNeuronDescriptor *prelu =
      [MPSNNNeuronDescriptor cnnNeuronPReLUDescriptorWithData:[NSData dataWithBytes:slopes length:sizeof slopes]
                                                       noCopy:false];
  check_raises("a PReLU of other channels", kArgument, "data has 3 values, and the source has 5", [&] {
    [[[MPSCNNBatchNormalization alloc] initWithDevice:device
                                           dataSource:make_norm_source<NormSource>(values)
                                fusedNeuronDescriptor:prelu] autorelease];
  });
}

void test_reloads() {
  const Affine first(4, 20), second(4, 21);
  const Tensor x = Tensor::random(1, 3, 4, 4, 22);
  NormSource *source = make_norm_source<NormSource>(first);
  MPSCNNBatchNormalization *kernel = make_norm<MPSCNNBatchNormalization>(source);
  [kernel setEpsilon:0.25f];
  source->gammas = floats(second.gamma), source->betas = floats(second.beta);
  source->means = floats(second.mean), source->variances = floats(second.variance);
  check_equal("before a reload", run_kernel(kernel, x), affine(x, first, 0.25), 2e-6);
  [kernel reloadGammaAndBetaFromDataSource];
  Affine mixed = first;
  mixed.gamma = second.gamma, mixed.beta = second.beta;
  check_equal("gamma and beta reloaded", run_kernel(kernel, x), affine(x, mixed, 0.25), 2e-6);
  [kernel reloadMeanAndVarianceFromDataSource];
  check_equal("mean and variance reloaded", run_kernel(kernel, x), affine(x, second, 0.25), 2e-6);
  check(source->loads == 3 && source->purges == 3, "each reload loads and purges");

  // In the order of the command buffer: earlier encodes keep their values.
  MPSCNNNormalizationGammaAndBetaState *weights =
      [[[MPSCNNNormalizationGammaAndBetaState alloc] initWithGamma:make_buffer(first.gamma)
                                                              beta:make_buffer(first.beta)] autorelease];
  MPSCNNNormalizationMeanAndVarianceState *statistics =
      [[[MPSCNNNormalizationMeanAndVarianceState alloc] initWithMean:make_buffer(first.mean)
                                                            variance:make_buffer(first.variance)] autorelease];
  check([weights resourceCount] == 2 && [statistics resourceCount] == 2 && ![weights isTemporary], "states of buffers");
  MPSImage *results[3];
  for (MPSImage *&result : results) result = make_nan_image(1, 3, 4, 4);
  id<MTLCommandBuffer> buffer = command_buffer();
  [kernel encodeToCommandBuffer:buffer sourceImage:make_image(x) destinationImage:results[0]];
  [kernel reloadGammaAndBetaWithCommandBuffer:buffer gammaAndBetaState:weights];
  [kernel encodeToCommandBuffer:buffer sourceImage:make_image(x) destinationImage:results[1]];
  [kernel reloadMeanAndVarianceWithCommandBuffer:buffer meanAndVarianceState:statistics];
  [kernel encodeToCommandBuffer:buffer sourceImage:make_image(x) destinationImage:results[2]];
  // The buffers are read when the command buffer runs.
  static_cast<float *>([[weights beta] contents])[0] = 42;
  run(buffer);
  Affine late = first;
  late.beta[0] = 42;
  mixed = second;
  mixed.gamma = late.gamma, mixed.beta = late.beta;
  check_equal("encoded before the reloads", read_image(results[0]), affine(x, second, 0.25), 2e-6);
  check_equal("encoded after the first", read_image(results[1]), affine(x, mixed, 0.25), 5e-6);
  check_equal("encoded after both", read_image(results[2]), affine(x, late, 0.25), 5e-6);
  check_equal("out of an archive", run_kernel(archived(kernel), x), affine(x, late, 0.25), 5e-6);

  buffer = command_buffer();
  MPSCNNNormalizationGammaAndBetaState *temporary =
      [MPSCNNNormalizationGammaAndBetaState temporaryStateWithCommandBuffer:buffer numberOfFeatureChannels:4];
  check([temporary isTemporary] && [[temporary gamma] length] == 16 && [[temporary beta] length] == 16,
        "a temporary state of 4 channels");
  [kernel reloadGammaAndBetaWithCommandBuffer:buffer gammaAndBetaState:temporary];
  check([temporary readCount] == 0, "a reload reads a temporary state");
  MPSCNNNormalizationMeanAndVarianceState *other =
      [MPSCNNNormalizationMeanAndVarianceState temporaryStateWithCommandBuffer:buffer numberOfFeatureChannels:3];
  check_raises("a state of other channels", kArgument, "mean of the state has 12 bytes, expected 16",
               [&] { [kernel reloadMeanAndVarianceWithCommandBuffer:buffer meanAndVarianceState:other]; });
  [other setReadCount:0];
  run(buffer);

  const Affine third(6, 23);
  FullNormSource *larger = make_norm_source<FullNormSource>(third);
  larger->epsilon_value = 0.0625f;
  [kernel reloadDataSource:larger];
  const Tensor wide = Tensor::random(1, 3, 4, 6, 24);
  check([kernel numberOfFeatureChannels] == 6 && (id)[kernel dataSource] == larger, "another data source");
  check_equal("another data source", run_kernel(kernel, wide), affine(wide, third, 0.0625), 2e-6);
  larger->channels = 4;
  check_raises("a data source that changes", kArgument, "numberOfFeatureChannels (4) is not the kernel's (6)",
               [&] { [kernel reloadGammaAndBetaFromDataSource]; });
  check(larger->purges == larger->loads, "purged when something is wrong too");
}

void test_copies_of_kernels() {
  const Affine values(4, 25);
  const Tensor x = Tensor::random(1, 3, 4, 4, 26);
  NormSource *source = make_norm_source<NormSource>(values);
  MPSCNNBatchNormalization *kernel = make_norm<MPSCNNBatchNormalization>(source);
  [kernel setEpsilon:0.5f];
  MPSCNNBatchNormalization *copy = [[kernel copyWithZone:NULL device:device] autorelease];
  check(source->copies == 1, "a kernel's copy copies the data source");
  [kernel setEpsilon:0];
  check([copy epsilon] == 0.5f && [[copy label] isEqual:@"norm source"], "a copy is independent");
  check_equal("a copy", run_kernel(copy, x), affine(x, values, 0.5), 2e-6);
  check_equal("a copy's archive", run_kernel(archived(copy), x), affine(x, values, 0.5), 2e-6);
  GroupSource *groups = make_norm_source<GroupSource>(values);
  groups->groups = 2;
  MPSCNNGroupNormalization *plain = make_norm<MPSCNNGroupNormalization>(groups);
  MPSCNNGroupNormalization *group = archived([[plain copy] autorelease]);
  check_equal("group normalization out of a copy's archive", run_kernel(group, x), run_kernel(plain, x), 0);
}

void test_what_batch_normalization_refuses() {
  const Affine values(4, 36);
  NormSource *source = make_norm_source<NormSource>(values);
  source->refuses_load = YES;
  check(make_norm<MPSCNNBatchNormalization>(source) == nil && source->purges == 0, "load answers NO: nil");
  source->refuses_load = NO;
  check_raises("a nil data source", kArgument, "dataSource is nil", [] { make_norm<MPSCNNBatchNormalization>(nil); });
  check_raises("initWithDevice:", kArgument, "use -initWithDevice:dataSource:", [] {
    [[(id)[MPSCNNBatchNormalization alloc] initWithDevice:device] autorelease];
  });
  source->means.clear();
  check_raises("a mean alone", kArgument, "mean is NULL, and its variance is there",
               [&] { make_norm<MPSCNNBatchNormalization>(source); });
  check(source->loads == source->purges, "purged when something is wrong");
  source->means = floats(values.mean);
  source->variances[2] = -0.5f;
  check_raises("a variance below 0", kArgument, "variance[2] (-0.5) is less than 0",
               [&] { make_norm<MPSCNNBatchNormalization>(source); });
  source->variances[2] = 0.5f;
  source->channels = 0;
  check_raises("no channels", kArgument, "numberOfFeatureChannels (0)",
               [&] { make_norm<MPSCNNBatchNormalization>(source); });
  source->channels = 4;

  MPSCNNBatchNormalization *kernel = make_norm<MPSCNNBatchNormalization>(source);
  check_raises("epsilon", kArgument, "epsilon (-1) is less than 0", [&] { [kernel setEpsilon:-1]; });
  source->refuses_load = YES;
  check_raises("a reload that does not load", kUsage, "did not load",
               [&] { [kernel reloadGammaAndBetaFromDataSource]; });
  const Tensor x = Tensor::random(1, 2, 2, 5, 37), y = Tensor::random(1, 2, 2, 4, 38);
  check_raises("other channels", kArgument, "source has 5 feature channels", [&] { run_kernel(kernel, x); });
  MPSImage *image = make_image(y), *result = make_nan_image(1, 2, 2, 4);
  id<MTLCommandBuffer> buffer = command_buffer();
  MPSCNNBatchNormalizationState *none = nil;
  check_raises("a nil state", kArgument, "batchNormalizationState is nil", [&] {
    [kernel encodeToCommandBuffer:buffer sourceImage:image batchNormalizationState:none destinationImage:result];
  });
  MPSCNNBatchNormalizationState *state = [kernel resultStateForSourceImage:image
                                                              sourceStates:nil
                                                          destinationImage:result];
  check_raises("a destinationState", kArgument, "destinationState are unavailable", [&] {
    [(MPSCNNKernel *)kernel encodeToCommandBuffer:buffer
                                      sourceImage:image
                                 destinationState:state
                                 destinationImage:result];
  });
  const Affine others(8, 39);
  MPSCNNBatchNormalization *other = make_norm<MPSCNNBatchNormalization>(make_norm_source<NormSource>(others));
  MPSImage *wide = make_nan_image(1, 2, 2, 8);
  check_raises("a state of other channels", kArgument, "was made for 4 feature channels in 0 groups", [&] {
    [other encodeToCommandBuffer:buffer sourceImage:wide batchNormalizationState:state destinationImage:wide];
  });
  MPSCNNBatchNormalizationStatistics *statistics = make_statistics();
  check_raises("images of other channels", kArgument, "sourceImages have 8 feature channels", [&] {
    [statistics encodeBatchToCommandBuffer:buffer
                              sourceImages:[NSArray arrayWithObject:wide]
                   batchNormalizationState:state];
  });
  check_raises("no images", kArgument, "sourceImages has 0 images", [&] {
    [statistics encodeBatchToCommandBuffer:buffer sourceImages:[NSArray array] batchNormalizationState:state];
  });
  check_raises("statistics have no destination", kArgument, "There is no destination", [&] {
    [(MPSCNNKernel *)statistics encodeToCommandBuffer:buffer sourceImage:image destinationImage:result];
  });
  MPSCNNBatchNormalizationState *stranger = [[[MPSCNNBatchNormalizationState alloc]
      initWithResources:[NSArray arrayWithObject:make_buffer(values.mean)]] autorelease];
  check_raises("a state that no kernel made", kUsage, "only a kernel can make this state", [&] {
    [kernel encodeToCommandBuffer:buffer sourceImage:image batchNormalizationState:stranger destinationImage:result];
  });
  id<MTLBuffer> no_buffer = nil;
  check_raises("a nil buffer", kArgument, "beta is nil", [&] {
    [[[MPSCNNNormalizationGammaAndBetaState alloc] initWithGamma:make_buffer(values.gamma) beta:no_buffer] autorelease];
  });
  check_raises("a state of no channels", kArgument, "numberOfFeatureChannels (0)", [&] {
    [MPSCNNNormalizationMeanAndVarianceState temporaryStateWithCommandBuffer:buffer numberOfFeatureChannels:0];
  });
}

}  // namespace

int main() {
  return run_tests({test_batch_normalization, test_fused_neuron, test_reloads, test_copies_of_kernels,
                    test_what_batch_normalization_refuses});
}
