// SPDX-License-Identifier: Apache-2.0
// Every filter node: a graph of it gives, bit by bit, the result of its kernel encoded by hand, forward and backward.
// Prints "N passed, N failed".

#import "graph_test.hh"
#import "norm_test.hh"

/// Answers for transforms and alpha, and counts the calls.
@interface TestTransform : NSObject<MPSImageTransformProvider, MPSNNGramMatrixCallback> {
 @public
  int calls;
}
@end

@implementation TestTransform
- (MPSScaleTransform)transformForSourceImage:(MPSImage *)image handle:(id<MPSHandle>)handle {
  check(image != nil && [[handle label] isEqual:@"x"], "a transform is asked for with the image and its handle");
  ++calls;
  return MPSScaleTransform{1, 1, 1, 2};
}
- (float)alphaForSourceImage:(MPSImage *)sourceImage destinationImage:(MPSImage *)destinationImage {
  check([sourceImage width] == 6 && [destinationImage featureChannels] == 8, "alpha is asked for with both images");
  ++calls;
  return 0.5f;
}
- (id)copyWithZone:(NSZone *)zone {
  (void)zone;
  return [self retain];
}
+ (BOOL)supportsSecureCoding {
  return YES;
}
- (void)encodeWithCoder:(NSCoder *)coder {
  (void)coder;
}
- (instancetype)initWithCoder:(NSCoder *)coder {
  (void)coder;
  return [self init];
}
@end

namespace {

/// A node with one source, and its kernels. `kernel` and `gradient` are autoreleased; no gradient kernel: none.
struct UnaryRow {
  const char *name;
  std::function<MPSNNFilterNode *(MPSNNImageNode *)> node;
  std::function<MPSKernel *()> kernel;
  std::function<MPSKernel *()> gradient = nullptr;
  long h = 9, w = 11, c = 8;
  bool reads_result = false;  ///< the gradient kernel reads the forward result
};

template <class Kernel>
Kernel *plain(Class kernel) {
  return [[(Kernel *)[kernel alloc] initWithDevice:device] autorelease];
}

MPSNNNeuronDescriptor *neuron(MPSCNNNeuronType type, float a = 0, float b = 0, float c = 0) {
  return [MPSNNNeuronDescriptor cnnNeuronDescriptorWithType:type a:a b:b c:c];
}

UnaryRow neuron_row(const char *name, MPSNNNeuronDescriptor *descriptor,
                    std::function<MPSNNFilterNode *(MPSNNImageNode *)> node) {
  [descriptor retain];
  return {
      name, std::move(node),
      [=] { return [[[MPSCNNNeuron alloc] initWithDevice:device neuronDescriptor:descriptor] autorelease]; },
      [=] { return [[[MPSCNNNeuronGradient alloc] initWithDevice:device neuronDescriptor:descriptor] autorelease]; }};
}

std::vector<UnaryRow> neuron_rows() {
  return {
      neuron_row("ReLU", neuron(MPSCNNNeuronTypeReLU, 0.25f),
                 [](MPSNNImageNode *x) { return [MPSCNNNeuronReLUNode nodeWithSource:x a:0.25f]; }),
      neuron_row("ReLU, default", neuron(MPSCNNNeuronTypeReLU),
                 [](MPSNNImageNode *x) { return [MPSCNNNeuronReLUNode nodeWithSource:x]; }),
      neuron_row("ReLUN", neuron(MPSCNNNeuronTypeReLUN, 0, 0.5f),
                 [](MPSNNImageNode *x) { return [MPSCNNNeuronReLUNNode nodeWithSource:x a:0 b:0.5f]; }),
      neuron_row("ReLUN, default", neuron(MPSCNNNeuronTypeReLUN, 1, 6),
                 [](MPSNNImageNode *x) { return [MPSCNNNeuronReLUNNode nodeWithSource:x]; }),
      neuron_row("Absolute", neuron(MPSCNNNeuronTypeAbsolute),
                 [](MPSNNImageNode *x) { return [MPSCNNNeuronAbsoluteNode nodeWithSource:x]; }),
      neuron_row("ELU", neuron(MPSCNNNeuronTypeELU, 1),
                 [](MPSNNImageNode *x) { return [MPSCNNNeuronELUNode nodeWithSource:x]; }),
      neuron_row("ELU 2", neuron(MPSCNNNeuronTypeELU, 2),
                 [](MPSNNImageNode *x) { return [MPSCNNNeuronELUNode nodeWithSource:x a:2]; }),
      neuron_row("Exponential", neuron(MPSCNNNeuronTypeExponential, 1, 0, -1),
                 [](MPSNNImageNode *x) { return [MPSCNNNeuronExponentialNode nodeWithSource:x]; }),
      neuron_row("GeLU", neuron(MPSCNNNeuronTypeGeLU),
                 [](MPSNNImageNode *x) { return [MPSCNNNeuronGeLUNode nodeWithSource:x]; }),
      neuron_row("HardSigmoid", neuron(MPSCNNNeuronTypeHardSigmoid, 0.2f, 0.5f),
                 [](MPSNNImageNode *x) { return [MPSCNNNeuronHardSigmoidNode nodeWithSource:x]; }),
      neuron_row("Linear", neuron(MPSCNNNeuronTypeLinear, 3, -1),
                 [](MPSNNImageNode *x) { return [MPSCNNNeuronLinearNode nodeWithSource:x a:3 b:-1]; }),
      neuron_row("Logarithm", neuron(MPSCNNNeuronTypeLogarithm, 1, 2, -1),
                 [](MPSNNImageNode *x) { return [MPSCNNNeuronLogarithmNode nodeWithSource:x a:1 b:2 c:-1]; }),
      neuron_row("Power", neuron(MPSCNNNeuronTypePower, 1, 2, 3),
                 [](MPSNNImageNode *x) { return [MPSCNNNeuronPowerNode nodeWithSource:x a:1 b:2 c:3]; }),
      neuron_row("Sigmoid", neuron(MPSCNNNeuronTypeSigmoid),
                 [](MPSNNImageNode *x) { return [MPSCNNNeuronSigmoidNode nodeWithSource:x]; }),
      neuron_row("SoftPlus", neuron(MPSCNNNeuronTypeSoftPlus, 1, 1),
                 [](MPSNNImageNode *x) { return [MPSCNNNeuronSoftPlusNode nodeWithSource:x]; }),
      neuron_row("SoftSign", neuron(MPSCNNNeuronTypeSoftSign),
                 [](MPSNNImageNode *x) { return [MPSCNNNeuronSoftSignNode nodeWithSource:x]; }),
      neuron_row("TanH", neuron(MPSCNNNeuronTypeTanH, 2, 0.5f),
                 [](MPSNNImageNode *x) { return [MPSCNNNeuronTanHNode nodeWithSource:x a:2 b:0.5f]; }),
      neuron_row("by descriptor", neuron(MPSCNNNeuronTypeTanH, 1, 1),
                 [](MPSNNImageNode *x) {
                   return [MPSCNNNeuronNode nodeWithSource:x descriptor:neuron(MPSCNNNeuronTypeTanH, 1, 1)];
                 }),
      neuron_row("PReLU",
                 [MPSNNNeuronDescriptor cnnNeuronPReLUDescriptorWithData:[NSMutableData dataWithLength:32]
                                                                  noCopy:false],
                 [](MPSNNImageNode *x) {
                   return [MPSCNNNeuronPReLUNode nodeWithSource:x aData:[NSMutableData dataWithLength:32]];
                 }),
  };
}

template <class Kernel>
Kernel *pooling(NSUInteger kernel, NSUInteger stride) {
  Kernel *made = [[[Kernel alloc] initWithDevice:device
                                     kernelWidth:kernel
                                    kernelHeight:kernel
                                 strideInPixelsX:stride
                                 strideInPixelsY:stride] autorelease];
  if ([made isKindOfClass:[MPSCNNPooling class]]) [(MPSCNNPooling *)made setEdgeMode:MPSImageEdgeModeClamp];
  return made;
}

MPSKernel *dilated(Class kernel) {
  MPSCNNDilatedPoolingMax *made = [[(MPSCNNDilatedPoolingMax *)[kernel alloc] initWithDevice:device
                                                                                 kernelWidth:3
                                                                                kernelHeight:3
                                                                               dilationRateX:2
                                                                               dilationRateY:2
                                                                             strideInPixelsX:1
                                                                             strideInPixelsY:1] autorelease];
  if ([made isKindOfClass:[MPSCNNPooling class]]) [made setEdgeMode:MPSImageEdgeModeClamp];
  return made;
}

template <class Kernel>
Kernel *with_alpha(Kernel *kernel) {
  [kernel setAlpha:0.5f];
  [kernel setBeta:0.75f];
  return [kernel autorelease];
}
template <class Node>
Node *node_with_alpha(Node *node) {
  [node setAlpha:0.5f];
  [node setBeta:0.75f];
  return node;
}
template <class Kernel>
Kernel *local_contrast() {
  Kernel *kernel = with_alpha([[Kernel alloc] initWithDevice:device kernelWidth:3 kernelHeight:3]);
  [kernel setP0:0.5f];
  [kernel setPm:0.25f];
  [kernel setPs:2];
  return kernel;
}
template <class Kernel>
Kernel *upsampling() {
  return [[[Kernel alloc] initWithDevice:device integerScaleFactorX:2 integerScaleFactorY:3] autorelease];
}
template <class Kernel>
Kernel *dropout() {
  return [[[Kernel alloc] initWithDevice:device keepProbability:0.75f seed:7
                      maskStrideInPixels:MTLSizeMake(1, 1, 1)] autorelease];
}

MPSNNPad *pad() {
  MPSNNPad *kernel = [[[MPSNNPad alloc] initWithDevice:device
                                     paddingSizeBefore:MPSImageCoordinate{1, 2, 4}
                                      paddingSizeAfter:MPSImageCoordinate{2, 0, 0}] autorelease];
  [kernel setEdgeMode:MPSImageEdgeModeClamp];
  return kernel;
}

std::vector<UnaryRow> filter_rows() {
  return {
      {"max pooling", [](MPSNNImageNode *x) { return [MPSCNNPoolingMaxNode nodeWithSource:x filterSize:3 stride:2]; },
       [] { return pooling<MPSCNNPoolingMax>(3, 2); }, [] { return pooling<MPSCNNPoolingMaxGradient>(3, 2); }},
      {"average pooling", [](MPSNNImageNode *x) { return [MPSCNNPoolingAverageNode nodeWithSource:x filterSize:2]; },
       [] { return pooling<MPSCNNPoolingAverage>(2, 2); }, [] { return pooling<MPSCNNPoolingAverageGradient>(2, 2); }},
      {"L2 pooling",
       [](MPSNNImageNode *x) {
         return [[[MPSCNNPoolingL2NormNode alloc] initWithSource:x
                                                     kernelWidth:3
                                                    kernelHeight:3
                                                 strideInPixelsX:1
                                                 strideInPixelsY:1] autorelease];
       },
       [] { return pooling<MPSCNNPoolingL2Norm>(3, 1); }, [] { return pooling<MPSCNNPoolingL2NormGradient>(3, 1); }},
      {"dilated pooling",
       [](MPSNNImageNode *x) {
         return [MPSCNNDilatedPoolingMaxNode nodeWithSource:x filterSize:3 stride:1 dilationRate:2];
       },
       [] { return dilated([MPSCNNDilatedPoolingMax class]); },
       [] { return dilated([MPSCNNDilatedPoolingMaxGradient class]); }},
      {"cross-channel normalization",
       [](MPSNNImageNode *x) {
         return node_with_alpha([MPSCNNCrossChannelNormalizationNode nodeWithSource:x kernelSize:3]);
       },
       [] { return with_alpha([[MPSCNNCrossChannelNormalization alloc] initWithDevice:device kernelSize:3]); },
       [] { return with_alpha([[MPSCNNCrossChannelNormalizationGradient alloc] initWithDevice:device kernelSize:3]); }},
      {"cross-channel normalization, default",
       [](MPSNNImageNode *x) { return [MPSCNNCrossChannelNormalizationNode nodeWithSource:x]; },
       [] { return [[[MPSCNNCrossChannelNormalization alloc] initWithDevice:device kernelSize:5] autorelease]; }},
      {"spatial normalization",
       [](MPSNNImageNode *x) {
         return node_with_alpha([MPSCNNSpatialNormalizationNode nodeWithSource:x kernelSize:3]);
       },
       [] {
         return with_alpha([[MPSCNNSpatialNormalization alloc] initWithDevice:device kernelWidth:3 kernelHeight:3]);
       },
       [] {
         return with_alpha([[MPSCNNSpatialNormalizationGradient alloc] initWithDevice:device
                                                                          kernelWidth:3
                                                                         kernelHeight:3]);
       }},
      {"local contrast normalization",
       [](MPSNNImageNode *x) {
         auto *node = node_with_alpha([MPSCNNLocalContrastNormalizationNode nodeWithSource:x kernelSize:3]);
         [node setP0:0.5f];
         [node setPm:0.25f];
         [node setPs:2];
         return node;
       },
       [] { return local_contrast<MPSCNNLocalContrastNormalization>(); },
       [] { return local_contrast<MPSCNNLocalContrastNormalizationGradient>(); }},
      {"soft max", [](MPSNNImageNode *x) { return [MPSCNNSoftMaxNode nodeWithSource:x]; },
       [] { return plain<MPSCNNSoftMax>([MPSCNNSoftMax class]); },
       [] { return plain<MPSKernel>([MPSCNNSoftMaxGradient class]); }, 3, 2, 10, true},
      {"log soft max", [](MPSNNImageNode *x) { return [MPSCNNLogSoftMaxNode nodeWithSource:x]; },
       [] { return plain<MPSKernel>([MPSCNNLogSoftMax class]); },
       [] { return plain<MPSKernel>([MPSCNNLogSoftMaxGradient class]); }, 3, 2, 10, true},
      {"nearest upsampling",
       [](MPSNNImageNode *x) {
         return [MPSCNNUpsamplingNearestNode nodeWithSource:x integerScaleFactorX:2 integerScaleFactorY:3];
       },
       [] { return upsampling<MPSCNNUpsamplingNearest>(); },
       [] { return upsampling<MPSCNNUpsamplingNearestGradient>(); }},
      {"bilinear upsampling",
       [](MPSNNImageNode *x) {
         return [MPSCNNUpsamplingBilinearNode nodeWithSource:x integerScaleFactorX:2 integerScaleFactorY:3];
       },
       [] { return upsampling<MPSCNNUpsamplingBilinear>(); },
       [] { return upsampling<MPSCNNUpsamplingBilinearGradient>(); }},
      {"dropout",
       [](MPSNNImageNode *x) {
         return [MPSCNNDropoutNode nodeWithSource:x
                                  keepProbability:0.75f
                                             seed:7
                               maskStrideInPixels:MTLSizeMake(1, 1, 1)];
       },
       [] { return dropout<MPSCNNDropout>(); }, [] { return dropout<MPSCNNDropoutGradient>(); }},
      {"pad",
       [](MPSNNImageNode *x) {
         return [MPSNNPadNode nodeWithSource:x
                           paddingSizeBefore:MPSImageCoordinate{1, 2, 4}
                            paddingSizeAfter:MPSImageCoordinate{2, 0, 0}
                                    edgeMode:MPSImageEdgeModeClamp];
       },
       [] { return pad(); }, [] { return plain<MPSKernel>([MPSNNPadGradient class]); }},
      {"initial gradient", [](MPSNNImageNode *x) { return [MPSNNInitialGradientNode nodeWithSource:x]; },
       [] { return plain<MPSKernel>([MPSNNInitialGradient class]); }},
  };
}

#define REDUCTION(NAME)                                                                                 \
  {"reduction " #NAME, [](MPSNNImageNode *x) { return [MPSNNReduction##NAME##Node nodeWithSource:x]; }, \
   [] { return plain<MPSKernel>([MPSNNReduce##NAME class]); }}

std::vector<UnaryRow> reduction_rows() {
  return {REDUCTION(ColumnMax),
          REDUCTION(ColumnMean),
          REDUCTION(ColumnMin),
          REDUCTION(ColumnSum),
          REDUCTION(FeatureChannelsArgumentMax),
          REDUCTION(FeatureChannelsArgumentMin),
          REDUCTION(FeatureChannelsMax),
          REDUCTION(FeatureChannelsMean),
          REDUCTION(FeatureChannelsMin),
          REDUCTION(FeatureChannelsSum),
          REDUCTION(RowMax),
          REDUCTION(RowMean),
          REDUCTION(RowMin),
          REDUCTION(RowSum),
          {"a sum with a weight and a rectangle",
           [](MPSNNImageNode *x) {
             MPSNNReductionFeatureChannelsSumNode *node = [MPSNNReductionFeatureChannelsSumNode nodeWithSource:x];
             [node setWeight:0.5f];
             [node setClipRectSource:MTLRegionMake3D(1, 2, 0, 3, 4, 1)];
             return node;
           },
           [] {
             auto *kernel = plain<MPSNNReduceFeatureChannelsSum>([MPSNNReduceFeatureChannelsSum class]);
             [kernel setWeight:0.5f];
             [kernel setClipRectSource:MTLRegionMake3D(1, 2, 0, 3, 4, 1)];
             return kernel;
           }}};
}

/// Filters with data sources.
std::vector<UnaryRow> weight_rows() {
  static TestSource *const same = [convolution_source(3, 8, 12, 5) retain];
  static TestSource *const strided = [convolution_source(3, 8, 6, 6, 2) retain];
  static TestSource *const full = [convolution_source(5, 8, 10, 7) retain];
  static TestSource *const bits = [convolution_source(3, 8, 12, 9) retain];
  bits->type = MPSDataTypeUInt32;  // a word for the 8 channels of each tap
  bits->bytes.assign(12 * 3 * 3 * 4, 0x5a);
  static TestSource *const back = [convolution_source(4, 8, 6, 8, 2) retain];
  static FullNormSource *const norm = [[FullNormSource alloc] init];
  norm->channels = 8;
  norm->epsilon_value = 1e-3f;
  for (int i = 0; i < 8; ++i) {
    norm->gammas.push_back(0.5f + static_cast<float>(i) / 8);
    norm->betas.push_back(static_cast<float>(i) / 4);
    norm->means.push_back(static_cast<float>(i - 4) / 16);
    norm->variances.push_back(1 + static_cast<float>(i) / 8);
  }
  static GroupSource *const group = [[GroupSource alloc] init];
  group->channels = 8, group->groups = 2;
  const auto weights = []<class Kernel>(Kernel *, TestSource *source) {
    return [[[Kernel alloc] initWithDevice:device weights:source] autorelease];
  };
  return {
      {"convolution", [](MPSNNImageNode *x) { return [MPSCNNConvolutionNode nodeWithSource:x weights:same]; },
       [=] { return weights((MPSCNNConvolution *)nil, same); },
       [=] { return weights((MPSCNNConvolutionGradient *)nil, same); }},
      {"strided convolution",
       [](MPSNNImageNode *x) { return [MPSCNNConvolutionNode nodeWithSource:x weights:strided]; },
       [=] { return weights((MPSCNNConvolution *)nil, strided); },
       [=] { return weights((MPSCNNConvolutionGradient *)nil, strided); }},
      {"fully connected", [](MPSNNImageNode *x) { return [MPSCNNFullyConnectedNode nodeWithSource:x weights:full]; },
       [=] { return weights((MPSCNNFullyConnected *)nil, full); },
       [=] { return weights((MPSCNNFullyConnectedGradient *)nil, full); }, 5, 5, 8},
      {"transposed convolution",
       [](MPSNNImageNode *x) {
         return [MPSCNNConvolutionTransposeNode nodeWithSource:x convolutionGradientState:nil weights:back];
       },
       [=] { return weights((MPSCNNConvolutionTranspose *)nil, back); },
       [=] { return weights((MPSCNNConvolutionTransposeGradient *)nil, back); }},
      {"binary convolution",
       [](MPSNNImageNode *x) {
         return [MPSCNNBinaryConvolutionNode nodeWithSource:x
                                                    weights:bits
                                                 scaleValue:0.5f
                                                       type:MPSCNNBinaryConvolutionTypeBinaryWeights
                                                      flags:MPSCNNBinaryConvolutionFlagsNone];
       },
       [] {
         return [[[MPSCNNBinaryConvolution alloc] initWithDevice:device
                                                 convolutionData:bits
                                                      scaleValue:0.5f
                                                            type:MPSCNNBinaryConvolutionTypeBinaryWeights
                                                           flags:MPSCNNBinaryConvolutionFlagsNone] autorelease];
       }},
      {"batch normalization",
       [](MPSNNImageNode *x) { return [MPSCNNBatchNormalizationNode nodeWithSource:x dataSource:norm]; },
       [] { return [[[MPSCNNBatchNormalization alloc] initWithDevice:device dataSource:norm] autorelease]; }},
      {"instance normalization",
       [](MPSNNImageNode *x) { return [MPSCNNInstanceNormalizationNode nodeWithSource:x dataSource:norm]; },
       [] { return [[[MPSCNNInstanceNormalization alloc] initWithDevice:device dataSource:norm] autorelease]; },
       [] { return plain<MPSKernel>([MPSCNNInstanceNormalizationGradient class]); }},
      {"group normalization",
       [](MPSNNImageNode *x) { return [MPSCNNGroupNormalizationNode nodeWithSource:x dataSource:group]; },
       [] { return [[[MPSCNNGroupNormalization alloc] initWithDevice:device dataSource:group] autorelease]; },
       [] { return plain<MPSKernel>([MPSCNNGroupNormalizationGradient class]); }},
  };
}

/// Encode forward and, with `g`, backward by hand. Return the last result.
Tensor by_hand(const UnaryRow &row, const Tensor &x, const Tensor *g) {
  auto *kernel = (MPSCNNKernel *)row.kernel();
  id<MTLCommandBuffer> buffer = command_buffer();
  [kernel setDestinationImageAllocator:[MPSImage defaultAllocator]];
  MPSImage *source = make_image(x), *last = nil;
  if (g == nullptr) {
    last = [kernel encodeToCommandBuffer:buffer sourceImage:source];
  } else {
    MPSState *state = nil;
    MPSImage *result = [kernel encodeToCommandBuffer:buffer
                                         sourceImage:source
                                    destinationState:&state
                         destinationStateIsTemporary:NO];
    auto *gradient = (MPSCNNGradientKernel *)row.gradient();
    [gradient setDestinationImageAllocator:[MPSImage defaultAllocator]];
    last = [gradient encodeToCommandBuffer:buffer
                            sourceGradient:make_image(*g)
                               sourceImage:row.reads_result ? result : source
                             gradientState:state];
  }
  [last synchronizeOnCommandBuffer:buffer];
  run(buffer);
  return read_image(last);
}

void check_row(const UnaryRow &row) {
  const Tensor x = Tensor::random(1, row.h, row.w, row.c, 11);
  const Tensor expected = by_hand(row, x, nullptr);
  MPSNNFilterNode *node = row.node(input("x"));
  check_equal(std::string(row.name) + ": forward", run_graph(graph_of([node resultImage]), {{"x", x}}), expected, 0);
  // A batch gives what its images give.
  const Tensor batch = Tensor::random(3, row.h, row.w, row.c, 12);
  const bool counts_images = [node isKindOfClass:[MPSCNNDropoutNode class]];
  if (!counts_images) {
    const Tensor got = run_batch(graph_of([node resultImage]), {{"x", batch}});
    check_equal(std::string(row.name) + ": the last image of a batch", got.image(2),
                by_hand(row, batch.image(2), nullptr), 0);
  }
  if (!row.gradient) return;
  const Tensor g = Tensor::random(1, expected.h, expected.w, expected.c, 13);
  MPSNNGradientFilterNode *gradient = [node gradientFilterWithSource:input("g")];
  check([gradient isKindOfClass:[MPSNNGradientFilterNode class]],
        std::string(row.name) + ": class of the gradient node");
  check_equal(std::string(row.name) + ": gradient", run_graph(graph_of([gradient resultImage]), {{"x", x}, {"g", g}}),
              by_hand(row, x, &g), 0);
}

void test_neurons() {
  for (const UnaryRow &row : neuron_rows()) check_row(row);
}
void test_filters() {
  for (const UnaryRow &row : filter_rows()) check_row(row);
}
void test_reductions() {
  for (const UnaryRow &row : reduction_rows()) check_row(row);
}
void test_weights() {
  for (const UnaryRow &row : weight_rows()) check_row(row);
}

// ------------------------------------------------------------------------------------------------ arithmetic

struct BinaryRow {
  const char *name;
  Class node, kernel, gradient;
};

void set_arithmetic(id object) {
  [object setPrimaryScale:2];
  [object setSecondaryScale:0.5f];
  [object setBias:0.25f];
  [object setMinimumValue:-0.5f];
  [object setMaximumValue:0.75f];
}

void test_arithmetic() {
  const BinaryRow rows[] = {
      {"addition", [MPSNNAdditionNode class], [MPSCNNAdd class], [MPSCNNAddGradient class]},
      {"subtraction", [MPSNNSubtractionNode class], [MPSCNNSubtract class], [MPSCNNSubtractGradient class]},
      {"multiplication", [MPSNNMultiplicationNode class], [MPSCNNMultiply class], [MPSCNNMultiplyGradient class]},
      {"division", [MPSNNDivisionNode class], [MPSCNNDivide class], Nil},
  };
  const Tensor x = Tensor::random(1, 5, 6, 8, 21), g = Tensor::random(1, 5, 6, 8, 23);
  for (const BinaryRow &row : rows) {
    for (const bool repeats : {false, true}) {
      const Tensor y = repeats ? Tensor::random(1, 1, 1, 8, 22) : Tensor::random(1, 5, 6, 8, 22);
      MPSNNBinaryArithmeticNode *node = [(Class)row.node nodeWithLeftSource:input("x") rightSource:input("y")];
      set_arithmetic(node);
      MPSCNNArithmetic *kernel = [[(MPSCNNAdd *)[row.kernel alloc] initWithDevice:device] autorelease];
      set_arithmetic(kernel);
      if (repeats) {
        for (id object in [NSArray arrayWithObjects:node, kernel, nil]) {
          [object setSecondaryStrideInPixelsX:0];
          [object setSecondaryStrideInPixelsY:0];
        }
      }
      [kernel setDestinationImageAllocator:[MPSImage defaultAllocator]];
      id<MTLCommandBuffer> buffer = command_buffer();
      MPSState *state = nil;
      MPSImage *const images[] = {make_image(x), make_image(y)};
      MPSImage *result = [kernel encodeToCommandBuffer:buffer
                                          primaryImage:images[0]
                                        secondaryImage:images[1]
                                      destinationState:&state
                           destinationStateIsTemporary:NO];
      std::vector<MPSImage *> gradients;
      for (NSUInteger i = 0; i < 2 && row.gradient != Nil; ++i) {
        MPSCNNAddGradient *gradient = [[(MPSCNNAddGradient *)[row.gradient alloc] initWithDevice:device
                                                                         isSecondarySourceFilter:i == 1] autorelease];
        set_arithmetic(gradient);
        [gradient setDestinationImageAllocator:[MPSImage defaultAllocator]];
        const bool is_product = row.gradient == [MPSCNNMultiplyGradient class];
        gradients.push_back([gradient encodeToCommandBuffer:buffer
                                             sourceGradient:make_image(g)
                                                sourceImage:images[is_product ? 1 - i : i]
                                              gradientState:state]);
      }
      run(buffer);
      const std::string name = std::string(row.name) + (repeats ? " with one pixel" : "");
      check_equal(name, run_graph(graph_of([node resultImage]), {{"x", x}, {"y", y}}), read_image(result), 0);
      if (row.gradient == Nil) {
        check([node gradientClass] == Nil, name + ": no gradient class");
        check_raises(name + ": no gradient", kArgument, "has no gradient node",
                     [&] { [node gradientFiltersWithSource:input("g")]; });
        continue;
      }
      NSArray *nodes = [node gradientFiltersWithSources:[NSArray arrayWithObject:input("g")]];
      check([nodes count] == 2 && [[nodes objectAtIndex:1] isKindOfClass:[node gradientClass]],
            name + ": two gradients");
      check_raises(name + ": one gradient", kArgument, "there are 2 gradient nodes",
                   [&] { [(MPSNNFilterNode *)node gradientFilterWithSource:input("g")]; });
      for (NSUInteger i = 0; i < 2; ++i) {
        MPSNNArithmeticGradientNode *gradient = [nodes objectAtIndex:i];
        check([gradient isSecondarySourceFilter] == (i == 1), name + ": isSecondarySourceFilter");
        const Tensor got = run_graph(graph_of([gradient resultImage]), {{"x", x}, {"y", y}, {"g", g}});
        check_equal(name + ": gradient " + std::to_string(i), got, read_image(gradients[i]), 0);
        MPSNNArithmeticGradientNode *manual =
            [[[(Class)[node gradientClass] alloc] initWithGradientImages:[NSArray arrayWithObject:input("g")]
                                                           forwardFilter:node
                                                 isSecondarySourceFilter:i == 1] autorelease];
        check_equal(name + ": gradient by hand",
                    run_graph(graph_of([manual resultImage]), {{"x", x}, {"y", y}, {"g", g}}), got, 0);
      }
    }
  }
}

// --------------------------------------------------------------------------------------------- concatenation

Tensor concatenated(const std::vector<Tensor> &parts) {
  long channels = 0;
  for (const Tensor &part : parts) channels += (part.c + 3) / 4 * 4;
  Tensor all(parts[0].n, parts[0].h, parts[0].w, channels);
  long first = 0;
  for (const Tensor &part : parts) {
    // Measured on a Mac: the fourth lane of one and two channels is 1.
    if (part.c % 4 == 1 || part.c % 4 == 2)
      if (part.c < 3)
        for (long i = 0; i < part.n; ++i)
          for (long y = 0; y < part.h; ++y)
            for (long x = 0; x < part.w; ++x) all.at(i, y, x, first + 3) = 1;
    paste(all, part, 0, 0, 0, first);
    first += (part.c + 3) / 4 * 4;
  }
  return all;
}

void test_concatenation() {
  const long sizes[][3] = {{1, 1, 4}, {2, 2, 4}, {4, 4, 8}, {1, 4, 3}, {3, 1, 2}, {7, 11, 64}, {5, 6, 9}};
  for (const auto &size : sizes) {
    const std::vector<Tensor> parts = {Tensor::random(2, 5, 3, size[0], 31), Tensor::random(2, 5, 3, size[1], 32),
                                       Tensor::random(2, 5, 3, size[2], 33)};
    const std::string name = "concatenation of " + std::to_string(size[0]) + ", " + std::to_string(size[1]) + " and " +
                             std::to_string(size[2]) + " channels";
    MPSNNConcatenationNode *node =
        [MPSNNConcatenationNode nodeWithSources:[NSArray arrayWithObjects:input("a"), input("b"), input("c"), nil]];
    const Inputs inputs = {{"a", parts[0]}, {"b", parts[1]}, {"c", parts[2]}};
    const Tensor expected = concatenated(parts);
    check_equal(name, run_graph(graph_of([node resultImage]), inputs), expected, 0);
    check_equal(name + ", a batch", run_batch(graph_of([node resultImage]), inputs), expected, 0);
    const Tensor g = Tensor::random(2, 5, 3, expected.c, 34);
    Inputs with_gradient = inputs;
    with_gradient["g"] = g;
    NSArray *gradients = [node gradientFiltersWithSource:input("g")];
    check([gradients count] == 3, name + ": three gradients");
    long first = 0;
    for (NSUInteger i = 0; i < 3; ++i) {
      MPSNNGraph *graph = graph_of([[gradients objectAtIndex:i] resultImage]);
      check_equal(name + ": gradient", run_batch(graph, with_gradient), g.channels(first, parts[i].c), 0);
      first += (parts[i].c + 3) / 4 * 4;
    }
  }
  MPSNNImageNode *x = input("x");
  MPSNNConcatenationNode *twice = [MPSNNConcatenationNode nodeWithSources:[NSArray arrayWithObjects:x, x, nil]];
  const Tensor value = Tensor::random(1, 2, 2, 4, 35);
  MPSNNGraph *graph = graph_of([twice resultImage]);
  check([graph readCountForSourceImageAtIndex:0] == 2, "an image that is concatenated twice is read twice");
  check_equal("an image twice", run_graph(graph, {{"x", value}}), concatenated({value, value}), 0);
  MPSNNConcatenationNode *different =
      [MPSNNConcatenationNode nodeWithSources:[NSArray arrayWithObjects:input("a"), input("b"), nil]];
  check_raises("sources of different sizes", kArgument, "source 1 has 3 x 2 pixels", [&] {
    run_graph(graph_of([different resultImage]), {{"a", Tensor(1, 2, 2, 4)}, {"b", Tensor(1, 2, 3, 4)}});
  });
}

// --------------------------------------------------------------------------------- shapes that the nodes choose

void test_shapes() {
  const Tensor x = Tensor::random(1, 4, 6, 8, 41), g = Tensor::random(1, 1, 3, 64, 42);
  MPSNNReshapeNode *reshape = [MPSNNReshapeNode nodeWithSource:input("x")
                                                   resultWidth:3
                                                  resultHeight:1
                                         resultFeatureChannels:64];
  Tensor expected(1, 1, 3, 64);
  expected.values = x.values;
  check_equal("reshape", run_graph(graph_of([reshape resultImage]), {{"x", x}}), expected, 0);
  Tensor back(1, 4, 6, 8);
  back.values = g.values;
  check_equal("reshape: gradient",
              run_graph(graph_of([[reshape gradientFilterWithSource:input("g")] resultImage]), {{"x", x}, {"g", g}}),
              back, 0);
  check_raises("a reshape to other values", kArgument, "192 values", [&] {
    MPSNNReshapeNode *wrong = [MPSNNReshapeNode nodeWithSource:input("x")
                                                   resultWidth:2
                                                  resultHeight:1
                                         resultFeatureChannels:64];
    run_graph(graph_of([wrong resultImage]), {{"x", x}});
  });

  for (const bool clips : {false, true}) {
    MPSNNReductionSpatialMeanNode *mean = [MPSNNReductionSpatialMeanNode nodeWithSource:input("x")];
    const long top = clips ? 1 : 0, left = clips ? 2 : 0, height = clips ? 2 : 4, width = clips ? 3 : 6;
    if (clips) [mean setClipRectSource:MTLRegionMake3D(2, 1, 0, 3, 2, 1)];
    Tensor means(1, 1, 1, 8), spread(1, 4, 6, 8);
    const Tensor incoming = Tensor::random(1, 1, 1, 8, 43);
    for (long k = 0; k < 8; ++k)
      for (long y = top; y < top + height; ++y)
        for (long i = left; i < left + width; ++i) {
          means.at(0, 0, 0, k) += x.at(0, y, i, k) / static_cast<double>(height * width);
          spread.at(0, y, i, k) = incoming.at(0, 0, 0, k) / static_cast<double>(height * width);
        }
    MPSNNGraph *graph = graph_of([mean resultImage]);
    check_equal("spatial mean", run_graph(graph, {{"x", x}}), means, 1e-6);
    MPSNNGraph *gradient = graph_of([[mean gradientFilterWithSource:input("g")] resultImage]);
    check_equal("spatial mean: gradient", run_graph(gradient, {{"x", x}, {"g", incoming}}), spread, 1e-6);
  }
  // The same graph takes sources of any size.
  MPSNNGraph *graph = graph_of([[MPSNNReductionSpatialMeanNode nodeWithSource:input("x")] resultImage]);
  for (const long size : {1L, 7L, 3L})
    check_equal("spatial mean of ones", run_graph(graph, {{"x", Tensor(1, size, 7, 4, 1)}}), Tensor(1, 1, 1, 4, 1),
                1e-6);
}

void test_scale() {
  const Tensor x = Tensor::random(1, 9, 7, 3, 51);
  const std::pair<Class, Class> rows[] = {{[MPSNNLanczosScaleNode class], [MPSImageLanczosScale class]},
                                          {[MPSNNBilinearScaleNode class], [MPSImageBilinearScale class]}};
  for (const auto &[node_class, kernel_class] : rows) {
    MPSNNScaleNode *node = [(Class)node_class nodeWithSource:input("x") outputSize:MTLSizeMake(12, 5, 1)];
    MPSImageScale *kernel = plain<MPSImageLanczosScale>(kernel_class);
    MPSImage *scaled = make_nan_image(1, 5, 12, 3);
    id<MTLCommandBuffer> buffer = command_buffer();
    [kernel encodeToCommandBuffer:buffer sourceImage:make_image(x) destinationImage:scaled];
    run(buffer);
    check_equal("scale", run_graph(graph_of([node resultImage]), {{"x", x}}), read_image(scaled), 0);
    check_equal("scale of a batch", run_batch(graph_of([node resultImage]), {{"x", x}}), read_image(scaled), 0);
    TestTransform *provider = [[[TestTransform alloc] init] autorelease];
    MPSNNScaleNode *moved = [(Class)node_class nodeWithSource:input("x")
                                            transformProvider:provider
                                                   outputSize:MTLSizeMake(12, 5, 1)];
    const MPSScaleTransform transform = {1, 1, 1, 2};
    [kernel setScaleTransform:&transform];
    buffer = command_buffer();
    [kernel encodeToCommandBuffer:buffer sourceImage:make_image(x) destinationImage:scaled];
    run(buffer);
    check_equal("scale by a transform", run_graph(graph_of([moved resultImage]), {{"x", x}}), read_image(scaled), 0);
    check(provider->calls == 1, "the provider is asked for each image");
  }
}

void test_comparison_and_gram() {
  const Tensor x = Tensor::random(1, 5, 6, 8, 52);
  Tensor y = x;
  for (std::size_t i = 0; i < y.values.size(); i += 3) y.values[i] += 1;
  for (const auto type : {MPSNNComparisonTypeEqual, MPSNNComparisonTypeLess}) {
    MPSNNComparisonNode *node = [MPSNNComparisonNode nodeWithLeftSource:input("x") rightSource:input("y")];
    [node setComparisonType:type];
    Tensor expected = x;
    for (std::size_t i = 0; i < y.values.size(); ++i)
      expected.values[i] = (x.values[i] < y.values[i]) == (type == MPSNNComparisonTypeLess);
    check_equal("comparison", run_graph(graph_of([node resultImage]), {{"x", x}, {"y", y}}), expected, 0);
  }
  const UnaryRow gram = {
      "Gram matrix",
      [](MPSNNImageNode *source) { return [MPSNNGramMatrixCalculationNode nodeWithSource:source alpha:0.5f]; },
      [] { return [[[MPSNNGramMatrixCalculation alloc] initWithDevice:device alpha:0.5f] autorelease]; },
      [] { return [[[MPSNNGramMatrixCalculationGradient alloc] initWithDevice:device alpha:0.5f] autorelease]; }};
  check_row(gram);
  MPSNNGramMatrixCalculationNode *node = [MPSNNGramMatrixCalculationNode nodeWithSource:input("x")];
  check([node alpha] == 1, "default alpha");
  TestTransform *callback = [[[TestTransform alloc] init] autorelease];
  [node setPropertyCallBack:callback];
  check_equal("a Gram matrix whose alpha a callback gives", run_graph(graph_of([node resultImage]), {{"x", x}}),
              by_hand(gram, x, nullptr), 0);
  check(callback->calls == 1, "the callback is called for each encode");
}

void test_properties() {
  MPSNNImageNode *x = input("x");
  MPSCNNPoolingMaxNode *pooling_node = [MPSCNNPoolingMaxNode nodeWithSource:x filterSize:3];
  check([pooling_node kernelWidth] == 3 && [pooling_node strideInPixelsY] == 3,
        "the stride of a filterSize is the size");
  MPSCNNDilatedPoolingMaxNode *dilated_node = [MPSCNNDilatedPoolingMaxNode nodeWithSource:x filterSize:2];
  check([dilated_node dilationRateX] == 2 && [dilated_node dilationRateY] == 2, "dilation of a filterSize");
  MPSCNNNeuronReLUNNode *relu = [MPSCNNNeuronReLUNNode nodeWithSource:x];
  check([relu a] == 1 && [relu b] == 6 && [relu c] == 0, "defaults of ReLUN");
  MPSCNNLocalContrastNormalizationNode *contrast = [MPSCNNLocalContrastNormalizationNode nodeWithSource:x];
  check([contrast alpha] == 1 && [contrast beta] == 0.5f && [contrast delta] == 1.0f / 1024 && [contrast p0] == 1 &&
            [contrast pm] == 0 && [contrast ps] == 1 && [contrast kernelWidth] == 5,
        "defaults of local contrast normalization");
  MPSCNNSpatialNormalizationNode *spatial = [MPSCNNSpatialNormalizationNode nodeWithSource:x kernelSize:7];
  check([spatial alpha] == 1 && [spatial beta] == 5 && [spatial delta] == 1 && [spatial kernelHeight] == 7,
        "defaults of spatial normalization");
  MPSCNNUpsamplingBilinearNode *bilinear = [MPSCNNUpsamplingBilinearNode nodeWithSource:x
                                                                    integerScaleFactorX:2
                                                                    integerScaleFactorY:3
                                                                           alignCorners:YES];
  check([bilinear scaleFactorX] == 2 && [bilinear scaleFactorY] == 3 && [bilinear alignCorners], "scale factors");
  MPSCNNDropoutNode *drop = [MPSCNNDropoutNode nodeWithSource:x];
  check([drop keepProbability] == 0.5f && [drop seed] == 0 && [drop maskStrideInPixels].depth == 1,
        "defaults of dropout");
  MPSCNNNeuronExponentialNode *exponential = [MPSCNNNeuronExponentialNode nodeWithSource:x];
  check([exponential a] == 1 && [exponential b] == 0 && [exponential c] == -1, "defaults of the exponential");
  MPSCNNNeuronPowerNode *power = [MPSCNNNeuronPowerNode nodeWithSource:x];
  check([power a] == 1 && [power b] == 0 && [power c] == 1, "defaults of the power");
  MPSNNAdditionNode *addition = [MPSNNAdditionNode nodeWithLeftSource:x rightSource:x];
  check([addition primaryScale] == 1 && [addition bias] == 0 && [addition minimumValue] == -FLT_MAX &&
            [addition secondaryStrideInFeatureChannels] == 1,
        "defaults of arithmetic");
  check([[addition resultState] isKindOfClass:[MPSNNArithmeticGradientStateNode class]] &&
            [[addition resultStates] count] == 1,
        "state of arithmetic");
  check([[addition resultImage] format] == MPSImageFeatureChannelFormatFloat32, "a result has its source's format");
  TestSource *weights = convolution_source(3, 4, 4, 1);
  MPSCNNConvolutionNode *convolution = [MPSCNNConvolutionNode nodeWithSource:x weights:weights];
  check([convolution trainingStyle] == MPSNNTrainingStyleUpdateDeviceGPU &&
            [convolution accumulatorPrecision] == MPSNNConvolutionAccumulatorPrecisionOptionFloat,
        "defaults of a convolution node");
  [convolution setTrainingStyle:MPSNNTrainingStyleUpdateDeviceNone];
  MPSCNNConvolutionGradientNode *gradient =
      (MPSCNNConvolutionGradientNode *)[convolution gradientFilterWithSource:input("g")];
  check([gradient trainingStyle] == MPSNNTrainingStyleUpdateDeviceNone, "a gradient node has the forward node's style");
  check([[convolution convolutionGradientState] isKindOfClass:[MPSCNNConvolutionGradientStateNode class]],
        "convolutionGradientState");
  check([[convolution paddingPolicy] paddingMethod] ==
            (MPSNNPaddingMethodSizeSame | MPSNNPaddingMethodAlignCentered | MPSNNPaddingMethodAddRemainderToTopLeft),
        "the default policy");
  MPSCNNFullyConnectedNode *full = [MPSCNNFullyConnectedNode nodeWithSource:x weights:weights];
  check([[full paddingPolicy] paddingMethod] == MPSNNPaddingMethodSizeValidOnly, "policy of fully connected nodes");
  [full setLabel:@"head"];
  check([[full label] isEqual:@"head"] && [[full description] rangeOfString:@"head"].location != NSNotFound, "label");
  MPSCNNLossNode *loss =
      [MPSCNNLossNode nodeWithSource:x
                      lossDescriptor:[MPSCNNLossDescriptor cnnLossDescriptorWithType:MPSCNNLossTypeSoftMaxCrossEntropy
                                                                       reductionType:MPSCNNReductionTypeSum]];
  check([[loss inputLabels] isKindOfClass:[MPSNNLabelsNode class]] && [loss resultState] == nil, "labels of a loss");
  MPSNNImageNode *exported = [MPSNNImageNode exportedNodeWithHandle:nil];
  check([exported exportFromGraph] && ![exported stopGradient] && ![exported synchronizeResource] &&
            [exported format] == MPSImageFeatureChannelFormatNone,
        "an exported node");
}

void test_refusals() {
  MPSNNImageNode *x = input("x");
  check_raises("a nil source", kArgument, "source 0 is nil", [] { [MPSCNNSoftMaxNode nodeWithSource:nil]; });
  check_raises("a nil right source", kArgument, "source 1 is nil",
               [&] { [MPSNNAdditionNode nodeWithLeftSource:x rightSource:nil]; });
  check_raises("one source of two", kArgument, "expected 2",
               [&] { [MPSNNAdditionNode nodeWithSources:[NSArray arrayWithObject:x]]; });
  check_raises("no sources", kArgument, "There are no sources",
               [] { [MPSNNConcatenationNode nodeWithSources:[NSArray array]]; });
  check_raises("a base class", kArgument, "base of a family",
               [&] { [MPSCNNPoolingNode nodeWithSource:x filterSize:2]; });
  check_raises("no weights", kArgument, "weights is nil",
               [&] { [MPSCNNConvolutionNode nodeWithSource:x weights:nil]; });
  check_raises("no data source", kArgument, "dataSource is nil",
               [&] { [MPSCNNBatchNormalizationNode nodeWithSource:x dataSource:nil]; });
  check_raises("no loss descriptor", kArgument, "lossDescriptor is nil",
               [&] { [MPSCNNLossNode nodeWithSource:x lossDescriptor:nil]; });
  check_raises("no descriptor of a neuron", kArgument, "descriptor is nil",
               [&] { [MPSCNNNeuronNode nodeWithSource:x descriptor:nil]; });
  check_raises("an output of no pixels", kArgument, "outputSize (0 x 4",
               [&] { [MPSNNLanczosScaleNode nodeWithSource:x outputSize:MTLSizeMake(0, 4, 1)]; });
  check_raises("a gradient without a state", kArgument, "is not the resultState",
               [&] { [MPSCNNSoftMaxGradientNode nodeWithSourceGradient:x sourceImage:x gradientState:nil]; });
  MPSCNNPoolingMaxNode *pooling_node = [MPSCNNPoolingMaxNode nodeWithSource:x filterSize:2];
  check_raises("the state of another filter", kArgument, "no MPSCNNConvolutionNode", [&] {
    [MPSCNNConvolutionGradientNode
          nodeWithSourceGradient:x
                     sourceImage:x
        convolutionGradientState:(MPSCNNConvolutionGradientStateNode *)[pooling_node resultState]
                         weights:nil];
  });
  check_raises("a gradient of a loss", kArgument, "resultImage is the gradient", [&] {
    MPSCNNLossNode *loss =
        [MPSCNNLossNode nodeWithSource:x
                        lossDescriptor:[MPSCNNLossDescriptor cnnLossDescriptorWithType:MPSCNNLossTypeMeanSquaredError
                                                                         reductionType:MPSCNNReductionTypeSum]];
    [(MPSNNFilterNode *)loss gradientFilterWithSource:x];
  });
  check_raises("no policy", kArgument, "paddingPolicy is nil", [&] { [pooling_node setPaddingPolicy:nil]; });
  check_raises("a gradient of a gradient", kArgument, "has no gradient node", [&] {
    [(MPSNNFilterNode *)[pooling_node gradientFilterWithSource:input("g")] gradientFilterWithSource:input("h")];
  });
  MPSCNNConvolutionDescriptor *descriptor = descriptor_of(1, 1, 4, 4);
  [descriptor setFusedNeuronDescriptor:neuron(MPSCNNNeuronTypeReLU)];
  MPSCNNConvolutionNode *fused =
      [MPSCNNConvolutionNode nodeWithSource:x weights:make_source(descriptor, random_values(16, 1), {})];
  check_raises("a gradient of a fused neuron", kArgument, "node of its own",
               [&] { [fused gradientFilterWithSource:input("g")]; });
}

}  // namespace

int main() {
  return run_tests({test_neurons, test_filters, test_reductions, test_weights, test_arithmetic, test_concatenation,
                    test_shapes, test_scale, test_comparison_and_gram, test_properties, test_refusals});
}
