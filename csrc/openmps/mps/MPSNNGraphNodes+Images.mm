// SPDX-License-Identifier: Apache-2.0
// Filters that resize and reduce images: upsampling, scale, dropout, pad, reshape, reductions, Gram matrices
// [MPSNNGraphNodes.h].

#import "mps/MPSNNGraphNodes+Engine.hh"

using openmps::init_gradient_node;
using openmps::init_node;

// ---------------------------------------------------------------------------------------- upsampling and scale

namespace openmps {
namespace {

struct UpsamplingNode : NodeOf<UpsamplingNode, KernelNode> {
  NSUInteger factor_x = 1, factor_y = 1;
  BOOL align_corners = NO;

  UpsamplingNode(NSUInteger x, NSUInteger y, BOOL aligns = NO) : factor_x(x), factor_y(y), align_corners(aligns) {}

  MPSKernel *new_kernel(id<MTLDevice> device) const override {
    id kernel = [kernel_class() alloc];
    if (classes.kernel == [MPSCNNUpsamplingBilinear class])
      return [(MPSCNNUpsamplingBilinear *)kernel initWithDevice:device
                                            integerScaleFactorX:factor_x
                                            integerScaleFactorY:factor_y
                                                   alignCorners:align_corners];
    return [(MPSCNNUpsamplingNearest *)kernel initWithDevice:device
                                         integerScaleFactorX:factor_x
                                         integerScaleFactorY:factor_y];
  }
};

/// An image filter, whose result has the size that the node asks for.
struct ScaleOperation : OperationOf<ScaleOperation> {
  MTLSize size = {0, 0, 0};
  Ref<id<MPSImageTransformProvider>> provider;
  Ref<id<MPSHandle>> handle;

  void encode(Encoding &encoding) override {
    auto *scale = (MPSImageScale *)kernel.get();
    MPSImageBatch *images = encoding.image(sources[0]);
    MPSImage *first = [images objectAtIndex:0];
    MPSImageDescriptor *descriptor =
        [MPSImageDescriptor imageDescriptorWithChannelFormat:[first featureChannelFormat]
                                                       width:size.width
                                                      height:size.height
                                             featureChannels:[first featureChannels]
                                              numberOfImages:[first numberOfImages]
                                                       usage:MTLTextureUsageShaderRead | MTLTextureUsageShaderWrite];
    MPSImageBatch *destination = encoding.make_result(*this, descriptor, scale);
    for (NSUInteger i = 0; i < [images count]; ++i) {
      MPSImage *image = [images objectAtIndex:i];
      MPSScaleTransform transform;
      if (provider) {
        transform = [provider.get() transformForSourceImage:image handle:handle.get()];
        [scale setScaleTransform:&transform];
      }
      [scale encodeToCommandBuffer:encoding.buffer() sourceImage:image destinationImage:[destination objectAtIndex:i]];
    }
  }
};

struct ScaleNode : NodeOf<ScaleNode, KernelNode> {
  MTLSize size = {0, 0, 0};
  Ref<id<MPSImageTransformProvider>> provider;

  Class state_class() const override { return Nil; }
  std::unique_ptr<Operation> new_empty_operation() const override {
    auto operation = std::make_unique<ScaleOperation>();
    operation->size = size;
    operation->provider = provider;
    operation->handle = Ref<id<MPSHandle>>([links.sources[0].get() handle]);
    return operation;
  }
};

id init_scale_node(MPSNNFilterNode *node, MPSNNImageNode *source, id<MPSImageTransformProvider> provider,
                   MTLSize size) {
  if (size.width == 0 || size.height == 0) {
    const UnwindRelease unwind(node);
    raise_argument(@"%@: outputSize (%lu x %lu, width x height) has an extent of 0.", [node class],
                   (unsigned long)size.width, (unsigned long)size.height);
  }
  ScaleNode data;
  data.size = size;
  data.provider = Ref<id<MPSImageTransformProvider>>(provider);
  return init_node(node, data, {source});
}

}  // namespace
}  // namespace openmps

using openmps::UpsamplingNode;

#define OPENMPS_SCALE_FACTORS                                         \
  OPENMPS_NODE_GETTER(UpsamplingNode, double, scaleFactorX, factor_x) \
  OPENMPS_NODE_GETTER(UpsamplingNode, double, scaleFactorY, factor_y)
#define OPENMPS_WITH_SCALE_FACTORS                                                                               \
  OPENMPS_SCALE_FACTORS                                                                                          \
  OPENMPS_NODE_INIT(                                                                                             \
      Source : (MPSNNImageNode *)source integerScaleFactorX : (NSUInteger)x integerScaleFactorY : (NSUInteger)y, \
      Source : source integerScaleFactorX : x integerScaleFactorY : y,                                           \
      return init_node(self, UpsamplingNode(x, y), {source});)
/// The factors are integers: those of the forward kernel.
#define OPENMPS_UPSAMPLING_GRADIENT(KERNEL)                                                                           \
  OPENMPS_NODE_CLASSES(.gradient_kernel = [KERNEL class])                                                             \
  OPENMPS_SCALE_FACTORS                                                                                               \
  OPENMPS_NODE_INIT(                                                                                                  \
      SourceGradient : (MPSNNImageNode *)sourceGradient sourceImage : (MPSNNImageNode *)sourceImage gradientState : ( \
          MPSNNGradientStateNode *)gradientState scaleFactorX : (double)x scaleFactorY : (double)y,                   \
      SourceGradient : sourceGradient sourceImage : sourceImage gradientState : gradientState scaleFactorX : x        \
          scaleFactorY : y,                                                                                           \
      return init_gradient_node(self, UpsamplingNode(static_cast<NSUInteger>(x), static_cast<NSUInteger>(y)),         \
                                sourceGradient, sourceImage, gradientState);)

@implementation MPSCNNUpsamplingNearestNode
OPENMPS_NODE_CLASSES([MPSCNNUpsamplingNearest class], [MPSCNNUpsamplingNearestGradient class],
                     [MPSCNNUpsamplingNearestGradientNode class])
OPENMPS_WITH_SCALE_FACTORS
@end

@implementation MPSCNNUpsamplingNearestGradientNode
OPENMPS_UPSAMPLING_GRADIENT(MPSCNNUpsamplingNearestGradient)
@end

@implementation MPSCNNUpsamplingBilinearNode
OPENMPS_NODE_CLASSES([MPSCNNUpsamplingBilinear class], [MPSCNNUpsamplingBilinearGradient class],
                     [MPSCNNUpsamplingBilinearGradientNode class])
OPENMPS_WITH_SCALE_FACTORS
OPENMPS_NODE_INIT(Source : (MPSNNImageNode *)source integerScaleFactorX : (NSUInteger)
                      x integerScaleFactorY : (NSUInteger)y alignCorners : (BOOL)alignCorners,
                  Source : source integerScaleFactorX : x integerScaleFactorY : y alignCorners : alignCorners,
                  return init_node(self, UpsamplingNode(x, y, alignCorners), {source});)
OPENMPS_NODE_GETTER(UpsamplingNode, BOOL, alignCorners, align_corners)
@end

@implementation MPSCNNUpsamplingBilinearGradientNode
OPENMPS_UPSAMPLING_GRADIENT(MPSCNNUpsamplingBilinearGradient)
@end

@implementation MPSNNScaleNode
OPENMPS_NODE_INIT(Source : (MPSNNImageNode *)source outputSize : (MTLSize)size, Source : source outputSize : size,
                  return openmps::init_scale_node(self, source, nil, size);)
OPENMPS_NODE_INIT(Source : (MPSNNImageNode *)source transformProvider : (id<MPSImageTransformProvider>)
                      provider outputSize : (MTLSize)size,
                  Source : source transformProvider : provider outputSize : size,
                  return openmps::init_scale_node(self, source, provider, size);)
@end

@implementation MPSNNBilinearScaleNode
OPENMPS_NODE_CLASSES([MPSImageBilinearScale class])
@end

@implementation MPSNNLanczosScaleNode
OPENMPS_NODE_CLASSES([MPSImageLanczosScale class])
@end

// -------------------------------------------------------------------------------------------------- dropout

namespace openmps {
namespace {

/// unverified: the defaults, half of the values kept by a mask of their own.
struct DropoutNode : NodeOf<DropoutNode, KernelNode> {
  float keep = 0.5f;
  NSUInteger seed = 0;
  MTLSize mask_stride = {1, 1, 1};

  MPSKernel *new_kernel(id<MTLDevice> device) const override {
    return [(MPSCNNDropout *)[kernel_class() alloc] initWithDevice:device
                                                   keepProbability:keep
                                                              seed:seed
                                                maskStrideInPixels:mask_stride];
  }
};

DropoutNode dropout_node(float keep, NSUInteger seed = 0, MTLSize mask_stride = {1, 1, 1}) {
  DropoutNode node;
  node.keep = keep, node.seed = seed, node.mask_stride = mask_stride;
  return node;
}

}  // namespace
}  // namespace openmps

using openmps::dropout_node;
using openmps::DropoutNode;

#define OPENMPS_DROPOUT_GETTERS                                  \
  OPENMPS_NODE_GETTER(DropoutNode, float, keepProbability, keep) \
  OPENMPS_NODE_GETTER(DropoutNode, NSUInteger, seed, seed)       \
  OPENMPS_NODE_GETTER(DropoutNode, MTLSize, maskStrideInPixels, mask_stride)

@implementation MPSCNNDropoutNode
OPENMPS_NODE_CLASSES([MPSCNNDropout class], [MPSCNNDropoutGradient class], [MPSCNNDropoutGradientNode class])
OPENMPS_SOURCE_NODE_INIT(DropoutNode)
OPENMPS_NODE_INIT(Source : (MPSNNImageNode *)source keepProbability : (float)keep,
                  Source : source keepProbability : keep, return init_node(self, dropout_node(keep), {source});)
OPENMPS_NODE_INIT(Source : (MPSNNImageNode *)source keepProbability : (float)keep seed : (NSUInteger)
                      seed maskStrideInPixels : (MTLSize)stride,
                  Source : source keepProbability : keep seed : seed maskStrideInPixels : stride,
                  return init_node(self, dropout_node(keep, seed, stride), {source});)
OPENMPS_DROPOUT_GETTERS
@end

@implementation MPSCNNDropoutGradientNode
OPENMPS_NODE_CLASSES(.gradient_kernel = [MPSCNNDropoutGradient class])
OPENMPS_NODE_INIT(SourceGradient : (MPSNNImageNode *)sourceGradient sourceImage : (MPSNNImageNode *)
                      sourceImage gradientState : (MPSNNGradientStateNode *)gradientState keepProbability : (float)
                          keep seed : (NSUInteger)seed maskStrideInPixels : (MTLSize)stride,
                  SourceGradient : sourceGradient sourceImage : sourceImage gradientState : gradientState
                      keepProbability : keep seed : seed maskStrideInPixels : stride,
                  return init_gradient_node(self, dropout_node(keep, seed, stride), sourceGradient, sourceImage,
                                            gradientState);)
OPENMPS_DROPOUT_GETTERS
@end

// ------------------------------------------------------------------------------------------- pad and reshape

namespace openmps {
namespace {

struct PadNode : NodeOf<PadNode, KernelNode> {
  MPSImageCoordinate before = {0, 0, 0}, after = {0, 0, 0};
  MPSImageEdgeMode edge = MPSImageEdgeModeZero;
  float fill = 0;

  MPSKernel *new_kernel(id<MTLDevice> device) const override {
    if (is_gradient) return KernelNode::new_kernel(device);
    return [[MPSNNPad alloc] initWithDevice:device paddingSizeBefore:before paddingSizeAfter:after];
  }
  void configure(MPSKernel *kernel) const override {
    if (is_gradient) return;
    [(MPSNNPad *)kernel setEdgeMode:edge];
    [(MPSNNPad *)kernel setFillValue:fill];
  }
};

struct ReshapeOperation : OperationOf<ReshapeOperation, KernelOperation> {
  NSUInteger width = 0, height = 0, channels = 0;

  void prepare(Encoding &, MPSImageDescriptor *descriptor) override {
    [descriptor setWidth:width];
    [descriptor setHeight:height];
    [descriptor setFeatureChannels:channels];
  }
};

struct ReshapeNode : NodeOf<ReshapeNode, KernelNode> {
  NSUInteger width = 0, height = 0, channels = 0;

  std::unique_ptr<Operation> new_empty_operation() const override {
    if (is_gradient) return KernelNode::new_empty_operation();
    auto operation = std::make_unique<ReshapeOperation>();
    operation->width = width, operation->height = height, operation->channels = channels;
    return operation;
  }
};

id init_reshape_node(MPSNNFilterNode *node, MPSNNImageNode *source, NSUInteger width, NSUInteger height,
                     NSUInteger channels) {
  if (width == 0 || height == 0 || channels == 0) {
    const UnwindRelease unwind(node);
    raise_argument(@"%@: resultWidth (%lu), resultHeight (%lu) or resultFeatureChannels (%lu) is less than 1.",
                   [node class], (unsigned long)width, (unsigned long)height, (unsigned long)channels);
  }
  ReshapeNode data;
  data.width = width, data.height = height, data.channels = channels;
  return init_node(node, data, {source});
}

PadNode pad_node(MPSImageCoordinate before, MPSImageCoordinate after, MPSImageEdgeMode edge) {
  PadNode data;
  data.before = before, data.after = after, data.edge = edge;
  return data;
}

}  // namespace
}  // namespace openmps

@implementation MPSNNPadNode
OPENMPS_NODE_CLASSES([MPSNNPad class], [MPSNNPadGradient class], [MPSNNPadGradientNode class])
OPENMPS_NODE_INIT(Source : (MPSNNImageNode *)source paddingSizeBefore : (MPSImageCoordinate)
                      before paddingSizeAfter : (MPSImageCoordinate)after edgeMode : (MPSImageEdgeMode)edge,
                  Source : source paddingSizeBefore : before paddingSizeAfter : after edgeMode : edge,
                  return init_node(self, openmps::pad_node(before, after, edge), {source});)
OPENMPS_NODE_PROPERTY(openmps::PadNode, float, fillValue, setFillValue, fill)
@end

@implementation MPSNNPadGradientNode
OPENMPS_NODE_CLASSES(.gradient_kernel = [MPSNNPadGradient class])
OPENMPS_GRADIENT_NODE_INIT(openmps::PadNode)
@end

@implementation MPSNNReshapeNode
OPENMPS_NODE_CLASSES([MPSNNReshape class], [MPSNNReshapeGradient class], [MPSNNReshapeGradientNode class])
OPENMPS_NODE_INIT(Source : (MPSNNImageNode *)source resultWidth : (NSUInteger)width resultHeight : (NSUInteger)
                      height resultFeatureChannels : (NSUInteger)channels,
                  Source : source resultWidth : width resultHeight : height resultFeatureChannels : channels,
                  return openmps::init_reshape_node(self, source, width, height, channels);)
@end

@implementation MPSNNReshapeGradientNode
OPENMPS_NODE_CLASSES(.gradient_kernel = [MPSNNReshapeGradient class])
OPENMPS_GRADIENT_NODE_INIT(openmps::ReshapeNode)
@end

// ------------------------------------------------------------------------------------------------ reductions

namespace openmps {
namespace {

struct ReductionNode : NodeOf<ReductionNode, KernelNode> {
  MTLRegion clip = MPSRectNoClip;
  float weight = 1;

  Class state_class() const override { return classes.gradient_node != Nil ? KernelNode::state_class() : Nil; }
  void configure(MPSKernel *kernel) const override {
    [(MPSNNReduceUnary *)kernel setClipRectSource:clip];
    if (classes.kernel == [MPSNNReduceFeatureChannelsSum class])
      [(MPSNNReduceFeatureChannelsSum *)kernel setWeight:weight];
  }
};

/// Average pooling whose one window is the source, or clipRectSource [MPSNNGraphNodes.h].
struct SpatialMeanOperation : OperationOf<SpatialMeanOperation, KernelOperation> {
  MTLRegion clip = MPSRectNoClip;

  void encode(Encoding &encoding) override {
    MPSImage *image = [encoding.image(sources[0]) objectAtIndex:0];
    const Clip part = clip_of(state_of<KernelState>(kernel.get()), clip, "clipRectSource", [image width],
                              [image height], [image numberOfImages], "source");
    const auto width = static_cast<NSUInteger>(part.width), height = static_cast<NSUInteger>(part.height);
    auto *pooling = (MPSCNNPoolingAverage *)kernel.get();
    if ([pooling kernelWidth] != width || [pooling kernelHeight] != height) {
      pooling = [[MPSCNNPoolingAverage alloc] initWithDevice:[pooling device]
                                                 kernelWidth:width
                                                kernelHeight:height
                                             strideInPixelsX:1
                                             strideInPixelsY:1];
      [pooling setOptions:[kernel.get() options]];
      [pooling setLabel:[kernel.get() label]];
      kernel = Ref<MPSKernel *>::adopt(pooling);
    }
    offset = {part.x + part.width / 2, part.y + part.height / 2, 0};
    KernelOperation::encode(encoding);
  }
  void prepare(Encoding &, MPSImageDescriptor *descriptor) override {
    [descriptor setWidth:1];
    [descriptor setHeight:1];
    [(MPSCNNPoolingAverage *)kernel.get() setOffset:offset];
  }
  MPSOffset offset = {0, 0, 0};
};

struct SpatialMeanNode : NodeOf<SpatialMeanNode, ReductionNode> {
  MPSKernel *new_kernel(id<MTLDevice> device) const override {
    return [(MPSCNNPooling *)[kernel_class() alloc] initWithDevice:device
                                                       kernelWidth:1
                                                      kernelHeight:1
                                                   strideInPixelsX:1
                                                   strideInPixelsY:1];
  }
  void configure(MPSKernel *) const override {}
  std::unique_ptr<Operation> new_empty_operation() const override {
    if (is_gradient) return KernelNode::new_empty_operation();  // the state has the size of the window
    auto operation = std::make_unique<SpatialMeanOperation>();
    operation->clip = clip;
    return operation;
  }
};

}  // namespace
}  // namespace openmps

using openmps::ReductionNode;

@implementation MPSNNUnaryReductionNode
OPENMPS_SOURCE_NODE_INIT(ReductionNode)
OPENMPS_NODE_PROPERTY(ReductionNode, MTLRegion, clipRectSource, setClipRectSource, clip)
@end

#define OPENMPS_REDUCTION_NODE(NODE, KERNEL) \
  @implementation NODE                       \
  OPENMPS_NODE_CLASSES([KERNEL class])       \
  @end
OPENMPS_REDUCTION_NODE(MPSNNReductionColumnMaxNode, MPSNNReduceColumnMax)
OPENMPS_REDUCTION_NODE(MPSNNReductionColumnMeanNode, MPSNNReduceColumnMean)
OPENMPS_REDUCTION_NODE(MPSNNReductionColumnMinNode, MPSNNReduceColumnMin)
OPENMPS_REDUCTION_NODE(MPSNNReductionColumnSumNode, MPSNNReduceColumnSum)
OPENMPS_REDUCTION_NODE(MPSNNReductionFeatureChannelsArgumentMaxNode, MPSNNReduceFeatureChannelsArgumentMax)
OPENMPS_REDUCTION_NODE(MPSNNReductionFeatureChannelsArgumentMinNode, MPSNNReduceFeatureChannelsArgumentMin)
OPENMPS_REDUCTION_NODE(MPSNNReductionFeatureChannelsMaxNode, MPSNNReduceFeatureChannelsMax)
OPENMPS_REDUCTION_NODE(MPSNNReductionFeatureChannelsMeanNode, MPSNNReduceFeatureChannelsMean)
OPENMPS_REDUCTION_NODE(MPSNNReductionFeatureChannelsMinNode, MPSNNReduceFeatureChannelsMin)
OPENMPS_REDUCTION_NODE(MPSNNReductionRowMaxNode, MPSNNReduceRowMax)
OPENMPS_REDUCTION_NODE(MPSNNReductionRowMeanNode, MPSNNReduceRowMean)
OPENMPS_REDUCTION_NODE(MPSNNReductionRowMinNode, MPSNNReduceRowMin)
OPENMPS_REDUCTION_NODE(MPSNNReductionRowSumNode, MPSNNReduceRowSum)

@implementation MPSNNReductionFeatureChannelsSumNode
OPENMPS_NODE_CLASSES([MPSNNReduceFeatureChannelsSum class])
OPENMPS_NODE_PROPERTY(ReductionNode, float, weight, setWeight, weight)
@end

@implementation MPSNNReductionSpatialMeanNode
OPENMPS_NODE_CLASSES([MPSCNNPoolingAverage class], [MPSCNNPoolingAverageGradient class],
                     [MPSNNReductionSpatialMeanGradientNode class])
OPENMPS_SOURCE_NODE_INIT(openmps::SpatialMeanNode)
@end

@implementation MPSNNReductionSpatialMeanGradientNode
OPENMPS_NODE_CLASSES(.gradient_kernel = [MPSCNNPoolingAverageGradient class])
OPENMPS_GRADIENT_NODE_INIT(openmps::SpatialMeanNode)
@end

// --------------------------------------------------------------------------------------------- Gram matrices

namespace openmps {
namespace {

struct GramOperation : OperationOf<GramOperation, KernelOperation> {
  Ref<id<MPSNNGramMatrixCallback>> callback;

  void will_encode(Encoding &encoding, MPSImageBatch *destination) override {
    if (!callback) return;
    const float alpha = [callback.get() alphaForSourceImage:[encoding.image(sources[0]) objectAtIndex:0]
                                           destinationImage:[destination objectAtIndex:0]];
    [(MPSNNGramMatrixCalculation *)kernel.get() setAlpha:alpha];
  }
};

struct GramNode : NodeOf<GramNode, KernelNode> {
  float alpha = 1;
  Ref<id<MPSNNGramMatrixCallback>> callback;

  explicit GramNode(float scale = 1) : alpha(scale) {}

  MPSKernel *new_kernel(id<MTLDevice> device) const override {
    return [(MPSNNGramMatrixCalculation *)[kernel_class() alloc] initWithDevice:device alpha:alpha];
  }
  std::unique_ptr<Operation> new_empty_operation() const override {
    if (is_gradient) return KernelNode::new_empty_operation();
    auto operation = std::make_unique<GramOperation>();
    operation->callback = callback;
    return operation;
  }
};

}  // namespace
}  // namespace openmps

using openmps::GramNode;

@implementation MPSNNGramMatrixCalculationNode
OPENMPS_NODE_CLASSES([MPSNNGramMatrixCalculation class], [MPSNNGramMatrixCalculationGradient class],
                     [MPSNNGramMatrixCalculationGradientNode class])
OPENMPS_SOURCE_NODE_INIT(GramNode)
OPENMPS_NODE_INIT(Source : (MPSNNImageNode *)source alpha : (float)alpha, Source : source alpha : alpha,
                  return init_node(self, GramNode(alpha), {source});)
OPENMPS_NODE_GETTER(GramNode, float, alpha, alpha)
OPENMPS_NODE_GETTER(GramNode, id<MPSNNGramMatrixCallback>, propertyCallBack, callback.get())

- (void)setPropertyCallBack:(id<MPSNNGramMatrixCallback>)callback {
  openmps::node_of<GramNode>(self).callback = openmps::Ref<id<MPSNNGramMatrixCallback>>(callback);
}

@end

@implementation MPSNNGramMatrixCalculationGradientNode
OPENMPS_NODE_CLASSES(.gradient_kernel = [MPSNNGramMatrixCalculationGradient class])
OPENMPS_GRADIENT_NODE_INIT(GramNode)
OPENMPS_NODE_INIT(SourceGradient : (MPSNNImageNode *)sourceGradient sourceImage : (MPSNNImageNode *)
                      sourceImage gradientState : (MPSNNGradientStateNode *)gradientState alpha : (float)alpha,
                  SourceGradient : sourceGradient sourceImage : sourceImage gradientState : gradientState alpha : alpha,
                  return init_gradient_node(self, GramNode(alpha), sourceGradient, sourceImage, gradientState);)
OPENMPS_NODE_GETTER(GramNode, float, alpha, alpha)
@end
