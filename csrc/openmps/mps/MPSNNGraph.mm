// SPDX-License-Identifier: Apache-2.0
// MPSNNGraph: from the nodes that lead to the result images to operations in the order of their encode
// [MPSNNGraph.h].

#import "mps/MPSNNGraphNodes+Engine.hh"

#include <algorithm>
#include <map>

/// Handle of an image or state without one.
@interface OpenMPSHandle : NSObject<MPSHandle>
@end

@implementation OpenMPSHandle

- (NSString *)label {
  return nil;
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

namespace openmps {

Graph::Graph(const Graph &other)
    : KernelState(other),
      images(other.images),
      states(other.states),
      source_images(other.source_images),
      source_states(other.source_states),
      results(other.results),
      needed(other.needed),
      allocator(other.allocator),
      format(other.format),
      state_is_temporary(other.state_is_temporary) {
  for (const auto &operation : other.operations) operations.push_back(operation->clone());
}

void Graph::archive(Archive &) { raise_not_implemented([MPSNNGraph class], @selector(encodeWithCoder:)); }

void Graph::did_copy(id<OpenMPSDevice> target) {
  KernelState::did_copy(target);
  for (const auto &operation : operations)
    operation->each_kernel([&](Ref<MPSKernel *> &kernel) {
      kernel = Ref<MPSKernel *>::adopt([kernel.get() copyWithZone:NULL device:target]);
    });
  for (const auto &operation : operations) operation->did_copy(*this);
}

namespace {

/// Turns nodes into operations. Nodes cannot form cycles: their sources exist before them and never change.
class Builder {
 public:
  Builder(Graph &graph, NSArray<MPSNNImageNode *> *results, std::vector<bool> needed)
      : graph_(graph), results_(results) {
    graph.needed = std::move(needed);
  }

  /// Return false if a data source does not load.
  bool build() {
    for (MPSNNImageNode *result in results_) {
      if (![result isKindOfClass:[MPSNNImageNode class]])
        raise_for(graph_, @"A result image is an object of class %@, expected MPSNNImageNode.", [result class]);
      if (image_node(result).owner == nil) raise_for(graph_, @"A result image is the result of no filter node.");
      visit(image_node(result).owner);
    }
    for (std::size_t i = 0; i < [results_ count]; ++i) {
      const std::size_t index = images_.at([results_ objectAtIndex:i]);
      graph_.results.push_back(index);
      if (graph_.needed[i]) graph_.images[index].is_result = true;
    }
    find_live();
    for (std::size_t i = 0; i < order_.size(); ++i)
      if (live_[i] && !add_operation(i)) return false;
    for (const auto &operation : graph_.operations) operation->count_reads(graph_.images, graph_.states);
    join_images();
    return true;
  }

 private:
  /// Append the filters that lead to `last`, each after those that it reads, and number their images.
  void visit(MPSNNFilterNode *last) {
    struct Frame {
      MPSNNFilterNode *node;
      std::size_t next = 0;
    };
    if (!numbers_.emplace(last, kNone).second) return;
    std::vector<Frame> stack = {{last}};
    while (!stack.empty()) {
      Frame &frame = stack.back();
      const FilterNode::Links &links = filter_node(frame.node).links;
      MPSNNFilterNode *producer = nil;
      if (frame.next < links.sources.size()) {
        MPSNNImageNode *image = links.sources[frame.next].get();
        producer = image_node(image).owner;
        if (producer == nil) take_source(image);
      } else if (frame.next < links.sources.size() + links.states.size()) {
        MPSNNStateNode *state = links.states[frame.next - links.sources.size()].get();
        producer = state_node(state).owner;
        if (producer == nil) take_source(state);
      } else {
        numbers_[frame.node] = order_.size();
        order_.push_back(frame.node);
        add_image(links.result);
        stack.pop_back();
        continue;
      }
      ++frame.next;
      if (producer != nil && numbers_.emplace(producer, kNone).second) stack.push_back({producer});
    }
  }

  void take_source(MPSNNImageNode *image) {
    if (images_.count(image) == 0) graph_.source_images.push_back(add_image(image));
  }
  void take_source(MPSNNStateNode *state) {
    if (states_.count(state) == 0) graph_.source_states.push_back(add_state(state));
  }

  static Ref<id<MPSHandle>> handle_of(const ValueNode &node) {
    return node.handle ? node.handle : Ref<id<MPSHandle>>::adopt([[OpenMPSHandle alloc] init]);
  }

  std::size_t add_image(MPSNNImageNode *node) {
    const ImageNode &data = image_node(node);
    GraphImage image;
    image.handle = handle_of(data);
    image.allocator = data.allocator;
    image.format = data.format;
    image.is_exported = data.exports && data.owner != nil;
    image.synchronizes = data.synchronizes;
    graph_.images.push_back(image);
    return images_[node] = graph_.images.size() - 1;
  }

  std::size_t add_state(MPSNNStateNode *node) {
    const ValueNode &data = state_node(node);
    GraphState state;
    state.handle = handle_of(data);
    state.is_exported = data.exports && data.owner != nil;
    state.synchronizes = data.synchronizes;
    graph_.states.push_back(state);
    return states_[node] = graph_.states.size() - 1;
  }

  bool state_is_exported(std::size_t index) const {
    MPSNNStateNode *state = filter_node(order_[index]).links.result_state;
    return state != nil && state_node(state).exports;
  }

  /// Find the filters that run: those with effects, and those whose results are read or given to the program.
  void find_live() {
    live_.assign(order_.size(), false);
    state_is_used_.assign(order_.size(), false);
    result_is_needed_.assign(order_.size(), false);
    readers_.assign(graph_.images.size(), 0);
    std::vector<bool> image_is_used(graph_.images.size());
    for (std::size_t i = order_.size(); i-- > 0;) {
      const FilterNode &node = filter_node(order_[i]);
      const std::size_t result = images_.at(node.links.result);
      const GraphImage &image = graph_.images[result];
      if (image.is_exported || image.is_result) image_is_used[result] = true;
      if (state_is_exported(i)) state_is_used_[i] = true;
      live_[i] = image_is_used[result] || state_is_used_[i] || node.has_effects();
      result_is_needed_[i] = image_is_used[result];
      if (!live_[i]) continue;
      for (const auto &source : node.links.sources) {
        image_is_used[images_.at(source.get())] = true;
        ++readers_[images_.at(source.get())];
      }
      for (const auto &state : node.links.states)
        if (MPSNNFilterNode *producer = state_node(state.get()).owner) state_is_used_[numbers_.at(producer)] = true;
    }
  }

  /// Let the operation that makes the only source of an activation apply it, if nothing else uses what it makes.
  bool fuse_activation(std::size_t index) {
    const FilterNode &node = filter_node(order_[index]);
    MPSNNNeuronDescriptor *neuron = node.activation();
    if (neuron == nil || state_is_used_[index] || node.links.padding) return false;
    MPSNNFilterNode *producer = image_node(node.links.sources[0].get()).owner;
    if (producer == nil) return false;
    const std::size_t source = images_.at(node.links.sources[0].get()), result = images_.at(node.links.result);
    const GraphImage &between = graph_.images[source];
    if (readers_[source] != 1 || !between.is_inner() || between.format != graph_.images[result].format) return false;
    const std::size_t place = operations_.at(producer);
    Operation &operation = *graph_.operations[place];
    if (operation.result_state != kNone || !filter_node(producer).fuse(operation, neuron)) return false;
    operation.result = result;
    operations_[order_[index]] = place;
    return true;
  }

  bool add_operation(std::size_t index) {
    if (fuse_activation(index)) return true;
    const FilterNode &node = filter_node(order_[index]);
    Building building;
    building.device = graph_.device.get();
    building.result_is_needed = result_is_needed_[index];
    building.state_is_used = state_is_used_[index];
    if (!node.links.states.empty())
      if (MPSNNFilterNode *producer = state_node(node.links.states[0].get()).owner) {
        building.forward = operations_.at(producer);
        building.source_state_is_exported = state_is_exported(numbers_.at(producer));
      }
    auto operation = node.new_operation(building);
    if (!operation) return false;
    for (const auto &source : node.links.sources) operation->sources.push_back(images_.at(source.get()));
    for (const auto &state : node.links.states) operation->states.push_back(states_.at(state.get()));
    operation->result = images_.at(node.links.result);
    if (building.state_is_used) operation->result_state = add_state(node.links.result_state);
    operations_[order_[index]] = graph_.operations.size();
    graph_.operations.push_back(std::move(operation));
    return true;
  }

  /// Find the images that can be written where a concatenation wants them.
  void join_images() {
    std::vector<bool> is_made(graph_.images.size());
    for (const auto &operation : graph_.operations) is_made[operation->result] = true;
    const auto &operations = graph_.operations;
    for (std::size_t i = operations.size(); i-- > 0;) {
      const Operation &operation = *operations[i];
      if (!operation.joins() || !graph_.images[operation.result].is_inner()) continue;
      for (std::size_t later = i + 1; later < operations.size(); ++later)
        if (operations[later]->joins() && join_run(operation, later)) break;
      for (std::size_t k = 0; k < operation.sources.size(); ++k) {
        GraphImage &source = graph_.images[operation.sources[k]];
        if (source.joined_by == kNone && source.is_inner() && is_made[operation.sources[k]])
          source.joined_by = i, source.joined_at = k;
      }
    }
  }

  /// Put the result of a concatenation into that of a later one that has its sources, in a row.
  bool join_run(const Operation &operation, std::size_t later) {
    GraphImage &result = graph_.images[operation.result];
    const std::vector<std::size_t> &run = operation.sources, &all = graph_.operations[later]->sources;
    const auto first = std::search(all.begin(), all.end(), run.begin(), run.end());
    if (first == all.end() || result.joined_by != kNone) return false;
    const auto at = static_cast<std::size_t>(first - all.begin());
    for (std::size_t k = 0; k < run.size(); ++k)
      if (graph_.images[run[k]].joined_by != later || graph_.images[run[k]].joined_at != at + k) return false;
    result.joined_by = later, result.joined_at = at;
    return true;
  }

  Graph &graph_;
  NSArray<MPSNNImageNode *> *results_;
  std::vector<MPSNNFilterNode *> order_;
  std::map<MPSNNFilterNode *, std::size_t> numbers_;     ///< places in order_
  std::map<MPSNNFilterNode *, std::size_t> operations_;  ///< places in the graph
  std::map<MPSNNImageNode *, std::size_t> images_;
  std::map<MPSNNStateNode *, std::size_t> states_;
  std::vector<bool> live_, result_is_needed_, state_is_used_;
  std::vector<std::size_t> readers_;  ///< filters that read each image
};

NSArray<id<MPSHandle>> *handle_array(const std::vector<GraphImage> &images, const std::vector<std::size_t> &indices) {
  NSMutableArray *handles = [NSMutableArray arrayWithCapacity:indices.size()];
  for (const std::size_t index : indices) [handles addObject:images[index].handle.get()];
  return handles;
}

id init_graph(MPSNNGraph *self, id<MTLDevice> device, NSArray<MPSNNImageNode *> *results,
              const BOOL *results_are_needed) {
  if (!(self = [self openmps_initWithDevice:device])) return nil;
  UnwindRelease unwind(self);
  auto &graph = state_of<Graph>(self);
  if ([results count] == 0) raise_for(graph, @"There is no result image.");
  std::vector<bool> needed([results count], true);
  for (std::size_t i = 0; i < needed.size(); ++i)
    if (results_are_needed != nullptr) needed[i] = results_are_needed[i];
  if (!Builder(graph, results, std::move(needed)).build()) return nil;
  return unwind.done();
}

NSArray *wrapped(NSArray *objects) {
  NSMutableArray *batches = [NSMutableArray arrayWithCapacity:[objects count]];
  for (id object in objects) [batches addObject:[NSArray arrayWithObject:object]];
  return batches;
}

}  // namespace
}  // namespace openmps

using openmps::Graph;

@implementation MPSNNGraph

+ (openmps::KernelState *)openmps_newState {
  return new Graph();
}

- (instancetype)initWithDevice:(id<MTLDevice>)device {
  (void)device;
  openmps::UnwindRelease unwind(self);
  openmps::raise_unavailable(self, _cmd, "-initWithDevice:resultImage:resultImageIsNeeded:");
}

- (instancetype)initWithDevice:(id<MTLDevice>)device
                   resultImage:(MPSNNImageNode *)resultImage
           resultImageIsNeeded:(BOOL)resultIsNeeded {
  NSArray *results = resultImage == nil ? nil : [NSArray arrayWithObject:resultImage];
  return openmps::init_graph(self, device, results, &resultIsNeeded);
}

+ (instancetype)graphWithDevice:(id<MTLDevice>)device
                    resultImage:(MPSNNImageNode *)resultImage
            resultImageIsNeeded:(BOOL)resultIsNeeded {
  return [[[self alloc] initWithDevice:device resultImage:resultImage resultImageIsNeeded:resultIsNeeded] autorelease];
}

- (instancetype)initWithDevice:(id<MTLDevice>)device
                  resultImages:(NSArray<MPSNNImageNode *> *)resultImages
              resultsAreNeeded:(BOOL *)areResultsNeeded {
  return openmps::init_graph(self, device, resultImages, areResultsNeeded);
}

+ (instancetype)graphWithDevice:(id<MTLDevice>)device
                   resultImages:(NSArray<MPSNNImageNode *> *)resultImages
               resultsAreNeeded:(BOOL *)areResultsNeeded {
  return [[[self alloc] initWithDevice:device resultImages:resultImages resultsAreNeeded:areResultsNeeded] autorelease];
}

- (instancetype)initWithDevice:(id<MTLDevice>)device resultImage:(MPSNNImageNode *)resultImage {
  return [self initWithDevice:device resultImage:resultImage resultImageIsNeeded:YES];
}

+ (instancetype)graphWithDevice:(id<MTLDevice>)device resultImage:(MPSNNImageNode *)resultImage {
  return [self graphWithDevice:device resultImage:resultImage resultImageIsNeeded:YES];
}

- (instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device {
  (void)aDecoder, (void)device;
  openmps::UnwindRelease unwind(self);
  openmps::raise_not_implemented(self, _cmd);
}

// ------------------------------------------------------------------------------------------ properties

- (NSArray<id<MPSHandle>> *)sourceImageHandles {
  const auto &graph = openmps::state_of<Graph>(self);
  return openmps::handle_array(graph.images, graph.source_images);
}

- (NSArray<id<MPSHandle>> *)sourceStateHandles {
  const auto &graph = openmps::state_of<Graph>(self);
  if (graph.source_states.empty()) return nil;
  NSMutableArray *handles = [NSMutableArray array];
  for (const std::size_t index : graph.source_states) [handles addObject:graph.states[index].handle.get()];
  return handles;
}

/// In the order of intermediateImages: exported images as they are encoded, then further results.
- (NSArray<id<MPSHandle>> *)intermediateImageHandles {
  const auto &graph = openmps::state_of<Graph>(self);
  std::vector<std::size_t> indices;
  for (const auto &operation : graph.operations)
    if (graph.images[operation->result].is_exported) indices.push_back(operation->result);
  for (std::size_t i = 1; i < graph.results.size(); ++i)
    if (graph.needed[i] && !graph.images[graph.results[i]].is_exported) indices.push_back(graph.results[i]);
  return indices.empty() ? nil : openmps::handle_array(graph.images, indices);
}

- (NSArray<id<MPSHandle>> *)resultStateHandles {
  const auto &graph = openmps::state_of<Graph>(self);
  NSMutableArray *handles = [NSMutableArray array];
  for (const auto &operation : graph.operations)
    if (operation->result_state != openmps::kNone && graph.states[operation->result_state].is_exported)
      [handles addObject:graph.states[operation->result_state].handle.get()];
  return [handles count] == 0 ? nil : handles;
}

- (id<MPSHandle>)resultHandle {
  const auto &graph = openmps::state_of<Graph>(self);
  return graph.images[graph.results[0]].handle.get();
}

OPENMPS_PROPERTY(Graph, BOOL, outputStateIsTemporary, setOutputStateIsTemporary, state_is_temporary)
OPENMPS_GETTER(Graph, BOOL, resultImageIsNeeded, needed[0])
OPENMPS_GETTER(Graph, MPSImageFeatureChannelFormat, format, format)

- (void)setFormat:(MPSImageFeatureChannelFormat)format {
  auto &graph = openmps::state_of<Graph>(self);
  if (format < MPSImageFeatureChannelFormatUnorm8 || format > MPSImageFeatureChannelFormatFloat32)
    openmps::raise_for(graph, @"format (%lu) is not between 1 and 4.", (unsigned long)format);
  graph.format = format;
}

- (id<MPSImageAllocator>)destinationImageAllocator {
  id<MPSImageAllocator> allocator = openmps::state_of<Graph>(self).allocator.get();
  return allocator != nil ? allocator : [MPSImage defaultAllocator];
}

- (void)setDestinationImageAllocator:(id<MPSImageAllocator>)allocator {
  openmps::state_of<Graph>(self).allocator = openmps::Ref<id<MPSImageAllocator>>(allocator);
}

/// Of all kernels.
- (void)setOptions:(MPSKernelOptions)options {
  [super setOptions:options];
  for (const auto &operation : openmps::state_of<Graph>(self).operations)
    operation->each_kernel([&](openmps::Ref<MPSKernel *> &kernel) { [kernel.get() setOptions:options]; });
}

- (void)reloadFromDataSources {
  const auto &graph = openmps::state_of<Graph>(self);
  const std::lock_guard lock(*graph.mutex);
  for (const auto &operation : graph.operations) operation->reload();
}

- (NSUInteger)readCountForSourceImageAtIndex:(NSUInteger)index {
  const auto &graph = openmps::state_of<Graph>(self);
  if (index >= graph.source_images.size())
    openmps::raise_for(graph, @"index (%lu) is not less than the number of source images (%lu).", (unsigned long)index,
                       (unsigned long)graph.source_images.size());
  return graph.images[graph.source_images[index]].reads;
}

- (NSUInteger)readCountForSourceStateAtIndex:(NSUInteger)index {
  const auto &graph = openmps::state_of<Graph>(self);
  if (index >= graph.source_states.size())
    openmps::raise_for(graph, @"index (%lu) is not less than the number of source states (%lu).", (unsigned long)index,
                       (unsigned long)graph.source_states.size());
  return graph.states[graph.source_states[index]].reads;
}

// -------------------------------------------------------------------------------------------------- encode

- (MPSImage *)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                       sourceImages:(NSArray<MPSImage *> *)sourceImages
                       sourceStates:(NSArray<MPSState *> *)sourceStates
                 intermediateImages:(NSMutableArray<MPSImage *> *)intermediateImages
                  destinationStates:(NSMutableArray<MPSState *> *)destinationStates {
  const openmps::GraphInputs inputs = {openmps::wrapped(sourceImages), openmps::wrapped(sourceStates),
                                       (NSMutableArray *)intermediateImages, (NSMutableArray *)destinationStates,
                                       false};
  return [openmps::Encoding(openmps::state_of<Graph>(self), commandBuffer, inputs).run() objectAtIndex:0];
}

- (MPSImageBatch *)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                 sourceImages:(NSArray<MPSImageBatch *> *)sourceImages
                                 sourceStates:(NSArray<MPSStateBatch *> *)sourceStates
                           intermediateImages:(NSMutableArray<MPSImageBatch *> *)intermediateImages
                            destinationStates:(NSMutableArray<MPSStateBatch *> *)destinationStates {
  const openmps::GraphInputs inputs = {sourceImages, sourceStates, (NSMutableArray *)intermediateImages,
                                       (NSMutableArray *)destinationStates, true};
  return openmps::Encoding(openmps::state_of<Graph>(self), commandBuffer, inputs).run();
}

- (MPSImage *)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                       sourceImages:(NSArray<MPSImage *> *)sourceImages {
  return [self encodeToCommandBuffer:commandBuffer
                        sourceImages:sourceImages
                        sourceStates:nil
                  intermediateImages:nil
                   destinationStates:nil];
}

- (MPSImageBatch *)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                 sourceImages:(NSArray<MPSImageBatch *> *)sourceImages
                                 sourceStates:(NSArray<MPSStateBatch *> *)sourceStates {
  return [self encodeBatchToCommandBuffer:commandBuffer
                             sourceImages:sourceImages
                             sourceStates:sourceStates
                       intermediateImages:nil
                        destinationStates:nil];
}

- (MPSImage *)executeAsyncWithSourceImages:(NSArray<MPSImage *> *)sourceImages
                         completionHandler:(MPSNNGraphCompletionHandler)handler {
  auto &graph = openmps::state_of<Graph>(self);
  if (!graph.queue) graph.queue = openmps::Ref<id<MTLCommandQueue>>::adopt([[self device] newCommandQueue]);
  id<MTLCommandBuffer> buffer = [graph.queue.get() commandBuffer];
  MPSImage *result = [self encodeToCommandBuffer:buffer sourceImages:sourceImages];
  [result synchronizeOnCommandBuffer:buffer];
  if (handler != nil)
    [buffer addCompletedHandler:^(id<MTLCommandBuffer> completed) {
      NSError *error = [completed error];
      handler(error == nil ? result : nil, error);
    }];
  [buffer commit];
  return result;
}

@end
