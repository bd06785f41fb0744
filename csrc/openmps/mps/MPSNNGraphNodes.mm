// SPDX-License-Identifier: Apache-2.0
// Image, state and filter nodes: the parts that all filters share [MPSNNGraphNodes.h].

#import "mps/MPSNNGraphNodes+Engine.hh"

namespace openmps {

ImageNode &image_node(MPSNNImageNode *node) { return *[node openmps_data]; }
ValueNode &state_node(MPSNNStateNode *node) { return *[node openmps_data]; }
FilterNode &filter_node(MPSNNFilterNode *node) { return *[node openmps_data]; }

ImageNodes nodes_of(NSArray<MPSNNImageNode *> *array) {
  ImageNodes nodes;
  for (MPSNNImageNode *node in array) nodes.push_back(node);
  return nodes;
}

Class FilterNode::state_class() const { return is_gradient ? Nil : [MPSNNGradientStateNode class]; }

MPSNNGradientFilterNode *FilterNode::new_gradient(MPSNNFilterNode *self, MPSNNImageNode *gradient,
                                                  std::size_t index) const {
  auto data = clone();
  data->is_gradient = true;
  data->forward_source = index;
  const ImageNodes sources = {gradient, image_for_gradient(index)};
  MPSNNFilterNode *node = [classes.gradient_node alloc];
  return init_node(node, std::move(data), sources, [self resultState]);
}

MPSKernel *KernelNode::new_kernel(id<MTLDevice> device) const { return [[kernel_class() alloc] initWithDevice:device]; }

bool KernelNode::take_kernel(Operation &operation, id<MTLDevice> device) const {
  operation.kernel = Ref<MPSKernel *>::adopt(new_kernel(device));
  if (!operation.kernel) return false;
  MPSKernel *kernel = operation.kernel.get();
  configure(kernel);
  // unverified: the policy of a gradient node. Its state has the size of the result.
  if (links.padding && !is_gradient && [kernel respondsToSelector:@selector(setPadding:)])
    [(MPSCNNKernel *)kernel setPadding:links.padding.get()];
  if (NSString *label = links.label.get()) [kernel setLabel:label];
  return true;
}

std::unique_ptr<Operation> KernelNode::new_operation(const Building &building) const {
  auto operation = new_empty_operation();
  return take_kernel(*operation, building.device) ? std::move(operation) : nullptr;
}

id init_node(MPSNNFilterNode *node, std::unique_ptr<FilterNode> data, const ImageNodes &sources,
             MPSNNStateNode *state) {
  UnwindRelease unwind(node);
  data->classes = [[node class] openmps_classes];
  if (const auto *kernel = dynamic_cast<const KernelNode *>(data.get()); kernel && kernel->kernel_class() == Nil)
    raise_argument(@"%@ is the base of a family of nodes; use one of its subclasses.", [node class]);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (sources[i] == nil) raise_argument(@"%@: source %lu is nil.", [node class], (unsigned long)i);
    if (![sources[i] isKindOfClass:[MPSNNImageNode class]])
      raise_argument(@"%@: source %lu is an object of class %@, expected MPSNNImageNode.", [node class],
                     (unsigned long)i, [sources[i] class]);
    data->links.sources.emplace_back(sources[i]);
  }
  if (sources.empty()) raise_argument(@"%@: There are no sources.", [node class]);
  if (state != nil) data->links.states.emplace_back(state);
  return [unwind.done() openmps_initWithData:data.release()];
}

MPSNNFilterNode *forward_filter(MPSNNFilterNode *node, MPSNNStateNode *state) {
  MPSNNFilterNode *forward = state == nil ? nil : state_node(state).owner;
  if (forward != nil && filter_node(forward).links.result_state == state) return forward;
  UnwindRelease unwind(node);
  raise_argument(@"%@: gradientState (%@) is not the resultState of a filter node.", [node class], state);
}

MPSNNImageNode *resolve_source(MPSNNFilterNode *node, FilterNode &data, MPSNNImageNode *source, MPSNNStateNode *state) {
  const FilterNode &forward = filter_node(forward_filter(node, state));
  for (std::size_t i = 0; i < forward.links.sources.size(); ++i) {
    if (forward.links.sources[i].get() != source) continue;
    data.forward_source = i;
    return forward.image_for_gradient(i);
  }
  return source;
}

namespace {

ImageNodes single(MPSNNFilterNode *node, NSArray<MPSNNImageNode *> *images, const char *name) {
  const ImageNodes nodes = nodes_of(images);
  if (nodes.size() != 1)
    raise_argument(@"%@: %s has %lu nodes, expected one for the result image.", [node class], name,
                   (unsigned long)nodes.size());
  return nodes;
}

}  // namespace
}  // namespace openmps

// -------------------------------------------------------------------------------------------------- values

/// Members of image and state nodes. DATA: struct of the fields. A node that a filter owns has the filter's reference
/// count: programs keep only the last image of a graph, and images only their filter.
#define OPENMPS_VALUE_NODE(DATA)                                          \
  OPENMPS_UNKNOWN_SELECTORS                                               \
  -(instancetype)openmps_initWithOwner : (MPSNNFilterNode *)owner {       \
    if (!(self = [super init])) return nil;                               \
    auto *data = new DATA;                                                \
    data->owner = owner;                                                  \
    _openmps = data;                                                      \
    return self;                                                          \
  }                                                                       \
  -(instancetype)init {                                                   \
    const openmps::UnwindRelease unwind(self);                            \
    openmps::raise_argument(@"-[%@ init] is unavailable.", [self class]); \
  }                                                                       \
  -(DATA *)openmps_data {                                                 \
    return static_cast<DATA *>(_openmps);                                 \
  }                                                                       \
  -(MPSNNFilterNode *)openmps_owner {                                     \
    return _openmps ? [self openmps_data]->owner : nil;                   \
  }                                                                       \
  -(instancetype)retain {                                                 \
    MPSNNFilterNode *owner = [self openmps_owner];                        \
    if (owner == nil) return [super retain];                              \
    [owner retain];                                                       \
    return self;                                                          \
  }                                                                       \
  -(oneway void)release {                                                 \
    MPSNNFilterNode *owner = [self openmps_owner];                        \
    if (owner != nil)                                                     \
      [owner release];                                                    \
    else                                                                  \
      [super release];                                                    \
  }                                                                       \
  -(NSUInteger)retainCount {                                              \
    MPSNNFilterNode *owner = [self openmps_owner];                        \
    return owner != nil ? [owner retainCount] : [super retainCount];      \
  }                                                                       \
  -(void)openmps_leaveOwner {                                             \
    [self openmps_data]->owner = nil;                                     \
    [self release];                                                       \
  }                                                                       \
  -(void)dealloc {                                                        \
    delete static_cast<DATA *>(_openmps);                                 \
    [super dealloc];                                                      \
  }                                                                       \
  -(id<MPSHandle>)handle {                                                \
    return [self openmps_data]->handle.get();                             \
  }                                                                       \
  -(void)setHandle : (id<MPSHandle>)handle {                              \
    [self openmps_data]->handle = openmps::Ref<id<MPSHandle>>(handle);    \
  }                                                                       \
  -(BOOL)exportFromGraph {                                                \
    return [self openmps_data]->exports;                                  \
  }                                                                       \
  -(void)setExportFromGraph : (BOOL)value {                               \
    [self openmps_data]->exports = value;                                 \
  }                                                                       \
  -(BOOL)synchronizeResource {                                            \
    return [self openmps_data]->synchronizes;                             \
  }                                                                       \
  -(void)setSynchronizeResource : (BOOL)value {                           \
    [self openmps_data]->synchronizes = value;                            \
  }

@implementation MPSNNImageNode

OPENMPS_VALUE_NODE(openmps::ImageNode)

- (instancetype)initWithHandle:(NSObject<MPSHandle> *)handle {
  if (!(self = [self openmps_initWithOwner:nil])) return nil;
  [self setHandle:handle];
  return self;
}

+ (instancetype)nodeWithHandle:(NSObject<MPSHandle> *)handle {
  return [[[self alloc] initWithHandle:handle] autorelease];
}

+ (instancetype)exportedNodeWithHandle:(NSObject<MPSHandle> *)handle {
  MPSNNImageNode *node = [self nodeWithHandle:handle];
  [node setExportFromGraph:YES];
  return node;
}

- (MPSImageFeatureChannelFormat)format {
  return [self openmps_data]->format;
}

- (void)setFormat:(MPSImageFeatureChannelFormat)format {
  if (format > MPSImageFeatureChannelFormatFloat32)
    openmps::raise_argument(@"MPSNNImageNode: format (%lu) is not between 0 and 4.", (unsigned long)format);
  [self openmps_data]->format = format;
}

- (id<MPSImageAllocator>)imageAllocator {
  id<MPSImageAllocator> allocator = [self openmps_data]->allocator.get();
  return allocator != nil ? allocator : [MPSTemporaryImage defaultAllocator];
}

- (void)setImageAllocator:(id<MPSImageAllocator>)allocator {
  [self openmps_data]->allocator = openmps::Ref<id<MPSImageAllocator>>(allocator);
}

- (BOOL)stopGradient {
  return [self openmps_data]->stops_gradient;
}

- (void)setStopGradient:(BOOL)value {
  [self openmps_data]->stops_gradient = value;
}

@end

@implementation MPSNNStateNode
OPENMPS_VALUE_NODE(openmps::ValueNode)
@end

#define OPENMPS_STATE_NODE(NAME) \
  @implementation NAME           \
  @end
OPENMPS_STATE_NODE(MPSNNLabelsNode)
OPENMPS_STATE_NODE(MPSNNGradientStateNode)
OPENMPS_STATE_NODE(MPSNNBinaryGradientStateNode)
OPENMPS_STATE_NODE(MPSNNMultiaryGradientStateNode)
OPENMPS_STATE_NODE(MPSNNArithmeticGradientStateNode)
OPENMPS_STATE_NODE(MPSCNNConvolutionGradientStateNode)
OPENMPS_STATE_NODE(MPSCNNConvolutionTransposeGradientStateNode)

// -------------------------------------------------------------------------------------------------- filters

@implementation MPSNNFilterNode

OPENMPS_UNKNOWN_SELECTORS
OPENMPS_NODE_CLASSES()

/// The result has the format of the first source [MPSNNGraphNodes.h].
- (instancetype)openmps_initWithData:(openmps::FilterNode *)data {
  if (!(self = [super init])) {
    delete data;
    return nil;
  }
  _openmps = data;
  MPSNNImageNode *result = [[MPSNNImageNode alloc] openmps_initWithOwner:self];
  [result setFormat:[data->links.sources[0].get() format]];
  data->links.result = result;
  return self;
}

- (instancetype)init {
  const openmps::UnwindRelease unwind(self);
  openmps::raise_argument(@"-[%@ init] is unavailable; use an initialiser with sources.", [self class]);
}

- (void)dealloc {
  if (_openmps != NULL) {
    openmps::FilterNode &data = openmps::filter_node(self);
    [data.links.result openmps_leaveOwner];
    [data.links.result_state openmps_leaveOwner];
    delete &data;
  }
  [super dealloc];
}

- (openmps::FilterNode *)openmps_data {
  return static_cast<openmps::FilterNode *>(_openmps);
}

- (MPSNNImageNode *)resultImage {
  return openmps::filter_node(self).links.result;
}

- (MPSNNStateNode *)resultState {
  openmps::FilterNode &data = openmps::filter_node(self);
  const Class kind = data.state_class();
  if (data.links.result_state == nil && kind != Nil)
    data.links.result_state = [[kind alloc] openmps_initWithOwner:self];
  return data.links.result_state;
}

- (NSArray<MPSNNStateNode *> *)resultStates {
  MPSNNStateNode *state = [self resultState];
  return state == nil ? nil : [NSArray arrayWithObject:state];
}

- (id<MPSNNPadding>)paddingPolicy {
  const openmps::FilterNode &data = openmps::filter_node(self);
  return data.links.padding ? data.links.padding.get() : data.default_policy();
}

- (void)setPaddingPolicy:(id<MPSNNPadding>)policy {
  if (policy == nil) openmps::raise_argument(@"%@: paddingPolicy is nil.", [self class]);
  openmps::filter_node(self).links.padding = openmps::Ref<id<MPSNNPadding>>(policy);
}

- (NSString *)label {
  return openmps::filter_node(self).links.label.get();
}

- (void)setLabel:(NSString *)label {
  openmps::filter_node(self).links.label.set(label);
}

- (NSString *)description {
  NSString *label = [self label];
  return label == nil ? [NSString stringWithFormat:@"<%@: %p>", [self class], self]
                      : [NSString stringWithFormat:@"<%@ \"%@\": %p>", [self class], label, self];
}

// ------------------------------------------------------------------------------------------------ gradients

- (NSArray<MPSNNGradientFilterNode *> *)gradientFiltersWithSources:(NSArray<MPSNNImageNode *> *)gradientImages {
  const openmps::FilterNode &data = openmps::filter_node(self);
  MPSNNImageNode *gradient = openmps::single(self, gradientImages, "gradientImages")[0];
  const std::size_t count = data.gradient_count();
  if (count == 0) openmps::raise_argument(@"%@ has no gradient node.", [self class]);
  NSMutableArray *nodes = [NSMutableArray arrayWithCapacity:count];
  for (std::size_t i = 0; i < count; ++i) [nodes addObject:[data.new_gradient(self, gradient, i) autorelease]];
  return nodes;
}

- (NSArray<MPSNNGradientFilterNode *> *)gradientFiltersWithSource:(MPSNNImageNode *)gradientImage {
  return [self gradientFiltersWithSources:gradientImage == nil ? nil : [NSArray arrayWithObject:gradientImage]];
}

- (MPSNNGradientFilterNode *)gradientFilterWithSources:(NSArray<MPSNNImageNode *> *)gradientImages {
  const std::size_t count = openmps::filter_node(self).gradient_count();
  if (count > 1)
    openmps::raise_argument(@"-[%@ gradientFilterWithSources:] is unavailable: there are %lu gradient nodes; use "
                            @"-gradientFiltersWithSources:.",
                            [self class], (unsigned long)count);
  return [[self gradientFiltersWithSources:gradientImages] objectAtIndex:0];
}

- (MPSNNGradientFilterNode *)gradientFilterWithSource:(MPSNNImageNode *)gradientImage {
  return [self gradientFilterWithSources:gradientImage == nil ? nil : [NSArray arrayWithObject:gradientImage]];
}

- (NSArray<MPSNNFilterNode *> *)trainingGraphWithSourceGradient:(MPSNNImageNode *)gradientImage
                                                    nodeHandler:(MPSGradientNodeBlock)nodeHandler {
  return openmps::training_graph(self, gradientImage, nodeHandler);
}

@end

/// A gradient filter has no gradient of its own: the selectors are unavailable and raise.
@implementation MPSNNGradientFilterNode
@end
