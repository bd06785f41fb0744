// SPDX-License-Identifier: Apache-2.0
// Nodes describe a graph: a filter node reads image and state nodes and owns those that it writes. One C++ struct for
// each family of filters makes the family's kernels and gradient nodes; a row for each class names its kernels.
#pragma once

#import "mps/MPSNNGraph+Engine.hh"

namespace openmps {

/// Fields that image and state nodes have. `owner` is the filter that writes the node; nil for inputs of a graph. Owner
/// and node have one reference count, so neither outlives the other.
struct ValueNode {
  MPSNNFilterNode *owner = nil;
  Ref<id<MPSHandle>> handle;
  BOOL exports = NO, synchronizes = NO;
};

struct ImageNode : ValueNode {
  MPSImageFeatureChannelFormat format = MPSImageFeatureChannelFormatNone;
  Ref<id<MPSImageAllocator>> allocator;  ///< nil: the default of temporary images
  BOOL stops_gradient = NO;
};

/// The classes that belong to a class of nodes. Nil: there is none.
struct NodeClasses {
  Class kernel = Nil, gradient_kernel = Nil, gradient_node = Nil;
};

/// The graph around a node, while it makes its operation.
struct Building {
  id<MTLDevice> device;
  bool result_is_needed = true;
  bool state_is_used = false;  ///< the result state is read or exported
  bool source_state_is_exported = false;
  std::size_t forward = kNone;  ///< operation that makes the first source state
};

/// Data of a filter node: parameters of the family, and the nodes around it.
struct FilterNode {
  struct Links {
    std::vector<Ref<MPSNNImageNode *>> sources;
    std::vector<Ref<MPSNNStateNode *>> states;  ///< read
    MPSNNImageNode *result = nil;               ///< owned
    MPSNNStateNode *result_state = nil;         ///< owned; made when it is asked for
    Ref<id<MPSNNPadding>> padding;              ///< nil: the kernel's
    Label label;

    Links() = default;
    Links(const Links &) {}  ///< a node with the same parameters has other neighbours
  } links;
  NodeClasses classes;
  bool is_gradient = false;
  std::size_t forward_source = 0;  ///< gradient nodes: the source of the forward filter that the gradient is for

  virtual ~FilterNode() = default;
  virtual std::unique_ptr<FilterNode> clone() const = 0;

  /// Class of the result state's node; Nil: no state.
  virtual Class state_class() const;
  virtual id<MPSNNPadding> default_policy() const { return default_padding(MPSNNPaddingMethodSizeSame); }
  /// Return whether the operation has effects besides its result, so that it runs even if nothing reads that.
  virtual bool has_effects() const { return false; }
  /// Return the operation, without its images and states. Null if a data source does not load.
  virtual std::unique_ptr<Operation> new_operation(const Building &building) const = 0;

  /// Return the function that the filter applies to each value of its source, if it does nothing else; nil otherwise.
  virtual MPSNNNeuronDescriptor *activation() const { return nil; }
  /// Let the kernel of the filter's operation apply an activation to its results. Return false if it cannot.
  virtual bool fuse(Operation &, MPSNNNeuronDescriptor *) const { return false; }

  /// Return whether the result is the gradient of the first source: a loss.
  virtual bool is_own_gradient() const { return false; }
  /// Return the number of gradient nodes; 0: the filter has no gradient.
  virtual std::size_t gradient_count() const { return classes.gradient_node != Nil ? 1 : 0; }
  /// Return the gradient node of source `index`, owned by the caller.
  virtual MPSNNGradientFilterNode *new_gradient(MPSNNFilterNode *self, MPSNNImageNode *gradient,
                                                std::size_t index) const;
  /// Return whether a training graph has the gradient of a source that the graph does not compute.
  virtual bool wants_gradient_of_input(std::size_t) const { return true; }
  /// Return the forward image that the gradient kernel reads.
  virtual MPSNNImageNode *image_for_gradient(std::size_t index) const { return links.sources[index].get(); }
};

/// struct PoolingNode : NodeOf<PoolingNode> { ... };
template <class Self, class Base = FilterNode>
struct NodeOf : Base {
  std::unique_ptr<FilterNode> clone() const override {
    return std::make_unique<Self>(static_cast<const Self &>(*this));
  }
};

/// A filter of one kernel on images, forward and gradient.
struct KernelNode : NodeOf<KernelNode> {
  Class kernel_class() const { return is_gradient ? classes.gradient_kernel : classes.kernel; }
  /// Return the kernel, owned by the caller; nil if a data source does not load.
  virtual MPSKernel *new_kernel(id<MTLDevice> device) const;
  /// Copy the node's properties to the kernel.
  virtual void configure(MPSKernel *) const {}
  virtual std::unique_ptr<Operation> new_empty_operation() const { return std::make_unique<KernelOperation>(); }
  std::unique_ptr<Operation> new_operation(const Building &building) const override;
  /// Give the operation its kernel; return false if a data source does not load.
  bool take_kernel(Operation &operation, id<MTLDevice> device) const;
};

/// Return the data of a node.
ImageNode &image_node(MPSNNImageNode *node);
ValueNode &state_node(MPSNNStateNode *node);
FilterNode &filter_node(MPSNNFilterNode *node);
template <class Node>
Node &node_of(MPSNNFilterNode *node) {
  return static_cast<Node &>(filter_node(node));
}

using ImageNodes = std::vector<MPSNNImageNode *>;
ImageNodes nodes_of(NSArray<MPSNNImageNode *> *array);

/// The initialiser of all filter nodes. Raise if a source is nil.
id init_node(MPSNNFilterNode *node, std::unique_ptr<FilterNode> data, const ImageNodes &sources,
             MPSNNStateNode *state = nil);
template <std::derived_from<FilterNode> Node>
id init_node(MPSNNFilterNode *node, const Node &data, const ImageNodes &sources, MPSNNStateNode *state = nil) {
  return init_node(node, std::make_unique<Node>(data), sources, state);
}
/// The initialiser of gradient nodes: find the forward filter by its state.
template <std::derived_from<FilterNode> Node>
id init_gradient_node(MPSNNFilterNode *node, Node data, MPSNNImageNode *gradient, MPSNNImageNode *source,
                      MPSNNStateNode *state);
/// Return the filter that wrote the state of a gradient node. Raise if there is none.
MPSNNFilterNode *forward_filter(MPSNNFilterNode *node, MPSNNStateNode *state);
/// Return the forward image for a gradient node: `source`, or the result for soft max. Sets `forward_source`.
MPSNNImageNode *resolve_source(MPSNNFilterNode *node, FilterNode &data, MPSNNImageNode *source, MPSNNStateNode *state);

template <std::derived_from<FilterNode> Node>
id init_gradient_node(MPSNNFilterNode *node, Node data, MPSNNImageNode *gradient, MPSNNImageNode *source,
                      MPSNNStateNode *state) {
  data.is_gradient = true;
  source = resolve_source(node, data, source, state);
  return init_node(node, data, {gradient, source}, state);
}

/// Make the gradient nodes of all filters that lead to `last`. Return the last ones, nil if there are none.
NSArray<MPSNNFilterNode *> *training_graph(MPSNNFilterNode *last, MPSNNImageNode *gradient,
                                           MPSGradientNodeBlock handler);

}  // namespace openmps

@interface MPSNNFilterNode (Engine)
/// Return the classes of the receiver's row.
+ (openmps::NodeClasses)openmps_classes;
/// The designated initialiser: takes the data, whose sources are set.
- (instancetype)openmps_initWithData:(openmps::FilterNode *)data;
- (openmps::FilterNode *)openmps_data;
@end

@interface MPSNNImageNode (Engine)
- (instancetype)openmps_initWithOwner:(MPSNNFilterNode *)owner;
- (openmps::ImageNode *)openmps_data;
/// Give back the owner's reference, the last one.
- (void)openmps_leaveOwner;
@end

@interface MPSNNStateNode (Engine)
- (instancetype)openmps_initWithOwner:(MPSNNFilterNode *)owner;
- (openmps::ValueNode *)openmps_data;
- (void)openmps_leaveOwner;
@end

/// A row: the classes that belong to a node class. KERNEL, GRADIENT_KERNEL, GRADIENT_NODE; Nil if there is none.
#define OPENMPS_NODE_CLASSES(...)             \
  +(openmps::NodeClasses)openmps_classes {    \
    return openmps::NodeClasses{__VA_ARGS__}; \
  }
/// An initialiser, and the class method with the same arguments.
#define OPENMPS_NODE_INIT(DECLARATION, CALL, ...)       \
  +(instancetype)nodeWith##DECLARATION {                \
    return [[[self alloc] initWith##CALL] autorelease]; \
  }                                                     \
  -(instancetype)initWith##DECLARATION {                \
    __VA_ARGS__                                         \
  }
/// Accessors of a property that is a field of the data.
#define OPENMPS_NODE_GETTER(NODE, TYPE, NAME, FIELD) \
  -(TYPE)NAME {                                      \
    return openmps::node_of<NODE>(self).FIELD;       \
  }
#define OPENMPS_NODE_PROPERTY(NODE, TYPE, NAME, SETTER, FIELD) \
  OPENMPS_NODE_GETTER(NODE, TYPE, NAME, FIELD)                 \
  -(void)SETTER : (TYPE)value {                                \
    openmps::node_of<NODE>(self).FIELD = value;                \
  }
/// The initialisers that most nodes have.
#define OPENMPS_SOURCE_NODE_INIT(NODE)                                  \
  OPENMPS_NODE_INIT(Source : (MPSNNImageNode *)source, Source : source, \
                    return openmps::init_node(self, NODE(), {source});)
#define OPENMPS_GRADIENT_NODE_INIT(NODE)                                                                      \
  OPENMPS_NODE_INIT(SourceGradient : (MPSNNImageNode *)sourceGradient sourceImage : (                         \
                        MPSNNImageNode *)sourceImage gradientState : (MPSNNGradientStateNode *)gradientState, \
                    SourceGradient : sourceGradient sourceImage : sourceImage gradientState : gradientState,  \
                    return openmps::init_gradient_node(self, NODE(), sourceGradient, sourceImage, gradientState);)
