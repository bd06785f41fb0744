// SPDX-License-Identifier: Apache-2.0
// Filters that combine images: arithmetic and concatenation [MPSNNGraphNodes.h].

#import "mps/MPSNNGraphNodes+Engine.hh"

#include <cfloat>

#include "engine/problem/problem.hpp"

using openmps::init_gradient_node;
using openmps::init_node;

// ------------------------------------------------------------------------------------------------ arithmetic

namespace openmps {
namespace {

struct ArithmeticNode : NodeOf<ArithmeticNode, KernelNode> {
  float scales[2] = {1, 1}, bias = 0;
  /// Of both sources; gradient nodes: of the secondary image.
  NSUInteger strides_x[2] = {1, 1}, strides_y[2] = {1, 1}, channel_strides[2] = {1, 1};
  float min = -FLT_MAX, max = FLT_MAX;
  MPSNNComparisonType comparison = MPSNNComparisonTypeEqual;

  Class state_class() const override { return is_gradient ? Nil : [MPSNNArithmeticGradientStateNode class]; }
  std::size_t gradient_count() const override { return classes.gradient_node != Nil ? 2 : 0; }
  bool is_product() const {
    return classes.kernel == [MPSCNNMultiply class] || classes.gradient_kernel == [MPSCNNMultiplyGradient class];
  }
  /// A product's gradient reads the other source.
  MPSNNImageNode *image_for_gradient(std::size_t index) const override {
    return links.sources[is_product() ? 1 - index : index].get();
  }
  MPSNNGradientFilterNode *new_gradient(MPSNNFilterNode *self, MPSNNImageNode *gradient,
                                        std::size_t index) const override {
    MPSNNGradientFilterNode *node = KernelNode::new_gradient(self, gradient, index);
    node_of<ArithmeticNode>(node).take_strides(is_product() ? 1 - index : index);
    return node;
  }
  void take_strides(std::size_t source) {
    strides_x[1] = strides_x[source], strides_y[1] = strides_y[source], channel_strides[1] = channel_strides[source];
  }

  MPSKernel *new_kernel(id<MTLDevice> device) const override {
    if (!is_gradient) return KernelNode::new_kernel(device);
    return [(MPSCNNAddGradient *)[kernel_class() alloc] initWithDevice:device
                                               isSecondarySourceFilter:forward_source == 1];
  }
  void configure(MPSKernel *given) const override {
    auto *kernel = (MPSCNNArithmetic *)given;
    [kernel setPrimaryScale:scales[0]];
    [kernel setSecondaryScale:scales[1]];
    [kernel setBias:bias];
    [kernel setMinimumValue:min];
    [kernel setMaximumValue:max];
    [kernel setSecondaryStrideInPixelsX:strides_x[1]];
    [kernel setSecondaryStrideInPixelsY:strides_y[1]];
    [kernel setSecondaryStrideInFeatureChannels:channel_strides[1]];
    if (is_gradient) return;
    [kernel setPrimaryStrideInPixelsX:strides_x[0]];
    [kernel setPrimaryStrideInPixelsY:strides_y[0]];
    [kernel setPrimaryStrideInFeatureChannels:channel_strides[0]];
    if (classes.kernel == [MPSNNCompare class]) [(MPSNNCompare *)given setComparisonType:comparison];
  }
};

id init_arithmetic_node(MPSNNFilterNode *node, const ImageNodes &sources) {
  if (sources.size() != 2) {
    const UnwindRelease unwind(node);
    raise_argument(@"%@: sourceNodes has %lu nodes, expected 2.", [node class], (unsigned long)sources.size());
  }
  return init_node(node, ArithmeticNode(), sources);
}

/// A gradient node made by hand has the forward filter's parameters, as those that filters make.
id init_arithmetic_gradient_node(MPSNNFilterNode *node, MPSNNImageNode *gradient, MPSNNImageNode *source,
                                 MPSNNFilterNode *forward, BOOL is_secondary) {
  if (![forward isKindOfClass:[MPSNNBinaryArithmeticNode class]]) {
    const UnwindRelease unwind(node);
    raise_argument(@"%@: The forward filter (%@) is no MPSNNBinaryArithmeticNode.", [node class], forward);
  }
  ArithmeticNode data = node_of<ArithmeticNode>(forward);
  const std::size_t index = is_secondary ? 1 : 0;
  if (source != nil) source = node_of<ArithmeticNode>(forward).image_for_gradient(index);
  data.take_strides(data.is_product() ? 1 - index : index);
  data.is_gradient = true;
  data.forward_source = index;
  return init_node(node, data, {gradient, source}, [forward resultState]);
}

}  // namespace
}  // namespace openmps

using openmps::ArithmeticNode;

#define OPENMPS_ARITHMETIC_PROPERTIES                                                                      \
  OPENMPS_NODE_PROPERTY(ArithmeticNode, float, primaryScale, setPrimaryScale, scales[0])                   \
  OPENMPS_NODE_PROPERTY(ArithmeticNode, float, secondaryScale, setSecondaryScale, scales[1])               \
  OPENMPS_NODE_PROPERTY(ArithmeticNode, float, bias, setBias, bias)                                        \
  OPENMPS_NODE_PROPERTY(ArithmeticNode, NSUInteger, secondaryStrideInPixelsX, setSecondaryStrideInPixelsX, \
                        strides_x[1])                                                                      \
  OPENMPS_NODE_PROPERTY(ArithmeticNode, NSUInteger, secondaryStrideInPixelsY, setSecondaryStrideInPixelsY, \
                        strides_y[1])                                                                      \
  OPENMPS_NODE_PROPERTY(ArithmeticNode, NSUInteger, secondaryStrideInFeatureChannels,                      \
                        setSecondaryStrideInFeatureChannels, channel_strides[1])                           \
  OPENMPS_NODE_PROPERTY(ArithmeticNode, float, minimumValue, setMinimumValue, min)                         \
  OPENMPS_NODE_PROPERTY(ArithmeticNode, float, maximumValue, setMaximumValue, max)

@implementation MPSNNBinaryArithmeticNode

OPENMPS_NODE_INIT(Sources : (NSArray<MPSNNImageNode *> *)sourceNodes, Sources : sourceNodes,
                  return openmps::init_arithmetic_node(self, openmps::nodes_of(sourceNodes));)
OPENMPS_NODE_INIT(LeftSource : (MPSNNImageNode *)left rightSource : (MPSNNImageNode *)right,
                  LeftSource : left rightSource : right, return openmps::init_arithmetic_node(self, {left, right});)

OPENMPS_ARITHMETIC_PROPERTIES
OPENMPS_NODE_PROPERTY(ArithmeticNode, NSUInteger, primaryStrideInPixelsX, setPrimaryStrideInPixelsX, strides_x[0])
OPENMPS_NODE_PROPERTY(ArithmeticNode, NSUInteger, primaryStrideInPixelsY, setPrimaryStrideInPixelsY, strides_y[0])
OPENMPS_NODE_PROPERTY(ArithmeticNode, NSUInteger, primaryStrideInFeatureChannels, setPrimaryStrideInFeatureChannels,
                      channel_strides[0])

- (Class)gradientClass {
  return openmps::filter_node(self).classes.gradient_node;
}

- (MPSNNGradientFilterNode *)gradientFilterWithSources:(NSArray<MPSNNImageNode *> *)gradientImages {
  return [super gradientFilterWithSources:gradientImages];
}

- (NSArray<MPSNNGradientFilterNode *> *)gradientFiltersWithSources:(NSArray<MPSNNImageNode *> *)gradientImages {
  return [super gradientFiltersWithSources:gradientImages];
}

@end

@implementation MPSNNArithmeticGradientNode

OPENMPS_NODE_INIT(SourceGradient : (MPSNNImageNode *)sourceGradient sourceImage : (MPSNNImageNode *)
                      sourceImage gradientState : (MPSNNBinaryGradientStateNode *)
                          gradientState isSecondarySourceFilter : (BOOL)isSecondarySourceFilter,
                  SourceGradient : sourceGradient sourceImage : sourceImage gradientState : gradientState
                      isSecondarySourceFilter : isSecondarySourceFilter,
                  return openmps::init_arithmetic_gradient_node(self, sourceGradient, sourceImage,
                                                                openmps::forward_filter(self, gradientState),
                                                                isSecondarySourceFilter);)

- (instancetype)initWithGradientImages:(NSArray<MPSNNImageNode *> *)gradientImages
                         forwardFilter:(MPSNNFilterNode *)filter
               isSecondarySourceFilter:(BOOL)isSecondarySourceFilter {
  MPSNNImageNode *gradient = [gradientImages count] == 1 ? [gradientImages objectAtIndex:0] : nil;
  return openmps::init_arithmetic_gradient_node(self, gradient, [filter resultImage], filter, isSecondarySourceFilter);
}

OPENMPS_ARITHMETIC_PROPERTIES
OPENMPS_NODE_GETTER(ArithmeticNode, BOOL, isSecondarySourceFilter, forward_source == 1)

@end

/// Rows: a class, and the classes that belong to it.
#define OPENMPS_ARITHMETIC_NODE(NODE, KERNEL, GRADIENT, GRADIENT_NODE)          \
  @implementation NODE                                                          \
  OPENMPS_NODE_CLASSES([KERNEL class], [GRADIENT class], [GRADIENT_NODE class]) \
  @end
#define OPENMPS_ARITHMETIC_GRADIENT_NODE(NODE, GRADIENT)    \
  @implementation NODE                                      \
  OPENMPS_NODE_CLASSES(.gradient_kernel = [GRADIENT class]) \
  @end

OPENMPS_ARITHMETIC_NODE(MPSNNAdditionNode, MPSCNNAdd, MPSCNNAddGradient, MPSNNAdditionGradientNode)
OPENMPS_ARITHMETIC_GRADIENT_NODE(MPSNNAdditionGradientNode, MPSCNNAddGradient)
OPENMPS_ARITHMETIC_NODE(MPSNNSubtractionNode, MPSCNNSubtract, MPSCNNSubtractGradient, MPSNNSubtractionGradientNode)
OPENMPS_ARITHMETIC_GRADIENT_NODE(MPSNNSubtractionGradientNode, MPSCNNSubtractGradient)
OPENMPS_ARITHMETIC_NODE(MPSNNMultiplicationNode, MPSCNNMultiply, MPSCNNMultiplyGradient,
                        MPSNNMultiplicationGradientNode)
OPENMPS_ARITHMETIC_GRADIENT_NODE(MPSNNMultiplicationGradientNode, MPSCNNMultiplyGradient)

@implementation MPSNNDivisionNode
OPENMPS_NODE_CLASSES([MPSCNNDivide class])
@end

@implementation MPSNNComparisonNode
OPENMPS_NODE_CLASSES([MPSNNCompare class])
OPENMPS_NODE_PROPERTY(ArithmeticNode, MPSNNComparisonType, comparisonType, setComparisonType, comparison)
@end

// --------------------------------------------------------------------------------------------- concatenation

/// Copy an image to a range of channels. The range is rounded up to a multiple of 4.
@interface OpenMPSConcatenation : MPSCNNKernel
@end

namespace openmps {
namespace {

/// Return whether an image of the extents of `whole` is its channels from `first` on.
bool is_part(const ImageView &part, const ImageView &whole, NSUInteger first) {
  return part.memory == whole.memory && part.format == whole.format &&
         part.offset == whole.offset + first * size_of(part.format) && part.n_stride == whole.n_stride &&
         part.h_stride == whole.h_stride && part.w_stride == whole.w_stride;
}

struct ConcatenationState : Extends<ConcatenationState, CNNKernelState> {
  NSUInteger output_channels(NSUInteger channels) const override { return rounded_channels(channels); }

  Problem problem(const ImageView &src, const ImageView &dst, const Window &) const override {
    if (src.c == dst.c) return CopyProblem{src, dst};
    PadProblem problem;
    problem.src = src, problem.dst = dst;
    problem.edge = PadEdge::constant;
    // A texel format with one or two lanes reads as (r, 0, 0, 1) or (r, g, 0, 1), and its lanes are copied.
    if (src.c > 2) return problem;
    auto fill = std::make_shared<std::vector<float>>(static_cast<std::size_t>(dst.c), 0.0f);
    fill->back() = 1;
    problem.fill_per_channel = std::move(fill);
    return problem;
  }
};

struct ConcatenationOperation : OperationOf<ConcatenationOperation> {
  std::vector<NSUInteger> channels;  ///< of each source, in the last encode

  bool joins() const override { return true; }

  void count_reads(std::vector<GraphImage> &images, std::vector<GraphState> &) const override {
    for (const std::size_t source : sources) ++images[source].reads;
  }

  void encode(Encoding &encoding) override {
    MPSImageBatch *const leading = encoding.image(sources[0]);
    std::vector<const ImageView *> parts;
    NSUInteger all = 0;
    channels.clear();
    for (const std::size_t source : sources) {
      const ImageView &part = *parts.emplace_back(&view_of(encoding.image(source))), &first = *parts[0];
      if (part.w != first.w || part.h != first.h)
        raise_argument(@"MPSNNConcatenationNode: source %lu has %ld x %ld pixels (width x height), and the first one "
                       @"%ld x %ld.",
                       (unsigned long)channels.size(), (long)part.w, (long)part.h, (long)first.w, (long)first.h);
      channels.push_back(static_cast<NSUInteger>(part.c));
      all += rounded_channels(channels.back());
    }
    auto *copy = (MPSCNNKernel *)kernel.get();
    MPSImageDescriptor *descriptor = describe(encoding, {&leading, 1});
    [descriptor setFeatureChannels:all];
    MPSImageBatch *destination = encoding.make_result(*this, descriptor, copy);
    const ImageView &whole = view_of(destination);
    NSUInteger offset = 0;
    for (std::size_t i = 0; i < sources.size(); ++i) {
      MPSImageBatch *const source = encoding.image(sources[i]);
      const ImageView &part = *parts[i];
      if (is_part(part, whole, offset)) {
        for (MPSImage *image in source) [image openmps_didRead];
      } else {
        [copy setDestinationFeatureChannelOffset:offset];
        encoding.encode(copy, {&source, 1}, {}, destination);
        [copy setDestinationFeatureChannelOffset:0];
      }
      offset += rounded_channels(channels[i]);
    }
  }
};

/// The range of channels of one source.
struct ConcatenationGradientOperation : OperationOf<ConcatenationGradientOperation> {
  std::size_t forward = kNone, source = 0;

  /// The forward source is not read: only its channels matter.
  void count_reads(std::vector<GraphImage> &images, std::vector<GraphState> &) const override {
    ++images[sources[0]].reads;
  }

  void encode(Encoding &encoding) override {
    const auto &channels = static_cast<const ConcatenationOperation &>(encoding.operation(forward)).channels;
    NSUInteger first = 0;
    for (std::size_t i = 0; i < source; ++i) first += rounded_channels(channels[i]);
    auto *slice = (MPSNNSlice *)kernel.get();
    [slice setSourceFeatureChannelOffset:first];
    [slice setSourceFeatureChannelMaxCount:channels[source]];
    MPSImageBatch *const gradients = encoding.image(sources[0]);
    MPSImageDescriptor *descriptor = encoding.describe_result((ImageKernel *)slice, {&gradients, 1}, nil);
    encoding.encode(slice, {&gradients, 1}, {}, encoding.make_result(*this, descriptor, slice));
  }
};

struct ConcatenationNode : NodeOf<ConcatenationNode, KernelNode> {
  std::size_t gradient_count() const override { return links.sources.size(); }
  std::unique_ptr<Operation> new_operation(const Building &building) const override {
    if (!is_gradient) return KernelNode::new_operation(building);
    auto operation = std::make_unique<ConcatenationGradientOperation>();
    operation->kernel = Ref<MPSKernel *>::adopt(new_kernel(building.device));
    operation->forward = building.forward;
    operation->source = forward_source;
    return operation;
  }
  std::unique_ptr<Operation> new_empty_operation() const override { return std::make_unique<ConcatenationOperation>(); }
};

}  // namespace
}  // namespace openmps

@implementation OpenMPSConcatenation
+ (openmps::KernelState *)openmps_newState {
  return new openmps::ConcatenationState();
}
@end

@implementation MPSNNConcatenationNode

OPENMPS_NODE_CLASSES([OpenMPSConcatenation class], [MPSNNSlice class], [MPSNNConcatenationGradientNode class])
OPENMPS_NODE_INIT(Sources : (NSArray<MPSNNImageNode *> *)sourceNodes, Sources : sourceNodes,
                  return init_node(self, openmps::ConcatenationNode(), openmps::nodes_of(sourceNodes));)

- (MPSNNGradientFilterNode *)gradientFilterWithSources:(NSArray<MPSNNImageNode *> *)gradientImages {
  return [super gradientFilterWithSources:gradientImages];
}

@end

@implementation MPSNNConcatenationGradientNode
OPENMPS_NODE_CLASSES(.gradient_kernel = [MPSNNSlice class])
OPENMPS_GRADIENT_NODE_INIT(openmps::ConcatenationNode)
@end
