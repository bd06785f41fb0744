// SPDX-License-Identifier: Apache-2.0
// The statistics of a batch: in one and in several parts, of temporary images, as states. Prints "N passed, N failed".

#import "norm_test.hh"

namespace {

void test_statistics() {
  const Affine values(5, 30);
  Tensor x = Tensor::random(4, 5, 3, 5, 31);
  for (double &value : x.values) value += 100;
  NormSource *source = make_norm_source<NormSource>(values);
  source->means.clear(), source->variances.clear();
  MPSCNNBatchNormalization *kernel = make_norm<MPSCNNBatchNormalization>(source);
  [kernel setEpsilon:0.001f];
  MPSImageBatch *images = make_batch(x), *results = nan_batch(4, 5, 3, 5);
  MPSCNNBatchNormalizationState *state = [kernel resultStateForSourceImage:[images objectAtIndex:0]
                                                              sourceStates:nil
                                                          destinationImage:[results objectAtIndex:0]];
  check([kernel isResultStateReusedAcrossBatch] && [state batchNormalization] == kernel && ![state isTemporary],
        "a state for the whole batch");
  check([state mean] == nil && [state variance] == nil && [state gradientForGamma] == nil &&
            [state gradientForBeta] == nil,
        "a new state has no statistics and no gradients");
  check_numbers("gamma of the state", floats_in([state gamma]), values.gamma);
  check_numbers("beta of the state", floats_in([state beta]), values.beta);
  id<MTLCommandBuffer> buffer = command_buffer();
  check_raises("no statistics", kArgument, "no MPSCNNBatchNormalizationStatistics has been encoded", [&] {
    [kernel encodeBatchToCommandBuffer:buffer
                          sourceImages:images
               batchNormalizationState:state
                     destinationImages:results];
  });
  MPSCNNBatchNormalizationStatistics *statistics = make_statistics();
  check([statistics appendBatchBarrier], "statistics wait for the batch");
  [statistics encodeBatchToCommandBuffer:buffer sourceImages:images batchNormalizationState:state];
  [kernel encodeBatchToCommandBuffer:buffer
                        sourceImages:images
             batchNormalizationState:state
                   destinationImages:results];
  run(buffer);
  Affine expected = values;
  expected.mean = means_of(x, 0, 4), expected.variance = variances_of(x, 0, 4);
  check_numbers("mean", floats_in([state mean]), expected.mean, 1e-5);
  check_numbers("variance", floats_in([state variance]), expected.variance, 1e-6);
  check_equal("normalized by the statistics", read_batch(results), affine(x, expected, 0.001), 3e-5);
  check_raises("no values of its own", kArgument, "has no mean and variance", [&] { run_kernel(kernel, x); });
}

void test_statistics_in_parts() {
  const Affine values(3, 32);
  const Tensor x = Tensor::random(5, 4, 4, 3, 33);
  MPSCNNBatchNormalization *kernel = make_norm<MPSCNNBatchNormalization>(make_norm_source<NormSource>(values));
  MPSCNNBatchNormalizationStatistics *statistics = archived(make_statistics());
  MPSImageBatch *images = make_batch(x);
  const auto part = [&](NSUInteger first, NSUInteger count) {
    return [images subarrayWithRange:NSMakeRange(first, count)];
  };
  MPSCNNBatchNormalizationState *state = [kernel resultStateForSourceImage:[images objectAtIndex:0]
                                                              sourceStates:nil
                                                          destinationImage:[images objectAtIndex:0]];
  check_numbers("mean before statistics: the kernel's", floats_in([state mean]), values.mean);
  check_numbers("variance before statistics: the kernel's", floats_in([state variance]), values.variance);

  const auto encode = [&](id<MTLCommandBuffer> buffer, NSUInteger first, NSUInteger count) {
    [statistics encodeBatchToCommandBuffer:buffer sourceImages:part(first, count) batchNormalizationState:state];
  };
  const auto normalize = [&](id<MTLCommandBuffer> buffer) {
    MPSImage *result = make_nan_image(1, 4, 4, 3);
    [kernel encodeToCommandBuffer:buffer
                      sourceImage:[images objectAtIndex:0]
          batchNormalizationState:state
                 destinationImage:result];
    return result;
  };
  id<MTLCommandBuffer> buffer = command_buffer();
  encode(buffer, 0, 2), encode(buffer, 2, 1), encode(buffer, 3, 2);
  MPSImage *result = normalize(buffer);
  run(buffer);
  check_numbers("mean of the parts", floats_in([state mean]), means_of(x, 0, 5));
  check_numbers("variance of the parts", floats_in([state variance]), variances_of(x, 0, 5));
  Affine own = values;
  own.mean = means_of(x, 0, 5), own.variance = variances_of(x, 0, 5);
  check_equal("by the statistics of the parts", read_image(result), affine(x.image(0), own, FLT_MIN), 4e-6);

  // The batch has been used: the next statistics begin a new one, in two command buffers.
  buffer = command_buffer();
  encode(buffer, 1, 1);
  run(buffer);
  check_numbers("a new batch begins after a normalization", floats_in([state mean]), means_of(x, 1, 1));
  buffer = command_buffer();
  encode(buffer, 2, 2);
  run(buffer);
  check_numbers("and goes on in another command buffer", floats_in([state variance]), variances_of(x, 1, 3));

  [state reset];
  check_numbers("reset: the kernel's mean again", floats_in([state mean]), values.mean);
  buffer = command_buffer();
  result = normalize(buffer);
  run(buffer);
  check_equal("reset: the kernel's statistics", read_image(result), affine(x.image(0), values, FLT_MIN), 4e-6);
  buffer = command_buffer();
  encode(buffer, 4, 1);
  [state reset];
  encode(buffer, 3, 1);
  run(buffer);
  check_numbers("statistics after reset begin anew", floats_in([state mean]), means_of(x, 3, 1));
}

/// Views of one image, channel ranges, temporary images and states.
void test_statistics_of_temporaries() {
  const Affine values(4, 34);
  const Tensor x = Tensor::random(3, 4, 5, 12, 35);
  MPSCNNBatchNormalization *kernel = make_norm<MPSCNNBatchNormalization>(make_norm_source<NormSource>(values));
  MPSCNNBatchNormalizationStatistics *statistics = make_statistics();
  [statistics setSourceFeatureChannelOffset:4];
  [statistics setSourceFeatureChannelMaxCount:4];
  [kernel setSourceFeatureChannelOffset:4];
  [kernel setSourceFeatureChannelMaxCount:4];
  MPSImage *image = make_image(x);
  MPSImageBatch *views = [image batchRepresentation];
  id<MTLCommandBuffer> buffer = command_buffer();
  MPSCNNBatchNormalizationState *state = [kernel temporaryResultStateForCommandBuffer:buffer
                                                                          sourceImage:[views objectAtIndex:0]
                                                                         sourceStates:nil
                                                                     destinationImage:image];
  check([state isTemporary] && [state readCount] == 1, "a temporary state");
  [statistics encodeBatchToCommandBuffer:buffer sourceImages:views batchNormalizationState:state];
  check([state readCount] == 1, "statistics write the state");
  MPSImageBatch *results = nan_batch(3, 4, 5, 4);
  [kernel encodeBatchToCommandBuffer:buffer sourceImages:views batchNormalizationState:state destinationImages:results];
  check([state readCount] == 0, "a normalization of a batch reads it once");
  run(buffer);
  const Tensor part = x.channels(4, 4);
  Affine own = values;
  own.mean = means_of(part, 0, 3), own.variance = variances_of(part, 0, 3);
  check_equal("a range of channels of a batch that lies together", read_batch(results), affine(part, own, FLT_MIN),
              4e-6);

  buffer = command_buffer();
  state = [kernel resultStateForSourceImage:image sourceStates:nil destinationImage:image];
  MPSTemporaryImage *temporary = [MPSTemporaryImage temporaryImageWithCommandBuffer:buffer
                                                                    imageDescriptor:describe(1, 4, 5, 12)];
  [statistics encodeBatchToCommandBuffer:buffer
                            sourceImages:[NSArray arrayWithObject:temporary]
                 batchNormalizationState:state];
  check([temporary readCount] == 0, "statistics read temporary images");
}

}  // namespace

int main() { return run_tests({test_statistics, test_statistics_in_parts, test_statistics_of_temporaries}); }
