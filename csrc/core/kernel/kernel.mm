// SPDX-License-Identifier: Apache-2.0
// Row -> MPS object -> properties, without branches on kernel names.
#include <map>

#include "core/kernel/kernel_impl.hh"
#include "core/kernel/kernel_sources.hh"
#include "core/kernel/padding_policy.hh"

namespace mpscnn {

namespace {

/// By name. Filled by static initializers, in any order of files.
std::map<std::string_view, FamilyMakers> &families() {
  static std::map<std::string_view, FamilyMakers> map;
  return map;
}

/// Return the MPS edge mode of a choice of edge_mode.
MPSImageEdgeMode edge_mode(std::string_view name) {
  return name == "clamp"              ? MPSImageEdgeModeClamp
         : name == "mirror"           ? MPSImageEdgeModeMirror
         : name == "mirror_with_edge" ? MPSImageEdgeModeMirrorWithEdge
         : name == "constant"         ? MPSImageEdgeModeConstant
                                      : MPSImageEdgeModeZero;
}

/// Set one common parameter on the MPS object.
void apply(Kernel::Impl &impl, std::string_view name, const Value &value) {
  const bool none = std::holds_alternative<std::monostate>(value);
  const auto number = [&] { return static_cast<NSUInteger>(std::get<std::int64_t>(value)); };
  const auto channel_offset = [&](std::int64_t step) {
    check(number() % static_cast<NSUInteger>(step) == 0, impl.row->name, ": ", name, " (", number(),
          ") is not a multiple of ", step, ".");
    return number();
  };
  // "secondary_offset" is "offset" of source 1.
  std::size_t source = 0;
  std::string_view own = name;
  for (std::size_t i = 0; i < impl.row->sources.size(); ++i)
    if (const std::string_view prefix = prefix_of(impl, i); name.starts_with(prefix)) {
      source = i;
      own = name.substr(prefix.size());
      break;
    }
  if (own == "offset") {
    impl.offsets[source] = to_offset(value);
  } else if (own == "clip_rect") {
    impl.clip = to_region(value);
    common(impl).clipRect = clip_region(impl);
  } else if (own == "edge_mode") {
    set_edge_mode(impl, source, edge_mode(std::get<std::string>(value)));
  } else if (own == "source_feature_channel_offset") {
    set_first_channel(impl, source, channel_offset(impl.made.source_channel_step));
  } else if (own == "source_feature_channel_max_count") {
    set_most_channels(impl, source, none ? NSUIntegerMax : number());
  } else if (own == "destination_feature_channel_offset") {
    common(impl).destinationFeatureChannelOffset = channel_offset(4);
  } else if (own == "allow_reduced_precision") {
    MPSKernel *kernel = impl.made.kernel.get();
    kernel.options = std::get<bool>(value) ? kernel.options | MPSKernelOptionsAllowReducedPrecision
                                           : kernel.options & ~MPSKernelOptionsAllowReducedPrecision;
  } else if (own == "gradient_option") {
    const auto &option = std::get<std::string>(value);
    impl.made.parts = {.source = option != "weights_and_bias", .parameters = option != "data"};
  } else if (own == "label") {
    impl.made.kernel.get().label = none ? nil : ns(std::get<std::string>(value));
  }
}

}  // namespace

RegisteredFamily::RegisteredFamily(std::string_view name, FamilyMakers makers) { families().emplace(name, makers); }

const FamilyMakers &makers_of(const KernelRow &row) {
  const auto found = families().find(row.family);
  check<NotImplementedError>(found != families().end(), row.name, ": there is no family \"", row.family, "\".");
  return found->second;
}

Class class_of(const KernelRow &row) {
  const Class kind = NSClassFromString([NSString stringWithUTF8String:std::string(row.apple_class).c_str()]);
  check<NotImplementedError>(kind != Nil, row.apple_class, " is not there on this platform.");
  return kind;
}

Kernel::Kernel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) { impl_->owner = this; }
Kernel::~Kernel() {
  Pool pool;
  impl_.reset();
}

std::shared_ptr<Kernel> Kernel::make(std::shared_ptr<Device> device, const KernelRow &row, const Params &params) {
  check_params(row, params);
  check_not_forked();
  if (row.has_forward()) return guard([&] { return make_gradient(device, row, params); });
  return guard([&] {
    auto made = makers_of(row).make(device->impl().device.get(), row, params);
    auto kernel = std::make_shared<Kernel>(std::unique_ptr<Impl>(new Impl{&row, device, std::move(made)}));
    for (const auto &[name, value] : kernel->impl_->made.attributes) kernel->set(name, value);
    for (const auto *spec : common_params(row))
      if (const auto given = params.find(spec->name); given != params.end()) kernel->set(spec->name, given->second);
    if (const auto &policy = kernel->impl_->made.padding.policy)
      check_padding_method(blame(*kernel, *policy->policy()), *policy->policy());
    return kernel;
  });
}

namespace {

/// Archive the kernel and return the copy unarchived on the device.
Ref<MPSKernel *> archived_copy(MPSKernel *kernel, id<MTLDevice> device) {
  NSError *error = nil;
  NSData *data = [NSKeyedArchiver archivedDataWithRootObject:kernel requiringSecureCoding:NO error:&error];
  id made = data == nil
                ? nil
                : [MPSKeyedUnarchiver unarchivedObjectOfClass:[kernel class] fromData:data device:device error:&error];
  check<std::runtime_error>(made != nil, "the kernel cannot be archived: ",
                            error == nil ? std::string("no reason given") : mpscnn::text([error localizedDescription]),
                            ".");
  return Ref<MPSKernel *>::adopt([static_cast<MPSKernel *>(made) retain]);
}

}  // namespace

std::shared_ptr<Kernel> Kernel::copy(bool archived) const {
  return guard([&] {
    const std::scoped_lock lock(impl_->mutex);
    id<MTLDevice> device = impl_->device->impl().device.get();
    auto made = impl_->made;
    MPSKernel *kernel = made.kernel.get();
    made.kernel =
        archived ? archived_copy(kernel, device) : Ref<MPSKernel *>::adopt([kernel copyWithZone:NULL device:device]);
    check<std::runtime_error>(static_cast<bool>(made.kernel), impl_->row->name, ": the kernel cannot be copied.");
    if (archived) made.source = nullptr;  // the archive holds the weights; its source may be MPS's own
    if (auto &policy = made.padding.policy) policy = policy->again();
    auto copied = std::unique_ptr<Impl>(new Impl{impl_->row, impl_->device, std::move(made)});
    copied->attributes = impl_->attributes;
    copied->offsets = impl_->offsets;
    copied->clip = impl_->clip;
    copied->lineage = impl_->lineage;
    if (auto &forward = copied->made.forward) forward = forward->copy(archived);
    return std::make_shared<Kernel>(std::move(copied));
  });
}

const KernelRow &Kernel::row() const { return *impl_->row; }
std::shared_ptr<Device> Kernel::device() const { return impl_->device; }

std::optional<NeuronDescriptor> Kernel::neuron() const {
  const auto family = impl_->row->family;
  if (family == "neuron" || family == "neuron_gradient") return impl_->made.neuron;
  if (impl_->made.neuron.type != MPSCNNNeuronTypeNone) return impl_->made.neuron;
  const auto &descriptor = impl_->made.descriptor;
  return descriptor && descriptor->activation.type != MPSCNNNeuronTypeNone ? std::optional(descriptor->activation)
                                                                           : std::nullopt;
}

std::shared_ptr<Source> Kernel::data_source() const {
  return impl_->made.source ? impl_->made.source->source() : nullptr;
}

std::int64_t Kernel::weight_count() const {
  const auto &descriptor = impl_->made.descriptor;
  if (!descriptor) return 0;
  std::int64_t count = 1;
  for (const auto extent : weights_shape(*descriptor)) count *= extent;
  return count;
}

bool Kernel::allows_reduced_precision() const {
  return impl_->made.kernel.get().options & MPSKernelOptionsAllowReducedPrecision;
}

std::shared_ptr<PaddingPolicy> Kernel::padding_policy() const {
  const auto &policy = impl_->made.padding.policy;
  return policy ? policy->policy() : nullptr;
}

KernelWindow Kernel::window() const {
  check<TypeError>(!is_binary(*impl_), impl_->row->name, ": kernels of two sources have no window.");
  return guard([&] {
    const std::scoped_lock lock(impl_->mutex);
    MPSCNNKernel *kernel = unary(*impl_);
    const auto pair = [](NSUInteger h, NSUInteger w) {
      return Pair{static_cast<std::int64_t>(h), static_cast<std::int64_t>(w)};
    };
    return KernelWindow{pair(kernel.kernelHeight, kernel.kernelWidth),
                        pair(kernel.strideInPixelsY, kernel.strideInPixelsX),
                        pair(kernel.dilationRateY, kernel.dilationRateX)};
  });
}

Value Kernel::get(std::string_view name) const {
  const auto *spec = find_param(*impl_->row, name);
  check<KeyError>(spec && spec->attribute, impl_->row->name, " has no attribute \"", name, "\".");
  if (!has_own_attribute(*impl_, name)) return impl_->made.forward->get(name);
  const std::scoped_lock lock(impl_->mutex);
  const auto found = impl_->attributes.find(name);
  return found == impl_->attributes.end() ? Value{} : found->second;
}

std::uint64_t Kernel::changes() const {
  return impl_->changes + (impl_->made.forward ? impl_->made.forward->impl().changes.load() : 0);
}

void Kernel::set(std::string_view name, const Value &value) {
  const auto *spec = find_param(*impl_->row, name);
  check<KeyError>(spec && spec->attribute, impl_->row->name, " has no attribute \"", name, "\".");
  check_value(*impl_->row, *spec, value);
  if (!has_own_attribute(*impl_, name)) return impl_->made.forward->set(name, value);
  guard([&] {
    const std::scoped_lock lock(impl_->mutex);
    ++impl_->changes;
    apply(*impl_, name, value);
    impl_->attributes.insert_or_assign(std::string(name), value);
  });
}

bool Kernel::works_image_by_image() const { return impl_->made.image_by_image; }

std::int64_t Kernel::results_per_image() const { return impl_->made.results_per_image; }

std::shared_ptr<Kernel> Kernel::some_results(std::int64_t first, std::int64_t count) const {
  return guard([&] {
    const std::scoped_lock lock(impl_->mutex);
    const auto &row = *impl_->row;
    check<NotImplementedError>(static_cast<bool>(impl_->made.some_results), row.name,
                               ": the kernel cannot be divided.");
    auto kernel = std::make_shared<Kernel>(
        std::unique_ptr<Impl>(new Impl{&row, impl_->device, impl_->made.some_results(first, count)}));
    for (const auto &[name, value] : impl_->attributes) kernel->set(name, value);
    return kernel;
  });
}

void Kernel::check_source_count(std::size_t count) const {
  const auto &row = *impl_->row;
  if (count == row.sources.size()) return;
  std::string names;
  for (std::size_t i = 0; i < row.sources.size(); ++i) names.append(i > 0 ? ", " : "").append(row.sources[i]);
  throw TypeError(
      say(row.name, ": the number of sources (", count, ") is not ", row.sources.size(), " (", names, ")."));
}

void Kernel::check_result_is_image() const {
  check<TypeError>(impl_->row->has_image(), impl_->row->name, ": the result is a state, not an image.");
}

}  // namespace mpscnn
