// SPDX-License-Identifier: Apache-2.0
// Gradients of convolution, of the fully connected kernel and of the transposed convolution: properties, states,
// reloads, refused calls. Values are in tests/rows/objc_gradients.py and objc_places.py. Prints "N passed, N failed".

#import "mps_test.hh"

namespace {

struct Gradients {
  Tensor source;
  std::vector<double> weights, biases;
};

Tensor as_tensor(const std::vector<double> &values) {
  Tensor t(1, 1, 1, static_cast<long>(values.size()));
  t.values = values;
  return t;
}

Tensor floats_of(id<MTLBuffer> buffer, std::size_t count) {
  Tensor t(1, 1, 1, static_cast<long>(count));
  const float *values = static_cast<const float *>([buffer contents]);
  for (std::size_t i = 0; i < count; ++i) t.values[i] = values[i];
  return t;
}

void check_state(const std::string &what, MPSState *given, const Gradients &expected, double tolerance = 2e-4) {
  MPSCNNConvolutionGradientState *state = (MPSCNNConvolutionGradientState *)given;
  check([state isKindOfClass:[MPSCNNConvolutionGradientState class]], what + ": the state's class");
  check([[state gradientForWeights] length] == expected.weights.size() * 4 &&
            [[state gradientForBiases] length] == expected.biases.size() * 4,
        what + ": sizes of the gradients");
  check_equal(what + ", weights", floats_of([state gradientForWeights], expected.weights.size()),
              as_tensor(expected.weights), tolerance);
  check_equal(what + ", biases", floats_of([state gradientForBiases], expected.biases.size()),
              as_tensor(expected.biases), tolerance);
}

/// A forward kernel and its gradient kernel, with one data source.
template <class Forward, class Gradient>
struct Pair {
  std::vector<double> weights;
  TestSource *source;
  Forward *forward;
  Gradient *gradient;

  Pair(MPSCNNConvolutionDescriptor *descriptor, std::size_t count, unsigned seed)
      : Pair(descriptor, random_values(count, seed), seed) {}

  Pair(MPSCNNConvolutionDescriptor *descriptor, const std::vector<double> &values, unsigned seed)
      : weights(values),
        source(make_source(descriptor, weights, random_values([descriptor outputFeatureChannels], seed + 1))),
        forward([[[Forward alloc] initWithDevice:device weights:source] autorelease]),
        gradient([[[Gradient alloc] initWithDevice:device weights:source] autorelease]) {
    [forward setDestinationImageAllocator:[MPSImage defaultAllocator]];
    [gradient setDestinationImageAllocator:[MPSImage defaultAllocator]];
  }
};
using Convolution = Pair<MPSCNNConvolution, MPSCNNConvolutionGradient>;

MPSCNNConvolutionDescriptor *small_descriptor() {
  MPSCNNConvolutionDescriptor *descriptor = descriptor_of(3, 2, 5, 6);
  [descriptor setStrideInPixelsX:2];
  return descriptor;
}

Convolution small_convolution() { return Convolution(small_descriptor(), 6 * 3 * 2 * 5, 1); }

/// The windows of its kernels with offset 0: 3 rows and 2 columns, one window at every other column.
Geometry small_geometry() { return {.kh = 3, .kw = 2, .sy = 1, .sx = 2, .start_y = -1, .start_x = -1}; }

MPSImage *encode_gradient(MPSCNNGradientKernel *kernel, const Tensor &e, const Tensor &x, MPSState *state) {
  id<MTLCommandBuffer> buffer = command_buffer();
  MPSImage *result = [kernel encodeToCommandBuffer:buffer
                                    sourceGradient:make_image(e)
                                       sourceImage:make_image(x)
                                     gradientState:state];
  run(buffer);
  return result;
}

MPSState *state_for(MPSCNNKernel *forward, const Tensor &x, const Tensor &e) {
  return [forward resultStateForSourceImage:make_image(x) sourceStates:nil destinationImage:make_image(e)];
}

/// Gradients of the small convolution with these weights for the upstream gradient `e`.
Gradients gradients(const Tensor &e, const Tensor &x, const std::vector<double> &w) {
  const Convolution pair(small_descriptor(), w, 1);
  MPSCNNConvolutionGradientState *state = (MPSCNNConvolutionGradientState *)state_for(pair.forward, x, e);
  const Tensor source = read_image(encode_gradient(pair.gradient, e, x, state));
  return {source, floats_of([state gradientForWeights], w.size()).values,
          floats_of([state gradientForBiases], 6).values};
}

MPSImageBatch *split(MPSImage *image) { return [image batchRepresentation]; }

void test_properties() {
  Convolution pair = small_convolution();
  MPSCNNConvolutionGradient *kernel = pair.gradient;
  check([kernel sourceGradientFeatureChannels] == 6 && [kernel sourceImageFeatureChannels] == 5 &&
            [kernel groups] == 1 && [kernel channelMultiplier] == 0,
        "channels are the descriptor's");
  check([kernel dataSource] == (id)pair.source && [[kernel label] isEqual:@"test source"], "data source and label");
  check([kernel gradientOption] == MPSCNNConvolutionGradientOptionAll && ![kernel serializeWeightsAndBiases],
        "everything is computed from the start");
  check([kernel isBackwards] && [kernel isStateModified], "it runs backwards, into its state");
  check([kernel secondaryKernelWidth] == 2 && [kernel secondaryKernelHeight] == 3 &&
            [kernel secondaryStrideInPixelsX] == 2 && [kernel secondaryStrideInPixelsY] == 1 &&
            [kernel primaryKernelWidth] == 2 && [kernel primaryStrideInPixelsX] == 1,
        "geometry is the descriptor's");
  check(pair.source->loads == pair.source->purges && pair.source->loads == 2, "load and purge are balanced");
  [kernel setGradientOption:MPSCNNConvolutionGradientOptionGradientWithData];
  check(![kernel isStateModified], "without weights the state stays");
  pair.source->refuses_load = YES;
  check([[MPSCNNConvolutionGradient alloc] initWithDevice:device weights:pair.source] == nil,
        "a data source that does not load");
}

void test_encode_forms() {
  Convolution pair = small_convolution();
  const Tensor x = Tensor::random(2, 5, 7, 5, 10), e = Tensor::random(2, 5, 4, 6, 11);
  MPSImage *whole_x = make_image(x), *whole_e = make_image(e);
  MPSCNNConvolutionGradient *kernel = pair.gradient;
  [pair.forward setOffset:MPSOffset{0, 0, 0}];
  [pair.forward setPadding:[MPSNNDefaultPadding
                               paddingWithMethod:MPSNNPaddingMethodSizeSame | MPSNNPaddingMethodAddRemainderToTopLeft]];
  id<MTLCommandBuffer> buffer = command_buffer();
  MPSState *state = nil;
  [pair.forward encodeToCommandBuffer:buffer
                          sourceImage:whole_x
                     destinationState:&state
          destinationStateIsTemporary:NO];
  const MPSOffset offset = [pair.forward offset];
  MPSImage *made = [kernel encodeToCommandBuffer:buffer sourceGradient:whole_e sourceImage:whole_x gradientState:state];
  check([made width] == 7 && [made height] == 5 && [made featureChannels] == 5 && [made numberOfImages] == 2,
        "the result is as large as the source");
  check([kernel secondaryOffset].x == offset.x && [kernel kernelOffsetX] == -offset.x + 1 &&
            [kernel kernelOffsetY] == -offset.y,
        "offsets are the forward kernel's");

  // The properties stay: the forms with a destination use them.
  [kernel setSecondaryOffset:MPSOffset{0, 0, 0}];
  [kernel setKernelOffsetX:1];
  [kernel setKernelOffsetY:0];
  [pair.forward setOffset:MPSOffset{0, 0, 0}];
  MPSStateBatch *states = [pair.forward resultStateBatchForSourceImage:split(whole_x)
                                                          sourceStates:nil
                                                      destinationImage:split(whole_e)];
  check([pair.forward isResultStateReusedAcrossBatch] && [states objectAtIndex:0] == [states objectAtIndex:1],
        "a batch has one state");
  // Each image with its own state.
  NSArray *own_states = [NSArray arrayWithObjects:state_for(pair.forward, x, e), state_for(pair.forward, x, e), nil];
  MPSImageBatch *own = [kernel encodeBatchToCommandBuffer:buffer
                                          sourceGradients:split(whole_e)
                                             sourceImages:split(whole_x)
                                           gradientStates:own_states];
  run(buffer);
  for (NSUInteger i = 0; i < 2; ++i) {
    const long n = static_cast<long>(i);
    const Gradients expected = gradients(e.image(n), x.image(n), pair.weights);
    check_equal("states apart", read_image([own objectAtIndex:i]), expected.source);
    check_state("states apart", [own_states objectAtIndex:i], expected);
  }
}

void test_channels_of_the_result() {
  Convolution pair = small_convolution();
  [pair.forward setSourceFeatureChannelOffset:4];
  [pair.forward setSourceFeatureChannelMaxCount:5];
  MPSImage *x = make_image(Tensor(1, 5, 7, 12)), *e = make_image(Tensor(1, 5, 4, 10));
  MPSState *state = [pair.forward resultStateForSourceImage:x sourceStates:nil destinationImage:e];
  MPSCNNConvolutionGradient *kernel = pair.gradient;
  [kernel setDestinationFeatureChannelOffset:8];
  MPSImageDescriptor *descriptor =
      [kernel destinationImageDescriptorForSourceImages:[NSArray arrayWithObjects:e, x, nil]
                                           sourceStates:[NSArray arrayWithObject:state]];
  check([descriptor featureChannels] == 13 && [descriptor width] == 7 && [descriptor height] == 5,
        "channels before the result's");
  check([kernel secondarySourceFeatureChannelOffset] == 4 && [kernel secondarySourceFeatureChannelMaxCount] == 5,
        "channels are the forward kernel's");
}

void test_fully_connected() {
  Pair<MPSCNNFullyConnected, MPSCNNFullyConnectedGradient> pair(descriptor_of(3, 4, 5, 7), 7 * 3 * 4 * 5, 70);
  const Tensor x = Tensor::random(3, 3, 4, 5, 71), e = Tensor::random(3, 1, 1, 7, 72);
  check_raises(
      "two pixels of gradient", kArgument, "sourceGradient has 2 x 1 pixels (width x height), expected 1 x 1", [&] {
        encode_gradient(pair.gradient, Tensor::random(1, 1, 2, 7, 1), x.image(0), state_for(pair.forward, x, e));
      });
  [pair.gradient setGradientOption:MPSCNNConvolutionGradientOptionGradientWithData];
  check_raises("another source", kArgument, "sourceImage has 3 x 3 pixels", [&] {
    [pair.gradient encodeToCommandBuffer:command_buffer()
                            primaryImage:make_image(e)
                          secondaryImage:make_image(Tensor::random(3, 3, 3, 5, 1))
                        destinationImage:make_nan_image(3, 3, 3, 5)];
  });
}

void test_temporaries() {
  Convolution pair = small_convolution();
  const Tensor x = Tensor::random(1, 5, 7, 5, 90), e = Tensor::random(1, 5, 4, 6, 91);
  id<MTLCommandBuffer> buffer = command_buffer();
  MPSCNNConvolutionGradientState *state = [pair.forward temporaryResultStateForCommandBuffer:buffer
                                                                                 sourceImage:make_image(x)
                                                                                sourceStates:nil
                                                                            destinationImage:make_image(e)];
  [pair.gradient setDestinationImageAllocator:[MPSTemporaryImage defaultAllocator]];
  MPSImage *result = [pair.gradient encodeToCommandBuffer:buffer
                                           sourceGradient:make_image(e)
                                              sourceImage:make_image(x)
                                            gradientState:state];
  check([result isKindOfClass:[MPSTemporaryImage class]] && [state isTemporary], "temporary image and state");
  check([state readCount] == 1, "an encode that writes gradients does not use the state up");
  // A reader of the gradients: new weights of the forward kernel.
  MPSCNNConvolutionWeightsAndBiasesState *taken =
      [[[MPSCNNConvolutionWeightsAndBiasesState alloc] initWithWeights:[state gradientForWeights]
                                                                biases:[state gradientForBiases]] autorelease];
  [pair.forward reloadWeightsAndBiasesWithCommandBuffer:buffer state:taken];
  MPSImage *forward = make_nan_image(1, 5, 4, 6);
  [pair.forward encodeToCommandBuffer:buffer sourceImage:make_image(x) destinationImage:forward];
  [pair.gradient setGradientOption:MPSCNNConvolutionGradientOptionGradientWithData];
  [(MPSTemporaryImage *)result setReadCount:0];
  [pair.gradient encodeToCommandBuffer:buffer
                        sourceGradient:make_image(e)
                           sourceImage:make_image(x)
                         gradientState:state
                   destinationGradient:make_nan_image(1, 5, 7, 5)];
  check([state readCount] == 0, "an encode that only reads the state uses it up");
  run(buffer);
  const Gradients expected = gradients(e, x, pair.weights);
  std::vector<double> rounded = expected.weights;  // the kernel keeps halves
  for (double &value : rounded) value = static_cast<double>(static_cast<_Float16>(value));
  check_equal("gradients of a temporary state", read_image(forward),
              convolve(x, rounded, expected.biases, 6, small_geometry(), 5, 4), 0.2);
}

void test_copies_and_archives() {
  Convolution pair = small_convolution();
  const Tensor x = Tensor::random(1, 5, 7, 5, 100), e = Tensor::random(1, 5, 4, 6, 101);
  [pair.gradient setGradientOption:MPSCNNConvolutionGradientOptionGradientWithData];
  [pair.gradient setSerializeWeightsAndBiases:YES];
  MPSCNNConvolutionGradient *copy = [[pair.gradient copy] autorelease];
  check(pair.source->copies == 1 && [copy dataSource] == (id)pair.source, "the data source is copied");
  MPSCNNConvolutionGradient *read = archived(pair.gradient);
  for (MPSCNNConvolutionGradient *twin in [NSArray arrayWithObjects:copy, read, nil]) {
    check([twin gradientOption] == MPSCNNConvolutionGradientOptionGradientWithData &&
              [twin serializeWeightsAndBiases] && [twin sourceGradientFeatureChannels] == 6 &&
              [twin sourceImageFeatureChannels] == 5 && [twin secondaryStrideInPixelsX] == 2 &&
              [[twin label] isEqual:@"test source"],
          "a twin has the properties");
    [twin setGradientOption:MPSCNNConvolutionGradientOptionAll];
    [twin setDestinationImageAllocator:[MPSImage defaultAllocator]];
  }
  check([pair.gradient gradientOption] == MPSCNNConvolutionGradientOptionGradientWithData, "a copy is independent");
  check_raises("an archive has no weights", kArgument, "has no weights, and there is no gradientState", [&] {
    [read setGradientOption:MPSCNNConvolutionGradientOptionGradientWithData];
    [read encodeToCommandBuffer:command_buffer()
                   primaryImage:make_image(e)
                 secondaryImage:make_image(x)
               destinationImage:make_nan_image(1, 5, 7, 5)];
  });
  [read setGradientOption:MPSCNNConvolutionGradientOptionAll];
  for (MPSCNNConvolutionGradient *twin in [NSArray arrayWithObjects:copy, read, nil]) {
    encode_gradient(twin, e, x, state_for(pair.forward, x, e));
    check([twin dataSource] == (id)pair.source, "a twin's data source is the state's");
  }
}

void test_reloads() {
  Convolution pair = small_convolution();
  const Tensor x = Tensor::random(1, 5, 7, 5, 110), e = Tensor::random(1, 5, 4, 6, 111);
  const auto check_weights = [&](const std::string &what, const std::vector<double> &weights) {
    MPSState *state = state_for(pair.forward, x, e);
    check_equal(what, read_image(encode_gradient(pair.gradient, e, x, state)), gradients(e, x, weights).source);
  };
  const auto set_source = [&](const std::vector<double> &weights) {
    const std::vector<float> values(weights.begin(), weights.end());
    std::memcpy(pair.source->bytes.data(), values.data(), values.size() * 4);
  };
  check_weights("before", pair.weights);
  const std::vector<double> second = random_values(pair.weights.size(), 112), third = random_values(second.size(), 113),
                            fourth = random_values(second.size(), 114);
  set_source(second);
  check_weights("a source that changes", pair.weights);
  [pair.forward reloadWeightsAndBiasesFromDataSource];
  check_weights("the forward kernel is reloaded", pair.weights);
  [pair.gradient reloadWeightsAndBiasesFromDataSource];
  check_weights("reloaded", second);

  MPSCNNConvolutionWeightsAndBiasesState *state =
      [[[MPSCNNConvolutionWeightsAndBiasesState alloc] initWithDevice:device
                                             cnnConvolutionDescriptor:pair.source->descriptor] autorelease];
  const auto fill = [&](id<MTLBuffer> buffer, const std::vector<double> &weights) {
    float *values = static_cast<float *>([buffer contents]);
    for (std::size_t i = 0; i < weights.size(); ++i) values[i] = static_cast<float>(weights[i]);
  };
  fill([state weights], third);
  fill([state biases], random_values(6, 115));
  id<MTLBuffer> next = [[device newBufferWithLength:fourth.size() * 4
                                            options:MTLResourceStorageModeShared] autorelease];
  fill(next, fourth);
  MPSImage *first_result = make_nan_image(1, 5, 7, 5), *last_result = make_nan_image(1, 5, 7, 5);
  MPSImage *forward = make_nan_image(1, 5, 4, 6);
  id<MTLCommandBuffer> buffer = command_buffer();
  MPSState *gradient_state = state_for(pair.forward, x, e);
  const auto encode_given = [&](MPSImage *result) {
    [pair.gradient encodeToCommandBuffer:buffer
                          sourceGradient:make_image(e)
                             sourceImage:make_image(x)
                           gradientState:gradient_state
                     destinationGradient:result];
  };
  [pair.gradient setGradientOption:MPSCNNConvolutionGradientOptionGradientWithData];
  [pair.forward reloadWeightsAndBiasesWithCommandBuffer:buffer state:state];
  [pair.gradient reloadWeightsAndBiasesWithCommandBuffer:buffer state:state];
  encode_given(first_result);
  // The buffer changes between these two.
  [pair.forward reloadWeightsAndBiasesWithCommandBuffer:buffer state:state];
  id<MTLBlitCommandEncoder> blit = [buffer blitCommandEncoder];
  [blit copyFromBuffer:next sourceOffset:0 toBuffer:[state weights] destinationOffset:0 size:fourth.size() * 4];
  [blit endEncoding];
  [pair.gradient reloadWeightsAndBiasesWithCommandBuffer:buffer state:state];
  encode_given(last_result);
  [pair.forward encodeToCommandBuffer:buffer sourceImage:make_image(x) destinationImage:forward];
  run(buffer);
  check_equal("reloaded from a state", read_image(first_result), gradients(e, x, third).source);
  check_equal("reloaded after a change", read_image(last_result), gradients(e, x, fourth).source);
  Tensor biases = floats_of([state biases], 6);
  check_equal("the forward kernel before the change", read_image(forward),
              convolve(x, third, biases.values, 6, small_geometry(), 5, 4));
}

void test_refusals() {
  Convolution pair = small_convolution();
  const Tensor x = Tensor::random(1, 5, 7, 5, 120), e = Tensor::random(1, 5, 4, 6, 121);
  MPSState *state = state_for(pair.forward, x, e);
  MPSCNNConvolutionGradient *kernel = pair.gradient;
  const auto refuse = [&](const char *what, const char *part, const Tensor &gradient, const Tensor &image,
                          MPSState *given) {
    check_raises(what, kArgument, part, [&] { encode_gradient(kernel, gradient, image, given); });
  };
  refuse("channels of the gradient", "7 feature channels of sourceGradient and sourceGradientFeatureChannels is 6",
         Tensor::random(1, 5, 4, 7, 1), x, state);
  // One channel less in the source than the forward kernel reads.
  check_raises("channels of the source", kArgument,
               "4 feature channels of sourceImage and sourceImageFeatureChannels is 5", [&] {
                 [kernel encodeToCommandBuffer:command_buffer()
                                  primaryImage:make_image(e)
                                secondaryImage:make_image(Tensor::random(1, 5, 7, 4, 1))
                              destinationImage:make_nan_image(1, 5, 7, 5)];
               });
  refuse("another source", "sourceImage has 6 x 5 pixels", e, Tensor::random(1, 5, 6, 5, 1), state);
  check_raises("no state", kArgument, "There is no gradientState to put the gradients of weights and biases into", [&] {
    [kernel encodeToCommandBuffer:command_buffer()
                     primaryImage:make_image(e)
                   secondaryImage:make_image(x)
                 destinationImage:make_nan_image(1, 5, 7, 5)];
  });
  MPSCNNNeuronReLU *neuron = [[[MPSCNNNeuronReLU alloc] initWithDevice:device a:0] autorelease];
  check_raises("a neuron's state", kArgument, "expected MPSCNNConvolutionGradientState", [&] {
    [kernel encodeToCommandBuffer:command_buffer()
                   sourceGradient:make_image(e)
                      sourceImage:make_image(x)
                    gradientState:state_for(neuron, x, x)
              destinationGradient:make_nan_image(1, 5, 7, 5)];
  });
  Pair<MPSCNNConvolutionTranspose, MPSCNNConvolutionTransposeGradient> transpose(descriptor_of(3, 2, 5, 6), 180, 5);
  check_raises("a transpose's state", kArgument, "is of class MPSCNNConvolutionTransposeGradientState", [&] {
    [kernel encodeToCommandBuffer:command_buffer()
                   sourceGradient:make_image(e)
                      sourceImage:make_image(x)
                    gradientState:state_for(transpose.forward, x, e)
              destinationGradient:make_nan_image(1, 5, 7, 5)];
  });
  Convolution larger(descriptor_of(3, 3, 5, 6), 6 * 9 * 5, 6);
  check_raises("another convolution's state", kArgument,
               "that of a kernel with 6 x 3 x 3 x 5 weights (OHWI) in 1 groups; here they are 6 x 3 x 2 x 5 in 1", [&] {
                 MPSCNNConvolutionGradientState *other =
                     (MPSCNNConvolutionGradientState *)state_for(larger.forward, x, e);
                 [kernel encodeToCommandBuffer:command_buffer()
                                sourceGradient:make_image(e)
                                   sourceImage:make_image(x)
                                 gradientState:other
                           destinationGradient:make_nan_image(1, 5, 7, 5)];
               });
  check_raises("no option", kArgument, "gradientOption (0) is neither", [&] { [kernel setGradientOption:0]; });
  check_raises("an option too many", kArgument, "gradientOption (4) is neither", [&] { [kernel setGradientOption:4]; });
  [kernel setPrimaryEdgeMode:MPSImageEdgeModeClamp];
  refuse("a clamped gradient", "primaryEdgeMode (1) is not Zero", e, x, state);
  [kernel setPrimaryEdgeMode:MPSImageEdgeModeZero];
  [kernel setPrimaryStrideInPixelsX:2];
  refuse("a stride of the gradient", "primaryStrideInPixelsX (2) and primaryStrideInPixelsY (1) are not 1", e, x,
         state);
  [transpose.gradient setSecondaryEdgeMode:MPSImageEdgeModeClamp];
  [transpose.gradient setGradientOption:MPSCNNConvolutionGradientOptionGradientWithData];
  check_raises("a clamped transpose", kArgument, "secondaryEdgeMode (1) is not Zero", [&] {
    [transpose.gradient encodeToCommandBuffer:command_buffer()
                                 primaryImage:make_image(e)
                               secondaryImage:make_image(x)
                             destinationImage:make_nan_image(1, 5, 7, 5)];
  });

  MPSCNNSubPixelConvolutionDescriptor *subpixel =
      (MPSCNNSubPixelConvolutionDescriptor *)[MPSCNNSubPixelConvolutionDescriptor
          cnnConvolutionDescriptorWithKernelWidth:1
                                     kernelHeight:1
                             inputFeatureChannels:4
                            outputFeatureChannels:16];
  [subpixel setSubPixelScaleFactor:2];
  check_raises("sub-pixel", kArgument, "subPixelScaleFactor (2) is not 1", [&] {
    [[[MPSCNNConvolutionGradient alloc] initWithDevice:device
                                               weights:make_source(subpixel, random_values(64, 1), {})] autorelease];
  });
  MPSCNNConvolutionDescriptor *multiplied =
      [MPSCNNDepthWiseConvolutionDescriptor cnnConvolutionDescriptorWithKernelWidth:1
                                                                       kernelHeight:1
                                                               inputFeatureChannels:4
                                                              outputFeatureChannels:8];
  check_raises("a channel multiplier", kArgument, "channelMultiplier other than 1 is not supported", [&] {
    [[[MPSCNNConvolutionGradient alloc] initWithDevice:device
                                               weights:make_source(multiplied, random_values(8, 1), {})] autorelease];
  });
  id<MPSCNNConvolutionDataSource> nothing = nil;
  check_raises("no data source", kArgument, "the data source, is nil",
               [&] { [[[MPSCNNConvolutionGradient alloc] initWithDevice:device weights:nothing] autorelease]; });
  check_raises("without weights", kArgument, "is unavailable; use -initWithDevice:weights:", [&] {
    [[(id)[MPSCNNConvolutionTransposeGradient alloc] initWithDevice:device] autorelease];
  });
  MPSCNNConvolutionDescriptor *strided = descriptor_of(1, 1, 4, 4);
  [strided setStrideInPixelsX:2];
  check_raises("a strided fully connected kernel", kArgument, "strides, dilation rates and groups of 1", [&] {
    [[[MPSCNNFullyConnectedGradient alloc] initWithDevice:device
                                                  weights:make_source(strided, random_values(16, 1), {})] autorelease];
  });
}

}  // namespace

/// Steps along the gradient, as a graph would request it.
@interface TrainedSource : TestSource
@end
@implementation TrainedSource
- (MPSCNNConvolutionWeightsAndBiasesState *)updateWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                                      gradientState:(MPSCNNConvolutionGradientState *)gradientState
                                                        sourceState:
                                                            (MPSCNNConvolutionWeightsAndBiasesState *)sourceState {
  (void)commandBuffer, (void)gradientState;
  return sourceState;
}
- (BOOL)updateWithGradientState:(MPSCNNConvolutionGradientState *)gradientState
                    sourceState:(MPSCNNConvolutionWeightsAndBiasesState *)sourceState {
  const float *gradient = static_cast<const float *>([[gradientState gradientForWeights] contents]);
  const float *old = static_cast<const float *>([[sourceState weights] contents]);
  float *values = reinterpret_cast<float *>(bytes.data());
  for (std::size_t i = 0; i < bytes.size() / 4; ++i) values[i] = old[i] - gradient[i] / 1024;
  return YES;
}
@end

namespace {

/// The data source's update methods are part of the protocol: two steps down the squared result.
void test_updates() {
  TrainedSource *source = make_source<TrainedSource>(descriptor_of(3, 3, 4, 4), random_values(144, 130), {});
  MPSCNNConvolution *forward = [[[MPSCNNConvolution alloc] initWithDevice:device weights:source] autorelease];
  MPSCNNConvolutionGradient *gradient = [[[MPSCNNConvolutionGradient alloc] initWithDevice:device
                                                                                   weights:source] autorelease];
  id<MPSCNNConvolutionDataSource> protocol = source;
  const Tensor x = Tensor::random(1, 4, 4, 4, 131);
  double before = INFINITY;
  for (int step = 0; step < 3; ++step) {
    const Tensor y = result_of(forward, make_image(x));
    double loss = 0;
    for (const double value : y.values) loss += value * value / 2;
    check(loss < before, "each step leads down");
    before = loss;
    MPSCNNConvolutionGradientState *state = (MPSCNNConvolutionGradientState *)state_for(forward, x, y);
    [gradient setDestinationImageAllocator:[MPSImage defaultAllocator]];
    encode_gradient(gradient, y, x, state);
    id<MTLCommandBuffer> buffer = command_buffer();
    MPSCNNConvolutionWeightsAndBiasesState *weights = [forward exportWeightsAndBiasesWithCommandBuffer:buffer
                                                                             resultStateCanBeTemporary:NO];
    run(buffer);
    check([protocol updateWithGradientState:state sourceState:weights], "the data source has new weights");
    check([protocol updateWithCommandBuffer:buffer gradientState:state sourceState:weights] == weights,
          "the other method is declared as well");
    [forward reloadWeightsAndBiasesFromDataSource];
    [gradient reloadWeightsAndBiasesFromDataSource];
  }
}

}  // namespace

int main() {
  return run_tests({test_properties, test_encode_forms, test_channels_of_the_result, test_fully_connected,
                    test_temporaries, test_copies_and_archives, test_reloads, test_refusals, test_updates});
}
