// SPDX-License-Identifier: Apache-2.0
// Losses: with labels in a state, where the result is the gradient; or as a forward filter and its gradient, with
// labels in images [MPSNNGraphNodes.h].

#import "mps/MPSNNGraphNodes+Engine.hh"

using openmps::init_node;

namespace openmps {
namespace {

/// The loss goes into the labels' lossImage, the gradient is the result.
struct LossOperation : OperationOf<LossOperation> {
  void count_reads(std::vector<GraphImage> &images, std::vector<GraphState> &) const override {
    ++images[sources[0]].reads;
  }
  void encode(Encoding &encoding) override {
    auto *loss = (MPSCNNLoss *)kernel.get();
    MPSImageBatch *const images = encoding.image(sources[0]);
    auto *labels = (MPSCNNLossLabelsBatch *)encoding.state(states[0]);
    MPSImageDescriptor *descriptor = describe(encoding, {&images, 1});
    MPSImageBatch *gradients = encoding.make_result(*this, descriptor, loss);
    if ([images count] == 1)
      [loss encodeToCommandBuffer:encoding.buffer()
                      sourceImage:[images objectAtIndex:0]
                           labels:[labels objectAtIndex:0]
                 destinationImage:[gradients objectAtIndex:0]];
    else
      [loss encodeBatchToCommandBuffer:encoding.buffer() sourceImages:images labels:labels destinationImages:gradients];
  }
};

struct LossNode : NodeOf<LossNode, KernelNode> {
  Ref<id> descriptor;  ///< MPSCNNLossDescriptor or MPSCNNYOLOLossDescriptor
  MPSNNLabelsNode *labels() const { return (MPSNNLabelsNode *)links.states[0].get(); }

  Class state_class() const override { return Nil; }
  bool has_effects() const override { return true; }
  bool is_own_gradient() const override { return true; }
  MPSKernel *new_kernel(id<MTLDevice> device) const override {
    return [(MPSCNNLoss *)[kernel_class() alloc] initWithDevice:device lossDescriptor:descriptor.get()];
  }
  std::unique_ptr<Operation> new_empty_operation() const override { return std::make_unique<LossOperation>(); }
};

Ref<id> copied_descriptor(MPSNNFilterNode *node, id descriptor) {
  if (descriptor == nil) {
    const UnwindRelease unwind(node);
    raise_argument(@"%@: lossDescriptor is nil.", [node class]);
  }
  return Ref<id>::adopt([descriptor copy]);
}

/// The labels are an input of the graph.
id init_loss_node(MPSNNFilterNode *node, MPSNNImageNode *source, id descriptor) {
  LossNode data;
  data.descriptor = copied_descriptor(node, descriptor);
  return init_node(node, data, {source}, [[[MPSNNLabelsNode alloc] openmps_initWithOwner:nil] autorelease]);
}

// ---------------------------------------------------------------------------------- losses of images of labels

struct ImageLossOperation : OperationOf<ImageLossOperation, KernelOperation> {
  Ref<id<MPSNNLossCallback>> callback;
  bool is_gradient = false;

  void encode(Encoding &encoding) override {
    std::vector<MPSImageBatch *> batches;
    for (const std::size_t source : sources) batches.push_back(encoding.image(source));
    MPSImageBatch *weights = nil;
    if (batches.size() > (is_gradient ? 3 : 2)) weights = batches.back();
    // The kernels size their results by the predictions (and the incoming gradient).
    const Batches sized = Batches(batches).first(is_gradient ? 2 : 1);
    MPSImageDescriptor *descriptor = encoding.describe_result((ImageKernel *)kernel.get(), sized, nil);
    MPSImageBatch *destination = encoding.make_result(*this, descriptor, kernel.get());
    MPSImageBatch *predictions = batches[is_gradient ? 1 : 0];
    if (callback) {
      const float weight = [callback.get() scalarWeightForSourceImage:[predictions objectAtIndex:0]
                                                     destinationImage:[destination objectAtIndex:0]];
      [(MPSNNForwardLoss *)kernel.get() setWeight:weight];
    }
    if (is_gradient)
      [(MPSNNLossGradient *)kernel.get() encodeBatchToCommandBuffer:encoding.buffer()
                                                    sourceGradients:batches[0]
                                                       sourceImages:predictions
                                                             labels:batches[2]
                                                            weights:weights
                                                       sourceStates:nil
                                               destinationGradients:destination];
    else
      [(MPSNNForwardLoss *)kernel.get() encodeBatchToCommandBuffer:encoding.buffer()
                                                      sourceImages:predictions
                                                            labels:batches[1]
                                                           weights:weights
                                                 destinationStates:nil
                                                 destinationImages:destination];
  }
};

/// Sources: the predictions, labels, and weights if there are any; before them the gradient in gradient nodes. There
/// is no state: the gradient reads the same images.
struct ImageLossNode : NodeOf<ImageLossNode, KernelNode> {
  Ref<MPSCNNLossDescriptor *> descriptor;
  Ref<id<MPSNNLossCallback>> callback;

  Class state_class() const override { return Nil; }
  std::size_t gradient_count() const override { return is_gradient ? 0 : 2; }
  /// Labels that the program passes have no gradient.
  bool wants_gradient_of_input(std::size_t index) const override { return index == 0; }
  MPSNNGradientFilterNode *new_gradient(MPSNNFilterNode *, MPSNNImageNode *gradient, std::size_t index) const override {
    ImageNodes sources = {gradient};
    for (const auto &source : links.sources) sources.push_back(source.get());
    auto data = std::make_unique<ImageLossNode>(*this);
    data->is_gradient = true;
    data->forward_source = index;
    return init_node([MPSNNLossGradientNode alloc], std::move(data), sources);
  }
  MPSKernel *new_kernel(id<MTLDevice> device) const override {
    return [(MPSNNForwardLoss *)[kernel_class() alloc] initWithDevice:device lossDescriptor:descriptor.get()];
  }
  void configure(MPSKernel *kernel) const override {
    if (is_gradient) [(MPSNNLossGradient *)kernel setComputeLabelGradients:forward_source == 1];
  }
  std::unique_ptr<Operation> new_empty_operation() const override {
    auto operation = std::make_unique<ImageLossOperation>();
    operation->callback = callback;
    operation->is_gradient = is_gradient;
    return operation;
  }
};

id init_image_loss_node(MPSNNFilterNode *node, const ImageNodes &sources, MPSCNNLossDescriptor *descriptor,
                        bool is_gradient = false, BOOL of_labels = NO) {
  const std::size_t least = is_gradient ? 3 : 2;
  if (sources.size() != least && sources.size() != least + 1) {
    const UnwindRelease unwind(node);
    raise_argument(@"%@: sourceNodes has %lu nodes, expected %lu (%s), or one more for the weights.", [node class],
                   (unsigned long)sources.size(), (unsigned long)least,
                   is_gradient ? "gradient, source and labels" : "source and labels");
  }
  ImageLossNode data;
  data.descriptor = Ref<MPSCNNLossDescriptor *>(copied_descriptor(node, descriptor).get());
  data.is_gradient = is_gradient;
  data.forward_source = of_labels ? 1 : 0;
  return init_node(node, data, sources);
}

/// Return the sources without the weights if these are nil.
ImageNodes with_weights(ImageNodes sources, MPSNNImageNode *weights) {
  if (weights != nil) sources.push_back(weights);
  return sources;
}

}  // namespace
}  // namespace openmps

using openmps::ImageLossNode;

#define OPENMPS_LOSS_NODE(NODE, KERNEL, DESCRIPTOR)                                                           \
  @implementation NODE                                                                                        \
  OPENMPS_NODE_CLASSES([KERNEL class])                                                                        \
  OPENMPS_NODE_INIT(Source : (MPSNNImageNode *)source lossDescriptor : (DESCRIPTOR *)descriptor,              \
                    Source : source lossDescriptor : descriptor,                                              \
                    return openmps::init_loss_node(self, source, descriptor);)                                \
  -(MPSNNLabelsNode *)inputLabels {                                                                           \
    return openmps::node_of<openmps::LossNode>(self).labels();                                                \
  }                                                                                                           \
  -(MPSNNGradientFilterNode *)gradientFilterWithSources : (NSArray<MPSNNImageNode *> *)gradientImages {       \
    (void)gradientImages;                                                                                     \
    openmps::raise_argument(@"-[%@ gradientFilterWithSources:] is unavailable: resultImage is the gradient.", \
                            [self class]);                                                                    \
  }                                                                                                           \
  @end

OPENMPS_LOSS_NODE(MPSCNNLossNode, MPSCNNLoss, MPSCNNLossDescriptor)
OPENMPS_LOSS_NODE(MPSCNNYOLOLossNode, MPSCNNYOLOLoss, MPSCNNYOLOLossDescriptor)

#define OPENMPS_LOSS_NODE_GETTERS                                                                        \
  OPENMPS_NODE_GETTER(ImageLossNode, MPSCNNLossType, lossType, descriptor.get().lossType)                \
  OPENMPS_NODE_GETTER(ImageLossNode, MPSCNNReductionType, reductionType, descriptor.get().reductionType) \
  OPENMPS_NODE_GETTER(ImageLossNode, NSUInteger, numberOfClasses, descriptor.get().numberOfClasses)      \
  OPENMPS_NODE_GETTER(ImageLossNode, BOOL, reduceAcrossBatch, descriptor.get().reduceAcrossBatch)        \
  OPENMPS_NODE_GETTER(ImageLossNode, float, weight, descriptor.get().weight)                             \
  OPENMPS_NODE_GETTER(ImageLossNode, float, labelSmoothing, descriptor.get().labelSmoothing)             \
  OPENMPS_NODE_GETTER(ImageLossNode, float, epsilon, descriptor.get().epsilon)                           \
  OPENMPS_NODE_GETTER(ImageLossNode, float, delta, descriptor.get().delta)                               \
  OPENMPS_NODE_GETTER(ImageLossNode, id<MPSNNLossCallback>, propertyCallBack, callback.get())            \
  -(void)setPropertyCallBack : (id<MPSNNLossCallback>)callback {                                         \
    openmps::node_of<ImageLossNode>(self).callback = openmps::Ref<id<MPSNNLossCallback>>(callback);      \
  }

@implementation MPSNNForwardLossNode

OPENMPS_NODE_CLASSES([MPSNNForwardLoss class], [MPSNNLossGradient class], [MPSNNLossGradientNode class])
OPENMPS_LOSS_NODE_GETTERS

OPENMPS_NODE_INIT(Sources : (NSArray<MPSNNImageNode *> *)sourceNodes lossDescriptor : (MPSCNNLossDescriptor *)
                      descriptor,
                  Sources : sourceNodes lossDescriptor : descriptor,
                  return openmps::init_image_loss_node(self, openmps::nodes_of(sourceNodes), descriptor);)
OPENMPS_NODE_INIT(Source : (MPSNNImageNode *)source labels : (MPSNNImageNode *)labels weights : (MPSNNImageNode *)
                      weights lossDescriptor : (MPSCNNLossDescriptor *)descriptor,
                  Source : source labels : labels weights : weights lossDescriptor : descriptor,
                  return openmps::init_image_loss_node(self, openmps::with_weights({source, labels}, weights),
                                                       descriptor);)
OPENMPS_NODE_INIT(Source : (MPSNNImageNode *)source labels : (MPSNNImageNode *)
                      labels lossDescriptor : (MPSCNNLossDescriptor *)descriptor,
                  Source : source labels : labels lossDescriptor : descriptor,
                  return openmps::init_image_loss_node(self, {source, labels}, descriptor);)

// The header narrows the results. The first gradient is that of the predictions, the second that of the labels.

- (NSArray<MPSNNLossGradientNode *> *)gradientFiltersWithSources:(NSArray<MPSNNImageNode *> *)sourceGradient {
  return (NSArray<MPSNNLossGradientNode *> *)[super gradientFiltersWithSources:sourceGradient];
}

- (NSArray<MPSNNLossGradientNode *> *)gradientFiltersWithSource:(MPSNNImageNode *)sourceGradient {
  return (NSArray<MPSNNLossGradientNode *> *)[super gradientFiltersWithSource:sourceGradient];
}

- (MPSNNLossGradientNode *)gradientFilterWithSources:(NSArray<MPSNNImageNode *> *)sourceGradient {
  return [[self gradientFiltersWithSources:sourceGradient] objectAtIndex:0];
}

- (MPSNNLossGradientNode *)gradientFilterWithSource:(MPSNNImageNode *)sourceGradient {
  return [[self gradientFiltersWithSource:sourceGradient] objectAtIndex:0];
}

@end

@implementation MPSNNLossGradientNode

OPENMPS_NODE_CLASSES(.gradient_kernel = [MPSNNLossGradient class])
OPENMPS_LOSS_NODE_GETTERS
OPENMPS_NODE_GETTER(ImageLossNode, BOOL, isLabelsGradientFilter, forward_source == 1)

OPENMPS_NODE_INIT(
    SourceGradient : (MPSNNImageNode *)sourceGradient sourceImage : (MPSNNImageNode *)
        sourceImage labels : (MPSNNImageNode *)labels weights : (MPSNNImageNode *)
            weights gradientState : (MPSNNGradientStateNode *)gradientState lossDescriptor : (MPSCNNLossDescriptor *)
                descriptor isLabelsGradientFilter : (BOOL)isLabelsGradientFilter,
    SourceGradient : sourceGradient sourceImage : sourceImage labels : labels weights : weights
        gradientState : gradientState lossDescriptor : descriptor isLabelsGradientFilter : isLabelsGradientFilter,
    (void)gradientState;
    return openmps::init_image_loss_node(self, openmps::with_weights({sourceGradient, sourceImage, labels}, weights),
                                         descriptor, true, isLabelsGradientFilter);)
OPENMPS_NODE_INIT(
    SourceGradient : (MPSNNImageNode *)sourceGradient sourceImage : (MPSNNImageNode *)
        sourceImage labels : (MPSNNImageNode *)labels gradientState : (MPSNNGradientStateNode *)gradientState
            lossDescriptor : (MPSCNNLossDescriptor *)descriptor isLabelsGradientFilter : (BOOL)isLabelsGradientFilter,
    SourceGradient : sourceGradient sourceImage : sourceImage labels : labels gradientState : gradientState
        lossDescriptor : descriptor isLabelsGradientFilter : isLabelsGradientFilter,
    (void)gradientState;
    return openmps::init_image_loss_node(self, {sourceGradient, sourceImage, labels}, descriptor, true,
                                         isLabelsGradientFilter);)
OPENMPS_NODE_INIT(Sources : (NSArray<MPSNNImageNode *> *)sourceNodes gradientState : (MPSNNGradientStateNode *)
                      gradientState lossDescriptor : (MPSCNNLossDescriptor *)descriptor isLabelsGradientFilter : (BOOL)
                          isLabelsGradientFilter,
                  Sources : sourceNodes gradientState : gradientState lossDescriptor : descriptor
                      isLabelsGradientFilter : isLabelsGradientFilter,
                  (void)gradientState;
                  return openmps::init_image_loss_node(self, openmps::nodes_of(sourceNodes), descriptor, true,
                                                       isLabelsGradientFilter);)

- (MPSNNGradientFilterNode *)gradientFilterWithSources:(NSArray<MPSNNImageNode *> *)gradientImages {
  return [super gradientFilterWithSources:gradientImages];
}

@end
