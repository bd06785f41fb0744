// SPDX-License-Identifier: Apache-2.0
// Filters of one kernel: neurons, pooling, normalization over a window, soft max, upsampling, dropout, reductions,
// pad, reshape [MPSNNGraphNodes.h]. A family is a struct; a class is a row with the kernels and the gradient node.

#import "mps/MPSNNGraphNodes+Engine.hh"

using openmps::init_gradient_node;
using openmps::init_node;

// -------------------------------------------------------------------------------------------------- neurons

namespace openmps {
namespace {

struct NeuronNode : NodeOf<NeuronNode, KernelNode> {
  Ref<MPSNNNeuronDescriptor *> descriptor;

  MPSKernel *new_kernel(id<MTLDevice> device) const override {
    if (is_gradient) return [[MPSCNNNeuronGradient alloc] initWithDevice:device neuronDescriptor:descriptor.get()];
    return [[MPSCNNNeuron alloc] initWithDevice:device neuronDescriptor:descriptor.get()];
  }
  /// The slopes of PReLU belong to channels of the source, which another kernel may order differently.
  MPSNNNeuronDescriptor *activation() const override {
    return is_gradient || [descriptor.get() neuronType] == MPSCNNNeuronTypePReLU ? nil : descriptor.get();
  }
};

NeuronNode neuron_node(MPSNNFilterNode *node, MPSNNNeuronDescriptor *descriptor) {
  if (descriptor == nil) {
    const UnwindRelease unwind(node);
    raise_argument(@"%@: descriptor is nil.", [node class]);
  }
  NeuronNode data;
  data.descriptor = Ref<MPSNNNeuronDescriptor *>::adopt([descriptor copy]);
  return data;
}

id init_neuron_node(MPSNNFilterNode *node, MPSNNImageNode *source, MPSCNNNeuronType type, float a, float b, float c) {
  MPSNNNeuronDescriptor *descriptor = [MPSNNNeuronDescriptor cnnNeuronDescriptorWithType:type a:a b:b c:c];
  return init_node(node, neuron_node(node, descriptor), {source});
}

}  // namespace
}  // namespace openmps

using openmps::NeuronNode;

@implementation MPSCNNNeuronNode

OPENMPS_NODE_CLASSES([MPSCNNNeuron class], [MPSCNNNeuronGradient class], [MPSCNNNeuronGradientNode class])

- (instancetype)init {
  return [super init];
}

+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode descriptor:(MPSNNNeuronDescriptor *)descriptor {
  MPSCNNNeuronNode *node = [self alloc];
  return [init_node(node, openmps::neuron_node(node, descriptor), {sourceNode}) autorelease];
}

OPENMPS_NODE_GETTER(NeuronNode, float, a, descriptor.get().a)
OPENMPS_NODE_GETTER(NeuronNode, float, b, descriptor.get().b)
OPENMPS_NODE_GETTER(NeuronNode, float, c, descriptor.get().c)

@end

/// Rows: a class, its function, the defaults of a, b and c, and further initialisers.
#define OPENMPS_NEURON_NODE(NAME, TYPE, A, B, C, ...)                               \
  @implementation NAME                                                              \
  OPENMPS_NODE_INIT(Source : (MPSNNImageNode *)source, Source : source,             \
                    return openmps::init_neuron_node(self, source, TYPE, A, B, C);) \
  __VA_ARGS__                                                                       \
  @end
#define OPENMPS_WITH_A(TYPE)                                                               \
  OPENMPS_NODE_INIT(Source : (MPSNNImageNode *)source a : (float)a, Source : source a : a, \
                    return openmps::init_neuron_node(self, source, TYPE, a, 0, 0);)
#define OPENMPS_WITH_AB(TYPE)                                                                                 \
  OPENMPS_NODE_INIT(Source : (MPSNNImageNode *)source a : (float)a b : (float)b, Source : source a : a b : b, \
                    return openmps::init_neuron_node(self, source, TYPE, a, b, 0);)
#define OPENMPS_WITH_ABC(TYPE)                                                                \
  OPENMPS_NODE_INIT(Source : (MPSNNImageNode *)source a : (float)a b : (float)b c : (float)c, \
                    Source : source a : a b : b c : c, return openmps::init_neuron_node(self, source, TYPE, a, b, c);)

// unverified: the defaults of Power, Exponential and Logarithm; programs expect x, e^x and ln x.
OPENMPS_NEURON_NODE(MPSCNNNeuronAbsoluteNode, MPSCNNNeuronTypeAbsolute, 0, 0, 0)
OPENMPS_NEURON_NODE(MPSCNNNeuronELUNode, MPSCNNNeuronTypeELU, 1, 0, 0, OPENMPS_WITH_A(MPSCNNNeuronTypeELU))
OPENMPS_NEURON_NODE(MPSCNNNeuronExponentialNode, MPSCNNNeuronTypeExponential, 1, 0, -1,
                    OPENMPS_WITH_ABC(MPSCNNNeuronTypeExponential))
OPENMPS_NEURON_NODE(MPSCNNNeuronGeLUNode, MPSCNNNeuronTypeGeLU, 0, 0, 0)
OPENMPS_NEURON_NODE(MPSCNNNeuronHardSigmoidNode, MPSCNNNeuronTypeHardSigmoid, 0.2f, 0.5f, 0,
                    OPENMPS_WITH_AB(MPSCNNNeuronTypeHardSigmoid))
OPENMPS_NEURON_NODE(MPSCNNNeuronLinearNode, MPSCNNNeuronTypeLinear, 1, 0, 0, OPENMPS_WITH_AB(MPSCNNNeuronTypeLinear))
OPENMPS_NEURON_NODE(MPSCNNNeuronLogarithmNode, MPSCNNNeuronTypeLogarithm, 1, 0, -1,
                    OPENMPS_WITH_ABC(MPSCNNNeuronTypeLogarithm))
OPENMPS_NEURON_NODE(MPSCNNNeuronPowerNode, MPSCNNNeuronTypePower, 1, 0, 1, OPENMPS_WITH_ABC(MPSCNNNeuronTypePower))
OPENMPS_NEURON_NODE(MPSCNNNeuronReLUNNode, MPSCNNNeuronTypeReLUN, 1, 6, 0, OPENMPS_WITH_AB(MPSCNNNeuronTypeReLUN))
OPENMPS_NEURON_NODE(MPSCNNNeuronReLUNode, MPSCNNNeuronTypeReLU, 0, 0, 0, OPENMPS_WITH_A(MPSCNNNeuronTypeReLU))
OPENMPS_NEURON_NODE(MPSCNNNeuronSigmoidNode, MPSCNNNeuronTypeSigmoid, 0, 0, 0)
OPENMPS_NEURON_NODE(MPSCNNNeuronSoftPlusNode, MPSCNNNeuronTypeSoftPlus, 1, 1, 0,
                    OPENMPS_WITH_AB(MPSCNNNeuronTypeSoftPlus))
OPENMPS_NEURON_NODE(MPSCNNNeuronSoftSignNode, MPSCNNNeuronTypeSoftSign, 0, 0, 0)
OPENMPS_NEURON_NODE(MPSCNNNeuronTanHNode, MPSCNNNeuronTypeTanH, 1, 1, 0, OPENMPS_WITH_AB(MPSCNNNeuronTypeTanH))

@implementation MPSCNNNeuronPReLUNode

OPENMPS_NODE_INIT(Source : (MPSNNImageNode *)source aData : (NSData *)aData, Source : source aData : aData,
                  return init_node(self,
                                   openmps::neuron_node(self,
                                                        [MPSNNNeuronDescriptor cnnNeuronPReLUDescriptorWithData:aData
                                                                                                         noCopy:false]),
                                   {source});)

+ (instancetype)nodeWithSource:(MPSNNImageNode *)source {
  return [[[self alloc] initWithSource:source] autorelease];
}

- (instancetype)initWithSource:(MPSNNImageNode *)source {
  (void)source;
  const openmps::UnwindRelease unwind(self);
  openmps::raise_unavailable(self, _cmd, "-initWithSource:aData:");
}

@end

@implementation MPSCNNNeuronGradientNode

OPENMPS_NODE_CLASSES(.gradient_kernel = [MPSCNNNeuronGradient class])

- (instancetype)init {
  return [super init];
}

OPENMPS_NODE_INIT(
    SourceGradient : (MPSNNImageNode *)sourceGradient sourceImage : (MPSNNImageNode *)sourceImage gradientState : (
        MPSNNGradientStateNode *)gradientState descriptor : (MPSNNNeuronDescriptor *)descriptor,
    SourceGradient : sourceGradient sourceImage : sourceImage gradientState : gradientState descriptor : descriptor,
    return init_gradient_node(self, openmps::neuron_node(self, descriptor), sourceGradient, sourceImage,
                              gradientState);)

OPENMPS_NODE_GETTER(NeuronNode, MPSNNNeuronDescriptor *, descriptor, descriptor.get())

@end

// -------------------------------------------------------------------------------------------------- pooling

namespace openmps {
namespace {

struct PoolingNode : NodeOf<PoolingNode, KernelNode> {
  NSUInteger kernel_width = 1, kernel_height = 1, stride_x = 1, stride_y = 1;
  NSUInteger dilation_x = 0, dilation_y = 0;  ///< 0: the class has no dilation

  MPSKernel *new_kernel(id<MTLDevice> device) const override {
    id kernel = [kernel_class() alloc];
    if (dilation_x != 0)
      return [(MPSCNNDilatedPoolingMax *)kernel initWithDevice:device
                                                   kernelWidth:kernel_width
                                                  kernelHeight:kernel_height
                                                 dilationRateX:dilation_x
                                                 dilationRateY:dilation_y
                                               strideInPixelsX:stride_x
                                               strideInPixelsY:stride_y];
    return [(MPSCNNPooling *)kernel initWithDevice:device
                                       kernelWidth:kernel_width
                                      kernelHeight:kernel_height
                                   strideInPixelsX:stride_x
                                   strideInPixelsY:stride_y];
  }
  /// Unlike the kernels, the nodes do not read zeros outside of the source [MPSNNGraphNodes.h].
  void configure(MPSKernel *kernel) const override {
    if (!is_gradient) [(MPSCNNPooling *)kernel setEdgeMode:MPSImageEdgeModeClamp];
  }
};

PoolingNode pooling_node(NSUInteger kernel_width, NSUInteger kernel_height, NSUInteger stride_x, NSUInteger stride_y,
                         NSUInteger dilation_x = 0, NSUInteger dilation_y = 0) {
  PoolingNode node;
  node.kernel_width = kernel_width, node.kernel_height = kernel_height;
  node.stride_x = stride_x, node.stride_y = stride_y;
  node.dilation_x = dilation_x, node.dilation_y = dilation_y;
  return node;
}

id init_pooling_gradient_node(MPSNNFilterNode *node, const PoolingNode &data, MPSNNImageNode *gradient,
                              MPSNNImageNode *source, MPSNNStateNode *state, id<MPSNNPadding> policy) {
  MPSNNFilterNode *made = init_gradient_node(node, data, gradient, source, state);
  if (policy != nil) [made setPaddingPolicy:policy];
  return made;
}

}  // namespace
}  // namespace openmps

using openmps::pooling_node;
using openmps::PoolingNode;

#define OPENMPS_POOLING_GETTERS                                             \
  OPENMPS_NODE_GETTER(PoolingNode, NSUInteger, kernelWidth, kernel_width)   \
  OPENMPS_NODE_GETTER(PoolingNode, NSUInteger, kernelHeight, kernel_height) \
  OPENMPS_NODE_GETTER(PoolingNode, NSUInteger, strideInPixelsX, stride_x)   \
  OPENMPS_NODE_GETTER(PoolingNode, NSUInteger, strideInPixelsY, stride_y)

@implementation MPSCNNPoolingNode

OPENMPS_NODE_INIT(Source : (MPSNNImageNode *)source filterSize : (NSUInteger)size, Source : source filterSize : size,
                  return init_node(self, pooling_node(size, size, size, size), {source});)
OPENMPS_NODE_INIT(Source : (MPSNNImageNode *)source filterSize : (NSUInteger)size stride : (NSUInteger)stride,
                  Source : source filterSize : size stride : stride,
                  return init_node(self, pooling_node(size, size, stride, stride), {source});)

- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode
                   kernelWidth:(NSUInteger)kernelWidth
                  kernelHeight:(NSUInteger)kernelHeight
               strideInPixelsX:(NSUInteger)strideInPixelsX
               strideInPixelsY:(NSUInteger)strideInPixelsY {
  return init_node(self, pooling_node(kernelWidth, kernelHeight, strideInPixelsX, strideInPixelsY), {sourceNode});
}

OPENMPS_POOLING_GETTERS

@end

@implementation MPSCNNDilatedPoolingMaxNode

OPENMPS_NODE_CLASSES([MPSCNNDilatedPoolingMax class], [MPSCNNDilatedPoolingMaxGradient class],
                     [MPSCNNDilatedPoolingMaxGradientNode class])

OPENMPS_NODE_INIT(Source : (MPSNNImageNode *)source filterSize : (NSUInteger)size, Source : source filterSize : size,
                  return init_node(self, pooling_node(size, size, size, size, size, size), {source});)
OPENMPS_NODE_INIT(Source : (MPSNNImageNode *)source filterSize : (NSUInteger)size stride : (NSUInteger)
                      stride dilationRate : (NSUInteger)dilationRate,
                  Source : source filterSize : size stride : stride dilationRate : dilationRate,
                  return init_node(self, pooling_node(size, size, stride, stride, dilationRate, dilationRate),
                                   {source});)

- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode
                   kernelWidth:(NSUInteger)kernelWidth
                  kernelHeight:(NSUInteger)kernelHeight
               strideInPixelsX:(NSUInteger)strideInPixelsX
               strideInPixelsY:(NSUInteger)strideInPixelsY
                 dilationRateX:(NSUInteger)dilationRateX
                 dilationRateY:(NSUInteger)dilationRateY {
  return init_node(
      self, pooling_node(kernelWidth, kernelHeight, strideInPixelsX, strideInPixelsY, dilationRateX, dilationRateY),
      {sourceNode});
}

OPENMPS_NODE_GETTER(PoolingNode, NSUInteger, dilationRateX, dilation_x)
OPENMPS_NODE_GETTER(PoolingNode, NSUInteger, dilationRateY, dilation_y)

@end

@implementation MPSCNNPoolingGradientNode

OPENMPS_NODE_INIT(SourceGradient : (MPSNNImageNode *)sourceGradient sourceImage : (MPSNNImageNode *)
                      sourceImage gradientState : (MPSNNGradientStateNode *)gradientState kernelWidth : (NSUInteger)
                          kernelWidth kernelHeight : (NSUInteger)kernelHeight strideInPixelsX : (NSUInteger)
                              strideInPixelsX strideInPixelsY : (NSUInteger)
                                  strideInPixelsY paddingPolicy : (id<MPSNNPadding>)paddingPolicy,
                  SourceGradient : sourceGradient sourceImage : sourceImage gradientState : gradientState
                      kernelWidth : kernelWidth kernelHeight : kernelHeight strideInPixelsX : strideInPixelsX
                          strideInPixelsY : strideInPixelsY paddingPolicy : paddingPolicy,
                  return openmps::init_pooling_gradient_node(
                      self, pooling_node(kernelWidth, kernelHeight, strideInPixelsX, strideInPixelsY), sourceGradient,
                      sourceImage, gradientState, paddingPolicy);)

OPENMPS_POOLING_GETTERS

@end

@implementation MPSCNNDilatedPoolingMaxGradientNode

OPENMPS_NODE_CLASSES(.gradient_kernel = [MPSCNNDilatedPoolingMaxGradient class])

OPENMPS_NODE_INIT(SourceGradient : (MPSNNImageNode *)sourceGradient sourceImage : (MPSNNImageNode *)
                      sourceImage gradientState : (MPSNNGradientStateNode *)gradientState kernelWidth : (NSUInteger)
                          kernelWidth kernelHeight : (NSUInteger)kernelHeight strideInPixelsX : (NSUInteger)
                              strideInPixelsX strideInPixelsY : (NSUInteger)strideInPixelsY dilationRateX : (NSUInteger)
                                  dilationRateX dilationRateY : (NSUInteger)dilationRateY,
                  SourceGradient : sourceGradient sourceImage : sourceImage gradientState : gradientState
                      kernelWidth : kernelWidth kernelHeight : kernelHeight strideInPixelsX : strideInPixelsX
                          strideInPixelsY : strideInPixelsY dilationRateX : dilationRateX dilationRateY : dilationRateY,
                  return init_gradient_node(self,
                                            pooling_node(kernelWidth, kernelHeight, strideInPixelsX, strideInPixelsY,
                                                         dilationRateX, dilationRateY),
                                            sourceGradient, sourceImage, gradientState);)

OPENMPS_NODE_GETTER(PoolingNode, NSUInteger, dilationRateX, dilation_x)
OPENMPS_NODE_GETTER(PoolingNode, NSUInteger, dilationRateY, dilation_y)

@end

/// Rows: a class, and the classes that belong to it.
#define OPENMPS_POOLING_NODE(NODE, KERNEL, GRADIENT, GRADIENT_NODE)             \
  @implementation NODE                                                          \
  OPENMPS_NODE_CLASSES([KERNEL class], [GRADIENT class], [GRADIENT_NODE class]) \
  @end
#define OPENMPS_POOLING_GRADIENT_NODE(NODE, GRADIENT)       \
  @implementation NODE                                      \
  OPENMPS_NODE_CLASSES(.gradient_kernel = [GRADIENT class]) \
  @end

OPENMPS_POOLING_NODE(MPSCNNPoolingAverageNode, MPSCNNPoolingAverage, MPSCNNPoolingAverageGradient,
                     MPSCNNPoolingAverageGradientNode)
OPENMPS_POOLING_GRADIENT_NODE(MPSCNNPoolingAverageGradientNode, MPSCNNPoolingAverageGradient)
OPENMPS_POOLING_NODE(MPSCNNPoolingL2NormNode, MPSCNNPoolingL2Norm, MPSCNNPoolingL2NormGradient,
                     MPSCNNPoolingL2NormGradientNode)
OPENMPS_POOLING_GRADIENT_NODE(MPSCNNPoolingL2NormGradientNode, MPSCNNPoolingL2NormGradient)
OPENMPS_POOLING_NODE(MPSCNNPoolingMaxNode, MPSCNNPoolingMax, MPSCNNPoolingMaxGradient, MPSCNNPoolingMaxGradientNode)
OPENMPS_POOLING_GRADIENT_NODE(MPSCNNPoolingMaxGradientNode, MPSCNNPoolingMaxGradient)

// ---------------------------------------------------------------------------------- normalization over a window

namespace openmps {
namespace {

/// The gradient kernel gets all parameters of the forward kernel, which are not in the state [MPSCNNNormalization.h].
struct WindowNormalizationNode : NodeOf<WindowNormalizationNode, KernelNode> {
  enum Kind : std::uint8_t { cross_channel, spatial, local_contrast } kind = cross_channel;
  float alpha = 1, beta = 5, delta = 1, p0 = 1, pm = 0, ps = 1;
  NSUInteger width = 5, height = 5;  ///< cross_channel: `width` feature channels

  MPSKernel *new_kernel(id<MTLDevice> device) const override {
    id kernel = [kernel_class() alloc];
    if (kind == cross_channel)
      return [(MPSCNNCrossChannelNormalization *)kernel initWithDevice:device kernelSize:width];
    return [(MPSCNNSpatialNormalization *)kernel initWithDevice:device kernelWidth:width kernelHeight:height];
  }
  void configure(MPSKernel *given) const override {
    auto *kernel = (MPSCNNLocalContrastNormalization *)given;
    [kernel setAlpha:alpha];
    [kernel setBeta:beta];
    [kernel setDelta:delta];
    if (kind != local_contrast) return;
    [kernel setP0:p0];
    [kernel setPm:pm];
    [kernel setPs:ps];
  }
};

/// The node's alpha is 1 where the kernel's is 0 [MPSNNGraphNodes.h].
WindowNormalizationNode window_normalization_node(WindowNormalizationNode::Kind kind, NSUInteger width,
                                                  NSUInteger height) {
  WindowNormalizationNode node;
  node.kind = kind;
  node.width = width, node.height = height;
  if (kind == WindowNormalizationNode::local_contrast) node.beta = 0.5f, node.delta = 1.0f / 1024;
  return node;
}

}  // namespace
}  // namespace openmps

using openmps::window_normalization_node;
using openmps::WindowNormalizationNode;

#define OPENMPS_NORMALIZATION_PROPERTIES                                        \
  OPENMPS_NODE_PROPERTY(WindowNormalizationNode, float, alpha, setAlpha, alpha) \
  OPENMPS_NODE_PROPERTY(WindowNormalizationNode, float, beta, setBeta, beta)    \
  OPENMPS_NODE_PROPERTY(WindowNormalizationNode, float, delta, setDelta, delta)
#define OPENMPS_CONTRAST_PROPERTIES                                    \
  OPENMPS_NODE_PROPERTY(WindowNormalizationNode, float, p0, setP0, p0) \
  OPENMPS_NODE_PROPERTY(WindowNormalizationNode, float, pm, setPm, pm) \
  OPENMPS_NODE_PROPERTY(WindowNormalizationNode, float, ps, setPs, ps)
#define OPENMPS_WINDOW_SIZE                                                                      \
  OPENMPS_NODE_PROPERTY(WindowNormalizationNode, NSUInteger, kernelWidth, setKernelWidth, width) \
  OPENMPS_NODE_PROPERTY(WindowNormalizationNode, NSUInteger, kernelHeight, setKernelHeight, height)
#define OPENMPS_WITH_KERNEL_SIZE(KIND)                                                                         \
  OPENMPS_NODE_INIT(                                                                                           \
      Source : (MPSNNImageNode *)source kernelSize : (NSUInteger)size, Source : source kernelSize : size,      \
      return init_node(self, window_normalization_node(WindowNormalizationNode::KIND, size, size), {source});) \
  -(instancetype)initWithSource : (MPSNNImageNode *)source {                                                   \
    return [self initWithSource:source kernelSize:5];                                                          \
  }

@implementation MPSCNNNormalizationNode

+ (instancetype)nodeWithSource:(MPSNNImageNode *)sourceNode {
  return [[[self alloc] initWithSource:sourceNode] autorelease];
}

/// The subclasses have their own.
- (instancetype)initWithSource:(MPSNNImageNode *)sourceNode {
  return init_node(self, WindowNormalizationNode(), {sourceNode});
}

OPENMPS_NORMALIZATION_PROPERTIES

@end

@implementation MPSCNNCrossChannelNormalizationNode
OPENMPS_NODE_CLASSES([MPSCNNCrossChannelNormalization class], [MPSCNNCrossChannelNormalizationGradient class],
                     [MPSCNNCrossChannelNormalizationGradientNode class])
OPENMPS_WITH_KERNEL_SIZE(cross_channel)
OPENMPS_NODE_PROPERTY(WindowNormalizationNode, NSUInteger, kernelSizeInFeatureChannels, setKernelSizeInFeatureChannels,
                      width)
@end

@implementation MPSCNNSpatialNormalizationNode
OPENMPS_NODE_CLASSES([MPSCNNSpatialNormalization class], [MPSCNNSpatialNormalizationGradient class],
                     [MPSCNNSpatialNormalizationGradientNode class])
OPENMPS_WITH_KERNEL_SIZE(spatial)
OPENMPS_WINDOW_SIZE
@end

@implementation MPSCNNLocalContrastNormalizationNode
OPENMPS_NODE_CLASSES([MPSCNNLocalContrastNormalization class], [MPSCNNLocalContrastNormalizationGradient class],
                     [MPSCNNLocalContrastNormalizationGradientNode class])
OPENMPS_WITH_KERNEL_SIZE(local_contrast)
OPENMPS_WINDOW_SIZE
OPENMPS_CONTRAST_PROPERTIES
@end

#define OPENMPS_GRADIENT_WITH_KERNEL_SIZE(KIND)                                                                        \
  OPENMPS_NODE_INIT(                                                                                                   \
      SourceGradient : (MPSNNImageNode *)sourceGradient sourceImage : (MPSNNImageNode *)sourceImage gradientState : (  \
          MPSNNGradientStateNode *)gradientState kernelSize : (NSUInteger)kernelSize,                                  \
      SourceGradient : sourceGradient sourceImage : sourceImage gradientState : gradientState kernelSize : kernelSize, \
      return init_gradient_node(self,                                                                                  \
                                window_normalization_node(WindowNormalizationNode::KIND, kernelSize, kernelSize),      \
                                sourceGradient, sourceImage, gradientState);)

@implementation MPSCNNCrossChannelNormalizationGradientNode
OPENMPS_NODE_CLASSES(.gradient_kernel = [MPSCNNCrossChannelNormalizationGradient class])
OPENMPS_GRADIENT_WITH_KERNEL_SIZE(cross_channel)
OPENMPS_NODE_GETTER(WindowNormalizationNode, NSUInteger, kernelSize, width)
@end

@implementation MPSCNNSpatialNormalizationGradientNode
OPENMPS_NODE_CLASSES(.gradient_kernel = [MPSCNNSpatialNormalizationGradient class])
OPENMPS_GRADIENT_WITH_KERNEL_SIZE(spatial)
OPENMPS_WINDOW_SIZE
OPENMPS_NORMALIZATION_PROPERTIES
@end

@implementation MPSCNNLocalContrastNormalizationGradientNode
OPENMPS_NODE_CLASSES(.gradient_kernel = [MPSCNNLocalContrastNormalizationGradient class])
OPENMPS_NODE_INIT(SourceGradient : (MPSNNImageNode *)sourceGradient sourceImage : (MPSNNImageNode *)
                      sourceImage gradientState : (MPSNNGradientStateNode *)gradientState kernelWidth : (NSUInteger)
                          kernelWidth kernelHeight : (NSUInteger)kernelHeight,
                  SourceGradient : sourceGradient sourceImage : sourceImage gradientState : gradientState
                      kernelWidth : kernelWidth kernelHeight : kernelHeight,
                  return init_gradient_node(self,
                                            window_normalization_node(WindowNormalizationNode::local_contrast,
                                                                      kernelWidth, kernelHeight),
                                            sourceGradient, sourceImage, gradientState);)
OPENMPS_NODE_GETTER(WindowNormalizationNode, NSUInteger, kernelWidth, width)
OPENMPS_NODE_GETTER(WindowNormalizationNode, NSUInteger, kernelHeight, height)
OPENMPS_NORMALIZATION_PROPERTIES
OPENMPS_CONTRAST_PROPERTIES
@end

// -------------------------------------------------------------------------------------------------- soft max

namespace openmps {
namespace {

/// The gradient kernel reads the forward kernel's result, not its source [MPSCNNSoftMax.h].
struct SoftMaxNode : NodeOf<SoftMaxNode, KernelNode> {
  MPSNNImageNode *image_for_gradient(std::size_t) const override { return links.result; }
};

}  // namespace
}  // namespace openmps

#define OPENMPS_SOFT_MAX_NODE(NODE, KERNEL, GRADIENT, GRADIENT_NODE)            \
  @implementation NODE                                                          \
  OPENMPS_NODE_CLASSES([KERNEL class], [GRADIENT class], [GRADIENT_NODE class]) \
  OPENMPS_SOURCE_NODE_INIT(openmps::SoftMaxNode)                                \
  @end
#define OPENMPS_SOFT_MAX_GRADIENT_NODE(NODE, GRADIENT)      \
  @implementation NODE                                      \
  OPENMPS_NODE_CLASSES(.gradient_kernel = [GRADIENT class]) \
  OPENMPS_GRADIENT_NODE_INIT(openmps::SoftMaxNode)          \
  @end

OPENMPS_SOFT_MAX_NODE(MPSCNNSoftMaxNode, MPSCNNSoftMax, MPSCNNSoftMaxGradient, MPSCNNSoftMaxGradientNode)
OPENMPS_SOFT_MAX_GRADIENT_NODE(MPSCNNSoftMaxGradientNode, MPSCNNSoftMaxGradient)
OPENMPS_SOFT_MAX_NODE(MPSCNNLogSoftMaxNode, MPSCNNLogSoftMax, MPSCNNLogSoftMaxGradient, MPSCNNLogSoftMaxGradientNode)
OPENMPS_SOFT_MAX_GRADIENT_NODE(MPSCNNLogSoftMaxGradientNode, MPSCNNLogSoftMaxGradient)

namespace openmps {
namespace {

/// Ones: the gradient of a loss by itself.
struct InitialGradientNode : NodeOf<InitialGradientNode, KernelNode> {
  Class state_class() const override { return Nil; }
  bool is_own_gradient() const override { return true; }
};

}  // namespace
}  // namespace openmps

@implementation MPSNNInitialGradientNode

OPENMPS_NODE_CLASSES([MPSNNInitialGradient class])

OPENMPS_SOURCE_NODE_INIT(openmps::InitialGradientNode)

- (MPSNNGradientFilterNode *)gradientFilterWithSources:(NSArray<MPSNNImageNode *> *)gradientImages {
  return [super gradientFilterWithSources:gradientImages];
}

@end
