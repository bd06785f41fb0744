// SPDX-License-Identifier: Apache-2.0
// Filters with data sources: convolutions and normalizations, their gradients, and the updates of the data sources
// during training [MPSNNGraphNodes.h].

#import "mps/MPSNNGraphNodes+Engine.hh"

#import "mps/MPSCNNConvolution+Engine.hh"
#import "mps/MPSCNNNormalizationWeights+Engine.hh"

using openmps::init_node;

namespace openmps {
namespace {

/// The side that updates a data source after its gradients have been encoded.
enum class Update : std::uint8_t { none, cpu, gpu };

/// The parameters of trainable filters. A data source without the method of the node's style is not updated.
struct TrainableNode : NodeOf<TrainableNode, KernelNode> {
  Ref<id> source;
  MPSNNTrainingStyle style = MPSNNTrainingStyleUpdateDeviceGPU;

  virtual bool can_update(Update) const { return false; }
  Update update() const {
    if (!is_gradient) return Update::none;
    const Update wanted = style == MPSNNTrainingStyleUpdateDeviceGPU   ? Update::gpu
                          : style == MPSNNTrainingStyleUpdateDeviceCPU ? Update::cpu
                                                                       : Update::none;
    return wanted != Update::none && can_update(wanted) ? wanted : Update::none;
  }
  bool has_effects() const override { return update() != Update::none; }
  bool answers(SEL selector) const { return [source.get() respondsToSelector:selector]; }

  void set_style(MPSNNTrainingStyle value) {
    if (value > MPSNNTrainingStyleUpdateDeviceGPU)
      raise_argument(@"trainingStyle (%lu) is neither None (0) nor CPU (1) nor GPU (2).", (unsigned long)value);
    style = value;
  }
};

/// A gradient kernel, and the update of the forward kernel's data source.
struct UpdatingOperation : KernelOperation {
  Ref<id> source;
  Update update = Update::none;
  std::size_t forward = kNone;

  /// Return the decrements of the state's readCount by the encode, and by the update's methods.
  virtual NSUInteger encode_reads() const { return 1; }
  virtual NSUInteger update_reads() const { return 1; }
  void count_reads(std::vector<GraphImage> &images, std::vector<GraphState> &graph_states) const override {
    Operation::count_reads(images, graph_states);
    GraphState &state = graph_states[states[0]];
    state.reads += encode_reads() - 1 + (update == Update::gpu ? update_reads() : 0);
    if (update == Update::cpu) state.is_permanent = true;
  }

  virtual void update_now(Encoding &encoding, MPSKernel *forward_kernel, MPSStateBatch *given) = 0;
  /// Return the update of the data source and the kernels, which runs when the command buffer has completed.
  virtual std::function<void()> update_later(Encoding &encoding, MPSKernel *forward_kernel, MPSStateBatch *given) = 0;

  /// Update the forward kernel's copy of the data source.
  void did_copy(const Graph &graph) override {
    MPSKernel *forward_kernel = graph.operations[forward]->kernel.get();
    source = Ref<id>([(MPSCNNConvolution *)forward_kernel dataSource]);
  }

  virtual void encode_gradient(Encoding &encoding) { KernelOperation::encode(encoding); }
  void encode(Encoding &encoding) override {
    encode_gradient(encoding);
    if (update == Update::none) return;
    MPSKernel *forward_kernel = encoding.operation(forward).kernel.get();
    MPSStateBatch *given = encoding.source_state(*this);
    if (update == Update::gpu) return update_now(encoding, forward_kernel, given);
    for (MPSState *state in [NSSet setWithArray:given]) [state synchronizeOnCommandBuffer:encoding.buffer()];
    const std::function<void()> later = update_later(encoding, forward_kernel, given);
    const auto mutex = encoding.graph().mutex;
    [encoding.buffer() addCompletedHandler:^(id<MTLCommandBuffer>) {
      const std::lock_guard lock(*mutex);
      later();
    }];
  }
};

template <class Operation>
std::unique_ptr<Operation> updating(const TrainableNode &node, const Building &building) {
  auto operation = std::make_unique<Operation>();
  operation->source = node.source;
  operation->update = node.update();
  operation->forward = building.forward;
  return operation;
}

// ----------------------------------------------------------------------------------------------- convolution

struct ConvolutionGradientOperation : OperationOf<ConvolutionGradientOperation, UpdatingOperation> {
  bool writes_weights = false;  ///< an encode that writes gradients of weights does not count as a read of the state

  NSUInteger encode_reads() const override { return writes_weights ? 0 : 1; }

  void update_now(Encoding &encoding, MPSKernel *forward_kernel, MPSStateBatch *given) override {
    id<MTLCommandBuffer> buffer = encoding.buffer();
    MPSCNNConvolutionWeightsAndBiasesState *weights =
        [(MPSCNNConvolution *)forward_kernel exportWeightsAndBiasesWithCommandBuffer:buffer
                                                           resultStateCanBeTemporary:YES];
    MPSCNNConvolutionWeightsAndBiasesState *next =
        [source.get() updateWithCommandBuffer:buffer
                                gradientState:(MPSCNNConvolutionGradientState *)[given objectAtIndex:0]
                                  sourceState:weights];
    if (next == nil) return;
    if ([next isTemporary]) [next setReadCount:[next readCount] + 1];  // both kernels read it
    [(MPSCNNConvolution *)forward_kernel reloadWeightsAndBiasesWithCommandBuffer:buffer state:next];
    [(MPSCNNConvolutionGradient *)kernel.get() reloadWeightsAndBiasesWithCommandBuffer:buffer state:next];
  }

  std::function<void()> update_later(Encoding &encoding, MPSKernel *forward_kernel, MPSStateBatch *given) override {
    const Ref<MPSCNNConvolution *> convolution((MPSCNNConvolution *)forward_kernel);
    const Ref<MPSCNNConvolutionGradient *> gradient((MPSCNNConvolutionGradient *)kernel.get());
    const Ref<MPSCNNConvolutionWeightsAndBiasesState *> weights(
        [convolution.get() exportWeightsAndBiasesWithCommandBuffer:encoding.buffer() resultStateCanBeTemporary:NO]);
    [weights.get() synchronizeOnCommandBuffer:encoding.buffer()];
    const Ref<MPSCNNConvolutionGradientState *> state((MPSCNNConvolutionGradientState *)[given objectAtIndex:0]);
    return [=, data_source = source] {
      if (![data_source.get() updateWithGradientState:state.get() sourceState:weights.get()]) return;
      [convolution.get() reloadWeightsAndBiasesFromDataSource];
      [gradient.get() reloadWeightsAndBiasesFromDataSource];
    };
  }
};

struct ConvolutionNode : NodeOf<ConvolutionNode, TrainableNode> {
  MPSNNConvolutionAccumulatorPrecisionOption accumulator = MPSNNConvolutionAccumulatorPrecisionOptionFloat;

  bool is_transpose() const {
    return classes.kernel == [MPSCNNConvolutionTranspose class] ||
           classes.gradient_kernel == [MPSCNNConvolutionTransposeGradient class];
  }
  bool fuse(Operation &operation, MPSNNNeuronDescriptor *neuron) const override {
    auto &state = state_of<ConvolutionState>(operation.kernel.get());
    if (is_gradient || state.neuron_descriptor || state.neuron_filter) return false;
    state.neuron = [neuron openmps_neuron];
    state.neuron_descriptor = Ref<MPSNNNeuronDescriptor *>::adopt([neuron copy]);
    return true;
  }
  Class state_class() const override {
    if (is_gradient) return Nil;
    return is_transpose() ? [MPSCNNConvolutionTransposeGradientStateNode class]
                          : [MPSCNNConvolutionGradientStateNode class];
  }
  id<MPSNNPadding> default_policy() const override {
    return default_padding(classes.kernel == [MPSCNNFullyConnected class] ? MPSNNPaddingMethodSizeValidOnly
                                                                          : MPSNNPaddingMethodSizeSame);
  }
  bool can_update(Update update) const override {
    return answers(update == Update::gpu ? @selector(updateWithCommandBuffer:gradientState:sourceState:)
                                         : @selector(updateWithGradientState:sourceState:));
  }

  MPSKernel *new_kernel(id<MTLDevice> device) const override {
    return [(MPSCNNConvolution *)[kernel_class() alloc] initWithDevice:device weights:source.get()];
  }
  void configure(MPSKernel *kernel) const override {
    if (!is_gradient) [(MPSCNNConvolution *)kernel setAccumulatorPrecisionOption:accumulator];
  }
  std::unique_ptr<Operation> new_operation(const Building &building) const override {
    if (!is_gradient) return KernelNode::new_operation(building);
    auto operation = updating<ConvolutionGradientOperation>(*this, building);
    operation->writes_weights = has_effects() || building.source_state_is_exported;
    if (!take_kernel(*operation, building.device)) return nullptr;
    NSUInteger option = 0;
    if (building.result_is_needed) option |= MPSCNNConvolutionGradientOptionGradientWithData;
    if (operation->writes_weights) option |= MPSCNNConvolutionGradientOptionGradientWithWeightsAndBias;
    [(MPSCNNConvolutionGradient *)operation->kernel.get() setGradientOption:option];
    return operation;
  }
  /// The gradient kernels ignore a fused neuron [MPSNNGraphNodes.h].
  MPSNNGradientFilterNode *new_gradient(MPSNNFilterNode *self, MPSNNImageNode *gradient,
                                        std::size_t index) const override {
    check_no_neuron(self);
    return KernelNode::new_gradient(self, gradient, index);
  }
  void check_no_neuron(MPSNNFilterNode *self) const {
    MPSNNNeuronDescriptor *neuron = [[(id<MPSCNNConvolutionDataSource>)source.get() descriptor] fusedNeuronDescriptor];
    if (neuron != nil && [neuron neuronType] != MPSCNNNeuronTypeNone)
      raise_argument(@"%@: The data source's descriptor has a neuron (type %d), which the gradient node would ignore. "
                     @"Use a node of its own for the neuron.",
                     self, (int)[neuron neuronType]);
  }
};

id init_convolution_node(MPSNNFilterNode *node, MPSNNImageNode *image, id<MPSCNNConvolutionDataSource> weights,
                         MPSNNStateNode *state = nil) {
  if (weights == nil) {
    const UnwindRelease unwind(node);
    raise_argument(@"%@: weights is nil.", [node class]);
  }
  ConvolutionNode data;
  data.source = Ref<id>(weights);
  return init_node(node, data, {image}, state);
}

id init_convolution_gradient_node(MPSNNFilterNode *node, MPSNNImageNode *gradient, MPSNNImageNode *image,
                                  MPSNNStateNode *state, id<MPSCNNConvolutionDataSource> weights) {
  MPSNNFilterNode *forward = forward_filter(node, state);
  if (![forward isKindOfClass:[MPSCNNConvolutionNode class]]) {
    const UnwindRelease unwind(node);
    raise_argument(@"%@: gradientState is that of %@, which is no MPSCNNConvolutionNode.", [node class], forward);
  }
  ConvolutionNode data = node_of<ConvolutionNode>(forward);
  if (weights != nil) data.source = Ref<id>(weights);
  return init_gradient_node(node, data, gradient, image, state);
}

// -------------------------------------------------------------------------------------------- binary convolution

struct BinaryConvolutionNode : NodeOf<BinaryConvolutionNode, ConvolutionNode> {
  MPSCNNBinaryConvolutionType type = MPSCNNBinaryConvolutionTypeBinaryWeights;
  MPSCNNBinaryConvolutionFlags flags = MPSCNNBinaryConvolutionFlagsNone;
  bool has_scale_value = false;
  float scale_value = 1;
  std::vector<float> output_bias, output_scale, input_bias, input_scale;  ///< empty: none

  Class state_class() const override { return Nil; }
  std::size_t gradient_count() const override { return 0; }
  id<MPSNNPadding> default_policy() const override {
    return default_padding(classes.kernel == [MPSCNNBinaryFullyConnected class] ? MPSNNPaddingMethodSizeValidOnly
                                                                                : MPSNNPaddingMethodSizeSame);
  }
  MPSKernel *new_kernel(id<MTLDevice> device) const override {
    auto *kernel = (MPSCNNBinaryConvolution *)[kernel_class() alloc];
    if (has_scale_value)
      return [kernel initWithDevice:device convolutionData:source.get() scaleValue:scale_value type:type flags:flags];
    const auto terms = [](const std::vector<float> &values) { return values.empty() ? nullptr : values.data(); };
    return [kernel initWithDevice:device
                  convolutionData:source.get()
                  outputBiasTerms:terms(output_bias)
                 outputScaleTerms:terms(output_scale)
                   inputBiasTerms:terms(input_bias)
                  inputScaleTerms:terms(input_scale)
                             type:type
                            flags:flags];
  }
  void configure(MPSKernel *) const override {}
};

BinaryConvolutionNode binary_node(MPSNNFilterNode *node, id<MPSCNNConvolutionDataSource> weights,
                                  MPSCNNBinaryConvolutionType type, MPSCNNBinaryConvolutionFlags flags) {
  if (weights == nil) {
    const UnwindRelease unwind(node);
    raise_argument(@"%@: weights is nil.", [node class]);
  }
  BinaryConvolutionNode data;
  data.source = Ref<id>(weights);
  data.type = type, data.flags = flags;
  return data;
}

id init_binary_node(MPSNNFilterNode *node, MPSNNImageNode *image, BinaryConvolutionNode data, float scale) {
  data.has_scale_value = true;
  data.scale_value = scale;
  return init_node(node, data, {image});
}

id init_binary_node(MPSNNFilterNode *node, MPSNNImageNode *image, BinaryConvolutionNode data, const float *output_bias,
                    const float *output_scale, const float *input_bias, const float *input_scale) {
  MPSCNNConvolutionDescriptor *descriptor = [(id<MPSCNNConvolutionDataSource>)data.source.get() descriptor];
  const auto copy = [](std::vector<float> &to, const float *from, NSUInteger count) {
    if (from != nullptr) to.assign(from, from + count);
  };
  copy(data.output_bias, output_bias, [descriptor outputFeatureChannels]);
  copy(data.output_scale, output_scale, [descriptor outputFeatureChannels]);
  copy(data.input_bias, input_bias, [descriptor inputFeatureChannels]);
  copy(data.input_scale, input_scale, [descriptor inputFeatureChannels]);
  return init_node(node, data, {image});
}

// ------------------------------------------------------------------------------------------------ normalization

std::vector<MPSImage *> images_in(MPSImageBatch *batch) {
  std::vector<MPSImage *> images;
  for (MPSImage *image in batch) images.push_back(image);
  return images;
}

bool fuse_normalization(Operation &operation, MPSNNNeuronDescriptor *neuron) {
  auto &state = state_of<NormalizationState>(operation.kernel.get());
  if (state.fused.descriptor) return false;
  state.fused.set(state, neuron);
  return true;
}

/// Without a state the kernel uses the data source's statistics.
struct BatchNormalizationOperation : OperationOf<BatchNormalizationOperation> {
  Ref<MPSKernel *> statistics;  ///< nil: the statistics are not computed

  void each_kernel(const std::function<void(Ref<MPSKernel *> &)> &visit) override {
    visit(kernel);
    if (statistics) visit(statistics);
  }
  void count_reads(std::vector<GraphImage> &images, std::vector<GraphState> &states) const override {
    images[sources[0]].reads += statistics ? 2 : 1;
    if (result_state != kNone) ++states[result_state].reads;
  }
  void encode(Encoding &encoding) override {
    auto *normalization = (MPSCNNBatchNormalization *)kernel.get();
    MPSImageBatch *const images = encoding.image(sources[0]);
    MPSImageDescriptor *descriptor = describe(encoding, {&images, 1});
    MPSImageBatch *destination = encoding.make_result(*this, descriptor, normalization);
    MPSStateBatch *made = encoding.make_states(*this, normalization, {&images, 1}, nil, destination);
    if (made == nil && statistics)  // nothing but the normalization reads them
      made = repeated([normalization temporaryResultStateForCommandBuffer:encoding.buffer()
                                                              sourceImage:[images objectAtIndex:0]
                                                             sourceStates:nil
                                                         destinationImage:[destination objectAtIndex:0]],
                      [images count]);
    if (statistics)
      [(MPSCNNBatchNormalizationStatistics *)statistics.get()
          openmps_encodeToCommandBuffer:encoding.buffer()
                                 images:images_in(images)
                batchNormalizationState:(MPSCNNBatchNormalizationState *)[made objectAtIndex:0]];
    encoding.encode(normalization, {&images, 1}, {.source = made}, destination);
  }
};

struct BatchNormalizationGradientOperation : OperationOf<BatchNormalizationGradientOperation, UpdatingOperation> {
  Ref<MPSKernel *> statistics;
  bool updates_gamma = false, updates_mean = false;

  void each_kernel(const std::function<void(Ref<MPSKernel *> &)> &visit) override {
    visit(kernel);
    visit(statistics);
  }
  NSUInteger update_reads() const override { return (updates_gamma ? 1 : 0) + (updates_mean ? 1 : 0); }
  void count_reads(std::vector<GraphImage> &images, std::vector<GraphState> &graph_states) const override {
    UpdatingOperation::count_reads(images, graph_states);
    std::vector<GraphState> none(graph_states.size());
    Operation::count_reads(images, none);  // the statistics read the images, too
  }
  void encode_gradient(Encoding &encoding) override {
    const std::vector<MPSImage *> gradients = images_in(encoding.image(sources[0]));
    const std::vector<MPSImage *> images = images_in(encoding.image(sources[1]));
    std::vector<std::array<MPSImage *, 2>> pairs;
    for (std::size_t i = 0; i < gradients.size(); ++i) pairs.push_back({gradients[i], images[i]});
    [(MPSCNNBatchNormalizationStatisticsGradient *)statistics.get()
        openmps_encodeToCommandBuffer:encoding.buffer()
                               images:pairs
              batchNormalizationState:(MPSCNNBatchNormalizationState *)[encoding.source_state(*this) objectAtIndex:0]];
    KernelOperation::encode(encoding);
  }
  void update_now(Encoding &encoding, MPSKernel *forward_kernel, MPSStateBatch *given) override {
    id<MTLCommandBuffer> buffer = encoding.buffer();
    auto *state = (MPSCNNBatchNormalizationState *)[given objectAtIndex:0];
    auto *normalization = (MPSCNNBatchNormalization *)forward_kernel;
    if (updates_gamma)
      if (MPSCNNNormalizationGammaAndBetaState *next = [source.get() updateGammaAndBetaWithCommandBuffer:buffer
                                                                                 batchNormalizationState:state])
        [normalization reloadGammaAndBetaWithCommandBuffer:buffer gammaAndBetaState:next];
    if (updates_mean)
      if (MPSCNNNormalizationMeanAndVarianceState *next = [source.get() updateMeanAndVarianceWithCommandBuffer:buffer
                                                                                       batchNormalizationState:state])
        [normalization reloadMeanAndVarianceWithCommandBuffer:buffer meanAndVarianceState:next];
  }
  std::function<void()> update_later(Encoding &, MPSKernel *forward_kernel, MPSStateBatch *given) override {
    const Ref<MPSCNNBatchNormalizationState *> state((MPSCNNBatchNormalizationState *)[given objectAtIndex:0]);
    const Ref<MPSCNNBatchNormalization *> normalization((MPSCNNBatchNormalization *)forward_kernel);
    return [=, data_source = source, gamma = updates_gamma, mean = updates_mean] {
      if (gamma && [data_source.get() updateGammaAndBetaWithBatchNormalizationState:state.get()])
        [normalization.get() reloadGammaAndBetaFromDataSource];
      if (mean && [data_source.get() updateMeanAndVarianceWithBatchNormalizationState:state.get()])
        [normalization.get() reloadMeanAndVarianceFromDataSource];
    };
  }
};

struct BatchNormalizationNode : NodeOf<BatchNormalizationNode, TrainableNode> {
  MPSCNNBatchNormalizationFlags flags = MPSCNNBatchNormalizationFlagsDefault;

  bool updates_gamma(Update update) const {
    return answers(update == Update::gpu ? @selector(updateGammaAndBetaWithCommandBuffer:batchNormalizationState:)
                                         : @selector(updateGammaAndBetaWithBatchNormalizationState:));
  }
  bool updates_mean(Update update) const {
    return answers(update == Update::gpu ? @selector(updateMeanAndVarianceWithCommandBuffer:batchNormalizationState:)
                                         : @selector(updateMeanAndVarianceWithBatchNormalizationState:));
  }
  bool can_update(Update update) const override { return updates_gamma(update) || updates_mean(update); }

  MPSKernel *new_kernel(id<MTLDevice> device) const override {
    if (is_gradient) return KernelNode::new_kernel(device);
    return [[MPSCNNBatchNormalization alloc] initWithDevice:device dataSource:source.get()];
  }
  bool fuse(Operation &operation, MPSNNNeuronDescriptor *neuron) const override {
    return !is_gradient && fuse_normalization(operation, neuron);
  }
  std::unique_ptr<Operation> new_operation(const Building &building) const override {
    if (!is_gradient) {
      auto operation = std::make_unique<BatchNormalizationOperation>();
      const auto calculates = flags & MPSCNNBatchNormalizationFlagsCalculateStatisticsMask;
      if (calculates == MPSCNNBatchNormalizationFlagsCalculateStatisticsAlways ||
          (calculates == MPSCNNBatchNormalizationFlagsCalculateStatisticsAutomatic && building.state_is_used))
        operation->statistics =
            Ref<MPSKernel *>::adopt([[MPSCNNBatchNormalizationStatistics alloc] initWithDevice:building.device]);
      return take_kernel(*operation, building.device) ? std::move(operation) : nullptr;
    }
    auto operation = updating<BatchNormalizationGradientOperation>(*this, building);
    operation->statistics =
        Ref<MPSKernel *>::adopt([[MPSCNNBatchNormalizationStatisticsGradient alloc] initWithDevice:building.device]);
    operation->updates_gamma = updates_gamma(operation->update);
    operation->updates_mean = updates_mean(operation->update);
    return take_kernel(*operation, building.device) ? std::move(operation) : nullptr;
  }
};

/// Instance and group normalization: a state for each image.
struct ImageNormalizationGradientOperation : OperationOf<ImageNormalizationGradientOperation, UpdatingOperation> {
  bool of_groups = false;

  void update_now(Encoding &encoding, MPSKernel *forward_kernel, MPSStateBatch *given) override {
    id<MTLCommandBuffer> buffer = encoding.buffer();
    MPSCNNNormalizationGammaAndBetaState *next =
        of_groups
            ? [source.get() updateGammaAndBetaWithCommandBuffer:buffer
                                   groupNormalizationStateBatch:(MPSCNNGroupNormalizationGradientStateBatch *)given]
            : [source.get() updateGammaAndBetaWithCommandBuffer:buffer
                                instanceNormalizationStateBatch:(MPSCNNInstanceNormalizationGradientStateBatch *)given];
    if (next != nil)
      [(MPSCNNInstanceNormalization *)forward_kernel reloadGammaAndBetaWithCommandBuffer:buffer gammaAndBetaState:next];
  }
  std::function<void()> update_later(Encoding &, MPSKernel *forward_kernel, MPSStateBatch *given) override {
    const Ref<MPSCNNInstanceNormalization *> normalization((MPSCNNInstanceNormalization *)forward_kernel);
    return [=, data_source = source, states_of = Ref<MPSStateBatch *>(given), groups = of_groups] {
      const BOOL changed =
          groups
              ? [data_source.get()
                    updateGammaAndBetaWithGroupNormalizationStateBatch:(MPSCNNGroupNormalizationGradientStateBatch *)
                                                                           states_of.get()]
              : [data_source.get()
                    updateGammaAndBetaWithInstanceNormalizationStateBatch:(MPSCNNInstanceNormalizationGradientStateBatch
                                                                               *)states_of.get()];
      if (changed) [normalization.get() reloadGammaAndBetaFromDataSource];
    };
  }
};

struct ImageNormalizationNode : NodeOf<ImageNormalizationNode, TrainableNode> {
  bool of_groups = false;

  bool can_update(Update update) const override {
    if (of_groups)
      return answers(update == Update::gpu
                         ? @selector(updateGammaAndBetaWithCommandBuffer:groupNormalizationStateBatch:)
                         : @selector(updateGammaAndBetaWithGroupNormalizationStateBatch:));
    return answers(update == Update::gpu
                       ? @selector(updateGammaAndBetaWithCommandBuffer:instanceNormalizationStateBatch:)
                       : @selector(updateGammaAndBetaWithInstanceNormalizationStateBatch:));
  }
  MPSKernel *new_kernel(id<MTLDevice> device) const override {
    if (is_gradient) return KernelNode::new_kernel(device);
    return [(MPSCNNInstanceNormalization *)[kernel_class() alloc] initWithDevice:device dataSource:source.get()];
  }
  std::unique_ptr<Operation> new_operation(const Building &building) const override {
    if (!is_gradient) return KernelNode::new_operation(building);
    auto operation = updating<ImageNormalizationGradientOperation>(*this, building);
    operation->of_groups = of_groups;
    return take_kernel(*operation, building.device) ? std::move(operation) : nullptr;
  }
};

template <class Node>
id init_normalization_node(MPSNNFilterNode *node, Node data, MPSNNImageNode *image, id source) {
  if (source == nil) {
    const UnwindRelease unwind(node);
    raise_argument(@"%@: dataSource is nil.", [node class]);
  }
  data.source = Ref<id>(source);
  return init_node(node, data, {image});
}

/// A gradient node made by hand has the forward filter's data source and style.
template <class Node>
id init_normalization_gradient_node(MPSNNFilterNode *node, Class forward_class, MPSNNImageNode *gradient,
                                    MPSNNImageNode *image, MPSNNStateNode *state) {
  MPSNNFilterNode *forward = forward_filter(node, state);
  if (![forward isKindOfClass:forward_class]) {
    const UnwindRelease unwind(node);
    raise_argument(@"%@: gradientState is that of %@, which is no %@.", [node class], forward, forward_class);
  }
  return init_gradient_node(node, Node(node_of<Node>(forward)), gradient, image, state);
}

ImageNormalizationNode group_node() {
  ImageNormalizationNode node;
  node.of_groups = true;
  return node;
}

}  // namespace
}  // namespace openmps

using openmps::BatchNormalizationNode;
using openmps::ConvolutionNode;
using openmps::ImageNormalizationNode;
using openmps::TrainableNode;

#define OPENMPS_TRAINING_STYLE                                                 \
  OPENMPS_NODE_GETTER(TrainableNode, MPSNNTrainingStyle, trainingStyle, style) \
  -(void)setTrainingStyle : (MPSNNTrainingStyle)style {                        \
    openmps::node_of<TrainableNode>(self).set_style(style);                    \
  }
#define OPENMPS_WITH_WEIGHTS                                                                           \
  OPENMPS_NODE_INIT(Source : (MPSNNImageNode *)source weights : (id<MPSCNNConvolutionDataSource>)data, \
                    Source : source weights : data, return openmps::init_convolution_node(self, source, data);)
#define OPENMPS_CONVOLUTION_GRADIENT_INIT(STATE, TYPE)                                                        \
  OPENMPS_NODE_INIT(                                                                                          \
      SourceGradient : (MPSNNImageNode *)sourceGradient sourceImage : (MPSNNImageNode *)sourceImage STATE : ( \
          TYPE *)state weights : (id<MPSCNNConvolutionDataSource>)weights,                                    \
      SourceGradient : sourceGradient sourceImage : sourceImage STATE : state weights : weights,              \
      return openmps::init_convolution_gradient_node(self, sourceGradient, sourceImage, state, weights);)

@implementation MPSCNNConvolutionNode
OPENMPS_NODE_CLASSES([MPSCNNConvolution class], [MPSCNNConvolutionGradient class],
                     [MPSCNNConvolutionGradientNode class])
OPENMPS_WITH_WEIGHTS
OPENMPS_TRAINING_STYLE
OPENMPS_NODE_PROPERTY(ConvolutionNode, MPSNNConvolutionAccumulatorPrecisionOption, accumulatorPrecision,
                      setAccumulatorPrecision, accumulator)

- (MPSCNNConvolutionGradientStateNode *)convolutionGradientState {
  return (MPSCNNConvolutionGradientStateNode *)[self resultState];
}

@end

@implementation MPSCNNConvolutionGradientNode
OPENMPS_NODE_CLASSES(.gradient_kernel = [MPSCNNConvolutionGradient class])
OPENMPS_CONVOLUTION_GRADIENT_INIT(convolutionGradientState, MPSCNNConvolutionGradientStateNode)
OPENMPS_TRAINING_STYLE
@end

@implementation MPSCNNFullyConnectedNode
OPENMPS_NODE_CLASSES([MPSCNNFullyConnected class], [MPSCNNFullyConnectedGradient class],
                     [MPSCNNFullyConnectedGradientNode class])
OPENMPS_WITH_WEIGHTS
@end

@implementation MPSCNNFullyConnectedGradientNode
OPENMPS_NODE_CLASSES(.gradient_kernel = [MPSCNNFullyConnectedGradient class])
OPENMPS_CONVOLUTION_GRADIENT_INIT(convolutionGradientState, MPSCNNConvolutionGradientStateNode)
@end

@implementation MPSCNNConvolutionTransposeNode
OPENMPS_NODE_CLASSES([MPSCNNConvolutionTranspose class], [MPSCNNConvolutionTransposeGradient class],
                     [MPSCNNConvolutionTransposeGradientNode class])
OPENMPS_NODE_INIT(Source : (MPSNNImageNode *)source convolutionGradientState : (MPSCNNConvolutionGradientStateNode *)
                      state weights : (id<MPSCNNConvolutionDataSource>)weights,
                  Source : source convolutionGradientState : state weights : weights,
                  return openmps::init_convolution_node(self, source, weights, state);)

- (MPSCNNConvolutionGradientStateNode *)convolutionGradientState {
  return [super convolutionGradientState];
}

@end

@implementation MPSCNNConvolutionTransposeGradientNode
OPENMPS_NODE_CLASSES(.gradient_kernel = [MPSCNNConvolutionTransposeGradient class])
OPENMPS_CONVOLUTION_GRADIENT_INIT(convolutionTransposeGradientState, MPSCNNConvolutionTransposeGradientStateNode)
@end

// Both classes declare the same initialisers.
#define OPENMPS_BINARY_INITS                                                                                       \
  OPENMPS_NODE_INIT(                                                                                               \
      Source : (MPSNNImageNode *)source weights : (id<MPSCNNConvolutionDataSource>)weights scaleValue : (          \
          float)scale type : (MPSCNNBinaryConvolutionType)type flags : (MPSCNNBinaryConvolutionFlags)flags,        \
      Source : source weights : weights scaleValue : scale type : type flags : flags,                              \
      return openmps::init_binary_node(self, source, openmps::binary_node(self, weights, type, flags), scale);)    \
  OPENMPS_NODE_INIT(                                                                                               \
      Source : (MPSNNImageNode *)source weights : (id<MPSCNNConvolutionDataSource>)weights outputBiasTerms : (     \
          const float *)outputBias outputScaleTerms : (const float *)outputScale inputBiasTerms : (const float *)  \
          inputBias inputScaleTerms : (const float *)inputScale type : (MPSCNNBinaryConvolutionType)type flags : ( \
              MPSCNNBinaryConvolutionFlags)flags,                                                                  \
      Source : source weights : weights outputBiasTerms : outputBias outputScaleTerms : outputScale                \
          inputBiasTerms : inputBias inputScaleTerms : inputScale type : type flags : flags,                       \
      return openmps::init_binary_node(self, source, openmps::binary_node(self, weights, type, flags), outputBias, \
                                       outputScale, inputBias, inputScale);)

@implementation MPSCNNBinaryConvolutionNode
OPENMPS_NODE_CLASSES([MPSCNNBinaryConvolution class])
OPENMPS_BINARY_INITS

/// nil: there is no gradient.
- (MPSCNNConvolutionGradientStateNode *)convolutionGradientState {
  return nil;
}

@end

@implementation MPSCNNBinaryFullyConnectedNode
OPENMPS_NODE_CLASSES([MPSCNNBinaryFullyConnected class])
OPENMPS_BINARY_INITS
@end

/// A normalization and its gradient node. FORWARD: data of a new node; NODE: their struct.
#define OPENMPS_NORMALIZATION_NODE(NAME, PROTOCOL, NODE, FORWARD)                        \
  OPENMPS_NODE_CLASSES([NAME class], [NAME##Gradient class], [NAME##GradientNode class]) \
  OPENMPS_TRAINING_STYLE                                                                 \
  OPENMPS_NODE_INIT(Source : (MPSNNImageNode *)source dataSource : (id<PROTOCOL>)data,   \
                    Source : source dataSource : data,                                   \
                    return openmps::init_normalization_node(self, FORWARD, source, data);)
#define OPENMPS_NORMALIZATION_GRADIENT_NODE(NAME, NODE)                                                              \
  OPENMPS_NODE_CLASSES(.gradient_kernel = [NAME##Gradient class])                                                    \
  OPENMPS_TRAINING_STYLE                                                                                             \
  OPENMPS_NODE_INIT(SourceGradient : (MPSNNImageNode *)sourceGradient sourceImage : (                                \
                        MPSNNImageNode *)sourceImage gradientState : (MPSNNGradientStateNode *)gradientState,        \
                    SourceGradient : sourceGradient sourceImage : sourceImage gradientState : gradientState,         \
                    return openmps::init_normalization_gradient_node<NODE>(self, [NAME##Node class], sourceGradient, \
                                                                           sourceImage, gradientState);)

@implementation MPSCNNBatchNormalizationNode
OPENMPS_NORMALIZATION_NODE(MPSCNNBatchNormalization, MPSCNNBatchNormalizationDataSource, BatchNormalizationNode,
                           BatchNormalizationNode())
OPENMPS_NODE_PROPERTY(BatchNormalizationNode, MPSCNNBatchNormalizationFlags, flags, setFlags, flags)
@end
@implementation MPSCNNBatchNormalizationGradientNode
OPENMPS_NORMALIZATION_GRADIENT_NODE(MPSCNNBatchNormalization, BatchNormalizationNode)
@end

@implementation MPSCNNInstanceNormalizationNode
OPENMPS_NORMALIZATION_NODE(MPSCNNInstanceNormalization, MPSCNNInstanceNormalizationDataSource, ImageNormalizationNode,
                           ImageNormalizationNode())
@end
@implementation MPSCNNInstanceNormalizationGradientNode
OPENMPS_NORMALIZATION_GRADIENT_NODE(MPSCNNInstanceNormalization, ImageNormalizationNode)
@end

@implementation MPSCNNGroupNormalizationNode
OPENMPS_NORMALIZATION_NODE(MPSCNNGroupNormalization, MPSCNNGroupNormalizationDataSource, ImageNormalizationNode,
                           openmps::group_node())
@end
@implementation MPSCNNGroupNormalizationGradientNode
OPENMPS_NORMALIZATION_GRADIENT_NODE(MPSCNNGroupNormalization, ImageNormalizationNode)
@end
