// SPDX-License-Identifier: Apache-2.0
#include <mpscnn/error.hpp>
#include <mpscnn/mps_graph.hpp>

#include <deque>
#include <memory>
#include <mutex>

#include "core/device/completion_check.hh"
#include "core/device/forked.hpp"
#include "core/device/image_batch.hh"
#include "core/device/objc_scope.hh"
#include "core/graph/graph_object_impl.hh"
#include "core/graph/graph_scope.hpp"
#include "core/kernel/encode_checks.hh"
#include "core/loss/loss_labels_impl.hh"

namespace mpscnn {

struct MpsGraph::Impl {
  std::shared_ptr<Device> device;
  Ref<MPSNNGraph *> graph;
  std::shared_ptr<GraphObject> object;
  std::vector<std::shared_ptr<Guarded>> updating;  ///< data sources with updates of their own
  mutable ForkChecked<std::mutex> mutex = {};
};

namespace {

constexpr const char *kName = "MPSNNGraph";

/// Call MPS. The exception of a callback, such as a data source that did not load, comes before what MPS raises then.
template <class Call>
void call_mps(GraphScope &scope, const Call &call) {
  Ref<NSException *> raised;
  @try {
    call();
  } @catch (NSException *exception) {
    raised = Ref<NSException *>::retain(exception);
  }
  scope.rethrow();
  if (raised) [raised.get() raise];
}

/// Throw in a callback of the graph's own call, which holds its mutex.
void check_not_called(const MpsGraph::Impl &graph) {
  for (const auto *scope = GraphScope::current(); scope != nullptr; scope = scope->outer())
    check<std::runtime_error>(scope->graph != &graph, kName, ": a callback of the graph calls the graph itself.");
}

/// Return the Image of which a batch consists: an allocator of ours has made it, if the program takes the batch.
std::shared_ptr<Image> image_of(MPSImageBatch *batch, const GraphScope &scope) {
  MPSImage *first = [batch objectAtIndex:0];
  for (const auto &image : scope.images) {
    MPSImage *whole = image->impl().image.get();
    if (whole == first || [first parent] == whole) return image;
  }
  throw NotImplementedError(say(kName, ": a node's image_allocator made a result that is no Image."));
}

}  // namespace

MpsGraph::MpsGraph(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MpsGraph::~MpsGraph() {
  Pool pool;
  impl_.reset();
}

std::shared_ptr<MpsGraph> MpsGraph::make(std::shared_ptr<Device> device,
                                         std::span<const std::shared_ptr<GraphObject>> results,
                                         const std::vector<bool> &needed) {
  return guard([&] {
    NSMutableArray *images = [NSMutableArray array];
    for (const auto &result : results) [images addObject:result->impl().object.get()];
    const auto flags = std::make_unique<BOOL[]>(needed.size());
    for (std::size_t i = 0; i < needed.size(); ++i) flags[i] = needed[i];
    GraphScope scope;
    Ref<MPSNNGraph *> graph;
    call_mps(scope, [&] {
      graph =
          Ref<MPSNNGraph *>::adopt(results.size() == 1 ? [[MPSNNGraph alloc] initWithDevice:device->impl().device.get()
                                                                                resultImage:[images objectAtIndex:0]
                                                                        resultImageIsNeeded:flags[0]]
                                                       : [[MPSNNGraph alloc] initWithDevice:device->impl().device.get()
                                                                               resultImages:images
                                                                           resultsAreNeeded:flags.get()]);
    });
    check<std::runtime_error>(static_cast<bool>(graph), kName, ": the device refused the graph.");
    [graph.get() setDestinationImageAllocator:GraphObject::allocator()->impl().object.get()];
    auto object = graph_object(graph.get());
    return std::make_shared<MpsGraph>(std::unique_ptr<Impl>(new Impl{.device = device,
                                                                     .graph = std::move(graph),
                                                                     .object = std::move(object),
                                                                     .updating = std::move(scope.sources)}));
  });
}

MpsGraph::Labels MpsGraph::handles(const char *property) const {
  return guard([&] {
    Labels labels;
    for (id<MPSHandle> handle in static_cast<NSArray *>([impl_->graph.get() valueForKey:ns(property)])) {
      NSString *label = [handle label];
      labels.push_back(label == nil ? std::nullopt : std::optional(text(label)));
    }
    return labels;
  });
}

MpsGraph::Results MpsGraph::encode(const std::shared_ptr<CommandBuffer> &buffer,
                                   std::span<const std::shared_ptr<Image>> sources,
                                   std::span<const std::shared_ptr<LossLabels>> labels) const {
  check_open(*buffer, *impl_->device, kName);
  const auto n = sources.empty() ? 0 : sources[0]->shape().n;
  for (const auto &image : sources) {
    check_source(*image, *impl_->device, kName);
    check(image->shape().n == n, kName, ": a source has ", image->shape().n, " images, and the first one ", n, ".");
  }
  for (const auto &one : labels) {
    check_same_device(*one->device(), *impl_->device, "labels");
    check(one->shape().n == n, kName, ": labels of ", one->shape().n, " images were given for ", n, ".");
  }
  return guard([&] {
    check_not_called(*impl_);
    const std::scoped_lock lock(impl_->mutex);
    MPSNNGraph *graph = impl_->graph.get();
    const auto check_count = [](NSUInteger given, NSArray *handles, const char *what) {
      check(given == [handles count], kName, ": ", given, " ", what, " were given; the graph has ", [handles count],
            ".");
    };
    check_count(sources.size(), [graph sourceImageHandles], "sources");
    check_count(labels.size(), [graph sourceStateHandles], "labels");
    id<MTLCommandBuffer> commands = buffer->impl().buffer.get();
    std::deque<ImageBatch> batches;
    NSMutableArray *images = [NSMutableArray array];
    for (const auto &image : sources) {
      check_files_of(commands, {image.get()});
      [images addObject:batches.emplace_back(*image).images()];
    }
    NSMutableArray *states = [NSMutableArray array];
    for (const auto &one : labels) [states addObject:one->impl().batch_of_single_images()];
    NSMutableArray *intermediates = [NSMutableArray array], *result_states = [NSMutableArray array];
    // Updates on the CPU are completion handlers that MPS adds in the encode. Ours are added by commit(), and wait()
    // waits for them.
    if (!impl_->updating.empty()) buffer->add_completed_handler([] {});
    GraphScope scope(buffer);
    scope.graph = impl_.get();
    scope.batch = n;
    scope.inputs.assign(sources.begin(), sources.end());
    MPSImageBatch *result = nil;
    call_mps(scope, [&] {
      result = [graph encodeBatchToCommandBuffer:commands
                                    sourceImages:images
                                    sourceStates:labels.empty() ? nil : states
                              intermediateImages:intermediates
                               destinationStates:result_states];
    });
    for (const auto &batch : batches) batch.did_read();
    Results results;
    for (const auto &image : scope.images) {
      check_files_of(commands, {image.get()});
      image->impl().note_write(commands);
    }
    if (result != nil) results.result = image_of(result, scope);
    for (MPSImageBatch *batch in intermediates) results.intermediates.push_back(image_of(batch, scope));
    for (MPSStateBatch *batch in result_states) {
      MPSState *state = [batch objectAtIndex:0];
      synchronize(state, commands);
      auto writer = std::make_shared<Writer>();
      writer->set(commands);
      results.states.push_back(std::make_shared<GraphObject>(std::unique_ptr<GraphObject::Impl>(new GraphObject::Impl{
          .object = Ref<id>::retain(state), .device = impl_->device, .writer = std::move(writer)})));
    }
    for (const auto &one : labels) one->impl().note_loss(commands);
    results.has_updated = scope.has_updated;
    return results;
  });
}

void MpsGraph::check_updates() const {
  for (const auto &source : impl_->updating) source->rethrow();
}

void MpsGraph::reload() const {
  guard([&] {
    check_not_called(*impl_);
    const std::scoped_lock lock(impl_->mutex);
    GraphScope scope;
    scope.graph = impl_.get();
    call_mps(scope, [&] { [impl_->graph.get() reloadFromDataSources]; });
  });
}

std::int64_t MpsGraph::read_count(std::int64_t source) const {
  return guard([&] {
    return static_cast<std::int64_t>(
        [impl_->graph.get() readCountForSourceImageAtIndex:static_cast<NSUInteger>(source)]);
  });
}

const std::shared_ptr<GraphObject> &MpsGraph::object() const { return impl_->object; }
std::shared_ptr<Device> MpsGraph::device() const { return impl_->device; }

}  // namespace mpscnn
