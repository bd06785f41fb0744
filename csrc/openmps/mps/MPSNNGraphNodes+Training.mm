// SPDX-License-Identifier: Apache-2.0
// From a graph of forward nodes to the nodes of its gradients [MPSNNGraphNodes.h].

#import "mps/MPSNNGraphNodes+Engine.hh"

#include <map>
#include <set>

namespace openmps {
namespace {

/// The backward pass over the filters that lead to one filter.
class Backward {
 public:
  Backward(MPSNNFilterNode *last, MPSGradientNodeBlock handler) : handler_(handler) { visit(last); }

  NSArray<MPSNNFilterNode *> *run(MPSNNFilterNode *last, MPSNNImageNode *gradient) {
    const FilterNode &data = filter_node(last);
    if (gradient == nil) gradient = data.links.result;
    MPSNNImageNode *start = data.links.result;
    if (data.is_own_gradient()) {
      start = data.links.sources[0].get();
      order_.pop_back();  // its gradient is given
    }
    contributions_[start].push_back({gradient, nil});
    for (auto node = order_.rbegin(); node != order_.rend(); ++node) differentiate(*node);
    NSMutableArray *ends = [NSMutableArray array];
    for (const Ref<MPSNNImageNode *> &end : ends_) {
      MPSNNFilterNode *node = sum(end.get()).node;
      if (node != nil && ![ends containsObject:node]) [ends addObject:node];
    }
    return [ends count] == 0 ? nil : ends;
  }

 private:
  struct Gradient {
    MPSNNImageNode *image;
    MPSNNFilterNode *node;  ///< nil: given
  };

  static MPSNNFilterNode *producer(MPSNNImageNode *image) {
    const ImageNode &data = image_node(image);
    return data.stops_gradient ? nil : data.owner;
  }

  /// Append the filters that lead to `last`, each after those that it reads.
  void visit(MPSNNFilterNode *last) {
    struct Frame {
      MPSNNFilterNode *node;
      std::size_t next = 0;
    };
    std::vector<Frame> stack = {{last}};
    seen_.insert(last);
    while (!stack.empty()) {
      Frame &frame = stack.back();
      const auto &sources = filter_node(frame.node).links.sources;
      if (frame.next == sources.size()) {
        order_.push_back(frame.node);
        stack.pop_back();
        continue;
      }
      MPSNNImageNode *source = sources[frame.next++].get();
      MPSNNFilterNode *node = producer(source);
      if (node == nil) {
        if (seen_.insert(source).second) ends_.emplace_back(source);
      } else if (seen_.insert(node).second) {
        stack.push_back({node});
      }
    }
  }

  void differentiate(MPSNNFilterNode *node) {
    const FilterNode &data = filter_node(node);
    const Gradient incoming = sum(data.links.result);
    if (incoming.image == nil) return;  // no loss depends on it
    const std::size_t count = data.gradient_count();
    if (count == 0)
      raise_argument(@"%@ has no gradient node. Set stopGradient of its resultImage to end the training graph there.",
                     node);
    for (std::size_t i = 0; i < count; ++i) {
      MPSNNImageNode *source = data.links.sources[i].get();
      if (producer(source) == nil && !data.wants_gradient_of_input(i)) continue;
      MPSNNGradientFilterNode *gradient = [data.new_gradient(node, incoming.image, i) autorelease];
      contributions_[source].push_back({[gradient resultImage], gradient});
      if (handler_ != nil) handler_(gradient, node, source, incoming.image);
    }
  }

  /// Return the sum of the gradients of an image, by addition nodes. nil: there are none.
  Gradient sum(MPSNNImageNode *image) {
    const auto found = contributions_.find(image);
    if (found == contributions_.end()) return {nil, nil};
    std::vector<Gradient> &gradients = found->second;
    while (gradients.size() > 1) {
      const Gradient first = gradients[0], second = gradients[1];
      MPSNNAdditionNode *addition = [MPSNNAdditionNode nodeWithLeftSource:first.image rightSource:second.image];
      gradients.erase(gradients.begin());
      gradients[0] = {[addition resultImage], addition};
      MPSNNFilterNode *forward = image_node(image).owner;
      if (handler_ != nil) handler_(addition, forward, image, first.image);
    }
    return gradients[0];
  }

  MPSGradientNodeBlock handler_;
  std::vector<MPSNNFilterNode *> order_;
  std::vector<Ref<MPSNNImageNode *>> ends_;  ///< images whose gradients end the graph
  std::set<const void *> seen_;
  std::map<MPSNNImageNode *, std::vector<Gradient>> contributions_;
};

}  // namespace

NSArray<MPSNNFilterNode *> *training_graph(MPSNNFilterNode *last, MPSNNImageNode *gradient,
                                           MPSGradientNodeBlock handler) {
  return Backward(last, handler).run(last, gradient);
}

}  // namespace openmps
