// SPDX-License-Identifier: Apache-2.0
#include <mpscnn/array_call.hpp>
#include <mpscnn/error.hpp>
#include <mpscnn/mps_graph.hpp>
#include <mpscnn/pool_scope.hpp>

#include <algorithm>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include "core/call/image_pool.hpp"
#include "core/device/completion_check.hh"
#include "core/device/forked.hpp"
#include "core/device/image_batch.hh"
#include "core/device/objc_scope.hh"
#include "core/device/recorded_commands.hpp"
#include "core/graph/graph_object_impl.hh"
#include "core/graph/graph_scope.hpp"
#include "core/kernel/encode_checks.hh"
#include "core/loss/loss_labels_impl.hh"

namespace mpscnn {

namespace {

/// All that the commands of an encode without labels depend on, besides weights.
struct EncodeKey {
  std::vector<ImageShape> shapes;
  std::vector<DType> dtypes;
  std::vector<std::weak_ptr<Image>> sources;  ///< if the commands need the same images
  MPSImageFeatureChannelFormat format;
  MPSKernelOptions options;
  Ref<id> allocator;

  bool operator==(const EncodeKey &other) const {
    const auto is_same = [](const std::weak_ptr<Image> &a, const std::weak_ptr<Image> &b) {
      return !a.owner_before(b) && !b.owner_before(a);
    };
    return shapes == other.shapes && dtypes == other.dtypes && std::ranges::equal(sources, other.sources, is_same) &&
           format == other.format && options == other.options && allocator.get() == other.allocator.get();
  }
};

/// The commands of an encode that made one image, for encodes alike: MPS would encode every kernel again, and an engine
/// would not know that the list is the same.
struct RecordedEncode {
  EncodeKey key;
  std::shared_ptr<const RecordedCommands> commands;
  ImageShape shape;  ///< of the result
  DType dtype;
  std::shared_ptr<Image> result;  ///< if the commands need the same images
};

constexpr std::size_t kMostRecorded = 8;

}  // namespace

struct MpsGraph::Impl {
  std::shared_ptr<Device> device;
  Ref<MPSNNGraph *> graph;
  std::shared_ptr<GraphObject> object;
  std::vector<std::shared_ptr<Guarded>> updating;  ///< data sources with updates of their own
  std::shared_ptr<ImagePool> pool = ImagePool::make(device);
  mutable ForkChecked<std::mutex> mutex = {};        ///< guards the following, too
  mutable std::optional<EncodeKey> last = {};        ///< of an encode that could be recorded
  mutable std::deque<RecordedEncode> recorded = {};  ///< the last one made first
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

EncodeKey key_of(MPSNNGraph *graph, std::span<const std::shared_ptr<Image>> sources, bool takes_other_images) {
  EncodeKey key{.shapes = {},
                .dtypes = {},
                .sources = {},
                .format = [graph format],
                .options = [graph options],
                .allocator = Ref<id>::retain([graph destinationImageAllocator])};
  for (const auto &image : sources) key.shapes.push_back(image->shape()), key.dtypes.push_back(image->dtype());
  if (!takes_other_images) key.sources.assign(sources.begin(), sources.end());
  return key;
}

/// Encode the commands of an equal encode. Return its result, or null if there are none for these images.
std::shared_ptr<Image> encode_recorded(const MpsGraph::Impl &graph, CommandBuffer &buffer, const EncodeKey &key,
                                       std::span<const std::shared_ptr<Image>> sources) {
  for (const RecordedEncode &each : graph.recorded) {
    if (!(each.key == key)) continue;
    if (each.result && each.result.use_count() > 1) continue;  // the program has it
    auto result = each.result ? each.result : make_visible_image(graph.device, each.shape, each.dtype);
    if (each.commands->encode(buffer, sources, std::span(&result, 1))) return result;
  }
  return nullptr;
}

/// Keep the commands of an encode, if one like it came before.
void record(const MpsGraph::Impl &graph, CommandBuffer &buffer, EncodeKey key,
            std::span<const std::shared_ptr<Image>> sources, const std::shared_ptr<Image> &result) {
  if (graph.last != key) {
    graph.last = std::move(key);
    return;
  }
  auto commands = RecordedCommands::make(buffer, sources, std::span(&result, 1));
  if (!commands) return;
  auto kept = key.sources.empty() ? nullptr : result;
  graph.recorded.push_front({std::move(key), std::move(commands), result->shape(), result->dtype(), std::move(kept)});
  if (graph.recorded.size() > kMostRecorded) graph.recorded.pop_back();
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
    // Labels and updates change with each encode; commands beside others may be fused with them.
    const bool may_repeat = labels.empty() && impl_->updating.empty() && RecordedCommands::can_record(*buffer);
    EncodeKey key = key_of(graph, sources, may_repeat && RecordedCommands::takes_other_images(*buffer));
    if (may_repeat)
      if (auto result = encode_recorded(*impl_, *buffer, key, sources)) return Results{.result = std::move(result)};
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
    if (may_repeat && results.result && scope.images.size() == 1 && results.intermediates.empty() &&
        results.states.empty() && !scope.has_updated && !scope.has_asked)
      record(*impl_, *buffer, std::move(key), sources, results.result);
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
    impl_->recorded.clear();
    GraphScope scope;
    scope.graph = impl_.get();
    call_mps(scope, [&] { [impl_->graph.get() reloadFromDataSources]; });
  });
}

std::vector<std::shared_ptr<Image>> MpsGraph::run(std::span<const ArrayView> sources) const {
  const PoolScope pool;
  const auto buffer = CommandBuffer::make(impl_->device);
  ArrayCall call(impl_->device, impl_->pool);
  std::vector<std::shared_ptr<Image>> images;
  for (const auto &source : sources) images.push_back(call.source(source));
  auto results = encode(buffer, images, {});
  call.run(*buffer);
  images = std::move(results.intermediates);
  if (results.result) images.insert(images.begin(), std::move(results.result));
  return images;
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
