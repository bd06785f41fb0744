// SPDX-License-Identifier: Apache-2.0
// Gradient kernels: made from a forward kernel, encoded with the state of its encode or a new one.
#include <algorithm>

#include "core/device/image_batch.hh"
#include "core/kernel/encode_checks.hh"
#include "core/kernel/gradient_state_impl.hh"
#include "core/kernel/kernel_impl.hh"
#include "core/kernel/kernel_sources.hh"

namespace mpscnn {
namespace {

/// Return whether a gradient kernel has its own value of the attribute; the others are its forward kernel's.
bool is_gradients_own(const KernelRow &row, std::string_view name) {
  constexpr std::string_view own[] = {"clip_rect", "destination_feature_channel_offset", "allow_reduced_precision",
                                      "label"};
  return std::ranges::find(own, name) != std::end(own) || find_param(*find_kernel(row.forward), name) == nullptr;
}

/// Return the gradient kernel `row` of a forward kernel.
std::shared_ptr<Kernel> of_forward(std::shared_ptr<Kernel> forward, const KernelRow &row, std::size_t source) {
  auto &impl = forward->impl();
  const std::scoped_lock lock(impl.mutex);
  auto made = makers_of(row).make_gradient(impl.device->impl().device.get(), row, impl.made, source);
  made.padding.kind = impl.made.padding.kind;  // the policy itself stays with the forward kernel
  made.image_by_image = made.image_by_image && impl.made.image_by_image;
  made.forward = std::move(forward);
  made.of_source = source;
  made.seen_source = row.sees_other ? 1 - source : source;
  return std::make_shared<Kernel>(std::unique_ptr<Kernel::Impl>(new Kernel::Impl{&row, impl.device, std::move(made)}));
}

}  // namespace

bool has_own_attribute(const Kernel::Impl &impl, std::string_view name) {
  return !impl.row->has_forward() || is_gradients_own(*impl.row, name);
}

std::shared_ptr<Kernel> make_gradient(const std::shared_ptr<Device> &device, const KernelRow &row,
                                      const Params &params) {
  const KernelRow &forward_row = *find_kernel(row.forward);
  Params of_forward_kernel, own;
  for (const auto &[name, value] : params) (is_gradients_own(row, name) ? own : of_forward_kernel).emplace(name, value);
  const auto of_source = text(params, "of", std::string(forward_row.sources[0]));
  const std::size_t source = of_source == forward_row.sources[0] ? 0 : 1;
  own.erase("of");
  auto gradient = of_forward(Kernel::make(device, forward_row, of_forward_kernel), row, source);
  for (const auto &[name, value] : own) gradient->set(name, value);
  return gradient;
}

std::shared_ptr<Kernel> Kernel::gradient(std::size_t source) {
  const auto &row = *impl_->row;
  check<TypeError>(!row.gradient.empty() && !is_gradient(*impl_), row.name, ": the kernel has no gradient kernel.");
  const auto *partner = find_kernel(row.gradient);
  check<NotImplementedError>(partner != nullptr, row.gradient, " is not implemented yet.");
  check(source < row.sources.size(), row.name, ": source (", source, ") is not less than the number of sources (",
        row.sources.size(), ").");
  return guard([&] {
    if (makers_of(*partner).make_gradient) return of_forward(shared_from_this(), *partner, source);
    // Of batch normalization; the other parameters of the forward kernel come with the state.
    Params params;
    if (impl_->made.neuron.type != MPSCNNNeuronTypeNone) params.emplace("activation", impl_->made.neuron);
    return make(impl_->device, *partner, params);
  });
}

std::shared_ptr<Kernel> Kernel::forward() const { return impl_->made.forward; }

namespace {

/// Return the state's forward encodes that match the sources. Throw if there are none, or if the state belongs to
/// another forward kernel.
GradientState::Impl::Encodes &encodes_of(const Kernel::Impl &impl, GradientState::Impl &state,
                                         std::span<const ImageShape> sources) {
  const auto &row = *impl.row;
  check(state.kernel && state.kernel->impl().lineage == impl.made.forward->impl().lineage, row.name,
        ": state is that of another ", state.maker, ", not of the kernel that this is the gradient of.");
  const auto seen = [&](const GradientState::Impl::Encodes &encodes) {
    return row.takes_result ? encodes.result : encodes.sources[impl.made.seen_source];
  };
  for (auto &encodes : state.encodes)
    if (sources[0] == encodes.result && sources[1] == seen(encodes)) return encodes;
  check(state.encodes.size() == 1, row.name, ": ", row.sources[0], ".shape ", sources[0], " and ", row.sources[1],
        ".shape ", sources[1], " are those of none of the ", state.encoded(), " forward encodes of the state.");
  const auto &only = state.encodes[0];
  check(sources[0] == only.result, row.name, ": ", row.sources[0], ".shape ", sources[0],
        " is not that of the result of the forward encode ", only.result, ".");
  throw std::invalid_argument(say(row.name, ": ", row.sources[1], ".shape ", sources[1],
                                  " is not what the forward encode had ", seen(only), "."));
}

/// Return the gradients that an encode computes.
std::vector<GradientState::Impl::Part> parts_of(const Kernel::Impl &impl, GradientParts parts) {
  std::vector<GradientState::Impl::Part> all;
  if (parts.source) all.emplace_back(impl.row, static_cast<int>(impl.made.of_source));
  if (parts.parameters && impl.made.set_parts) all.emplace_back(impl.row, GradientState::Impl::kParameters);
  return all;
}

}  // namespace

Geometry gradient_geometry(const Kernel::Impl &impl, std::span<const ImageShape> sources, MPSImage *image,
                           const GradientState *state) {
  const auto &row = *impl.row;
  auto &forward = impl.made.forward->impl();
  check<TypeError>(state || !impl.made.needs_encoded_state, row.name,
                   ": state is missing: the forward encode leaves it (with_state=True).");
  if (state) {
    auto &left = state->impl();
    const std::scoped_lock lock(left.mutex);
    Geometry g;
    g.shape = encodes_of(impl, left, sources).read[impl.made.of_source];
    return g;
  }
  const std::scoped_lock lock(forward.mutex);
  const ImageShape x = sources[1];
  if (row.takes_result) {  // the source's extents are known only if all of it was read
    check<TypeError>(
        !forward.offsets[0] && first_channel(forward, 0) == 0 && most_channels(forward, 0) == NSUIntegerMax, row.name,
        ": state is missing: the forward kernel reads a part of its source.");
  }
  Geometry g = geometry(forward, std::span(&x, 1), image);
  check(sources[0] == g.shape, row.name, ": ", row.sources[0], ".shape ", sources[0],
        " is not that of the forward kernel's result ", g.shape, " for ", row.sources[1], " of shape ", x, ".");
  g.shape = {sources[0].n, x.h, x.w, source_channels(forward, 0, x)};
  return g;
}

namespace {

GradientState::Impl::Encodes one_encode(const Kernel::Impl &impl, const Geometry &g,
                                        std::span<const Image *const> sources) {
  GradientState::Impl::Encodes made;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    made.sources[i] = sources[i]->shape();
    const auto repeats = [&](std::int64_t ImageShape::*extent) { return is_binary(impl) && g.strides[i].*extent == 0; };
    const auto &[n, h, w, c] = made.sources[i];
    (void)n, (void)c;
    made.read[i] = {g.shape.n, repeats(&ImageShape::h) ? 1 : h, repeats(&ImageShape::w) ? 1 : w,
                    repeats(&ImageShape::c) ? 1 : source_channels(impl, i, made.sources[i])};
  }
  made.result = g.shape;
  return made;
}

/// Return the place of a kernel of one source; other kernels do not share states.
GradientState::Impl::Place place_of(const Kernel::Impl &impl, const Geometry &g) {
  if (is_binary(impl)) return {};
  const auto &[x, y, z] = g.offsets[0];
  return {.x = x,
          .y = y,
          .z = z,
          .kernel_offset = g.kernel_offset,
          .edge = unary(impl).edgeMode,
          .first_channel = first_channel(impl, 0),
          .most_channels = most_channels(impl, 0)};
}

}  // namespace

bool Kernel::shares_gradient_state() const {
  return is_binary(*impl_) ? [binary(*impl_) isResultStateReusedAcrossBatch]
                           : [unary(*impl_) isResultStateReusedAcrossBatch];
}

void check_joins(const Kernel::Impl &impl, const GradientState::Impl &state) {
  const auto &row = *impl.row;
  check(state.kernel && state.kernel->impl().lineage == impl.lineage, row.name, ": with_state is the state of another ",
        state.maker, ".");
  check<TypeError>(impl.owner->shares_gradient_state(), row.name,
                   ": with_state is a GradientState; a state of this kernel is of one encode, which no other joins.");
  for (const auto &encodes : state.encodes)
    check<std::runtime_error>(encodes.used.empty(), row.name,
                              ": with_state has been used by a gradient already; the next batch takes a new state.");
}

void check_joins(const Kernel::Impl &impl, const GradientState::Impl &state, const Geometry &g, const Image &source) {
  const auto &name = impl.row->name;
  check_joins(impl, state);
  auto own = source.shape();
  const auto &first = state.encodes[0].sources[0];
  own.n = first.n;
  check(own == first, name, ": ", impl.row->sources[0], ".shape ", source.shape(),
        " differs from that of the first encode of with_state ", first, " not only in the number of images.");
  check(place_of(impl, g) == state.place, name,
        ": padding, offset, edge mode or the channels that are read have been changed since the first encode of "
        "with_state.");
}

void joined(const Kernel::Impl &impl, GradientState::Impl &state, const Geometry &g, const Image &source) {
  const Image *const sources[] = {&source};
  const auto made = one_encode(impl, g, sources);
  for (auto &encodes : state.encodes)
    if (encodes.sources == made.sources && encodes.read == made.read && encodes.result == made.result) {
      ++encodes.count;
      return;
    }
  state.encodes.push_back(made);
}

bool encodes_single_images(const Kernel::Impl &impl, std::span<const Image *const> sources, MPSImage *destination) {
  const bool are_single = destination.numberOfImages == 1 &&
                          std::ranges::all_of(sources, [](const Image *source) { return source->shape().n == 1; });
  return !are_single && !has_states_of_several_images(impl.device->impl().device.get());
}

NSUInteger single_first(const Geometry &g, std::size_t source) {
  return static_cast<NSUInteger>(std::max<std::int64_t>(g.offsets[source].z, 0));
}

Geometry of_single_images(Geometry g) {
  for (auto &offset : g.offsets) offset.z = 0;
  return g;
}

std::shared_ptr<GradientState> make_gradient_state(Kernel &kernel, const Geometry &g,
                                                   std::span<const Image *const> sources, MPSImage *destination) {
  auto &impl = kernel.impl();
  auto made = std::make_unique<GradientState::Impl>();
  made->device = impl.device;
  made->maker = kernel.row().name;
  made->kernel = kernel.shared_from_this();
  MPSImage *from = sources[0]->impl().image.get();
  MPSStateBatch *states = nil;
  if (encodes_single_images(impl, sources, destination)) {
    const auto count = static_cast<NSUInteger>(g.shape.n);
    const ImageBatch a(from, single_first(g, 0), count), to(destination, 0, count);
    if (is_binary(impl)) {
      const ImageBatch b(sources[1]->impl().image.get(), single_first(g, 1), count);
      states = [binary(impl) resultStateBatchForPrimaryImage:a.images()
                                              secondaryImage:b.images()
                                                sourceStates:nil
                                            destinationImage:to.images()];
    } else {
      states = [unary(impl) resultStateBatchForSourceImage:a.images() sourceStates:nil destinationImage:to.images()];
    }
  } else {
    MPSState *state = is_binary(impl)
                          ? [binary(impl) resultStateForPrimaryImage:from
                                                      secondaryImage:sources[1]->impl().image.get()
                                                        sourceStates:nil
                                                    destinationImage:destination]
                          : [unary(impl) resultStateForSourceImage:from sourceStates:nil destinationImage:destination];
    if (state != nil) states = @[ state ];
  }
  made->states = Ref<NSArray<MPSState *> *>::retain(states);
  check<TypeError>(states != nil, impl.row->name, ": the kernel leaves no state for a gradient kernel.");
  made->encodes = {one_encode(impl, g, sources)};
  made->place = place_of(impl, g);
  made->values = impl.made.state_values;
  return std::make_shared<GradientState>(std::move(made));
}

void encode_gradient(Kernel::Impl &impl, id<MTLCommandBuffer> commands, const Geometry &g,
                     std::span<const Image *const> sources, const Image &destination, GradientState *given) {
  const auto &row = *impl.row;
  auto &forward = impl.made.forward->impl();
  auto parts = impl.made.parts;
  check<TypeError>(given || parts.source, row.name,
                   ": state is missing: gradients with respect to parameters are put there.");
  if (!given) parts.parameters = false;
  const auto computed = parts_of(impl, parts);
  std::unique_lock<std::mutex> used;
  std::shared_ptr<GradientState> own;
  GradientState::Impl::Encodes *encodes = nullptr;
  if (given) {
    used = std::unique_lock(given->impl().mutex);
    const ImageShape shapes[] = {sources[0]->shape(), sources[1]->shape()};
    encodes = &encodes_of(impl, given->impl(), shapes);
    for (const auto &part : computed)
      check<std::runtime_error>(!encodes->used.contains(part) || encodes->used.at(part) < encodes->count, row.name,
                                ": the state has been used already; each forward encode leaves a state of its own.");
  } else {
    const std::scoped_lock lock(forward.mutex);
    const Image *const x[] = {sources[1]};
    MPSImage *result = sources[0]->impl().image.get();
    set_geometry(forward, encodes_single_images(forward, x, result) ? of_single_images(g) : g);
    own = make_gradient_state(*impl.made.forward, g, x, result);
  }
  const GradientState::Impl &state = given ? given->impl() : own->impl();
  auto *kernel = static_cast<MPSCNNGradientKernel *>(binary(impl));
  if (impl.made.set_parts) impl.made.set_parts(impl.made, parts);
  MPSImage *from = sources[0]->impl().image.get(), *x = sources[1]->impl().image.get();
  // Make MPS copy the forward kernel's properties from the state.
  const auto take_properties = [&](MPSImage *first_gradient, MPSImage *first_image) {
    [kernel destinationImageDescriptorForSourceImages:@[ first_gradient, first_image ]
                                         sourceStates:@[ [state.states.get() objectAtIndex:0] ]];
  };
  if (encodes_single_images(impl, sources, destination.impl().image.get())) {
    // The result has the extents of the source that was read, so clip_rect also selects among the gradients.
    const MTLRegion clip = clip_region(impl);
    const auto all = static_cast<NSUInteger>(sources[0]->shape().n);
    const NSUInteger count = std::min<NSUInteger>(all, clip.size.depth);
    const NSUInteger first = row.takes_result ? 0 : static_cast<NSUInteger>(std::max<std::int64_t>(state.place.z, 0));
    const ImageBatch gradients(from, 0, count), images(x, first, count),
        results(destination.impl().image.get(), clip.origin.z, count);
    take_properties([gradients.images() objectAtIndex:0], [images.images() objectAtIndex:0]);
    kernel.clipRect = clip_of_single_images(clip);
    [kernel encodeBatchToCommandBuffer:commands
                       sourceGradients:gradients.images()
                          sourceImages:images.images()
                        gradientStates:state.of_images(count)
                  destinationGradients:results.images()];
    gradients.did_read();
    images.did_read();
  } else {
    take_properties(from, x);
    kernel.clipRect = clip_region(impl);
    [kernel encodeToCommandBuffer:commands
                   sourceGradient:from
                      sourceImage:x
                    gradientState:[state.states.get() objectAtIndex:0]
              destinationGradient:destination.impl().image.get()];
  }
  if (!given) return;
  for (const auto &part : computed) {
    ++encodes->used[part];
    if (part.second == GradientState::Impl::kParameters) given->impl().note_write(commands);
  }
}

}  // namespace mpscnn
