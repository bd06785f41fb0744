// SPDX-License-Identifier: Apache-2.0
// The gradients of batch normalization: a batch in several parts, the states of a training, readCounts, and refused
// calls. Values in every encode form are in tests/rows/objc_batch_normalization.py. Prints "N passed, N failed".

#import "norm_test.hh"

namespace {

template <class Kernel>
Kernel *make_gradient() {
  return [[[Kernel alloc] initWithDevice:device fusedNeuronDescriptor:nil] autorelease];
}

/// The kernels of one layer and its state.
struct Layer {
  MPSCNNBatchNormalization *forward;
  MPSCNNBatchNormalizationStatistics *statistics = make_statistics();
  MPSCNNBatchNormalizationStatisticsGradient *sums;
  MPSCNNBatchNormalizationGradient *gradient;
  MPSCNNBatchNormalizationState *state;

  Layer(const Affine &values, MPSImage *source)
      : forward(make_norm<MPSCNNBatchNormalization>(make_norm_source<NormSource>(values))),
        sums(make_gradient<MPSCNNBatchNormalizationStatisticsGradient>()),
        gradient(make_gradient<MPSCNNBatchNormalizationGradient>()),
        state([forward resultStateForSourceImage:source sourceStates:nil destinationImage:source]) {
    [gradient setDestinationImageAllocator:[MPSImage defaultAllocator]];
  }
  void find_statistics(id<MTLCommandBuffer> buffer, MPSImageBatch *images) const {
    [statistics encodeBatchToCommandBuffer:buffer sourceImages:images batchNormalizationState:state];
  }
  void normalize(id<MTLCommandBuffer> buffer, MPSImageBatch *images) const {
    MPSImage *first = [images objectAtIndex:0];
    [forward encodeBatchToCommandBuffer:buffer
                           sourceImages:images
                batchNormalizationState:state
                      destinationImages:nan_batch((long)[images count], (long)[first height], (long)[first width],
                                                  (long)[first featureChannels])];
  }
  void find_sums(id<MTLCommandBuffer> buffer, MPSImageBatch *gradients, MPSImageBatch *images) const {
    [sums encodeBatchToCommandBuffer:buffer
                     sourceGradients:gradients
                        sourceImages:images
             batchNormalizationState:state];
  }
  MPSImageBatch *differentiate(id<MTLCommandBuffer> buffer, MPSImageBatch *gradients, MPSImageBatch *images) const {
    return [gradient encodeBatchToCommandBuffer:buffer
                                sourceGradients:gradients
                                   sourceImages:images
                        batchNormalizationState:state];
  }
};

/// The gradients of a batch in one part.
struct Gradients {
  Tensor x;
  Numbers gamma, beta;

  Gradients(const Tensor &e, const Tensor &x, const Affine &values) {
    MPSImageBatch *images = make_batch(x), *gradients = make_batch(e);
    const Layer layer(values, [images objectAtIndex:0]);
    id<MTLCommandBuffer> buffer = command_buffer();
    layer.find_statistics(buffer, images);
    layer.normalize(buffer, images);
    layer.find_sums(buffer, gradients, images);
    MPSImageBatch *results = layer.differentiate(buffer, gradients, images);
    run(buffer);
    this->x = read_batch(results);
    gamma = floats_in([layer.state gradientForGamma]), beta = floats_in([layer.state gradientForBeta]);
  }
};

void check_gradients(const std::string &what, const Layer &layer, const Gradients &expected) {
  check_numbers(what + ": gamma", floats_in([layer.state gradientForGamma]), expected.gamma, 2e-5);
  check_numbers(what + ": beta", floats_in([layer.state gradientForBeta]), expected.beta, 2e-5);
}

// ---------------------------------------------------------------------------------------------------- numbers

void test_a_batch_in_parts() {
  const Affine values(6, 53);
  const Tensor x = Tensor::random(5, 3, 4, 6, 54), e = Tensor::random(5, 3, 4, 6, 55);
  MPSImageBatch *images = make_batch(x), *gradients = [make_image(e) batchRepresentation];
  const Layer layer(values, [images objectAtIndex:0]);
  const auto part = [](MPSImageBatch *batch, NSUInteger first, NSUInteger count) {
    return [batch subarrayWithRange:NSMakeRange(first, count)];
  };
  const Gradients expected(e, x, values);
  // One state is used in every step, without reset: each step begins new sums.
  for (int step = 0; step < 2; ++step) {
    id<MTLCommandBuffer> buffer = command_buffer();
    layer.find_statistics(buffer, part(images, 0, 2)), layer.find_statistics(buffer, part(images, 2, 3));
    layer.normalize(buffer, images);
    run(buffer);
    check([layer.state gradientForGamma] == nil, "statistics of a new batch: the gradients of the last are gone");
    buffer = command_buffer();
    layer.find_sums(buffer, part(gradients, 0, 1), part(images, 0, 1));
    layer.find_sums(buffer, part(gradients, 1, 4), part(images, 1, 4));
    MPSImageBatch *results[] = {layer.differentiate(buffer, part(gradients, 0, 3), part(images, 0, 3)),
                                layer.differentiate(buffer, part(gradients, 3, 2), part(images, 3, 2))};
    run(buffer);
    check_gradients("in parts", layer, expected);
    check_equal("in parts", read_batch([results[0] arrayByAddingObjectsFromArray:results[1]]), expected.x, 5e-6);
  }
  // The gradients have been used: the next sums begin at 0, too.
  id<MTLCommandBuffer> buffer = command_buffer();
  layer.find_sums(buffer, gradients, images);
  run(buffer);
  check_gradients("sums after a gradient begin anew", layer, expected);
  buffer = command_buffer();
  layer.find_sums(buffer, gradients, images);
  run(buffer);
  Gradients twice = expected;
  for (double &v : twice.gamma) v *= 2;
  for (double &v : twice.beta) v *= 2;
  check_gradients("without a gradient between, they go on", layer, twice);
  [layer.state reset];
  check([layer.state gradientForGamma] == nil && [layer.state gradientForBeta] == nil, "reset: no gradients");
}

// ------------------------------------------------------------------------------------------------------- forms

void test_properties() {
  const Layer layer(Affine(5, 60), make_image(Tensor(1, 4, 3, 5)));
  MPSCNNBatchNormalizationStatisticsGradient *sums = archived([[layer.sums copy] autorelease]);
  check([sums appendBatchBarrier] && [sums isStateModified] && ![layer.gradient isStateModified] &&
            ![layer.gradient appendBatchBarrier],
        "the sums wait for the batch and write the state");
}

void test_temporaries() {
  const Affine values(4, 63);
  const Tensor x = Tensor::random(2, 3, 3, 4, 64), e = Tensor::random(2, 3, 3, 4, 65);
  const Layer layer(values, make_image(x.image(0)));
  id<MTLCommandBuffer> buffer = command_buffer();
  MPSCNNBatchNormalizationState *state = [layer.forward temporaryResultStateForCommandBuffer:buffer
                                                                                 sourceImage:make_image(x.image(0))
                                                                                sourceStates:nil
                                                                            destinationImage:make_image(x.image(0))];
  [state setReadCount:2];
  MPSImageBatch *images = make_batch(x);
  [layer.statistics encodeBatchToCommandBuffer:buffer sourceImages:images batchNormalizationState:state];
  [layer.forward encodeBatchToCommandBuffer:buffer
                               sourceImages:images
                    batchNormalizationState:state
                          destinationImages:nan_batch(2, 3, 3, 4)];
  check([state readCount] == 1, "a normalization reads the state");
  MPSCNNNeuronReLU *copy = [[[MPSCNNNeuronReLU alloc] initWithDevice:device a:1] autorelease];
  MPSImageBatch *gradients = [copy encodeBatchToCommandBuffer:buffer sourceImages:make_batch(e)];
  MPSImageBatchIncrementReadCount(gradients, 1);
  [layer.sums encodeBatchToCommandBuffer:buffer
                         sourceGradients:gradients
                            sourceImages:images
                 batchNormalizationState:state];
  check([state readCount] == 1, "the sums write the state");
  check([(MPSTemporaryImage *)[gradients objectAtIndex:1] readCount] == 1, "and read the gradients once");
  MPSImageBatch *results = [layer.gradient encodeBatchToCommandBuffer:buffer
                                                      sourceGradients:gradients
                                                         sourceImages:images
                                              batchNormalizationState:state];
  check([state readCount] == 0, "a gradient of a batch reads the state once");
  check([(MPSTemporaryImage *)[gradients objectAtIndex:1] readCount] == 0, "and each gradient");
  check_raises("a state that was read", kUsage, "readCount of 0", [&] {
    [layer.gradient encodeBatchToCommandBuffer:buffer
                               sourceGradients:make_batch(e)
                                  sourceImages:images
                       batchNormalizationState:state];
  });
  run(buffer);
  check_equal("of temporary images", read_batch(results), Gradients(e, x, values).x, 5e-6);
}

void test_refusals() {
  const Affine values(4, 70);
  const Tensor x = Tensor::random(1, 3, 3, 4, 71);
  MPSImageBatch *images = make_batch(x);
  NormSource *source = make_norm_source<NormSource>(values);
  source->means.clear(), source->variances.clear();
  const Layer layer(values, [images objectAtIndex:0]);
  MPSCNNBatchNormalization *plain = make_norm<MPSCNNBatchNormalization>(source);
  MPSCNNBatchNormalizationState *bare = [plain resultStateForSourceImage:[images objectAtIndex:0]
                                                            sourceStates:nil
                                                        destinationImage:[images objectAtIndex:0]];
  id<MTLCommandBuffer> buffer = command_buffer();
  const auto sums = [&](MPSImageBatch *gradients, MPSCNNBatchNormalizationState *state) {
    [layer.sums encodeBatchToCommandBuffer:buffer
                           sourceGradients:gradients
                              sourceImages:images
                   batchNormalizationState:state];
  };
  const auto gradient = [&](MPSCNNBatchNormalizationState *state) {
    [layer.gradient encodeBatchToCommandBuffer:buffer
                               sourceGradients:images
                                  sourceImages:images
                       batchNormalizationState:state];
  };
  check_raises("no state for the sums", kArgument, "batchNormalizationState is nil", [&] { sums(images, nil); });
  check_raises("no state for a gradient", kArgument, "batchNormalizationState is nil", [&] { gradient(nil); });
  check_raises("no statistics", kArgument, "has no mean and variance", [&] { sums(images, bare); });
  check_raises("no statistics for a gradient", kArgument, "has no mean and variance", [&] { gradient(bare); });
  layer.find_statistics(buffer, images);
  check_raises("no sums", kArgument, "No MPSCNNBatchNormalizationStatisticsGradient has been encoded",
               [&] { gradient(layer.state); });
  check_raises("other channels", kArgument, "reads 3 feature channels of sourceGradient and 4 of sourceImage",
               [&] { sums(make_batch(x.channels(0, 3)), layer.state); });
  check_raises("images that are missing", kArgument, "sourceImages has 1 images, expected 2",
               [&] { sums([images arrayByAddingObjectsFromArray:images], layer.state); });
  [layer.sums setSecondarySourceFeatureChannelMaxCount:3];
  check_raises("channels of another state", kArgument,
               "have 3 feature channels, and batchNormalizationState was made for 4",
               [&] { sums(make_batch(x.channels(0, 3)), layer.state); });
  [layer.sums setSecondarySourceFeatureChannelMaxCount:NSUIntegerMax];
  check_raises("a single image", kArgument, "There is no destination", [&] {
    [(id)layer.sums encodeToCommandBuffer:buffer
                           sourceGradient:[images objectAtIndex:0]
                              sourceImage:[images objectAtIndex:0]
                            gradientState:layer.state
                      destinationGradient:make_nan_image(1, 3, 3, 4)];
  });
  check_raises("as a binary kernel", kArgument, "The forms with a primaryImage are unavailable", [&] {
    [(id)layer.gradient encodeToCommandBuffer:buffer
                                 primaryImage:[images objectAtIndex:0]
                               secondaryImage:[images objectAtIndex:0]
                             destinationImage:make_nan_image(1, 3, 3, 4)];
  });
  [layer.gradient setPrimaryEdgeMode:MPSImageEdgeModeClamp];
  sums(images, layer.state);
  check_raises("values beyond the gradient", kArgument, "primaryEdgeMode (1) is not MPSImageEdgeModeZero",
               [&] { gradient(layer.state); });
  [layer.gradient setPrimaryEdgeMode:MPSImageEdgeModeZero];
  [layer.gradient setSecondaryStrideInPixelsX:2];
  [layer.gradient setDestinationImageAllocator:[MPSImage defaultAllocator]];
  check_raises("a stride", kArgument, "secondaryStrideInPixelsX (2) and secondaryStrideInPixelsY (1) are not 1", [&] {
    [layer.gradient encodeToCommandBuffer:buffer
                           sourceGradient:[images objectAtIndex:0]
                              sourceImage:[images objectAtIndex:0]
                  batchNormalizationState:layer.state
                      destinationGradient:make_nan_image(1, 3, 3, 4)];
  });
  const float slopes[] = {1, 2, 3};
  MPSNNNeuronDescriptor *prelu =
      [MPSNNNeuronDescriptor cnnNeuronPReLUDescriptorWithData:[NSData dataWithBytes:slopes length:sizeof slopes]
                                                       noCopy:false];
  MPSCNNBatchNormalizationStatisticsGradient *other =
      [[[MPSCNNBatchNormalizationStatisticsGradient alloc] initWithDevice:device
                                                    fusedNeuronDescriptor:prelu] autorelease];
  check_raises("a PReLU of other channels", kArgument, "data has 3 values", [&] {
    [other encodeBatchToCommandBuffer:buffer
                      sourceGradients:images
                         sourceImages:images
              batchNormalizationState:layer.state];
  });
}

}  // namespace

int main() { return run_tests({test_a_batch_in_parts, test_properties, test_temporaries, test_refusals}); }
