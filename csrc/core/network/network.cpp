// SPDX-License-Identifier: Apache-2.0
#include <mpscnn/network.hpp>

#include <algorithm>
#include <list>
#include <mutex>

#include <mpscnn/error.hpp>

#include <mpscnn/pool_scope.hpp>
#include "core/call/image_pool.hpp"
#include "core/device/forked.hpp"
#include "core/device/recorded_commands.hpp"
#include "core/network/in_node.hpp"
#include "core/network/network_plan.hpp"

namespace mpscnn {

/// Identifies an encode: equal ones encode equal commands.
struct Network::Encode {
  std::shared_ptr<const NetworkPlan> plan;
  std::int64_t n = 0;                          ///< number of images
  std::vector<std::shared_ptr<Image>> images;  ///< inputs, then outputs; none if commands take others
  std::uint64_t changes = 0;                   ///< sum over the kernels
  const SideQueue* queue = nullptr;            ///< runs of recorded commands are in its order

  bool is_of(const Encode& other) const {
    return plan == other.plan && n == other.n && images == other.images && queue == other.queue;
  }
};

/// LRU cache of plans and recorded commands, and pool of unused images. A plan in use outlives its entry.
struct Network::Cache {
  struct Entry {
    std::vector<ImageShape> inputs;
    std::shared_ptr<const NetworkPlan> plan;
  };
  ForkChecked<std::mutex> mutex;
  std::list<Entry> entries;
  std::shared_ptr<ImagePool> images;
  struct Recorded {
    Encode encode;
    std::shared_ptr<const RecordedCommands> commands;
  };
  std::list<Recorded> recorded;  ///< the last used first
  std::list<std::size_t> seen;   ///< hashes of encodes that are not recorded, the last first
};

std::shared_ptr<Network> Network::make(std::shared_ptr<Device> device, NetworkParts parts) {
  check(!parts.inputs.empty(), "Network: the number of inputs (0) is less than the minimum (1).");
  check<NotImplementedError>(parts.threads == 0 || device->computes_on_threads(), "Network: num_threads (",
                             parts.threads, ") was given, but ", device->name(),
                             " does not compute on threads of the processor, as the device \"cpu\" does: leave"
                             " num_threads out.");
  check(!parts.outputs.empty(), "Network: the number of outputs (0) is less than the minimum (1).");
  std::size_t values = parts.inputs.size();
  for (const auto& node : parts.nodes) {
    check(!node.is_concatenation() || !node.sources.empty(), "Network: node \"", node.name, "\" has no sources.");
    for (const auto source : node.sources)
      check(source < values, "Network: node \"", node.name, "\" reads value ", source,
            ", which does not stand before it; there are ", values, ".");
    if (const std::size_t count = node.interpolation ? 2 : node.adaptive_pooling ? 1 : 0)
      check(node.sources.size() == count, "Network: node \"", node.name, "\": the number of sources (",
            node.sources.size(), ") is not ", count, ".");
    if (node.function) {
      check<TypeError>(node.sources.size() == node.function->source_count(), "Network: node \"", node.name,
                       "\": the number of sources (", node.sources.size(), ") is not ", node.function->source_count(),
                       ", the textures that ", node.function->name(), " reads.");
      check(node.function->device() == device, "Network: node \"", node.name, "\" is on another device.");
    }
    if (node.kernel) {
      in_node(node.name, [&] { node.kernel->check_source_count(node.sources.size()); });
      check(node.kernel->device() == device, "Network: node \"", node.name, "\" is on another device.");
      check<TypeError>(node.kernel->row().has_image(), "Network: node \"", node.name, "\" (", node.kernel->row().name,
                       ") makes a state, not an image.");
    }
    ++values;
  }
  for (const auto value : parts.outputs)
    check(value < values, "Network: an output is value ", value, "; there are ", values, ".");
  return std::make_shared<Network>(std::move(device), std::move(parts));
}

Network::Network(std::shared_ptr<Device> device, NetworkParts parts)
    : device_(std::move(device)), parts_(std::move(parts)), cache_(std::make_unique<Cache>()) {
  cache_->images = ImagePool::make(device_);
}
Network::~Network() = default;

void Network::check_inputs(std::span<const ImageShape> inputs) const {
  check<TypeError>(inputs.size() == parts_.inputs.size(), "the number of inputs (", inputs.size(), ") is not ",
                   parts_.inputs.size(), ".");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto& spec = parts_.inputs[i];
    const auto& shape = inputs[i];
    check(shape.n == inputs[0].n, "input \"", spec.name, "\" has ", shape.n, " images; \"", parts_.inputs[0].name,
          "\" has ", inputs[0].n, ".");
    const auto fits = [&](std::optional<std::int64_t> wanted, std::int64_t given, const char* what) {
      check(!wanted || *wanted == given, "input \"", spec.name, "\": its ", what, " (", given, ") is not ",
            wanted.value_or(0), spec.fixed_by.empty() ? "" : ", the one that the model was imported for, fixed by ",
            spec.fixed_by, ".");
    };
    fits(spec.c, shape.c, "number of channels");
    fits(spec.h, shape.h, "height");
    fits(spec.w, shape.w, "width");
  }
}

std::vector<ImageShape> Network::shapes(std::span<const ImageShape> inputs) const {
  check_inputs(inputs);
  return NetworkPlan::infer(parts_, inputs);
}

std::shared_ptr<const NetworkPlan> Network::plan(std::span<const ImageShape> inputs) const {
  check_inputs(inputs);
  std::vector<ImageShape> key(inputs.begin(), inputs.end());
  for (auto& shape : key) shape.n = 1;
  {
    const std::scoped_lock lock(cache_->mutex);
    for (auto it = cache_->entries.begin(); it != cache_->entries.end(); ++it)
      if (it->inputs == key) {
        cache_->entries.splice(cache_->entries.begin(), cache_->entries, it);
        return it->plan;
      }
  }
  auto made = std::make_shared<const NetworkPlan>(device_, parts_, NetworkPlan::infer(parts_, key));
  const std::scoped_lock lock(cache_->mutex);
  for (const auto& entry : cache_->entries)
    if (entry.inputs == key) return entry.plan;  // another thread added it first
  cache_->entries.push_front({std::move(key), made});
  if (cache_->entries.size() > kMostPlans) cache_->entries.pop_back();
  return made;
}

std::vector<ImageShape> Network::result_shapes(const NetworkPlan& plan) {
  std::vector<ImageShape> shapes;
  for (const auto image : plan.output_images) shapes.push_back(plan.images[image].shape);
  return shapes;
}

std::int64_t Network::chunk_images(const NetworkPlan& plan) { return plan.chunk_images; }

std::size_t Network::plans() const {
  const std::scoped_lock lock(cache_->mutex);
  return cache_->entries.size();
}

const std::shared_ptr<ImagePool>& Network::image_pool() const { return cache_->images; }

/// Return the plan's images with inputs and outputs set; temporary images stay null.
Network::Images Network::boundary(const NetworkPlan& made, std::span<const std::shared_ptr<Image>> inputs,
                                  std::span<std::shared_ptr<Image>> outputs) const {
  check<TypeError>(outputs.size() == parts_.outputs.size(), "the number of outputs (", outputs.size(), ") is not ",
                   parts_.outputs.size(), ".");
  const auto n = inputs[0]->shape().n;
  check(made.most_images == 0 || n <= made.most_images, "the number of images (", n, ") is greater than the maximum (",
        made.most_images, ") of one encode, which the images with the most channels have.");
  Images images(made.images.size());
  for (std::size_t i = 0; i < images.size(); ++i) {
    const auto& spec = made.images[i];
    if (spec.input >= 0) images[i] = inputs[static_cast<std::size_t>(spec.input)];
    if (spec.output < 0) continue;
    auto& output = outputs[static_cast<std::size_t>(spec.output)];
    auto shape = spec.shape;
    shape.n = n;
    if (!output) output = Image::make(device_, shape, parts_.dtype);
    check(output->shape() == shape, "output ", spec.output, " has the shape ", output->shape(), ", not ", shape, ".");
    images[i] = output;
  }
  return images;
}

const std::string& Network::name_of(std::uint32_t node) const {
  static const std::string none = "copy";
  return parts_.nodes.empty() ? none : parts_.nodes[node].name;
}

namespace {

std::vector<ImageShape> shapes_of(std::span<const std::shared_ptr<Image>> images) {
  std::vector<ImageShape> shapes;
  for (const auto& image : images) shapes.push_back(image->shape());
  return shapes;
}

/// Return the shapes of the plan's temporary images for batch size `n`.
std::vector<ImageShape> temporaries(const NetworkPlan& plan, std::int64_t n, DType dtype) {
  std::vector<ImageShape> shapes;
  for (const auto& image : plan.images) {
    if (image.input >= 0 || image.output >= 0 || image.dtype != dtype) continue;
    shapes.push_back(image.shape);
    shapes.back().n = n;
  }
  return shapes;
}

void encode_step(const NetworkPlan::Step& step, CommandBuffer& buffer, std::span<const std::shared_ptr<Image>> images) {
  if (step.function) {
    std::vector<std::shared_ptr<Image>> read;
    for (const auto source : step.sources) read.push_back(images[source]);
    return step.function->encode(buffer, read, images[step.destination], step.threads);
  }
  const Image* sources[SourceNames::kMost] = {};
  for (std::size_t i = 0; i < step.sources.size(); ++i) sources[i] = images[step.sources[i]].get();
  step.kernel->encode_placed(buffer, std::span(sources).first(step.sources.size()), *images[step.destination],
                             step.placement);
}

}  // namespace

void Network::encode(CommandBuffer& buffer, std::span<const std::shared_ptr<Image>> inputs,
                     std::span<std::shared_ptr<Image>> outputs) const {
  encode(buffer, plan(shapes_of(inputs)), inputs, outputs);
}

void Network::encode(CommandBuffer& buffer, const std::shared_ptr<const NetworkPlan>& plan,
                     std::span<const std::shared_ptr<Image>> inputs, std::span<std::shared_ptr<Image>> outputs) const {
  const auto is_given = [](const auto& image) { return image != nullptr; };
  const bool can_repeat =
      plan->can_repeat && std::ranges::all_of(outputs, is_given) && RecordedCommands::can_record(buffer);
  if (!can_repeat) return encode_steps(buffer, *plan, inputs, outputs);
  Encode encode{plan, inputs[0]->shape().n, {}, plan->changes(), buffer.side_queue()};
  if (!RecordedCommands::takes_other_images(buffer)) {
    encode.images.assign(inputs.begin(), inputs.end());
    encode.images.insert(encode.images.end(), outputs.begin(), outputs.end());
  }
  if (const auto found = recorded(encode); !found.empty()) {
    boundary(*plan, inputs, outputs);  // checks them
    for (const auto& commands : found)
      if (commands->encode(buffer, inputs, outputs)) return;
  }
  encode_steps(buffer, *plan, inputs, outputs);
  if (!was_seen(encode)) return;
  if (auto commands = RecordedCommands::make(buffer, inputs, outputs)) {
    std::list<Cache::Recorded> dropped;
    const std::scoped_lock lock(cache_->mutex);
    auto& all = cache_->recorded;
    const auto* const queue = encode.queue;
    const auto is_of_queue = [queue](const Cache::Recorded& each) { return each.encode.queue == queue; };
    all.push_front({std::move(encode), std::move(commands)});
    if (static_cast<std::size_t>(std::ranges::count_if(all, is_of_queue)) > kMostRecorded)
      dropped.splice(dropped.end(), all, std::prev(std::find_if(all.rbegin(), all.rend(), is_of_queue).base()));
  }
}

/// Return the commands of such encodes, one for each layout of the images, the last used first; drop outdated ones.
std::vector<std::shared_ptr<const RecordedCommands>> Network::recorded(const Encode& encode) const {
  std::list<Cache::Recorded> dropped, found;
  std::vector<std::shared_ptr<const RecordedCommands>> commands;
  const std::scoped_lock lock(cache_->mutex);
  auto& all = cache_->recorded;
  for (auto next = all.begin(); next != all.end();) {
    const auto it = next++;
    if (!it->encode.is_of(encode)) continue;
    const bool is_current = it->encode.changes == encode.changes;
    if (is_current) commands.push_back(it->commands);
    (is_current ? found : dropped).splice((is_current ? found : dropped).end(), all, it);
  }
  all.splice(all.begin(), found);
  return commands;
}

/// Return whether an equal encode came before, and remember it.
bool Network::was_seen(const Encode& encode) const {
  std::size_t hash = 31 * std::hash<const void*>()(encode.plan.get()) + 7 * static_cast<std::size_t>(encode.n) +
                     encode.changes + 17 * std::hash<const void*>()(encode.queue);
  for (const auto& image : encode.images) hash = 31 * hash + std::hash<const void*>()(image.get());
  const std::scoped_lock lock(cache_->mutex);
  auto& seen = cache_->seen;
  const auto found = std::ranges::find(seen, hash);
  if (found != seen.end()) {
    seen.erase(found);
    return true;
  }
  seen.push_front(hash);
  if (seen.size() > kMostSeen) seen.pop_back();
  return false;
}

void Network::encode_steps(CommandBuffer& buffer, const NetworkPlan& plan,
                           std::span<const std::shared_ptr<Image>> inputs,
                           std::span<std::shared_ptr<Image>> outputs) const {
  const PoolScope pool;
  auto images = boundary(plan, inputs, outputs);
  if (device_->prefetches_temporaries())
    for (const auto dtype : {parts_.dtype, DType::uint8})
      prefetch_temporaries(buffer, temporaries(plan, inputs[0]->shape().n, dtype), dtype);
  for (const auto& step : plan.steps) {
    in_node(name_of(step.node), [&] {
      auto& destination = images[step.destination];
      if (!destination) {
        const auto& spec = plan.images[step.destination];
        auto shape = spec.shape;
        shape.n = inputs[0]->shape().n;
        destination = Image::temporary(buffer, shape, spec.dtype);
        if (spec.reads != 1) destination->set_read_count(spec.reads);
      }
      encode_step(step, buffer, images);
    });
  }
}

std::shared_ptr<CommandBuffer> Network::encode_apart(const NetworkPlan& plan,
                                                     std::span<const std::shared_ptr<Image>> inputs,
                                                     std::span<std::shared_ptr<Image>> outputs,
                                                     const std::shared_ptr<SideQueue>& queue) const {
  auto images = boundary(plan, inputs, outputs);
  std::shared_ptr<CommandBuffer> buffer;
  for (const auto& step : plan.steps) {
    if (buffer) buffer->commit();
    in_node(name_of(step.node), [&] {
      buffer = CommandBuffer::make(device_, name_of(step.node), step.kernel_name(), /*in_parts=*/false, queue);
      auto shape = plan.images[step.destination].shape;
      shape.n = inputs[0]->shape().n;
      if (auto& destination = images[step.destination]; !destination)
        destination = Image::make(device_, shape, plan.images[step.destination].dtype);
      encode_step(step, *buffer, images);
    });
  }
  return buffer;
}

std::vector<NetworkStep> Network::steps(std::span<const ImageShape> inputs) const {
  std::vector<NetworkStep> all;
  const auto found = plan(inputs);
  for (const auto& step : found->steps)
    all.push_back({.name = name_of(step.node),
                   .kernel = step.kernel_name(),
                   .sources = step.sources,
                   .destination = step.destination,
                   .placement = step.placement});
  return all;
}

std::vector<NetworkImage> Network::images(std::span<const ImageShape> inputs) const { return plan(inputs)->images; }

}  // namespace mpscnn
