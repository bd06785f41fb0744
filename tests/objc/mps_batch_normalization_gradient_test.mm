// SPDX-License-Identifier: Apache-2.0
// The gradients of batch normalization: values against the formulas in double, a batch in one and in several parts, the
// states of a training, encode forms, places, copies, and refused calls. Prints "N passed, N failed".

#import "norm_test.hh"

namespace {

NSString *const kUsage = @"MPSUsageException";
constexpr double kEpsilon = 0.001953125;  // exact in float

// ------------------------------------------------------------------------------------------------ the formulas

/// The gradients for x with its own mean and variance, or with those in `a` unless `trained`; `slope` is that of a
/// rectifier below 0.
struct Gradients {
  Tensor x;
  Numbers gamma, beta;
};

Gradients gradients_of(const Tensor &e, const Tensor &x, const Affine &a, double slope = 1, bool trained = true) {
  Gradients r{Tensor(x.n, x.h, x.w, x.c), Numbers(static_cast<std::size_t>(x.c)),
              Numbers(static_cast<std::size_t>(x.c))};
  const double count = static_cast<double>(x.n * x.h * x.w);
  for (long k = 0; k < x.c; ++k) {
    const auto c = static_cast<std::size_t>(k);
    const Moments m = trained ? moments_of(x, 0, x.n, k, 1) : Moments{a.mean[c], a.variance[c]};
    const double inverse = 1 / std::sqrt(m.variance + kEpsilon);
    const auto each = [&](const auto &f) {
      for (long n = 0; n < x.n; ++n)
        for (long j = 0; j < x.h; ++j)
          for (long i = 0; i < x.w; ++i) {
            const double z = (x.at(n, j, i, k) - m.mean) * inverse;
            f(e.at(n, j, i, k) * (a.gamma[c] * z + a.beta[c] >= 0 ? 1 : slope), z, r.x.at(n, j, i, k));
          }
    };
    each([&](double g, double z, double &) { r.beta[c] += g, r.gamma[c] += g * z; });
    each([&](double g, double z, double &result) {
      result = a.gamma[c] * inverse * (trained ? g - r.beta[c] / count - z * r.gamma[c] / count : g);
    });
  }
  return r;
}

MPSNNNeuronDescriptor *rectifier(float slope) {
  return [MPSNNNeuronDescriptor cnnNeuronDescriptorWithType:MPSCNNNeuronTypeReLU a:slope];
}

template <class Kernel>
Kernel *make_gradient(float slope = 1) {
  return [[[Kernel alloc] initWithDevice:device fusedNeuronDescriptor:slope == 1 ? nil : rectifier(slope)] autorelease];
}

MPSCNNBatchNormalization *make_forward(id source, float slope = 1) {
  MPSCNNBatchNormalization *kernel =
      [[[MPSCNNBatchNormalization alloc] initWithDevice:device
                                             dataSource:source
                                  fusedNeuronDescriptor:slope == 1 ? nil : rectifier(slope)] autorelease];
  [kernel setEpsilon:static_cast<float>(kEpsilon)];
  return kernel;
}

/// The kernels of one layer and its state.
struct Layer {
  MPSCNNBatchNormalization *forward;
  MPSCNNBatchNormalizationStatistics *statistics = make_statistics();
  MPSCNNBatchNormalizationStatisticsGradient *sums;
  MPSCNNBatchNormalizationGradient *gradient;
  MPSCNNBatchNormalizationState *state;

  Layer(const Affine &values, MPSImage *source, float slope = 1)
      : forward(make_forward(make_norm_source<NormSource>(values), slope)),
        sums(make_gradient<MPSCNNBatchNormalizationStatisticsGradient>(slope)),
        gradient(make_gradient<MPSCNNBatchNormalizationGradient>(slope)),
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
  const Gradients expected = gradients_of(e, x, values);
  // One state serves a whole training without reset: each step starts anew.
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
  // The gradients have been used: the next sums start anew, too.
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

/// Without statistics, mean and variance are the data source's, which do not depend on the source.
void test_constant_statistics() {
  const Affine values(4, 56);
  const Tensor x = Tensor::random(2, 3, 4, 4, 57), e = Tensor::random(2, 3, 4, 4, 58);
  MPSImageBatch *images = make_batch(x), *gradients = make_batch(e);
  const Layer layer(values, [images objectAtIndex:0]);
  id<MTLCommandBuffer> buffer = command_buffer();
  layer.normalize(buffer, images);
  MPSImageBatch *before = layer.differentiate(buffer, gradients, images);
  layer.find_sums(buffer, gradients, images);
  MPSImageBatch *after = layer.differentiate(buffer, gradients, images);
  run(buffer);
  const Gradients expected = gradients_of(e, x, values, 1, false);
  check_gradients("constant statistics", layer, expected);
  check_equal("constant statistics, no sums needed", read_batch(before), expected.x, 2e-6);
  check_equal("constant statistics", read_batch(after), expected.x, 2e-6);
}

// ------------------------------------------------------------------------------------------------------- forms

void test_encode_forms() {
  const Affine values(5, 60);
  const Tensor x = Tensor::random(2, 4, 3, 5, 61), e = Tensor::random(2, 4, 3, 5, 62);
  MPSImage *whole_x = make_image(x), *whole_e = make_image(e);
  MPSImageBatch *images = [whole_x batchRepresentation], *gradients = [whole_e batchRepresentation];
  const Layer layer(values, whole_x, 0.5f);
  id<MTLCommandBuffer> buffer = command_buffer();
  layer.find_statistics(buffer, images);
  layer.normalize(buffer, images);
  MPSCNNBatchNormalizationStatisticsGradient *sums = archived([[layer.sums copy] autorelease]);
  check([sums appendBatchBarrier] && [sums isStateModified] && ![layer.gradient isStateModified] &&
            ![layer.gradient appendBatchBarrier],
        "the sums wait for the batch and write the state");
  [sums encodeBatchToCommandBuffer:buffer
                   sourceGradients:gradients
                      sourceImages:images
           batchNormalizationState:layer.state];
  MPSCNNBatchNormalizationGradient *kernel = archived([[layer.gradient copy] autorelease]);
  [kernel setDestinationImageAllocator:[MPSImage defaultAllocator]];
  MPSImage *given = make_nan_image(2, 4, 3, 5), *batch_given = make_nan_image(2, 4, 3, 5),
           *inherited = make_nan_image(2, 4, 3, 5);
  [kernel encodeToCommandBuffer:buffer
                 sourceGradient:whole_e
                    sourceImage:whole_x
        batchNormalizationState:layer.state
            destinationGradient:given];
  [kernel encodeBatchToCommandBuffer:buffer
                     sourceGradients:gradients
                        sourceImages:images
             batchNormalizationState:layer.state
                destinationGradients:[batch_given batchRepresentation]];
  MPSImage *made = [kernel encodeToCommandBuffer:buffer
                                  sourceGradient:whole_e
                                     sourceImage:whole_x
                         batchNormalizationState:layer.state];
  MPSImageBatch *batch = [kernel encodeBatchToCommandBuffer:buffer
                                            sourceGradients:gradients
                                               sourceImages:images
                                    batchNormalizationState:layer.state];
  [kernel encodeToCommandBuffer:buffer
                 sourceGradient:whole_e
                    sourceImage:whole_x
                  gradientState:layer.state
            destinationGradient:inherited];
  run(buffer);
  const Tensor expected = gradients_of(e, x, values, 0.5).x;
  check_equal("destination given", read_image(given), expected, 5e-6);
  check_equal("destination made", read_image(made), expected, 5e-6);
  check_equal("batch, destinations given", read_image(batch_given), expected, 5e-6);
  check_equal("batch, destinations made", read_batch(batch), expected, 5e-6);
  check_equal("the state as a gradientState", read_image(inherited), expected, 5e-6);
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
  check_equal("of temporary images", read_batch(results), gradients_of(e, x, values).x, 5e-6);
}

/// Offsets, channels and images of both sources, and a part of the destination.
void test_places() {
  const Affine values(4, 66);
  const Tensor x = Tensor::random(3, 5, 6, 12, 67), e = Tensor::random(2, 4, 5, 9, 68);
  const Layer layer(values, make_image(Tensor(1, 5, 6, 4)));
  // The source's channels 4 ... 7, images 1 and 2; the gradient's channels 4 ... 7. Pixel (1, 1) of the gradient
  // belongs to pixel (0, 0) of the source.
  Tensor part(2, 5, 6, 4), placed(2, 5, 6, 4);
  for (long n = 0; n < 2; ++n) {
    paste(part, x.channels(4, 4).image(n + 1), n, 0, 0, 0);
    for (long j = 0; j < 3; ++j)
      for (long i = 0; i < 4; ++i)
        for (long k = 0; k < 4; ++k) placed.at(n, j, i, k) = e.at(n, j + 1, i + 1, 4 + k);
  }
  id<MTLCommandBuffer> buffer = command_buffer();
  layer.find_statistics(buffer, [make_image(part) batchRepresentation]);
  layer.normalize(buffer, [make_image(part) batchRepresentation]);
  for (MPSCNNGradientKernel *kernel in [NSArray arrayWithObjects:layer.sums, layer.gradient, nil]) {
    [kernel setPrimaryOffset:MPSOffset{3, -1, 0}];
    [kernel setKernelOffsetX:-2];
    [kernel setKernelOffsetY:2];
    [kernel setPrimarySourceFeatureChannelOffset:4];
    [kernel setPrimarySourceFeatureChannelMaxCount:4];
    [kernel setSecondarySourceFeatureChannelOffset:4];
    [kernel setSecondarySourceFeatureChannelMaxCount:4];
  }
  // Gradient pixels over no source pixel count as gradients of a normalized zero.
  MPSImageBatch *images = make_batch(x);
  layer.find_sums(buffer, make_batch(e), [images subarrayWithRange:NSMakeRange(1, 2)]);
  [layer.gradient setSecondaryOffset:MPSOffset{0, 0, 1}];
  [layer.gradient setClipRect:MTLRegionMake3D(1, 1, 0, 3, 1000, 2)];
  [layer.gradient setDestinationFeatureChannelOffset:4];
  MPSImage *result = make_nan_image(2, 4, 6, 10);
  [layer.gradient encodeToCommandBuffer:buffer
                         sourceGradient:make_image(e)
                            sourceImage:make_image(x)
                batchNormalizationState:layer.state
                    destinationGradient:result];
  run(buffer);
  Gradients expected = gradients_of(placed, part, values);
  Tensor inner(2, 3, 3, 4);
  for (long k = 0; k < 4; ++k) {
    const auto c = static_cast<std::size_t>(k);
    const Moments m = moments_of(part, 0, 2, k, 1);
    const double inverse = 1 / std::sqrt(m.variance + kEpsilon), count = 2 * 5 * 6;
    for (long n = 0; n < 2; ++n)
      for (long j = 0; j < 4; ++j)
        for (long i = 0; i < 5; ++i)
          if (j == 0 || i == 0) {
            expected.beta[c] += e.at(n, j, i, 4 + k);
            expected.gamma[c] += e.at(n, j, i, 4 + k) * -m.mean * inverse;
          }
    for (long n = 0; n < 2; ++n)
      for (long j = 0; j < 3; ++j)
        for (long i = 0; i < 3; ++i) {
          // clipRect moves the result, not the source of its first pixel.
          const double z = (part.at(n, j, i, k) - m.mean) * inverse;
          inner.at(n, j, i, k) = values.gamma[c] * inverse *
                                 (placed.at(n, j, i, k) - expected.beta[c] / count - z * expected.gamma[c] / count);
        }
  }
  check_gradients("places", layer, expected);
  Tensor whole(2, 4, 6, 10, NAN);
  paste(whole, inner, 0, 1, 1, 4);
  check_equal("places", read_image(result), whole, 5e-6);
}

void test_refusals() {
  const Affine values(4, 70);
  const Tensor x = Tensor::random(1, 3, 3, 4, 71);
  MPSImageBatch *images = make_batch(x);
  NormSource *source = make_norm_source<NormSource>(values);
  source->means.clear(), source->variances.clear();
  const Layer layer(values, [images objectAtIndex:0]);
  MPSCNNBatchNormalizationState *bare = [make_forward(source) resultStateForSourceImage:[images objectAtIndex:0]
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

int main() {
  return run_tests({test_a_batch_in_parts, test_constant_statistics, test_encode_forms, test_temporaries, test_places,
                    test_refusals});
}
