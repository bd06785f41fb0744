// SPDX-License-Identifier: Apache-2.0
// Training by MPSNNGraph: gradient nodes, sums of gradients, losses, updates of data sources on the GPU and the CPU,
// and the same steps encoded by hand. Prints "N passed, N failed".

#import "graph_test.hh"
#import "norm_test.hh"

/// A convolution's data source that descends along the gradients.
@interface LearningSource : TestSource {
 @public
  enum { own_state, given_state, no_update } kind;
  MPSCNNConvolutionWeightsAndBiasesState *state;
  int updates, cpu_updates;
}
@end

@implementation LearningSource

- (void)dealloc {
  [state release];
  [super dealloc];
}

- (MPSCNNConvolutionWeightsAndBiasesState *)updateWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                                      gradientState:(MPSCNNConvolutionGradientState *)gradientState
                                                        sourceState:(MPSCNNConvolutionWeightsAndBiasesState *)weights {
  ++updates;
  if (kind == no_update) {
    MPSStateBatchIncrementReadCount([NSArray arrayWithObjects:gradientState, weights, nil], -1);
    return nil;
  }
  MPSNNOptimizerStochasticGradientDescent *optimizer =
      [[[MPSNNOptimizerStochasticGradientDescent alloc] initWithDevice:[commandBuffer device]
                                                          learningRate:0.05f] autorelease];
  if (state == nil)
    state = [[MPSCNNConvolutionWeightsAndBiasesState alloc] initWithDevice:[commandBuffer device]
                                                  cnnConvolutionDescriptor:descriptor];
  MPSCNNConvolutionWeightsAndBiasesState *result = kind == own_state ? state : weights;
  if (kind == given_state) MPSStateBatchIncrementReadCount([NSArray arrayWithObject:weights], 1);
  [optimizer encodeToCommandBuffer:commandBuffer
          convolutionGradientState:gradientState
            convolutionSourceState:weights
              inputMomentumVectors:nil
                       resultState:result];
  return result;
}

- (BOOL)updateWithGradientState:(MPSCNNConvolutionGradientState *)gradientState
                    sourceState:(MPSCNNConvolutionWeightsAndBiasesState *)weights {
  ++cpu_updates;
  const auto step = [](float *values, id<MTLBuffer> from, id<MTLBuffer> gradients, std::size_t count) {
    const auto *old = static_cast<const float *>([from contents]);
    const auto *gradient = static_cast<const float *>([gradients contents]);
    for (std::size_t i = 0; i < count; ++i) values[i] = old[i] - 0.05f * gradient[i];
  };
  step(reinterpret_cast<float *>(bytes.data()), [weights weights], [gradientState gradientForWeights],
       bytes.size() / sizeof(float));
  step(bias.data(), [weights biases], [gradientState gradientForBiases], bias.size());
  return YES;
}

@end

/// A batch normalization's data source that descends along the gradients, and keeps the last mean.
@interface LearningNorm : FullNormSource {
 @public
  MPSCNNNormalizationGammaAndBetaState *state;
  int updates, statistics, cpu_updates;
}
@end

@implementation LearningNorm

- (void)dealloc {
  [state release];
  [super dealloc];
}

- (MPSCNNNormalizationGammaAndBetaState *)updateGammaAndBetaWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                                      batchNormalizationState:(MPSCNNBatchNormalizationState *)given {
  ++updates;
  MPSNNOptimizerStochasticGradientDescent *optimizer =
      [[[MPSNNOptimizerStochasticGradientDescent alloc] initWithDevice:[commandBuffer device]
                                                          learningRate:0.05f] autorelease];
  if (state == nil)
    state = [[MPSCNNNormalizationGammaAndBetaState alloc] initWithGamma:make_buffer(Numbers(channels))
                                                                   beta:make_buffer(Numbers(channels))];
  [optimizer encodeToCommandBuffer:commandBuffer
           batchNormalizationState:given
              inputMomentumVectors:nil
                       resultState:state];
  return state;
}

- (MPSCNNNormalizationMeanAndVarianceState *)updateMeanAndVarianceWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                                            batchNormalizationState:
                                                                (MPSCNNBatchNormalizationState *)given {
  (void)commandBuffer;
  ++statistics;
  MPSStateBatchIncrementReadCount([NSArray arrayWithObject:given], -1);
  return nil;
}

- (BOOL)updateGammaAndBetaWithBatchNormalizationState:(MPSCNNBatchNormalizationState *)given {
  ++cpu_updates;
  for (NSUInteger i = 0; i < channels; ++i)
    gammas[i] -= 0.05f * static_cast<const float *>([[given gradientForGamma] contents])[i];
  return YES;
}

@end

/// An instance normalization's data source: the gradients of a batch are in one state for each image.
@interface LearningInstanceNorm : PlainNormSource {
 @public
  int updates, states;
  std::vector<double> gradients;
  MPSCNNNormalizationGammaAndBetaState *state;
  MPSStateBatch *last;
}
@end

@implementation LearningInstanceNorm

- (void)dealloc {
  [state release];
  [last release];
  [super dealloc];
}

- (MPSCNNNormalizationGammaAndBetaState *)updateGammaAndBetaWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                              instanceNormalizationStateBatch:
                                                  (MPSCNNInstanceNormalizationGradientStateBatch *)batch {
  (void)commandBuffer;
  ++updates;
  states = static_cast<int>([[NSSet setWithArray:batch] count]);
  MPSStateBatchIncrementReadCount((MPSStateBatch *)batch, -1);
  if (state == nil)
    state = [[MPSCNNNormalizationGammaAndBetaState alloc] initWithGamma:make_buffer(Numbers(channels, 2.0))
                                                                   beta:make_buffer(Numbers(channels, 1.0))];
  return state;
}

- (BOOL)updateGammaAndBetaWithInstanceNormalizationStateBatch:(MPSCNNInstanceNormalizationGradientStateBatch *)batch {
  ++updates;
  gradients.assign(channels, 0);
  for (MPSCNNInstanceNormalizationGradientState *one in batch)
    for (NSUInteger i = 0; i < channels; ++i)
      gradients[i] += static_cast<double>(static_cast<const float *>([[one gradientForBeta] contents])[i]);
  return NO;
}

@end

namespace {

constexpr long kBatch = 8, kClasses = 10;

LearningSource *learning_source(NSUInteger kernel, NSUInteger inputs, NSUInteger outputs, unsigned seed) {
  MPSCNNConvolutionDescriptor *descriptor = descriptor_of(kernel, kernel, inputs, outputs);
  std::vector<double> weights = random_values(kernel * kernel * inputs * outputs, seed);
  for (double &weight : weights) weight /= std::sqrt(static_cast<double>(kernel * kernel * inputs));
  return make_source<LearningSource>(descriptor, weights, random_values(outputs, seed + 1));
}

MPSCNNLossDescriptor *loss_descriptor(MPSCNNLossType type = MPSCNNLossTypeSoftMaxCrossEntropy) {
  MPSCNNLossDescriptor *descriptor = [MPSCNNLossDescriptor cnnLossDescriptorWithType:type
                                                                       reductionType:MPSCNNReductionTypeSum];
  [descriptor setWeight:1.0f / kBatch];
  return descriptor;
}

/// One label for each image, and the loss images of one step.
MPSCNNLossLabelsBatch *make_labels() {
  NSMutableArray *batch = [NSMutableArray array];
  for (long i = 0; i < kBatch; ++i) {
    std::vector<float> values(kClasses);
    values[static_cast<std::size_t>(i * 3 % kClasses)] = 1;
    MPSCNNLossDataDescriptor *data = [MPSCNNLossDataDescriptor
        cnnLossDataDescriptorWithData:[NSData dataWithBytes:values.data() length:values.size() * sizeof(float)]
                               layout:MPSDataLayoutHeightxWidthxFeatureChannels
                                 size:MTLSizeMake(1, 1, kClasses)];
    [batch addObject:[[[MPSCNNLossLabels alloc] initWithDevice:device labelsDescriptor:data] autorelease]];
  }
  return batch;
}

double loss_of(MPSCNNLossLabelsBatch *labels) {
  double sum = 0;
  for (MPSCNNLossLabels *label in labels) sum += read_image([label lossImage]).values[0];
  return sum;
}

/// Convolution, ReLU, pooling, fully connected: the network and its steps by hand.
struct Network {
  LearningSource *first = learning_source(3, 4, 8, 1), *last = learning_source(4, 8, kClasses, 3);

  MPSCNNConvolutionNode *first_node = nil;
  MPSCNNFullyConnectedNode *last_node = nil;
  MPSCNNNeuronReLUNode *relu = nil;
  MPSCNNPoolingMaxNode *pooling = nil;
  MPSCNNLossNode *loss = nil;

  MPSNNImageNode *logits(MPSNNImageNode *x) {
    first_node = [MPSCNNConvolutionNode nodeWithSource:x weights:first];
    relu = [MPSCNNNeuronReLUNode nodeWithSource:[first_node resultImage]];
    pooling = [MPSCNNPoolingMaxNode nodeWithSource:[relu resultImage] filterSize:2];
    last_node = [MPSCNNFullyConnectedNode nodeWithSource:[pooling resultImage] weights:last];
    return [last_node resultImage];
  }
  MPSCNNLossNode *make_loss() {
    loss = [MPSCNNLossNode nodeWithSource:logits(input("x")) lossDescriptor:loss_descriptor()];
    [[loss inputLabels] setHandle:[TestHandle handle:"labels"]];
    return loss;
  }
};

/// The same step by kernels.
struct ByHand {
  LearningSource *first = learning_source(3, 4, 8, 1), *last = learning_source(4, 8, kClasses, 3);
  MPSCNNConvolution *convolution = [[[MPSCNNConvolution alloc] initWithDevice:device weights:first] autorelease];
  MPSCNNConvolutionGradient *convolution_gradient =
      [[[MPSCNNConvolutionGradient alloc] initWithDevice:device weights:first] autorelease];
  MPSCNNFullyConnected *full = [[[MPSCNNFullyConnected alloc] initWithDevice:device weights:last] autorelease];
  MPSCNNFullyConnectedGradient *full_gradient =
      [[[MPSCNNFullyConnectedGradient alloc] initWithDevice:device weights:last] autorelease];

  static void update(id<MTLCommandBuffer> buffer, MPSCNNConvolution *forward, MPSCNNConvolutionGradient *backward,
                     LearningSource *source, MPSStateBatch *states) {
    MPSCNNConvolutionWeightsAndBiasesState *weights = [forward exportWeightsAndBiasesWithCommandBuffer:buffer
                                                                             resultStateCanBeTemporary:NO];
    MPSCNNConvolutionWeightsAndBiasesState *next =
        [source updateWithCommandBuffer:buffer
                          gradientState:(MPSCNNConvolutionGradientState *)[states objectAtIndex:0]
                            sourceState:weights];
    [forward reloadWeightsAndBiasesWithCommandBuffer:buffer state:next];
    [backward reloadWeightsAndBiasesWithCommandBuffer:buffer state:next];
  }

  /// Return the gradient of the input.
  Tensor step(const Tensor &x, MPSCNNLossLabelsBatch *labels) {
    id<MPSImageAllocator> permanent = [MPSImage defaultAllocator];
    MPSNNNeuronDescriptor *rectifier = [MPSNNNeuronDescriptor cnnNeuronDescriptorWithType:MPSCNNNeuronTypeReLU];
    MPSCNNNeuron *relu = [[[MPSCNNNeuron alloc] initWithDevice:device neuronDescriptor:rectifier] autorelease];
    MPSCNNPoolingMax *pooling = [[[MPSCNNPoolingMax alloc] initWithDevice:device
                                                              kernelWidth:2
                                                             kernelHeight:2
                                                          strideInPixelsX:2
                                                          strideInPixelsY:2] autorelease];
    [pooling setEdgeMode:MPSImageEdgeModeClamp];
    MPSCNNLoss *loss = [[[MPSCNNLoss alloc] initWithDevice:device lossDescriptor:loss_descriptor()] autorelease];
    MPSCNNKernel *const forward[] = {convolution, relu, pooling, full};
    MPSCNNGradientKernel *const backward[] = {convolution_gradient,
                                              [[[MPSCNNNeuronGradient alloc] initWithDevice:device
                                                                           neuronDescriptor:rectifier] autorelease],
                                              [[[MPSCNNPoolingMaxGradient alloc] initWithDevice:device
                                                                                    kernelWidth:2
                                                                                   kernelHeight:2
                                                                                strideInPixelsX:2
                                                                                strideInPixelsY:2] autorelease],
                                              full_gradient};
    id<MTLCommandBuffer> buffer = command_buffer();
    MPSImageBatch *images[5] = {make_batch(x)};
    MPSStateBatch *states[4];
    for (int i = 0; i < 4; ++i) {
      [forward[i] setDestinationImageAllocator:permanent];
      images[i + 1] = [forward[i] encodeBatchToCommandBuffer:buffer
                                                sourceImages:images[i]
                                           destinationStates:&states[i]
                                 destinationStateIsTemporary:NO];
    }
    [loss setDestinationImageAllocator:permanent];
    MPSImageBatch *gradients = [loss encodeBatchToCommandBuffer:buffer sourceImages:images[4] labels:labels];
    for (int i = 3; i >= 0; --i) {
      [backward[i] setDestinationImageAllocator:permanent];
      gradients = [backward[i] encodeBatchToCommandBuffer:buffer
                                          sourceGradients:gradients
                                             sourceImages:images[i]
                                           gradientStates:states[i]];
      if (i == 3) update(buffer, full, full_gradient, last, states[3]);
      if (i == 0) update(buffer, convolution, convolution_gradient, first, states[0]);
    }
    run(buffer);
    return read_batch(gradients);
  }
};

Tensor weights_of(LearningSource *source) {
  const auto count = static_cast<long>([[source->state weights] length] / sizeof(float));
  Tensor values(1, 1, 1, count);
  const auto *from = static_cast<const float *>([[source->state weights] contents]);
  std::copy(from, from + count, values.values.begin());
  return values;
}

void encode_step(MPSNNGraph *graph, const Tensor &x, MPSCNNLossLabelsBatch *labels, const char *name) {
  NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
  id<MTLCommandBuffer> buffer = [MPSCommandBuffer commandBufferFromCommandQueue:queue];
  MPSImageBatch *result = [graph encodeBatchToCommandBuffer:buffer
                                               sourceImages:[NSArray arrayWithObject:make_batch(x)]
                                               sourceStates:[NSArray arrayWithObject:labels]];
  MPSStateBatchSynchronize((MPSStateBatch *)labels, buffer);
  for (MPSCNNLossLabels *label in labels) [[label lossImage] synchronizeOnCommandBuffer:buffer];
  check((result != nil) == [graph resultImageIsNeeded], std::string(name) + ": the result");
  run(buffer);
  [pool drain];
}

/// Gradient nodes made by the builder or by hand, with every way to update.
void test_training() {
  const Tensor x = Tensor::random(kBatch, 8, 8, 4, 7);
  for (const bool by_builder : {true, false}) {
    for (const bool needed : {true, false}) {
      const std::string name = std::string(by_builder ? "built" : "by hand") + (needed ? ", with a result" : "");
      Network network;
      MPSCNNLossNode *loss = network.make_loss();
      if (needed) network.first->kind = given_state, network.last->kind = given_state;
      MPSNNFilterNode *end = nil;
      __block int handled = 0;
      if (by_builder) {
        NSArray *ends =
            [loss trainingGraphWithSourceGradient:nil
                                      nodeHandler:^(MPSNNFilterNode *gradient, MPSNNFilterNode *forward,
                                                    MPSNNImageNode *, MPSNNImageNode *) {
                                        ++handled;
                                        [[gradient resultImage] setFormat:MPSImageFeatureChannelFormatFloat32];
                                        check(forward != nil, "the handler gets the forward node");
                                      }];
        check([ends count] == 1 && handled == 4, name + ": one end, four gradient nodes");
        end = [ends objectAtIndex:0];
      } else {
        MPSNNImageNode *gradient = [loss resultImage];
        for (MPSNNFilterNode *node : {(MPSNNFilterNode *)network.last_node, (MPSNNFilterNode *)network.pooling,
                                      (MPSNNFilterNode *)network.relu, (MPSNNFilterNode *)network.first_node}) {
          end = [node gradientFilterWithSource:gradient];
          gradient = [end resultImage];
        }
        [(MPSCNNConvolutionGradientNode *)end setTrainingStyle:MPSNNTrainingStyleUpdateDeviceGPU];
      }
      MPSNNGraph *graph = graph_of([end resultImage], needed);
      check([[graph sourceImageHandles] count] == 1 && labels_of([graph sourceStateHandles]) == "labels",
            name + ": one image, and labels");
      ByHand hand;
      double before = 0, after = 0;
      for (int step = 0; step < 6; ++step) {
        MPSCNNLossLabelsBatch *labels = make_labels(), *others = make_labels();
        encode_step(graph, x, labels, name.c_str());
        hand.step(x, others);
        check(std::fabs(loss_of(labels) - loss_of(others)) <= 1e-5, name + ": the loss is that of the kernels");
        if (step == 0) before = loss_of(labels);
        after = loss_of(labels);
      }
      check(after < 0.9 * before,
            name + ": the loss falls from " + std::to_string(before) + " to " + std::to_string(after));
      check(network.first->updates == 6 && network.last->updates == 6, name + ": an update for each step");
      if (!needed) {
        check_equal(name + ": weights", weights_of(network.first), weights_of(hand.first), 1e-5);
        check_equal(name + ": weights of the last layer", weights_of(network.last), weights_of(hand.last), 1e-5);
      }
    }
  }
}

/// An inference graph shares the data sources; on the CPU they hold the new weights.
void test_cpu_updates() {
  const Tensor x = Tensor::random(kBatch, 8, 8, 4, 7);
  Network network, inference;
  MPSCNNLossNode *loss = network.make_loss();
  [network.first_node setTrainingStyle:MPSNNTrainingStyleUpdateDeviceCPU];
  [network.last_node setTrainingStyle:MPSNNTrainingStyleUpdateDeviceNone];
  inference.first = network.first, inference.last = network.last;
  MPSNNGraph *evaluation = graph_of(inference.logits(input("x")));
  const Tensor before = run_batch(evaluation, {{"x", x}});
  MPSNNGraph *graph =
      graph_of([[[loss trainingGraphWithSourceGradient:nil nodeHandler:nil] objectAtIndex:0] resultImage], false);
  std::vector<double> losses;
  for (int step = 0; step < 4; ++step) {
    MPSCNNLossLabelsBatch *labels = make_labels();
    encode_step(graph, x, labels, "updates on the CPU");
    losses.push_back(loss_of(labels));
  }
  check(network.first->cpu_updates == 4 && network.first->updates == 0, "one update on the CPU for each step");
  check(network.last->cpu_updates == 0 && network.last->updates == 0, "no updates with the style None");
  check(losses[3] < losses[0], "the loss falls on the CPU, too");
  check(distance(run_batch(evaluation, {{"x", x}}), before) == 0, "the inference graph has its weights");
  [evaluation reloadFromDataSources];
  check(distance(run_batch(evaluation, {{"x", x}}), before) > 1e-3, "the inference graph reads the data sources again");
}

/// The gradient of the input, and a data source that keeps its weights.
void test_gradient_of_the_input() {
  const Tensor x = Tensor::random(kBatch, 8, 8, 4, 7);
  Network network;
  network.first->kind = network.last->kind = no_update;
  NSArray *ends = [network.make_loss() trainingGraphWithSourceGradient:nil nodeHandler:nil];
  MPSNNGraph *graph = graph_of([[ends objectAtIndex:0] resultImage]);
  ByHand hand;
  const Tensor expected = hand.step(x, make_labels());
  for (int i = 0; i < 2; ++i)
    check_equal("the gradient of the input", run_batch(graph, {{"x", x}}, make_labels()), expected, 1e-6);
  check(network.first->updates == 2, "an update that changes nothing");
}

/// Sums of gradients: d/dx of sum(relu(x) * x + x - y) is relu'(x) * x + relu(x) + 1; of y it is -1.
void test_sums_of_gradients() {
  MPSNNImageNode *x = input("x"), *y = input("y");
  MPSNNImageNode *rectified = [[MPSCNNNeuronReLUNode nodeWithSource:x] resultImage];
  MPSNNImageNode *product = [[MPSNNMultiplicationNode nodeWithLeftSource:rectified rightSource:x] resultImage];
  MPSNNImageNode *sum = [[MPSNNAdditionNode nodeWithLeftSource:product rightSource:x] resultImage];
  MPSNNImageNode *difference = [[MPSNNSubtractionNode nodeWithLeftSource:sum rightSource:y] resultImage];
  MPSNNInitialGradientNode *ones = [MPSNNInitialGradientNode nodeWithSource:difference];
  __block int additions = 0, gradients = 0;
  NSArray *ends = [ones
      trainingGraphWithSourceGradient:nil
                          nodeHandler:^(MPSNNFilterNode *node, MPSNNFilterNode *, MPSNNImageNode *, MPSNNImageNode *) {
                            if ([node isKindOfClass:[MPSNNAdditionNode class]])
                              ++additions;
                            else
                              ++gradients;
                          }];
  check([ends count] == 2 && additions == 2 && gradients == 7, "an end for each input, and two sums");
  const Tensor values = Tensor::random(1, 3, 5, 8, 8), others = Tensor::random(1, 3, 5, 8, 9);
  NSArray *results =
      [NSArray arrayWithObjects:[[ends objectAtIndex:0] resultImage], [[ends objectAtIndex:1] resultImage], nil];
  MPSNNGraph *graph = [MPSNNGraph graphWithDevice:device resultImages:results resultsAreNeeded:NULL];
  [graph setFormat:MPSImageFeatureChannelFormatFloat32];
  NSMutableArray *further = [NSMutableArray array];
  id<MTLCommandBuffer> buffer = command_buffer();
  MPSImage *first = [graph encodeToCommandBuffer:buffer
                                    sourceImages:images_for(graph, {{"x", values}, {"y", others}})
                                    sourceStates:nil
                              intermediateImages:further
                               destinationStates:nil];
  run(buffer);
  Tensor expected = values;
  for (double &value : expected.values) value = (value >= 0 ? 2 * value : 0) + 1;
  check_equal("a sum of three gradients", read_image(first), expected, 1e-6);
  check_equal("the gradient of the other input", read_image([further objectAtIndex:0]), Tensor(1, 3, 5, 8, -1), 0);

  // The walk ends where the program says.
  [product setStopGradient:YES];
  ends = [ones trainingGraphWithSourceGradient:nil nodeHandler:nil];
  check([ends count] == 3, "the stopped image, x and y");
  // A given gradient instead of the result.
  MPSNNImageNode *given = input("g");
  ends = [ones trainingGraphWithSourceGradient:given nodeHandler:nil];
  MPSNNGraph *with_gradient = graph_of([[ends objectAtIndex:2] resultImage]);
  const Tensor g = Tensor::random(1, 3, 5, 8, 10);
  Tensor negative = g;
  for (double &value : negative.values) value = -value;
  check_equal("a given gradient", run_graph(with_gradient, {{"x", values}, {"y", others}, {"g", g}}), negative, 0);

  MPSNNDivisionNode *division = [MPSNNDivisionNode nodeWithLeftSource:x rightSource:y];
  check_raises("a filter without a gradient", kArgument, "Set stopGradient", [&] {
    [[MPSNNInitialGradientNode nodeWithSource:[division resultImage]] trainingGraphWithSourceGradient:nil
                                                                                          nodeHandler:nil];
  });
  // A concatenation whose parts differ, and its gradients.
  MPSNNImageNode *both =
      [[MPSNNConcatenationNode nodeWithSources:[NSArray arrayWithObjects:rectified, x, nil]] resultImage];
  ends = [[MPSNNInitialGradientNode nodeWithSource:both] trainingGraphWithSourceGradient:nil nodeHandler:nil];
  for (double &value : (expected = values).values) value = value >= 0 ? 2 : 1;
  check_equal("gradients through a concatenation",
              run_graph(graph_of([[ends objectAtIndex:0] resultImage]), {{"x", values}}), expected, 0);
}

/// Five losses in a sum, as programs add them; a callback gives the weight of one.
void test_forward_losses() {
  const Tensor x = Tensor::random(2, 4, 4, 8, 11), t = Tensor::random(2, 4, 4, 8, 12);
  MPSNNImageNode *source = input("x"), *labels = input("t"), *total = nil;
  for (int i = 0; i < 5; ++i) {
    MPSCNNLossDescriptor *descriptor = [MPSCNNLossDescriptor cnnLossDescriptorWithType:MPSCNNLossTypeMeanSquaredError
                                                                         reductionType:MPSCNNReductionTypeSum];
    [descriptor setWeight:static_cast<float>(i + 1)];
    MPSNNForwardLossNode *loss = [MPSNNForwardLossNode nodeWithSource:source labels:labels lossDescriptor:descriptor];
    check([loss weight] == static_cast<float>(i + 1) && [loss lossType] == MPSCNNLossTypeMeanSquaredError,
          "properties of a loss");
    total = total == nil ? [loss resultImage]
                         : [[MPSNNAdditionNode nodeWithLeftSource:total rightSource:[loss resultImage]] resultImage];
  }
  Tensor sums(2, 1, 1, 1), gradient = x;
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    const double difference = x.values[i] - t.values[i];
    sums.values[i * 2 / x.values.size()] += 15 * difference * difference;
    gradient.values[i] = 15 * 2 * difference;
  }
  check_equal("a sum of losses", run_batch(graph_of(total), {{"x", x}, {"t", t}}), sums, 1e-3);
  NSArray *ends = [[MPSNNInitialGradientNode nodeWithSource:total] trainingGraphWithSourceGradient:nil nodeHandler:nil];
  check([ends count] == 1, "labels that the program passes have no gradient");
  check_equal("its gradient", run_batch(graph_of([[ends objectAtIndex:0] resultImage]), {{"x", x}, {"t", t}}), gradient,
              1e-4);
  // By hand there are gradients of the predictions and of the labels.
  MPSNNForwardLossNode *loss = [MPSNNForwardLossNode nodeWithSource:source
                                                             labels:labels
                                                     lossDescriptor:loss_descriptor(MPSCNNLossTypeMeanSquaredError)];
  NSArray *nodes = [loss gradientFiltersWithSource:input("g")];
  check([nodes count] == 2 && ![[nodes objectAtIndex:0] isLabelsGradientFilter] &&
            [[nodes objectAtIndex:1] isLabelsGradientFilter],
        "gradients of predictions and labels");
  const Tensor one(2, 1, 1, 1, 1);
  const Tensor of_x = run_batch(graph_of([[nodes objectAtIndex:0] resultImage]), {{"x", x}, {"t", t}, {"g", one}});
  Tensor of_t = run_batch(graph_of([[nodes objectAtIndex:1] resultImage]), {{"x", x}, {"t", t}, {"g", one}});
  for (double &value : of_t.values) value = -value;
  check_equal("the gradient of the labels", of_t, of_x, 1e-6);
}

LearningNorm *learning_norm() {
  LearningNorm *norm = [[[LearningNorm alloc] init] autorelease];
  norm->channels = 8;
  norm->epsilon_value = 1e-3f;
  norm->gammas.assign(8, 1.5f), norm->betas.assign(8, 0.25f);
  norm->means.assign(8, 0.5f), norm->variances.assign(8, 2);
  return norm;
}

/// Statistics of the batch are computed if a gradient node needs them; flags override that.
void test_batch_normalization() {
  const Tensor x = Tensor::random(4, 6, 5, 8, 13), g = Tensor::random(4, 6, 5, 8, 14);
  LearningNorm *norm = learning_norm(), *other = learning_norm();
  MPSCNNBatchNormalizationNode *node = [MPSCNNBatchNormalizationNode nodeWithSource:input("x") dataSource:norm];
  MPSNNFilterNode *gradient = [node gradientFilterWithSource:input("g")];
  MPSNNGraph *graph = graph_of([gradient resultImage]);

  MPSCNNBatchNormalization *kernel = [[[MPSCNNBatchNormalization alloc] initWithDevice:device
                                                                            dataSource:other] autorelease];
  MPSCNNBatchNormalizationStatistics *statistics =
      [[[MPSCNNBatchNormalizationStatistics alloc] initWithDevice:device] autorelease];
  MPSCNNBatchNormalizationStatisticsGradient *sums =
      [[[MPSCNNBatchNormalizationStatisticsGradient alloc] initWithDevice:device] autorelease];
  MPSCNNBatchNormalizationGradient *backward =
      [[[MPSCNNBatchNormalizationGradient alloc] initWithDevice:device] autorelease];
  [backward setDestinationImageAllocator:[MPSImage defaultAllocator]];
  for (int step = 0; step < 3; ++step) {
    const Tensor got = run_batch(graph, {{"x", x}, {"g", g}});
    id<MTLCommandBuffer> buffer = command_buffer();
    MPSImageBatch *images = make_batch(x), *gradients = make_batch(g), *normalized = nan_batch(4, 6, 5, 8);
    MPSCNNBatchNormalizationState *state = [kernel resultStateForSourceImage:[images objectAtIndex:0]
                                                                sourceStates:nil
                                                            destinationImage:[normalized objectAtIndex:0]];
    [statistics encodeBatchToCommandBuffer:buffer sourceImages:images batchNormalizationState:state];
    [kernel encodeBatchToCommandBuffer:buffer
                          sourceImages:images
               batchNormalizationState:state
                     destinationImages:normalized];
    [sums encodeBatchToCommandBuffer:buffer
                     sourceGradients:gradients
                        sourceImages:images
             batchNormalizationState:state];
    MPSImageBatch *result = [backward encodeBatchToCommandBuffer:buffer
                                                 sourceGradients:gradients
                                                    sourceImages:images
                                         batchNormalizationState:state];
    [kernel reloadGammaAndBetaWithCommandBuffer:buffer
                              gammaAndBetaState:[other updateGammaAndBetaWithCommandBuffer:buffer
                                                                   batchNormalizationState:state]];
    run(buffer);
    check_equal("batch normalization, step " + std::to_string(step), got, read_batch(result), 1e-6);
  }
  check(norm->updates == 3 && norm->statistics == 3, "both updates of each step");
  // Inference uses the data source's statistics, unless the flags say Always.
  [node setFlags:MPSCNNBatchNormalizationFlagsCalculateStatisticsAlways];
  const Tensor of_batch = run_batch(graph_of([node resultImage]), {{"x", x}});
  [node setFlags:MPSCNNBatchNormalizationFlagsDefault];
  const Tensor of_source = run_batch(graph_of([node resultImage]), {{"x", x}});
  double mean = 0;
  for (long i = 0; i < 4 * 6 * 5; ++i) mean += of_batch.values[static_cast<std::size_t>(i * 8)] / (4 * 6 * 5);
  check(std::fabs(mean - 0.25) < 1e-5, "the mean of a normalized batch is beta");
  check_equal("inference", of_source.image(0),
              result_of([[[MPSCNNBatchNormalization alloc] initWithDevice:device dataSource:norm] autorelease],
                        make_image(x.image(0))),
              0);
  // On the CPU.
  LearningNorm *slow = learning_norm();
  MPSCNNBatchNormalizationNode *slow_node = [MPSCNNBatchNormalizationNode nodeWithSource:input("x") dataSource:slow];
  [slow_node setTrainingStyle:MPSNNTrainingStyleUpdateDeviceCPU];
  MPSNNGraph *slow_graph = graph_of([[slow_node gradientFilterWithSource:input("g")] resultImage]);
  const Tensor first = run_batch(slow_graph, {{"x", x}, {"g", g}}),
               second = run_batch(slow_graph, {{"x", x}, {"g", g}});
  check(slow->cpu_updates == 2 && slow->gammas[0] != 1.5f && distance(first, second) > 1e-6, "updates on the CPU");
}

/// States that the program takes.
void test_exported_states() {
  const Tensor x = Tensor::random(kBatch, 8, 8, 4, 7);
  for (const bool temporary : {false, true}) {
    Network network;
    MPSCNNLossNode *loss = network.make_loss();
    [network.first_node setTrainingStyle:MPSNNTrainingStyleUpdateDeviceNone];
    MPSCNNConvolutionGradientStateNode *state = [network.first_node convolutionGradientState];
    [state setExportFromGraph:YES];
    [state setSynchronizeResource:YES];
    [state setHandle:[TestHandle handle:"state"]];
    NSArray *ends = [loss trainingGraphWithSourceGradient:nil nodeHandler:nil];
    MPSNNGraph *graph = graph_of([[ends objectAtIndex:0] resultImage]);
    [graph setOutputStateIsTemporary:temporary];
    check(labels_of([graph resultStateHandles]) == "state", "resultStateHandles");
    NSMutableArray *states = [NSMutableArray array];
    id<MTLCommandBuffer> buffer = command_buffer();
    [graph encodeBatchToCommandBuffer:buffer
                         sourceImages:[NSArray arrayWithObject:make_batch(x)]
                         sourceStates:[NSArray arrayWithObject:make_labels()]
                   intermediateImages:nil
                    destinationStates:states];
    check([states count] == 1 && [[states objectAtIndex:0] count] == kBatch, "a batch of states");
    auto *first = (MPSCNNConvolutionGradientState *)[[states objectAtIndex:0] objectAtIndex:0];
    check([first isTemporary] == temporary, "outputStateIsTemporary");
    if (temporary) {
      check([first readCount] == 1, "readCount of an exported state");
      [first setReadCount:0];
    }
    run(buffer);
    if (temporary) continue;
    ByHand hand;
    hand.step(x, make_labels());
    const auto *gradients = static_cast<const float *>([[first gradientForBiases] contents]);
    double sum = 0;
    for (int i = 0; i < 8; ++i) sum += std::fabs(static_cast<double>(gradients[i]));
    check(sum > 1e-3, "gradients of the biases");
    // An encode that takes no states.
    run_batch(graph, {{"x", x}}, make_labels());
  }
}

/// A transposed convolution that undoes a convolution by its state.
void test_transposed_convolution() {
  TestSource *source = convolution_source(3, 4, 8, 15, 2), *back = convolution_source(3, 8, 4, 16, 2);
  MPSCNNConvolutionNode *convolution = [MPSCNNConvolutionNode nodeWithSource:input("x") weights:source];
  MPSCNNConvolutionTransposeNode *transpose =
      [MPSCNNConvolutionTransposeNode nodeWithSource:[convolution resultImage]
                            convolutionGradientState:[convolution convolutionGradientState]
                                             weights:back];
  const Tensor x = Tensor::random(2, 9, 12, 4, 17);
  const Tensor got = run_batch(graph_of([transpose resultImage]), {{"x", x}});
  check(got.h == 9 && got.w == 12 && got.c == 4, "the size of the convolution's source");
  MPSNNFilterNode *gradient = [transpose gradientFilterWithSource:input("g")];
  check([[transpose resultState] isKindOfClass:[MPSCNNConvolutionTransposeGradientStateNode class]], "its state");
  const Tensor g = Tensor::random(2, 9, 12, 4, 18);
  const Tensor of_middle = run_batch(graph_of([gradient resultImage]), {{"x", x}, {"g", g}});
  check(of_middle.h == 5 && of_middle.w == 6 && of_middle.c == 8, "the size of its gradient");
}

void test_instance_normalization() {
  const Tensor x = Tensor::random(4, 6, 5, 8, 13), g = Tensor::random(4, 6, 5, 8, 14);
  for (const auto style : {MPSNNTrainingStyleUpdateDeviceGPU, MPSNNTrainingStyleUpdateDeviceCPU}) {
    LearningInstanceNorm *norm = [[[LearningInstanceNorm alloc] init] autorelease];
    norm->channels = 8;
    MPSCNNInstanceNormalizationNode *node = [MPSCNNInstanceNormalizationNode nodeWithSource:input("x") dataSource:norm];
    [node setTrainingStyle:style];
    MPSNNFilterNode *gradient = [node gradientFilterWithSource:input("g")];
    NSArray *results = [NSArray arrayWithObjects:[node resultImage], [gradient resultImage], nil];
    MPSNNGraph *graph = [MPSNNGraph graphWithDevice:device resultImages:results resultsAreNeeded:NULL];
    [graph setFormat:MPSImageFeatureChannelFormatFloat32];
    const Tensor before = run_batch(graph, {{"x", x}, {"g", g}}), after = run_batch(graph, {{"x", x}, {"g", g}});
    check(norm->updates == 2, "an update for each encode");
    if (style == MPSNNTrainingStyleUpdateDeviceGPU) {
      check(norm->states == 4, "a state for each image");
      Tensor expected = before;
      for (double &value : expected.values) value = 2 * value + 1;
      check_equal("gamma and beta that the data source returned", after, expected, 1e-5);
      continue;
    }
    for (long k = 0; k < 8; ++k) {
      double sum = 0;
      for (long i = 0; i < 4 * 6 * 5; ++i) sum += g.values[static_cast<std::size_t>(i * 8 + k)];
      check(std::fabs(norm->gradients[static_cast<std::size_t>(k)] - sum) < 1e-4, "the gradient of beta on the CPU");
    }
  }
}

/// The labels and the gradient of boxes, as MPSCNNYOLOLoss computes them.
void test_boxes() {
  const float anchors[] = {1, 2, 2, 1};
  MPSCNNYOLOLossDescriptor *descriptor =
      [MPSCNNYOLOLossDescriptor cnnLossDescriptorWithXYLossType:MPSCNNLossTypeMeanSquaredError
                                                     WHLossType:MPSCNNLossTypeHuber
                                             confidenceLossType:MPSCNNLossTypeSigmoidCrossEntropy
                                                classesLossType:MPSCNNLossTypeSoftMaxCrossEntropy
                                                  reductionType:MPSCNNReductionTypeSum
                                                    anchorBoxes:[NSData dataWithBytes:anchors length:sizeof anchors]
                                            numberOfAnchorBoxes:2];
  const Tensor x = Tensor::random(1, 5, 5, 16, 21);
  const auto make_box_labels = [] {
    std::vector<float> values(5 * 5 * 16);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 7) / 8;
    MPSCNNLossDataDescriptor *data = [MPSCNNLossDataDescriptor
        cnnLossDataDescriptorWithData:[NSData dataWithBytes:values.data() length:values.size() * sizeof(float)]
                               layout:MPSDataLayoutHeightxWidthxFeatureChannels
                                 size:MTLSizeMake(5, 5, 16)];
    return [[[MPSCNNLossLabels alloc] initWithDevice:device labelsDescriptor:data] autorelease];
  };
  MPSCNNLossLabels *labels = make_box_labels(), *others = make_box_labels();
  MPSCNNYOLOLossNode *node = [MPSCNNYOLOLossNode nodeWithSource:input("x") lossDescriptor:descriptor];
  const Tensor got = run_batch(graph_of([node resultImage]), {{"x", x}}, [NSArray arrayWithObject:labels]);
  MPSCNNYOLOLoss *kernel = [[[MPSCNNYOLOLoss alloc] initWithDevice:device lossDescriptor:descriptor] autorelease];
  [kernel setDestinationImageAllocator:[MPSImage defaultAllocator]];
  id<MTLCommandBuffer> buffer = command_buffer();
  MPSImage *gradient = [kernel encodeToCommandBuffer:buffer sourceImage:make_image(x) labels:others];
  run(buffer);
  check_equal("the gradient of boxes", got, read_image(gradient), 0);
  check_equal("the loss of boxes", read_image([labels lossImage]), read_image([others lossImage]), 0);
}

/// Dropout keeps a mask for each image until its gradient.
void test_dropout() {
  MPSCNNDropoutNode *node = [MPSCNNDropoutNode nodeWithSource:input("x")
                                              keepProbability:0.5f
                                                         seed:3
                                           maskStrideInPixels:MTLSizeMake(1, 1, 1)];
  MPSNNFilterNode *gradient = [node gradientFilterWithSource:input("g")];
  MPSNNImageNode *difference = [[MPSNNSubtractionNode nodeWithLeftSource:[node resultImage]
                                                             rightSource:[gradient resultImage]] resultImage];
  const Tensor ones(4, 5, 6, 8, 1);
  check_equal("the masks of dropout and its gradient", run_batch(graph_of(difference), {{"x", ones}, {"g", ones}}),
              Tensor(4, 5, 6, 8, 0), 0);
}

/// A 1 x 1 convolution that leaves out the channels between the parts of a concatenation, and its gradients.
void test_squeezed_concatenation() {
  std::vector<double> weights(5 * 8);  // OHWI: parts of 2 and 3 channels begin at 0 and 4
  const int channels[] = {0, 1, 4, 5, 6};
  for (int i = 0; i < 5; ++i) weights[static_cast<std::size_t>(i * 8 + channels[i])] = 1;
  MPSCNNConvolutionDescriptor *descriptor = descriptor_of(1, 1, 8, 5);
  TestSource *source = make_source(descriptor, weights, {});
  MPSNNConcatenationNode *both =
      [MPSNNConcatenationNode nodeWithSources:[NSArray arrayWithObjects:input("a"), input("b"), nil]];
  MPSCNNConvolutionNode *squeeze = [MPSCNNConvolutionNode nodeWithSource:[both resultImage] weights:source];
  [squeeze setAccumulatorPrecision:MPSNNConvolutionAccumulatorPrecisionOptionHalf];
  const Tensor a = Tensor::random(2, 3, 4, 2, 31), b = Tensor::random(2, 3, 4, 3, 32),
               g = Tensor::random(2, 3, 4, 5, 33);
  Tensor expected(2, 3, 4, 5);
  paste(expected, a, 0, 0, 0, 0);
  paste(expected, b, 0, 0, 0, 2);
  check_equal("channels side by side", run_batch(graph_of([squeeze resultImage]), {{"a", a}, {"b", b}}), expected, 0);
  NSArray *ends = [squeeze trainingGraphWithSourceGradient:input("g") nodeHandler:nil];
  check([ends count] == 2, "an end for each part");
  for (NSUInteger i = 0; i < 2; ++i)
    check_equal("the gradient of a part",
                run_batch(graph_of([[ends objectAtIndex:i] resultImage]), {{"a", a}, {"b", b}, {"g", g}}),
                g.channels(i == 0 ? 0 : 2, i == 0 ? 2 : 3), 0);
}

/// A copy of a training graph trains weights of its own.
void test_copy() {
  const Tensor x = Tensor::random(kBatch, 8, 8, 4, 7);
  Network network;
  NSArray *ends = [network.make_loss() trainingGraphWithSourceGradient:nil nodeHandler:nil];
  MPSNNGraph *graph = graph_of([[ends objectAtIndex:0] resultImage], false);
  MPSNNGraph *copy = [[graph copy] autorelease];
  MPSCNNLossLabelsBatch *labels = make_labels(), *others = make_labels();
  encode_step(graph, x, labels, "the graph");
  encode_step(copy, x, others, "its copy");
  check(std::fabs(loss_of(labels) - loss_of(others)) < 1e-6, "both begin with the same weights");
  check(network.first->copies == 2 && network.first->updates == 2, "copies of the data source are updated");
}

/// Steps leave nothing behind: each has a pool of its own, as programs have one for each batch.
void test_no_objects_are_left() {
  const Tensor x = Tensor::random(kBatch, 8, 8, 4, 7);
  const char *classes[] = {"MPSImage",
                           "MPSTemporaryImage",
                           "MPSState",
                           "MPSNNGradientState",
                           "MPSImageDescriptor",
                           "MPSCNNConvolutionGradientState",
                           "MPSCNNConvolutionWeightsAndBiasesState",
                           "MPSCNNConvolution",
                           "MTLBufferOnEngine",
                           "MTLCommandBufferOnEngine"};
  for (const auto style : {MPSNNTrainingStyleUpdateDeviceGPU, MPSNNTrainingStyleUpdateDeviceCPU}) {
    Network network;
    MPSCNNLossNode *loss = network.make_loss();
    [network.first_node setTrainingStyle:style];
    [network.last_node setTrainingStyle:style];
    MPSNNGraph *graph =
        graph_of([[[loss trainingGraphWithSourceGradient:nil nodeHandler:nil] objectAtIndex:0] resultImage]);
    MPSCNNLossLabelsBatch *labels = make_labels();
    encode_step(graph, x, labels, "the first step");
    GSDebugAllocationActive(YES);
    int before[std::size(classes)];
    for (int step = 0; step < 4; ++step) {
      encode_step(graph, x, labels, "a step");
      for (std::size_t i = 0; i < std::size(classes); ++i) {
        const int alive = GSDebugAllocationCount(NSClassFromString(@(classes[i])));
        // Objects of the first steps, which were made before the count began, may go away.
        if (step > 0)
          check(alive <= before[i], std::string("no object of ") + classes[i] + " is left: " + std::to_string(alive) +
                                        " instead of " + std::to_string(before[i]));
        before[i] = alive;
      }
    }
    GSDebugAllocationActive(NO);
  }
}

}  // namespace

int main() {
  return run_tests({test_training, test_cpu_updates, test_gradient_of_the_input, test_sums_of_gradients,
                    test_forward_losses, test_batch_normalization, test_exported_states, test_transposed_convolution,
                    test_instance_normalization, test_boxes, test_dropout, test_squeezed_concatenation, test_copy,
                    test_no_objects_are_left});
}
