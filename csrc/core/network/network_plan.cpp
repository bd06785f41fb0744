// SPDX-License-Identifier: Apache-2.0
// Concatenation is free for parts whose first channel is a multiple of 4: the producing kernel writes them in place.
// Other parts are copied by Slice; parts that share a slice of four channels are zero-padded by Pad and added.
#include "core/network/network_plan.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include <mpscnn/error.hpp>

#include "core/network/in_node.hpp"

namespace mpscnn {
namespace {

ImageShape concatenated(const NetworkNode& node, std::span<const ImageShape> sources) {
  auto shape = sources[0];
  for (std::size_t i = 1; i < sources.size(); ++i) {
    const auto& s = sources[i];
    check(s.h == shape.h && s.w == shape.w, "concatenation \"", node.name, "\": source ", i, " has ", s.h, " x ", s.w,
          " pixels; source 0 has ", shape.h, " x ", shape.w, ".");
    check(!__builtin_add_overflow(shape.c, s.c, &shape.c) && shape.c <= Image::kMostChannels, "concatenation \"",
          node.name, "\": the result has more channels than the maximum (", Image::kMostChannels, ").");
  }
  return shape;
}

}  // namespace

std::vector<ImageShape> NetworkPlan::infer(const NetworkParts& parts, std::span<const ImageShape> inputs) {
  std::vector<ImageShape> shapes(inputs.begin(), inputs.end());
  shapes.reserve(parts.inputs.size() + parts.nodes.size());
  for (const auto& node : parts.nodes) {
    std::vector<ImageShape> sources;
    for (const auto source : node.sources) sources.push_back(shapes[source]);
    if (node.interpolation)
      shapes.push_back({sources[0].n, sources[1].h, sources[1].w, sources[0].c});
    else if (node.adaptive_pooling)
      shapes.push_back({sources[0].n, node.adaptive_pooling->h, node.adaptive_pooling->w, sources[0].c});
    else if (node.is_concatenation())
      shapes.push_back(concatenated(node, sources));
    else
      shapes.push_back(in_node(node.name, [&] {
        return node.kernel ? node.kernel->result_shape(sources) : node.function->result_shape(sources);
      }));
  }
  return shapes;
}

NetworkPlan::NetworkPlan(const std::shared_ptr<Device>& device, const NetworkParts& parts,
                         std::vector<ImageShape> shapes)
    : device_(device), parts_(parts), shapes_(std::move(shapes)) {
  const auto values = shapes_.size(), first_node = parts_.inputs.size();
  part_.resize(values);
  image_of_.assign(values, -1);
  for (auto& shape : shapes_) shape.n = 1;
  find_prefixes();
  find_live();
  find_parts();

  for (std::size_t i = 0; i < first_node; ++i) {
    image_of_[i] = add_image(shapes_[i]);
    images.back().input = static_cast<std::int64_t>(i);
  }
  for (std::size_t i = 0; i < parts_.outputs.size(); ++i) {
    const auto value = parts_.outputs[i];
    output_images.push_back(add_image(shapes_[value]));
    images.back().output = static_cast<std::int64_t>(i);
    if (image_of_[value] < 0 && !own_dtype(value)) image_of_[value] = output_images.back();
  }
  for (std::uint32_t node = 0; node < parts_.nodes.size(); ++node) {
    const auto value = static_cast<std::uint32_t>(first_node + node);
    if (!is_live_[value]) continue;
    if (parts_.nodes[node].kernel)
      add_step(node, parts_.nodes[node].kernel, parts_.nodes[node].sources, location(value));
    else if (parts_.nodes[node].function)
      add_function(node);
    else if (parts_.nodes[node].interpolation)
      add_interpolation(node);
    else if (parts_.nodes[node].adaptive_pooling)
      add_adaptive_pooling(node);
    else
      add_concatenation(node);
  }
  // Inputs that are also outputs, and values that are several outputs.
  for (std::size_t i = 0; i < parts_.outputs.size(); ++i) {
    const auto value = parts_.outputs[i];
    if (image_of_[value] == output_images[i]) continue;
    const auto node = is_input(value) ? 0u : static_cast<std::uint32_t>(value - first_node);
    add_copy(node, value, {output_images[i], 0});
  }

  can_repeat = std::ranges::none_of(
      steps, [](const Step& step) { return step.kernel && step.kernel->padding_policy() != nullptr; });
  most_images = std::numeric_limits<std::int64_t>::max();
  for (const auto& image : images) most_images = std::min(most_images, Image::most_images(image.shape.c));
  for (const auto& node : parts_.nodes)
    if (node.kernel && (!node.kernel->works_image_by_image() || node.kernel->results_per_image() != 1)) most_images = 0;
  chunk_images =
      std::min(most_images, std::max<std::int64_t>(1, chunk_bytes() / std::max<std::int64_t>(1, working_bytes())));
}

std::int64_t NetworkPlan::chunk_bytes() const {
  const auto memory = static_cast<std::int64_t>(device_->recommended_max_working_set_bytes());
  if (!device_->memory_space().is_host()) return std::min(kDeviceChunkBytes, memory / 8);
  std::int64_t weights = 0;
  bool is_reduced = false;
  for (const Step& step : steps) {
    if (!step.kernel) continue;
    weights += step.kernel->weight_count();
    is_reduced = is_reduced || step.kernel->allows_reduced_precision();
  }
  const auto most = is_reduced ? 2 * kMaxChunkBytes : kMaxChunkBytes;  // of which bfloat16 takes half
  return std::clamp(weights * static_cast<std::int64_t>(sizeof(float)), kChunkBytes, most);
}

std::uint64_t NetworkPlan::changes() const {
  std::uint64_t sum = 0;
  for (const Step& step : steps)
    if (step.kernel) sum += step.kernel->changes();
  return sum;
}

std::int64_t NetworkPlan::working_bytes() const {
  const auto bytes_of = [&](std::uint32_t image) {
    const auto& s = images[image].shape;
    return s.h * s.w * s.c * static_cast<std::int64_t>(size_of(images[image].dtype));
  };
  std::vector<std::size_t> last(images.size(), 0);
  for (std::size_t i = 0; i < steps.size(); ++i)
    for (const auto source : steps[i].sources) last[source] = i;
  std::vector<bool> is_live(images.size(), false);
  std::int64_t live = 0, most = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (!is_live[steps[i].destination]) live += bytes_of(steps[i].destination), is_live[steps[i].destination] = true;
    most = std::max(most, live);
    for (const auto source : steps[i].sources)
      if (is_live[source] && last[source] == i) live -= bytes_of(source), is_live[source] = false;
  }
  return most;
}

std::uint32_t NetworkPlan::add_image(ImageShape shape) {
  images.push_back({.shape = shape, .dtype = parts_.dtype});
  return static_cast<std::uint32_t>(images.size() - 1);
}

std::uint32_t NetworkPlan::add_image_of(std::uint32_t value) {
  const auto image = add_image(shapes_[value]);
  images[image].dtype = own_dtype(value).value_or(parts_.dtype);
  return image;
}

std::optional<DType> NetworkPlan::own_dtype(std::uint32_t value) const {
  return is_input(value) ? std::nullopt : node_of(value).dtype;
}

/// Replace leading sources of a concatenation by an earlier concatenation of the same sources, as in a dense block.
void NetworkPlan::find_prefixes() {
  sources_.resize(parts_.nodes.size());
  std::vector<std::uint32_t> concatenations;
  for (std::uint32_t node = 0; node < parts_.nodes.size(); ++node) {
    const auto read = parts_.nodes[node].read();
    auto& sources = sources_[node];
    sources.assign(read.begin(), read.end());
    if (!parts_.nodes[node].is_concatenation()) continue;
    std::size_t longest = 1;
    std::uint32_t value = 0;
    for (const auto earlier : concatenations) {
      const auto& prefix = parts_.nodes[earlier].sources;
      if (prefix.size() > longest && prefix.size() < sources.size() &&
          std::equal(prefix.begin(), prefix.end(), sources.begin())) {
        longest = prefix.size();
        value = static_cast<std::uint32_t>(parts_.inputs.size() + earlier);
      }
    }
    concatenations.push_back(node);
    if (longest == 1) continue;
    sources.erase(sources.begin() + 1, sources.begin() + static_cast<std::ptrdiff_t>(longest));
    sources[0] = value;
  }
}

void NetworkPlan::find_live() {
  is_live_.resize(shapes_.size());
  for (const auto value : parts_.outputs) is_live_[value] = true;
  for (auto node = parts_.nodes.size(); node-- > 0;)
    if (is_live_[parts_.inputs.size() + node])
      for (const auto source : sources_[node]) is_live_[source] = true;
}

/// Find the values that are written in place into a concatenation. Later concatenations come first, so that a value in
/// nested concatenations is written into the outermost one.
void NetworkPlan::find_parts() {
  const auto first_node = parts_.inputs.size();
  std::vector<bool> is_output(shapes_.size());
  for (const auto value : parts_.outputs) is_output[value] = true;
  for (auto node = parts_.nodes.size(); node-- > 0;) {
    const auto value = static_cast<std::uint32_t>(first_node + node);
    if (!parts_.nodes[node].is_concatenation() || !is_live_[value]) continue;
    std::int64_t first = 0;
    const auto& sources = sources_[node];
    for (std::size_t i = 0; i < sources.size(); ++i) {
      const auto source = sources[i];
      const auto end = first + shapes_[source].c;
      const bool alone = first % Image::kSlice == 0 && (end % Image::kSlice == 0 || i + 1 == sources.size());
      if (alone && !is_input(source) && !is_output[source] && !part_[source]) part_[source] = Part{value, first};
      first = end;
    }
  }
  for (std::uint32_t node = 0; node < parts_.nodes.size(); ++node) {
    const auto value = static_cast<std::uint32_t>(first_node + node);
    const auto& kernel = parts_.nodes[node].kernel;
    if (parts_.nodes[node].dtype) part_[value].reset();
    // A function has textures of whole images, not of ranges of their channels.
    if (parts_.nodes[node].function) {
      part_[value].reset();
      for (const auto source : sources_[node]) part_[source].reset();
    }
    if (parts_.nodes[node].is_concatenation() || !part_[value]) continue;
    // MPSNNReshape takes its extents from the whole destination, all channels included.
    if (kernel && kernel->row().shape == ShapeRule::reshape) part_[value].reset();
    // A kernel cannot write into an image that it reads.
    for (const auto source : sources_[node])
      if (outermost(source) == outermost(value)) {
        part_[value].reset();
        break;
      }
  }
}

/// Return the value whose image holds this one.
std::uint32_t NetworkPlan::outermost(std::uint32_t value) const {
  while (part_[value]) value = part_[value]->concatenation;
  return value;
}

NetworkPlan::Location NetworkPlan::location(std::uint32_t value) {
  if (const auto& part = part_[value]) {
    auto place = location(part->concatenation);
    place.first += part->first;
    return place;
  }
  if (image_of_[value] < 0) image_of_[value] = add_image_of(value);
  return {static_cast<std::uint32_t>(image_of_[value]), 0};
}

/// Return the value's channels in its image.
ChannelRange NetworkPlan::range(std::uint32_t value) {
  const auto place = location(value);
  const auto count = shapes_[value].c;
  return count == images[place.image].shape.c ? ChannelRange{} : ChannelRange{place.first, count};
}

void NetworkPlan::add_step(std::uint32_t node, std::shared_ptr<Kernel> kernel,
                           const std::vector<std::uint32_t>& sources, Location destination) {
  Step step{.node = node, .kernel = std::move(kernel), .destination = destination.image};
  step.placement.destination = destination.first;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    step.placement.sources[i] = range(sources[i]);
    step.sources.push_back(location(sources[i]).image);
  }
  append(std::move(step));
}

void NetworkPlan::add_function(std::uint32_t node) {
  const auto value = static_cast<std::uint32_t>(parts_.inputs.size() + node);
  const auto& function = parts_.nodes[node].function;
  Step step{.node = node, .kernel = nullptr, .destination = location(value).image, .function = function};
  for (const auto source : parts_.nodes[node].sources) step.sources.push_back(location(source).image);
  step.threads = in_node(parts_.nodes[node].name, [&] { return function->threads(shapes_[value]); });
  append(std::move(step));
}

void NetworkPlan::append(Step step) {
  // An image that is both sources of a kernel is read once.
  for (auto source = step.sources.begin(); source != step.sources.end(); ++source)
    if (std::find(step.sources.begin(), source, *source) == source) ++images[*source].reads;
  steps.push_back(std::move(step));
}

std::shared_ptr<Kernel> NetworkPlan::mover(std::string_view row, const Params& params) {
  return Kernel::make(device_, *find_kernel(row), params);
}

void NetworkPlan::add_concatenation(std::uint32_t node) {
  const auto value = static_cast<std::uint32_t>(parts_.inputs.size() + node);
  const auto whole = location(value);
  const std::span sources(sources_[node]);
  std::int64_t first = 0;
  for (std::size_t begin = 0; begin < sources.size();) {
    auto end = begin;
    auto channels = first;
    do channels += shapes_[sources[end++]].c;
    while (channels % Image::kSlice != 0 && end < sources.size());
    const Location place{whole.image, whole.first + first};
    const auto& part = part_[sources[begin]];
    if (end - begin > 1)
      add_unaligned(node, sources.subspan(begin, end - begin), place);
    else if (!part || part->concatenation != value || part->first != first)
      add_copy(node, sources[begin], place);
    first = channels;
    begin = end;
  }
}

void NetworkPlan::add_copy(std::uint32_t node, std::uint32_t source, Location destination) {
  if (location(source).image != destination.image) return add_step(node, mover("Slice"), {source}, destination);
  // A kernel cannot write into an image that it reads.
  const auto between = add_image(shapes_[source]);
  add_step(node, mover("Slice"), {source}, {between, 0});
  Step step{.node = node, .kernel = mover("Slice"), .sources = {between}, .destination = destination.image};
  step.placement.destination = destination.first;
  append(std::move(step));
}

/// Concatenate sources whose channels share slices: zero-pad each to the full range and add them.
void NetworkPlan::add_unaligned(std::uint32_t node, std::span<const std::uint32_t> sources, Location destination) {
  std::int64_t channels = 0;
  for (const auto source : sources) channels += shapes_[source].c;
  auto shape = shapes_[sources[0]];
  shape.c = channels;
  std::uint32_t sum = 0;
  std::int64_t first = 0;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const auto count = shapes_[sources[i]].c;
    const auto padded = add_image(shape);
    add_step(node, mover("Pad", {{"channels_before", first}, {"channels_after", channels - first - count}}),
             {sources[i]}, {padded, 0});
    first += count;
    if (i > 0) {
      const bool last = i + 1 == sources.size();
      const auto target = last ? destination : Location{add_image(shape), 0};
      Step step{.node = node, .kernel = mover("Add"), .sources = {sum, padded}, .destination = target.image};
      step.placement.destination = target.first;
      append(std::move(step));
      sum = target.image;
    } else {
      sum = padded;
    }
  }
}

}  // namespace mpscnn
