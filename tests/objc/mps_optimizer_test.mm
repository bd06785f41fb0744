// SPDX-License-Identifier: Apache-2.0
// Optimizers: descriptors, time steps, states, readCounts, refused calls, copies and archives. Values in every
// encode form are in tests/rows/objc_optimizers.py. Prints "N passed, N failed".

#import "norm_test.hh"

namespace {

Numbers values_in(id<MTLBuffer> buffer, std::size_t count, std::size_t first = 0) {
  const float *floats = static_cast<const float *>([buffer contents]) + first;
  return Numbers(floats, floats + count);
}

MPSVector *make_vector(const Numbers &values) {
  return [[[MPSVector alloc] initWithBuffer:make_buffer(values)
                                 descriptor:[MPSVectorDescriptor vectorDescriptorWithLength:values.size()
                                                                                   dataType:MPSDataTypeFloat32]]
      autorelease];
}

Numbers values_of(MPSVector *vector) { return values_in([vector data], [vector length], [vector offset] / 4); }

MPSNNOptimizerDescriptor *describe_optimizer() {
  return [MPSNNOptimizerDescriptor optimizerDescriptorWithLearningRate:0.1f
                                                       gradientRescale:1
                                                    regularizationType:MPSNNRegularizationTypeNone
                                                   regularizationScale:0];
}

MPSNNOptimizerStochasticGradientDescent *make_descent(float mu = 0) {
  return [[[MPSNNOptimizerStochasticGradientDescent alloc] initWithDevice:device
                                                            momentumScale:mu
                                                      useNesterovMomentum:NO
                                                      optimizerDescriptor:describe_optimizer()] autorelease];
}

MPSNNOptimizerAdam *make_adam(NSUInteger time_step = 0) {
  return [[[MPSNNOptimizerAdam alloc] initWithDevice:device
                                               beta1:0.8
                                               beta2:0.95
                                             epsilon:1e-3f
                                            timeStep:time_step
                                 optimizerDescriptor:describe_optimizer()] autorelease];
}

// ------------------------------------------------------------------------------------------------- tests

void test_descriptors() {
  MPSNNOptimizerDescriptor *plain = [[[MPSNNOptimizerDescriptor alloc] init] autorelease];
  check([plain learningRate] == 0.001f && [plain gradientRescale] == 1 && ![plain applyGradientClipping] &&
            [plain regularizationType] == MPSNNRegularizationTypeNone && [plain regularizationScale] == 0,
        "what a descriptor starts with");
  check([plain gradientClipMax] == INFINITY && [plain gradientClipMin] == -INFINITY, "bounds that cut nothing");
  MPSNNOptimizerDescriptor *four =
      [MPSNNOptimizerDescriptor optimizerDescriptorWithLearningRate:0.5f
                                                    gradientRescale:2
                                                 regularizationType:MPSNNRegularizationTypeL1
                                                regularizationScale:0.25f];
  check([four learningRate] == 0.5f && [four gradientRescale] == 2 && ![four applyGradientClipping] &&
            [four regularizationType] == MPSNNRegularizationTypeL1 && [four regularizationScale] == 0.25f,
        "a descriptor of four numbers");
  MPSNNOptimizerDescriptor *seven = [[[MPSNNOptimizerDescriptor alloc] initWithLearningRate:1
                                                                            gradientRescale:3
                                                                      applyGradientClipping:YES
                                                                            gradientClipMax:4
                                                                            gradientClipMin:-5
                                                                         regularizationType:MPSNNRegularizationTypeL2
                                                                        regularizationScale:6] autorelease];
  MPSNNOptimizerAdam *kernel = [[[MPSNNOptimizerAdam alloc] initWithDevice:device
                                                                     beta1:0.5
                                                                     beta2:0.25
                                                                   epsilon:0.125f
                                                                  timeStep:7
                                                       optimizerDescriptor:seven] autorelease];
  for (MPSNNOptimizerAdam *twin : {kernel, (MPSNNOptimizerAdam *)[[kernel copy] autorelease], archived(kernel)}) {
    check([twin learningRate] == 1 && [twin gradientRescale] == 3 && [twin applyGradientClipping] &&
              [twin gradientClipMax] == 4 && [twin gradientClipMin] == -5 &&
              [twin regularizationType] == MPSNNRegularizationTypeL2 && [twin regularizationScale] == 6,
          "a twin has the descriptor's numbers");
    check([twin beta1] == 0.5 && [twin beta2] == 0.25 && [twin epsilon] == 0.125f && [twin timeStep] == 7,
          "a twin of Adam");
  }
  MPSNNOptimizerAdam *simple = [[[MPSNNOptimizerAdam alloc] initWithDevice:device learningRate:0.5f] autorelease];
  check([simple beta1] == 0.9 && [simple beta2] == 0.999 && [simple epsilon] == 1e-8f && [simple timeStep] == 0 &&
            [simple learningRate] == 0.5f && [simple gradientRescale] == 1,
        "what Adam starts with");
  MPSNNOptimizerRMSProp *root = [[[MPSNNOptimizerRMSProp alloc] initWithDevice:device learningRate:0.5f] autorelease];
  check([root decay] == 0.9 && [root epsilon] == 1e-8f, "what RMSProp starts with");
  root = archived([[[MPSNNOptimizerRMSProp alloc] initWithDevice:device
                                                           decay:0.7
                                                         epsilon:0.01f
                                             optimizerDescriptor:plain] autorelease]);
  check([root decay] == 0.7 && [root epsilon] == 0.01f, "a twin of RMSProp");
  MPSNNOptimizerStochasticGradientDescent *descent =
      [[[MPSNNOptimizerStochasticGradientDescent alloc] initWithDevice:device learningRate:0.5f] autorelease];
  check([descent momentumScale] == 0 && ![descent useNesterovMomentum], "what descent starts with");
  descent = [[[MPSNNOptimizerStochasticGradientDescent alloc] initWithDevice:device
                                                               momentumScale:0.5f
                                                          useNestrovMomentum:YES
                                                         optimizerDescriptor:plain] autorelease];
  descent = archived(descent);
  check([descent momentumScale] == 0.5f && [descent useNesterovMomentum] && [descent useNestrovMomentum],
        "both spellings");
  [descent setLearningRate:2];
  [descent setApplyGradientClipping:YES];
  check([descent learningRate] == 2 && [descent applyGradientClipping], "what may be changed");
  // The kernel has its own copy of the settings.
  [plain setLearningRate:9];
  check([descent learningRate] == 2, "a descriptor that is changed afterwards");
}

/// Encode one step of descent, with momentum unless it is nil.
void encode(MPSNNOptimizerStochasticGradientDescent *kernel, id<MTLCommandBuffer> buffer, MPSVector *g, MPSVector *v,
            MPSVector *m, MPSVector *result) {
  [kernel encodeToCommandBuffer:buffer
            inputGradientVector:g
              inputValuesVector:v
            inputMomentumVector:m
             resultValuesVector:result];
}

/// The learning rate and the time step are those of the encode, not of the run.
void test_steps() {
  MPSVector *v = make_vector({0}), *g = make_vector({1});
  MPSNNOptimizerStochasticGradientDescent *descent = make_descent();
  id<MTLCommandBuffer> buffer = command_buffer();
  for (const float rate : {0.5f, 0.25f}) {
    [descent setLearningRate:rate];
    encode(descent, buffer, g, v, nil, v);
  }
  [descent setLearningRate:100];  // too late for earlier encodes
  run(buffer);
  check_numbers("learning rates", values_of(v), {-0.75}, 0);

  MPSNNOptimizerAdam *kernel = make_adam(3);
  MPSVector *m = make_vector({0}), *second_moment = make_vector({0}), *max_moment = make_vector({0});
  buffer = command_buffer();
  for (NSUInteger step = 4; step < 6; ++step) {
    [kernel encodeToCommandBuffer:buffer
              inputGradientVector:g
                inputValuesVector:v
              inputMomentumVector:m
              inputVelocityVector:second_moment
            maximumVelocityVector:max_moment
               resultValuesVector:v];
    check([kernel timeStep] == step, "an encode is a time step");
  }
  // A copy continues at the kernel's step; the step may be set.
  MPSNNOptimizerAdam *copy = [[kernel copy] autorelease];
  check([copy timeStep] == 5, "the time step of a copy");
  [copy setTimeStep:1];
  [copy encodeToCommandBuffer:buffer
          inputGradientVector:g
            inputValuesVector:v
          inputMomentumVector:m
          inputVelocityVector:second_moment
           resultValuesVector:v];
  run(buffer);
  check([copy timeStep] == 2 && [kernel timeStep] == 5, "each kernel has its own time");
}

// ------------------------------------------------------------------------------------------------- states

/// A convolution of 2 x 3 x 3 inputs to 4 outputs, the gradients of its state, and a state of its weights.
struct Layer {
  Numbers weights = random_values(72, 31), biases = random_values(4, 32);
  Numbers weight_gradients = random_values(72, 33), bias_gradients = random_values(4, 34);
  MPSCNNConvolution *kernel;
  MPSCNNConvolutionGradientState *gradient;
  MPSCNNConvolutionWeightsAndBiasesState *source;

  Layer() {
    TestSource *data = make_source(descriptor_of(3, 3, 2, 4), weights, biases);
    kernel = [[[MPSCNNConvolution alloc] initWithDevice:device weights:data] autorelease];
    MPSImage *image = make_image(Tensor(1, 4, 4, 2));
    gradient = [kernel resultStateForSourceImage:image sourceStates:nil destinationImage:image];
    fill([gradient gradientForWeights], weight_gradients);
    fill([gradient gradientForBiases], bias_gradients);
    source = [[[MPSCNNConvolutionWeightsAndBiasesState alloc] initWithWeights:make_buffer(weights)
                                                                       biases:make_buffer(biases)] autorelease];
  }
  static void fill(id<MTLBuffer> buffer, const Numbers &values) {
    const std::vector<float> floats(values.begin(), values.end());
    std::memcpy([buffer contents], floats.data(), floats.size() * sizeof(float));
  }
  static MPSCNNConvolutionWeightsAndBiasesState *result() {
    return [[[MPSCNNConvolutionWeightsAndBiasesState alloc] initWithDevice:device
                                                  cnnConvolutionDescriptor:descriptor_of(3, 3, 2, 4)] autorelease];
  }
};

NSArray<MPSVector *> *two(MPSVector *a, MPSVector *b) { return [NSArray arrayWithObjects:a, b, nil]; }

void test_convolution_states() {
  {
    Layer layer;  // into a result, and back into the kernel
    MPSCNNConvolutionWeightsAndBiasesState *result = Layer::result();
    id<MTLCommandBuffer> buffer = command_buffer();
    [make_descent() encodeToCommandBuffer:buffer
                 convolutionGradientState:layer.gradient
                   convolutionSourceState:layer.source
                     inputMomentumVectors:nil
                              resultState:result];
    run(buffer);
    check_numbers("the source's weights", values_in([layer.source weights], 72), layer.weights, 0);
    buffer = command_buffer();
    [layer.kernel reloadWeightsAndBiasesWithCommandBuffer:buffer state:result];
    MPSCNNConvolutionWeightsAndBiasesState *exported = [layer.kernel exportWeightsAndBiasesWithCommandBuffer:buffer
                                                                                   resultStateCanBeTemporary:NO];
    run(buffer);
    // The kernel keeps its weights in half precision.
    check_numbers("reloaded weights", values_in([exported weights], 72), values_in([result weights], 72), 5e-4);
  }
  {
    Layer layer;  // one state over parts of a larger buffer
    MPSNNOptimizerAdam *kernel = make_adam();
    Numbers block = layer.weights;
    block.insert(block.begin(), 5, 1000);
    block.insert(block.end(), layer.biases.begin(), layer.biases.end());
    id<MTLBuffer> shared = make_buffer(block);
    MPSCNNConvolutionWeightsAndBiasesState *state =
        [[[MPSCNNConvolutionWeightsAndBiasesState alloc] initWithWeights:shared
                                                           weightsOffset:20
                                                                  biases:shared
                                                            biasesOffset:308
                                                cnnConvolutionDescriptor:descriptor_of(3, 3, 2, 4)] autorelease];
    MPSCNNConvolutionWeightsAndBiasesState *result = Layer::result();
    id<MTLCommandBuffer> buffer = command_buffer();
    for (MPSCNNConvolutionWeightsAndBiasesState *to in [NSArray arrayWithObjects:result, state, nil]) {
      [kernel setTimeStep:0];
      [kernel encodeToCommandBuffer:buffer
           convolutionGradientState:layer.gradient
             convolutionSourceState:to == state ? state : layer.source
               inputMomentumVectors:two(make_vector(Numbers(72, 0)), make_vector(Numbers(4, 0)))
               inputVelocityVectors:two(make_vector(Numbers(72, 0)), make_vector(Numbers(4, 0)))
                        resultState:to];
      check([kernel timeStep] == 1, "weights and biases are one time step");
    }
    run(buffer);
    check_numbers("weights within a buffer", values_in(shared, 72, 5), values_in([result weights], 72), 0);
    check_numbers("biases within a buffer", values_in(shared, 4, 77), values_in([result biases], 4), 0);
    check_numbers("what lies before them", values_in(shared, 5), Numbers(5, 1000), 0);
  }
  {
    Layer layer;  // a layer without biases
    MPSCNNConvolutionWeightsAndBiasesState *source =
        [[[MPSCNNConvolutionWeightsAndBiasesState alloc] initWithWeights:make_buffer(layer.weights)
                                                                  biases:nil] autorelease];
    id<MTLCommandBuffer> buffer = command_buffer();
    [make_descent() encodeToCommandBuffer:buffer
                 convolutionGradientState:layer.gradient
                   convolutionSourceState:source
                     inputMomentumVectors:nil
                              resultState:source];
    run(buffer);
    check(values_in([source weights], 72) != layer.weights, "weights without biases");
  }
}

void test_batch_normalization_states() {
  MPSCNNBatchNormalization *kernel = make_norm<MPSCNNBatchNormalization>(make_norm_source<NormSource>(Affine(5, 41)));
  MPSImage *image = make_image(Tensor(1, 2, 2, 5));
  MPSCNNBatchNormalizationState *state = [kernel resultStateForSourceImage:image
                                                              sourceStates:nil
                                                          destinationImage:image];
  check_raises("no gradient has been computed", kArgument, "The gradient state has no gradient of gamma", [&] {
    [make_descent() encodeToCommandBuffer:command_buffer()
                  batchNormalizationState:state
                     inputMomentumVectors:nil
                              resultState:[[[MPSCNNNormalizationGammaAndBetaState alloc]
                                              initWithGamma:make_buffer(Numbers(5, NAN))
                                                       beta:make_buffer(Numbers(5, NAN))] autorelease]];
  });
}

void test_read_counts() {
  const auto temporary = [](id<MTLCommandBuffer> buffer) {
    return [MPSTemporaryVector
        temporaryVectorWithCommandBuffer:buffer
                              descriptor:[MPSVectorDescriptor vectorDescriptorWithLength:4
                                                                                dataType:MPSDataTypeFloat32]];
  };
  id<MTLCommandBuffer> buffer = command_buffer();
  MPSTemporaryVector *g = temporary(buffer), *v = temporary(buffer), *m = temporary(buffer);
  [v setReadCount:2];
  MPSVector *ones = make_vector({1, 1, 1, 1}), *result = make_vector({0, 0, 0, 0});
  // They need contents: results of a first step.
  MPSNNOptimizerStochasticGradientDescent *kernel = make_descent();
  for (MPSVector *to : {(MPSVector *)g, (MPSVector *)v, (MPSVector *)m}) encode(kernel, buffer, ones, ones, nil, to);
  check([g readCount] == 1 && [v readCount] == 2 && [m readCount] == 1, "a result is not read");
  encode(make_descent(1), buffer, g, v, m, v);
  check([g readCount] == 0 && [v readCount] == 1 && [m readCount] == 0, "what is read is counted once");
  encode(kernel, buffer, ones, v, nil, result);
  check([v readCount] == 0, "a temporary vector has been read");
  check_raises("a recycled vector", kUsage, "readCount of 0", [&] { encode(kernel, buffer, ones, v, nil, result); });
  run(buffer);
  // 0.9, then 0.9 - (0.9 + 0.1 * 0.9), then 0.1 less
  check_numbers("temporary vectors", values_of(result), Numbers(4, 0.9 - (0.9 + 0.09) - 0.1));

  buffer = command_buffer();
  Layer layer;
  MPSImage *image = make_image(Tensor(1, 4, 4, 2));
  MPSCNNConvolutionGradientState *gradient = [layer.kernel temporaryResultStateForCommandBuffer:buffer
                                                                                    sourceImage:image
                                                                                   sourceStates:nil
                                                                               destinationImage:image];
  MPSCNNConvolutionWeightsAndBiasesState *source = [layer.kernel exportWeightsAndBiasesWithCommandBuffer:buffer
                                                                               resultStateCanBeTemporary:YES];
  MPSCNNConvolutionWeightsAndBiasesState *updated = [MPSCNNConvolutionWeightsAndBiasesState
      temporaryCNNConvolutionWeightsAndBiasesStateWithCommandBuffer:buffer
                                           cnnConvolutionDescriptor:descriptor_of(3, 3, 2, 4)];
  check([gradient readCount] == 1 && [updated readCount] == 1, "temporary states");
  const NSUInteger before = [source readCount];
  [kernel encodeToCommandBuffer:buffer
       convolutionGradientState:gradient
         convolutionSourceState:source
           inputMomentumVectors:nil
                    resultState:updated];
  check([gradient readCount] == 0 && (before == 0 || [source readCount] == before - 1) && [updated readCount] == 1,
        "states that are read, and one that is written");
  [layer.kernel reloadWeightsAndBiasesWithCommandBuffer:buffer state:updated];
  check([updated readCount] == 0, "the result is read by the kernel");
  run(buffer);
}

void test_refusals() {
  MPSVector *g = make_vector(random_values(6, 51)), *v = make_vector(random_values(6, 52)),
            *m = make_vector(random_values(6, 53));
  MPSVector *r = make_vector(random_values(6, 54));
  MPSNNOptimizerStochasticGradientDescent *kernel = make_descent(0.5f);
  id<MTLCommandBuffer> buffer = command_buffer();
  const auto refused = [&](const char *part) {
    check_raises(part, kArgument, part, [&] { encode(kernel, buffer, g, v, m, r); });
  };
  MPSVector *const all[] = {g, v, m, r};
  const auto restore = [&] { g = all[0], v = all[1], m = all[2], r = all[3]; };
  g = nil, refused("inputGradientVector is nil"), restore();
  v = nil, refused("inputValuesVector is nil"), restore();
  r = nil, refused("resultValuesVector is nil"), restore();
  v = make_vector({1, 2}), refused("inputValuesVector has 1 x 1 x 2 values"), restore();
  m = make_vector({1, 2}), refused("inputMomentumVector has 1 x 1 x 2 values"), restore();
  r = m, refused("resultValuesVector and inputMomentumVector share memory"), restore();
  m = g, refused("inputMomentumVector and inputGradientVector share memory"), restore();
  m = v, refused("inputMomentumVector and inputValuesVector share memory"), restore();
  id<MTLBuffer> block = make_buffer(random_values(8, 55));
  const auto part_of = [&](NSUInteger offset) {
    return [[[MPSVector alloc]
        initWithBuffer:block
                offset:offset
            descriptor:[MPSVectorDescriptor vectorDescriptorWithLength:6 dataType:MPSDataTypeFloat32]] autorelease];
  };
  v = part_of(0), r = part_of(8), refused("resultValuesVector and inputValuesVector share memory"), restore();
  g = [[[MPSVector alloc] initWithDevice:device
                              descriptor:[MPSVectorDescriptor vectorDescriptorWithLength:6 dataType:MPSDataTypeFloat16]]
      autorelease];
  refused("inputGradientVector has the dataType 0x10000010, expected MPSDataTypeFloat32");
  restore();
  // Two vectors over the same memory, one of them the result, make an in-place result; so does the gradient's memory.
  v = part_of(0), r = part_of(0);
  encode(kernel, buffer, g, v, m, r);
  restore();
  r = g;
  encode(kernel, buffer, g, v, m, r);
  restore();
  run(buffer);
  check_raises("a committed buffer", kUsage, "committed", [&] { encode(kernel, buffer, g, v, m, r); });

  buffer = command_buffer();
  Layer layer;
  MPSNNOptimizerAdam *timed = make_adam();
  NSArray *momentum = two(make_vector(Numbers(72, 0)), make_vector(Numbers(4, 0)));
  NSArray *velocity = two(make_vector(Numbers(72, 0)), make_vector(Numbers(4, 0)));
  MPSCNNConvolutionWeightsAndBiasesState *result = Layer::result();
  const auto refused_states = [&](const char *part) {
    check_raises(part, kArgument, part, [&] {
      [timed encodeToCommandBuffer:buffer
          convolutionGradientState:layer.gradient
            convolutionSourceState:layer.source
              inputMomentumVectors:momentum
              inputVelocityVectors:velocity
                       resultState:result];
    });
  };
  NSArray *const good = momentum, *const good_velocity = velocity;
  momentum = nil, refused_states("inputMomentumVectors is nil"), momentum = good;
  velocity = nil, refused_states("inputVelocityVectors is nil"), velocity = good_velocity;
  momentum = [NSArray array], refused_states("inputMomentumVectors has 0 vectors, expected 1 or 2"), momentum = good;
  velocity = [NSArray arrayWithObject:[good_velocity objectAtIndex:0]];
  refused_states("inputVelocityVectors has 1 vectors and inputMomentumVectors 2"), velocity = good_velocity;
  momentum = two([good objectAtIndex:1], [good objectAtIndex:0]);
  refused_states("inputMomentumVectors[0] has 1 vectors of length 4, expected one of 72, as many as weights");
  momentum = good;
  result = nil, refused_states("resultState is nil"), result = Layer::result();
  result = [[[MPSCNNConvolutionWeightsAndBiasesState alloc] initWithWeights:make_buffer(Numbers(72, 0))
                                                                     biases:nil] autorelease];
  refused_states("resultState has no biases, and the source state has");
  result = [[[MPSCNNConvolutionWeightsAndBiasesState alloc] initWithWeights:make_buffer(Numbers(71, 0))
                                                                     biases:nil] autorelease];
  refused_states("resultState's weights has 284 bytes, expected 288");
  check([timed timeStep] == 0, "what is refused is no time step");

  const auto refused_numbers = [](const char *part, const std::function<void(MPSNNOptimizerDescriptor *)> &change) {
    check_raises(part, kArgument, part, [&] {
      MPSNNOptimizerDescriptor *descriptor = [[[MPSNNOptimizerDescriptor alloc] init] autorelease];
      change(descriptor);
      [[MPSNNOptimizerAdam alloc] initWithDevice:device
                                           beta1:0.9
                                           beta2:0.999
                                         epsilon:1e-8f
                                        timeStep:0
                             optimizerDescriptor:descriptor];
    });
  };
  refused_numbers("learningRate (nan) is not a finite number", [](auto *d) { [d setLearningRate:NAN]; });
  refused_numbers("gradientRescale (inf) is not a finite number", [](auto *d) { [d setGradientRescale:INFINITY]; });
  refused_numbers("gradientClipMin (2) is not at most gradientClipMax (1)",
                  [](auto *d) { [d setGradientClipMin:2], [d setGradientClipMax:1]; });
  refused_numbers("regularizationType (3) is not between 0 and 2",
                  [](auto *d) { [d setRegularizationType:static_cast<MPSNNRegularizationType>(3)]; });
  check_raises("beta1", kArgument, "beta1 (1) is not at least 0 and less than 1", [] {
    [[MPSNNOptimizerAdam alloc] initWithDevice:device
                                         beta1:1
                                         beta2:0.999
                                       epsilon:1e-8f
                                      timeStep:0
                           optimizerDescriptor:[[[MPSNNOptimizerDescriptor alloc] init] autorelease]];
  });
  check_raises("epsilon", kArgument, "epsilon (-1) is less than 0", [] {
    [[MPSNNOptimizerRMSProp alloc] initWithDevice:device
                                            decay:0.5
                                          epsilon:-1
                              optimizerDescriptor:[[[MPSNNOptimizerDescriptor alloc] init] autorelease]];
  });
  check_raises("no descriptor", kArgument, "optimizerDescriptor is nil", [] {
    MPSNNOptimizerDescriptor *none = nil;
    [[MPSNNOptimizerRMSProp alloc] initWithDevice:device decay:0.5 epsilon:1 optimizerDescriptor:none];
  });
  check_raises("learningRate", kArgument, "learningRate (inf) is not a finite number",
               [&] { [kernel setLearningRate:INFINITY]; });
  check_raises("initWithDevice", kArgument, "is unavailable",
               [] { [(MPSKernel *)[MPSNNOptimizerAdam alloc] initWithDevice:device]; });
}

}  // namespace

int main() {
  return run_tests({test_descriptors, test_steps, test_convolution_states, test_batch_normalization_states,
                    test_read_counts, test_refusals});
}
