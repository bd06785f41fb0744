// SPDX-License-Identifier: Apache-2.0
// Row -> MPS object -> properties -> encode. No branch on kernel names.
#include <mpscnn/error.hpp>
#include <mpscnn/kernel.hpp>

#include <algorithm>
#include <array>
#include <mutex>

#include "batch_normalization_state_impl.hh"
#include "device_impl.hh"
#include "families/family.hh"
#include "objc_scope.hh"

/// What MPSCNNKernel and MPSCNNBinaryKernel have in common: Apple has no class between them and MPSKernel.
@protocol CommonProperties
@property (nonatomic) MTLRegion clipRect;
@property (nonatomic) NSUInteger destinationFeatureChannelOffset;
@end

namespace mpscnn {

struct Kernel::Impl {
  const KernelRow *row;
  std::shared_ptr<Device> device;
  Made made;
  Params attributes = {};                              ///< common parameters as they were set
  std::array<std::optional<Offset3>, 2> offsets = {};  ///< of each source
  std::optional<Region3> clip = {};
  std::mutex mutex = {};  ///< encode writes properties of the MPS object
};

namespace {

bool is_binary(const Kernel::Impl &impl) { return impl.row->sources.size() == 2; }

/// In front of the names of a source's properties.
const char *prefix_of(const Kernel::Impl &impl, std::size_t source) {
  return !is_binary(impl) ? "" : source == 0 ? "primary_" : "secondary_";
}

// The MPS object as what it is.
id<CommonProperties> common(const Kernel::Impl &impl) {
  return static_cast<id<CommonProperties>>(static_cast<id>(impl.made.kernel.get()));
}
MPSCNNKernel *unary(const Kernel::Impl &impl) { return static_cast<MPSCNNKernel *>(impl.made.kernel.get()); }
MPSCNNBinaryKernel *binary(const Kernel::Impl &impl) {
  return static_cast<MPSCNNBinaryKernel *>(impl.made.kernel.get());
}

Made make(id<MTLDevice> device, const KernelRow &row, const Params &params) {
  switch (row.family) {
    case Family::convolution:
    case Family::convolution_transpose:
    case Family::fully_connected: return make_convolution(device, row, params);
    case Family::binary_convolution: return make_binary_convolution(device, row, params);
    case Family::neuron: return make_neuron(device, row, params);
    case Family::neuron_gradient: return make_neuron_gradient(device, row, params);
    case Family::pooling: return make_pooling(device, row, params);
    case Family::arithmetic: return make_arithmetic(device, row, params);
    case Family::softmax: return make_softmax(device, row, params);
    case Family::upsampling: return make_upsampling(device, row, params);
    case Family::reduction: return make_reduction(device, row, params);
    case Family::slice: return make_slice(device, row, params);
    case Family::reshape: return make_reshape(device, row, params);
    case Family::resize: return make_resize(device, row, params);
    case Family::pad: return make_pad(device, row, params);
    case Family::dropout: return make_dropout(device, row, params);
    case Family::local_normalization: return make_local_normalization(device, row, params);
    case Family::normalization: return make_normalization(device, row, params);
    case Family::batch_statistics: return make_batch_statistics(device, row, params);
  }
  throw NotImplementedError(say(row.name, ": no such family."));
}

// ---- properties of one source: Apple has them twice, with "primary" and "secondary" in front, in binary kernels

void set_offset(const Kernel::Impl &impl, std::size_t source, MPSOffset offset) {
  if (!is_binary(impl))
    unary(impl).offset = offset;
  else if (source == 0)
    binary(impl).primaryOffset = offset;
  else
    binary(impl).secondaryOffset = offset;
}

void set_edge_mode(const Kernel::Impl &impl, std::size_t source, MPSImageEdgeMode mode) {
  if (!is_binary(impl))
    unary(impl).edgeMode = mode;
  else if (source == 0)
    binary(impl).primaryEdgeMode = mode;
  else
    binary(impl).secondaryEdgeMode = mode;
}

void set_first_channel(const Kernel::Impl &impl, std::size_t source, NSUInteger channel) {
  if (!is_binary(impl))
    unary(impl).sourceFeatureChannelOffset = channel;
  else if (source == 0)
    binary(impl).primarySourceFeatureChannelOffset = channel;
  else
    binary(impl).secondarySourceFeatureChannelOffset = channel;
}

void set_most_channels(const Kernel::Impl &impl, std::size_t source, NSUInteger count) {
  if (!is_binary(impl))
    unary(impl).sourceFeatureChannelMaxCount = count;
  else if (source == 0)
    binary(impl).primarySourceFeatureChannelMaxCount = count;
  else
    binary(impl).secondarySourceFeatureChannelMaxCount = count;
}

NSUInteger first_channel(const Kernel::Impl &impl, std::size_t source) {
  return !is_binary(impl) ? unary(impl).sourceFeatureChannelOffset
         : source == 0    ? binary(impl).primarySourceFeatureChannelOffset
                          : binary(impl).secondarySourceFeatureChannelOffset;
}

NSUInteger most_channels(const Kernel::Impl &impl, std::size_t source) {
  return !is_binary(impl) ? unary(impl).sourceFeatureChannelMaxCount
         : source == 0    ? binary(impl).primarySourceFeatureChannelMaxCount
                          : binary(impl).secondarySourceFeatureChannelMaxCount;
}

MTLRegion clip_region(const Kernel::Impl &impl) { return impl.clip ? mtl_region(*impl.clip) : MPSRectNoClip; }

/// By one of the choices of edge_mode.
MPSImageEdgeMode edge_mode(std::string_view name) {
  return name == "clamp"              ? MPSImageEdgeModeClamp
         : name == "mirror"           ? MPSImageEdgeModeMirror
         : name == "mirror_with_edge" ? MPSImageEdgeModeMirrorWithEdge
         : name == "constant"         ? MPSImageEdgeModeConstant
                                      : MPSImageEdgeModeZero;
}

/// Sets one common parameter on the MPS object.
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
  } else if (own == "label") {
    impl.made.kernel.get().label = none ? nil : ns(std::get<std::string>(value));
  }
}

std::int64_t dilated(std::int64_t k, std::int64_t dilation) { return (k - 1) * dilation + 1; }

/// Channels of a source that the kernel reads.
std::int64_t source_channels(const Kernel::Impl &impl, std::size_t source, ImageShape shape) {
  const auto first = static_cast<std::int64_t>(first_channel(impl, source));
  check(first < shape.c, impl.row->name, ": ", prefix_of(impl, source), "source_feature_channel_offset (", first,
        ") is not less than the channels of ", impl.row->sources[source], " (", shape.c, ").");
  return static_cast<std::int64_t>(std::min<NSUInteger>(shape.c - first, most_channels(impl, source)));
}

/// How the result lies on the sources: its extents and the kernel's offsets.
struct Geometry {
  ImageShape shape;
  std::array<MPSOffset, 2> offsets{};
  Pair kernel_offset{0, 0};             ///< transposed convolution
  std::array<ImageShape, 2> strides{};  ///< arithmetic: 0 along axes on which a source repeats; n: its only image
};

MPSNNDefaultPadding *policy(Padding::Kind kind) {
  // "same" has its remainder where PyTorch, ONNX (SAME_UPPER) and TensorFlow have it; MPS's own default is the top
  // left.
  const MPSNNPaddingMethod method =
      MPSNNPaddingMethodAlignCentered | MPSNNPaddingMethodAddRemainderToBottomRight |
      (kind == Padding::Kind::same ? MPSNNPaddingMethodSizeSame : MPSNNPaddingMethodSizeValidOnly);
  return [MPSNNDefaultPadding paddingWithMethod:method];
}

/// Pixels from the first tap to the last.
Pair extent_of(const WindowShape &window) {
  return {dilated(window.kernel_size.h, window.dilation.h), dilated(window.kernel_size.w, window.dilation.w)};
}

/// One result for each window, of `channels`.
Geometry window_geometry(const WindowShape &window, const Padding &padding, ImageShape source, std::int64_t channels) {
  const auto [kh, kw] = extent_of(window);
  Geometry g;
  g.shape = {source.n, window_extent(source.h, kh, window.stride.h, padding.top, padding.bottom, window.ceil_mode),
             window_extent(source.w, kw, window.stride.w, padding.left, padding.right, window.ceil_mode), channels};
  g.offsets[0] = {.x = kw / 2 - padding.left, .y = kh / 2 - padding.top, .z = 0};
  return g;
}

Geometry transpose_geometry(const ConvolutionDescriptor &d, const Padding &padding, Pair extra, ImageShape source) {
  Geometry g;
  g.shape = {source.n, transpose_extent(source.h, d.kernel_size.h, d.stride.h, padding.top, padding.bottom, extra.h),
             transpose_extent(source.w, d.kernel_size.w, d.stride.w, padding.left, padding.right, extra.w),
             d.out_channels};
  g.kernel_offset = {d.kernel_size.h / 2 - d.kernel_size.h + 1 + padding.top,
                     d.kernel_size.w / 2 - d.kernel_size.w + 1 + padding.left};
  return g;
}

/// The result by MPS's own padding policy, which also sets the kernel's offset.
Geometry policy_geometry(const Kernel::Impl &impl, MPSImage *source, Padding::Kind kind) {
  MPSCNNKernel *kernel = unary(impl);
  kernel.padding = policy(kind);
  MPSImageDescriptor *result = [kernel destinationImageDescriptorForSourceImages:@[ source ] sourceStates:nil];
  Geometry g;
  g.shape = {static_cast<std::int64_t>(result.numberOfImages), static_cast<std::int64_t>(result.height),
             static_cast<std::int64_t>(result.width), static_cast<std::int64_t>(result.featureChannels)};
  g.offsets[0] = kernel.offset;
  return g;
}

void check_result(const Kernel::Impl &impl, const Geometry &g, ImageShape source, Pair kernel_size, Pair dilation) {
  check(g.shape.h >= 1 && g.shape.w >= 1, impl.row->name, ": the result has ", g.shape.h, " x ", g.shape.w,
        " pixels, less than the minimum (1 x 1): kernel_size (", kernel_size.h, ", ", kernel_size.w, "), dilation (",
        dilation.h, ", ", dilation.w, ") do not fit x (", source.h, ", ", source.w, ") with its padding.");
}

/// By pixels of padding or by a policy.
Geometry windows(const Kernel::Impl &impl, ImageShape source, MPSImage *image, std::int64_t channels) {
  const auto &window = *impl.made.window;
  const auto &padding = impl.made.padding;
  Geometry g;
  if (padding.kind == Padding::Kind::pixels) {
    g = window_geometry(window, padding, source, channels);
  } else {
    // Where a kernel does not fit at all, a policy has nothing to size.
    const auto [kh, kw] = extent_of(window);
    check(padding.kind == Padding::Kind::same || (source.h >= kh && source.w >= kw), impl.row->name, ": kernel_size (",
          kh, ", ", kw, ") dilated is greater than x (", source.h, ", ", source.w, ") with padding \"valid\".");
    g = policy_geometry(impl, image, padding.kind);
    g.shape.c = channels;  // the policy's include destinationFeatureChannelOffset, which the callers add themselves
  }
  check_result(impl, g, source, window.kernel_size, window.dilation);
  return g;
}

/// Kernels of one source. `image` is looked at by padding policies only.
Geometry unary_geometry(const Kernel::Impl &impl, ImageShape source, MPSImage *image) {
  const auto &row = *impl.row;
  const auto &made = impl.made;
  const auto channels = source_channels(impl, 0, source);
  Geometry g;
  g.shape = {source.n, source.h, source.w, channels};
  if (const auto &d = made.descriptor) {
    check(channels == d->in_channels, row.name, ": x has ", channels,
          " channels to read; the weights have in_channels (", d->in_channels, ").");
    if (row.shape == ShapeRule::fully_connected) {
      check(source.h == d->kernel_size.h && source.w == d->kernel_size.w, row.name, ": x has ", source.h, " x ",
            source.w, " pixels; the weights cover kernel_size (", d->kernel_size.h, ", ", d->kernel_size.w, ").");
      g.shape = {source.n, 1, 1, d->out_channels};
    } else if (row.family == Family::convolution_transpose) {
      if (made.padding.kind == Padding::Kind::pixels) {
        g = transpose_geometry(*d, made.padding, made.output_padding, source);
      } else {
        g = policy_geometry(impl, image, made.padding.kind);
        g.shape.c = d->out_channels;
      }
      check_result(impl, g, source, d->kernel_size, d->dilation);
    } else {
      const auto r = d->sub_pixel_scale_factor;
      g = windows(impl, source, image, d->out_channels / (r * r));
      if (made.padding.kind == Padding::Kind::pixels) g.shape.h *= r, g.shape.w *= r;
    }
  } else if (made.window) {
    g = windows(impl, source, image, channels);
  } else if (made.result_shape) {
    g.shape = made.result_shape(made.read_shape ? made.read_shape(0, g.shape) : g.shape);
    g.offsets[0] = {.x = made.offset.x, .y = made.offset.y, .z = made.offset.image};
  } else if (!made.neuron.data.empty()) {
    check(static_cast<std::int64_t>(made.neuron.data.size()) == channels, row.name, ": x has ", channels,
          " channels to read; there are ", made.neuron.data.size(), " slopes.");
  }
  return g;
}

/// Two sources, value by value: extents are equal, or 1 where a source repeats.
Geometry pointwise_geometry(const Kernel::Impl &impl, std::span<const ImageShape> sources) {
  const auto &row = *impl.row;
  const bool repeats = row.family == Family::arithmetic;
  std::array<ImageShape, 2> read{sources[0], sources[1]};
  for (std::size_t i = 0; i < 2; ++i) {
    read[i].c = source_channels(impl, i, sources[i]);
    if (impl.offsets[i]) read[i].n -= impl.offsets[i]->image;
    if (impl.made.read_shape) read[i] = impl.made.read_shape(i, read[i]);
  }
  Geometry g;
  const auto axis = [&](std::int64_t ImageShape::*extent, std::optional<bool> Repeat::*given, const char *name) {
    std::array<bool, 2> repeat{};
    for (std::size_t i = 0; i < 2; ++i) {
      const auto asked = given == nullptr ? std::nullopt : impl.made.repeat[i].*given;
      repeat[i] = asked.value_or(repeats && read[i].*extent == 1 && read[1 - i].*extent != 1);
      g.strides[i].*extent = repeat[i] ? 0 : 1;
    }
    // A clip rectangle may be put where both sources, or their edge modes, have something to say.
    check(repeat[0] || repeat[1] || read[0].*extent == read[1].*extent || (impl.clip && given != &Repeat::c), row.name,
          ": the ", name, " of ", row.sources[0], " (", read[0].*extent, ") is not that of ", row.sources[1], " (",
          read[1].*extent, ").");
    g.shape.*extent = repeat[0] && repeat[1] ? 1
                      : repeat[0]            ? read[1].*extent
                      : repeat[1]            ? read[0].*extent
                                             : std::min(read[0].*extent, read[1].*extent);
  };
  axis(&ImageShape::n, nullptr, "number of images");
  axis(&ImageShape::h, &Repeat::h, "height");
  axis(&ImageShape::w, &Repeat::w, "width");
  axis(&ImageShape::c, &Repeat::c, "number of channels");
  if (!impl.made.neuron.data.empty())
    check(static_cast<std::int64_t>(impl.made.neuron.data.size()) == g.shape.c, row.name, ": ", row.sources[1], " has ",
          g.shape.c, " channels to read; there are ", impl.made.neuron.data.size(), " slopes.");
  if (impl.made.result_shape) g.shape = impl.made.result_shape(g.shape);
  return g;
}

Geometry geometry(const Kernel::Impl &impl, std::span<const ImageShape> sources, MPSImage *image) {
  for (std::size_t i = 0; i < sources.size(); ++i)
    if (const auto &given = impl.offsets[i])
      check(given->image >= 0 && given->image < sources[i].n, impl.row->name, ": ", prefix_of(impl, i),
            "offset has image (", given->image, "), not in [0, ", sources[i].n, ").");
  auto g = is_binary(impl) ? pointwise_geometry(impl, sources) : unary_geometry(impl, sources[0], image);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const auto &given = impl.offsets[i];
    if (!given) continue;
    g.offsets[i] = {.x = given->x, .y = given->y, .z = given->image};
    if (!is_binary(impl)) g.shape.n = sources[i].n - given->image;
  }
  return g;
}

/// What must hold of a destination the caller gives. Without a clip_rect the result fills it exactly.
void check_destination(const Kernel::Impl &impl, const Geometry &g, ImageShape out) {
  const auto &row = *impl.row;
  const auto first = static_cast<std::int64_t>(common(impl).destinationFeatureChannelOffset);
  check(first + g.shape.c <= out.c, row.name, ": out has ", out.c, " channels; destination_feature_channel_offset (",
        first, ") and the result's channels (", g.shape.c, ") need ", first + g.shape.c, ".");
  if (impl.clip) {
    const auto &[origin, height, width, images] = *impl.clip;
    const auto inside = [&](std::int64_t start, std::int64_t extent, std::int64_t size, const char *axis) {
      check(start + extent <= size, row.name, ": clip_rect reaches ", start + extent, " along the ", axis, " of out (",
            size, ").");
    };
    inside(origin.y, height, out.h, "height");
    inside(origin.x, width, out.w, "width");
    inside(origin.image, images, out.n, "images");
    check(images <= g.shape.n, row.name, ": clip_rect has ", images, " images; ",
          is_binary(impl) ? "the sources provide " : "x provides ", g.shape.n, ".");
    return;
  }
  check(out.h == g.shape.h && out.w == g.shape.w && out.n == g.shape.n, row.name, ": out.shape ", to_string(out.nhwc()),
        " is not the result's ", to_string(g.shape.nhwc()), " (clip_rect restricts what is written).");
}

}  // namespace

Class class_of(const KernelRow &row) {
  const Class kind = NSClassFromString([NSString stringWithUTF8String:std::string(row.apple_class).c_str()]);
  check<NotImplementedError>(kind != Nil, row.apple_class, " is not there on this platform.");
  return kind;
}

Kernel::Kernel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Kernel::~Kernel() {
  Pool pool;
  impl_.reset();
}

std::shared_ptr<Kernel> Kernel::make(std::shared_ptr<Device> device, const KernelRow &row, const Params &params) {
  check_params(row, params);
  return guard([&] {
    auto made = mpscnn::make(device->impl().device.get(), row, params);
    auto kernel = std::make_shared<Kernel>(std::unique_ptr<Impl>(new Impl{&row, device, std::move(made)}));
    for (const auto &[name, value] : kernel->impl_->made.attributes) kernel->set(name, value);
    for (const auto *spec : common_params(row))
      if (const auto given = params.find(spec->name); given != params.end()) kernel->set(spec->name, given->second);
    return kernel;
  });
}

namespace {

/// What an archive of the kernel gives back on the device.
Ref<MPSKernel *> archived_copy(MPSKernel *kernel, id<MTLDevice> device) {
  NSError *error = nil;
  NSData *data = [NSKeyedArchiver archivedDataWithRootObject:kernel];
  id made = [MPSKeyedUnarchiver unarchivedObjectOfClass:[kernel class] fromData:data device:device error:&error];
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
    auto copied = std::unique_ptr<Impl>(new Impl{impl_->row, impl_->device, std::move(made)});
    copied->attributes = impl_->attributes;
    copied->offsets = impl_->offsets;
    copied->clip = impl_->clip;
    return std::make_shared<Kernel>(std::move(copied));
  });
}

const KernelRow &Kernel::row() const { return *impl_->row; }
std::shared_ptr<Device> Kernel::device() const { return impl_->device; }

std::optional<NeuronDescriptor> Kernel::neuron() const {
  const auto family = impl_->row->family;
  if (family == Family::neuron || family == Family::neuron_gradient) return impl_->made.neuron;
  if (impl_->made.neuron.type != MPSCNNNeuronTypeNone) return impl_->made.neuron;
  const auto &descriptor = impl_->made.descriptor;
  return descriptor && descriptor->activation.type != MPSCNNNeuronTypeNone ? std::optional(descriptor->activation)
                                                                           : std::nullopt;
}

std::shared_ptr<Source> Kernel::data_source() const {
  return impl_->made.source ? impl_->made.source->source() : nullptr;
}

Value Kernel::get(std::string_view name) const {
  const auto *spec = find_param(*impl_->row, name);
  check<KeyError>(spec && spec->attribute, impl_->row->name, " has no attribute \"", name, "\".");
  const std::scoped_lock lock(impl_->mutex);
  const auto found = impl_->attributes.find(name);
  return found == impl_->attributes.end() ? Value{} : found->second;
}

void Kernel::set(std::string_view name, const Value &value) {
  const auto *spec = find_param(*impl_->row, name);
  check<KeyError>(spec && spec->attribute, impl_->row->name, " has no attribute \"", name, "\".");
  check_value(*impl_->row, *spec, value);
  guard([&] {
    const std::scoped_lock lock(impl_->mutex);
    apply(*impl_, name, value);
    impl_->attributes.insert_or_assign(std::string(name), value);
  });
}

bool Kernel::works_image_by_image() const { return impl_->made.image_by_image; }

void Kernel::reload() {
  check<std::runtime_error>(impl_->made.source != nullptr, impl_->row->name, ": there is no data source to reload.");
  guard([&] {
    const std::scoped_lock lock(impl_->mutex);
    check<NotImplementedError>(impl_->made.read_again != nullptr, impl_->row->apple_class,
                               " cannot reload its weights.");
    if (!impl_->made.source->load()) impl_->made.source->rethrow();
    impl_->made.source->purge();
    impl_->made.source->rethrow();
    impl_->made.read_again(impl_->made);
    impl_->made.source->rethrow();
  });
}

namespace {

/// Both reloads of normalization: `buffers` by the names of what they hold.
void reload_from(Kernel::Impl &impl, CommandBuffer &commands, const Made::Reload &read,
                 std::array<std::pair<const char *, id<MTLBuffer>>, 2> buffers) {
  const auto &row = *impl.row;
  check<TypeError>(read != nullptr, row.name, ": the kernel has no ", buffers[0].first, " and ", buffers[1].first,
                   " to reload.");
  check_same_device(*commands.device(), *impl.device, row.name.data());
  check<std::runtime_error>(commands.status() < CommandBufferStatus::committed, row.name,
                            ": the command buffer has been committed already; its status is ",
                            name_of(commands.status()), ".");
  const auto bytes = static_cast<NSUInteger>(impl.made.channels) * sizeof(float);
  for (const auto &[name, buffer] : buffers)
    check([buffer length] >= bytes, row.name, ": ", name, " of the state has ", [buffer length], " bytes; ",
          impl.made.channels, " channels need ", bytes, ".");
  const std::scoped_lock lock(impl.mutex);
  read(impl.made, commands.impl().buffer.get(), buffers[0].second, buffers[1].second);
}

}  // namespace

void Kernel::reload(CommandBuffer &buffer, const NormalizationGammaAndBetaState &state) {
  guard([&] {
    reload_from(*impl_, buffer, impl_->made.reload_gamma_and_beta,
                {{{"gamma", state.gamma->impl().buffer.get()}, {"beta", state.beta->impl().buffer.get()}}});
  });
}

void Kernel::reload(CommandBuffer &buffer, const NormalizationMeanAndVarianceState &state) {
  guard([&] {
    reload_from(*impl_, buffer, impl_->made.reload_mean_and_variance,
                {{{"mean", state.mean->impl().buffer.get()}, {"variance", state.variance->impl().buffer.get()}}});
  });
}

void Kernel::reload(CommandBuffer &buffer, const BatchNormalizationState &state) {
  guard([&] {
    auto &impl = state.impl();
    const std::scoped_lock lock(impl.mutex);
    check<std::runtime_error>(impl.count > 0, impl_->row->name, ": no statistics have been encoded to state.");
    reload_from(*impl_, buffer, impl_->made.reload_mean_and_variance,
                {{{"mean", [impl.state.get() mean]}, {"variance", [impl.state.get() variance]}}});
  });
}

namespace {

/// The convolution, if it can move its weights on a command buffer that is still open.
MPSCNNConvolution *movable(const Kernel::Impl &impl, const CommandBuffer &commands, SEL selector, const char *what) {
  const auto &row = *impl.row;
  check<TypeError>(impl.made.descriptor && [impl.made.kernel.get() respondsToSelector:selector], row.name,
                   ": the kernel has no weights to ", what, ".");
  check_same_device(*commands.device(), *impl.device, row.name.data());
  check<std::runtime_error>(commands.status() < CommandBufferStatus::committed, row.name,
                            ": the command buffer has been committed already; its status is ",
                            name_of(commands.status()), ".");
  // MPSCNNConvolutionTranspose has the same methods.
  return static_cast<MPSCNNConvolution *>(static_cast<id>(impl.made.kernel.get()));
}

Extents weights_shape(const ConvolutionDescriptor &d) {
  return {d.out_channels, d.kernel_size.h, d.kernel_size.w, d.depthwise ? 1 : d.in_channels / d.groups};
}

}  // namespace

void Kernel::reload(CommandBuffer &buffer, const ConvolutionWeightsAndBiasesState &state) {
  guard([&] {
    const std::scoped_lock lock(impl_->mutex);
    MPSCNNConvolution *kernel =
        movable(*impl_, buffer, @selector(reloadWeightsAndBiasesWithCommandBuffer:state:), "reload");
    const auto shape = weights_shape(*impl_->made.descriptor);
    const auto enough = [&](const Buffer &values, const char *name, std::int64_t count) {
      check(values.bytes() >= static_cast<std::uint64_t>(count) * sizeof(float), impl_->row->name, ": ", name,
            " of the state has ", values.bytes(), " bytes; the kernel needs ", count * sizeof(float), " (OHWI ",
            to_string(shape), ", float32).");
    };
    enough(*state.weights, "weights", shape[0] * shape[1] * shape[2] * shape[3]);
    if (state.biases) enough(*state.biases, "biases", shape[0]);
    const auto values =
        Ref<MPSCNNConvolutionWeightsAndBiasesState *>::adopt([[MPSCNNConvolutionWeightsAndBiasesState alloc]
            initWithWeights:state.weights->impl().buffer.get()
                     biases:state.biases ? state.biases->impl().buffer.get() : nil]);
    [kernel reloadWeightsAndBiasesWithCommandBuffer:buffer.impl().buffer.get() state:values.get()];
  });
}

std::shared_ptr<ConvolutionWeightsAndBiasesState> Kernel::export_weights(CommandBuffer &buffer) {
  return guard([&] {
    const std::scoped_lock lock(impl_->mutex);
    MPSCNNConvolution *kernel = movable(
        *impl_, buffer, @selector(exportWeightsAndBiasesWithCommandBuffer:resultStateCanBeTemporary:), "export");
    MPSCNNConvolutionWeightsAndBiasesState *state =
        [kernel exportWeightsAndBiasesWithCommandBuffer:buffer.impl().buffer.get() resultStateCanBeTemporary:NO];
    check<std::runtime_error>(state != nil && state.weightsOffset == 0 && state.biasesOffset == 0, impl_->row->name,
                              ": the weights cannot be exported.");
    const auto held = [&](id<MTLBuffer> values) {
      return std::make_shared<Buffer>(
          std::make_unique<Buffer::Impl>(Buffer::Impl{impl_->device, Ref<id<MTLBuffer>>::adopt([values retain])}));
    };
    auto result = std::make_shared<ConvolutionWeightsAndBiasesState>();
    result->weights = held(state.weights);
    if (state.biases != nil) result->biases = held(state.biases);
    result->shape = weights_shape(*impl_->made.descriptor);
    return result;
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

ImageShape Kernel::result_shape(std::span<const ImageShape> sources) const {
  check_source_count(sources.size());
  check_result_is_image();
  // With the limits of the parameters this keeps every sum and product of extents within 64 bits.
  for (std::size_t i = 0; i < sources.size(); ++i)
    for (auto extent : sources[i].nhwc())
      check<MemoryError>(extent <= std::int64_t{1} << 31, impl_->row->name, ": ", impl_->row->sources[i], " of shape ",
                         to_string(sources[i].nhwc()), " has an extent (", extent, ") greater than the maximum (",
                         std::int64_t{1} << 31, ").");
  return guard([&] {
    const std::scoped_lock lock(impl_->mutex);
    // A policy wants an image to look at; its storage is never touched.
    auto image =
        impl_->made.padding.kind == Padding::Kind::pixels
            ? Ref<MPSImage *>()
            : Ref<MPSImage *>::adopt([[MPSImage alloc] initWithDevice:impl_->device->impl().device.get()
                                                      imageDescriptor:image_descriptor(sources[0], DType::float32)]);
    auto shape = geometry(*impl_, sources, image.get()).shape;
    shape.c += static_cast<std::int64_t>(common(*impl_).destinationFeatureChannelOffset);
    return shape;
  });
}

namespace {

void encode_unary(Kernel::Impl &impl, id<MTLCommandBuffer> commands, const Geometry &g, const Image &source,
                  const Image &destination, BatchNormalizationState *state) {
  MPSCNNKernel *kernel = unary(impl);
  kernel.offset = g.offsets[0];
  if (impl.row->family == Family::convolution_transpose && impl.made.padding.kind == Padding::Kind::pixels) {
    auto *transpose = static_cast<MPSCNNConvolutionTranspose *>(kernel);
    transpose.kernelOffsetX = g.kernel_offset.w;
    transpose.kernelOffsetY = g.kernel_offset.h;
  }
  MPSImage *from = source.impl().image.get(), *to = destination.impl().image.get();
  if (impl.made.encode) return impl.made.encode(impl.made, commands, from, to, state);
  [kernel encodeToCommandBuffer:commands sourceImage:from destinationImage:to];
}

/// Temporary sources are read by `encodes` encodes, and count as read once. When one of these raises, the rest is not
/// owed any more.
class ExtraReads {
 public:
  ExtraReads(std::span<const Image *const> sources, std::int64_t encodes)
      : sources_(sources), left_(static_cast<NSUInteger>(encodes - 1)) {
    change([this](NSUInteger count) { return count + left_; });
  }
  ~ExtraReads() {
    change([this](NSUInteger count) { return count - left_; });
  }
  ExtraReads(const ExtraReads &) = delete;
  ExtraReads &operator=(const ExtraReads &) = delete;
  void did_encode() {
    if (left_ > 0) --left_;
  }

 private:
  template <class F>
  void change(F f) {
    if (left_ == 0) return;
    for (const Image *source : sources_)
      if (source->is_temporary()) {
        auto *image = static_cast<MPSTemporaryImage *>(source->impl().image.get());
        image.readCount = f(image.readCount);
      }
  }

  std::span<const Image *const> sources_;
  NSUInteger left_;
};

/// A source of one image for several of the other: MPS has no stride for images, so each gets an encode of its own.
/// Gradient kernels are encoded like others: what they would take from a state of the forward kernel is set here.
/// unverified: that Apple's do so without a state.
void encode_binary(const Kernel::Impl &impl, id<MTLCommandBuffer> commands, const Geometry &g,
                   std::span<const Image *const> sources, const Image &destination) {
  MPSCNNBinaryKernel *kernel = binary(impl);
  if (impl.row->family == Family::arithmetic) {
    auto *arithmetic = static_cast<MPSCNNArithmetic *>(kernel);
    arithmetic.primaryStrideInPixelsX = static_cast<NSUInteger>(g.strides[0].w);
    arithmetic.primaryStrideInPixelsY = static_cast<NSUInteger>(g.strides[0].h);
    arithmetic.primaryStrideInFeatureChannels = static_cast<NSUInteger>(g.strides[0].c);
    arithmetic.secondaryStrideInPixelsX = static_cast<NSUInteger>(g.strides[1].w);
    arithmetic.secondaryStrideInPixelsY = static_cast<NSUInteger>(g.strides[1].h);
    arithmetic.secondaryStrideInFeatureChannels = static_cast<NSUInteger>(g.strides[1].c);
  }
  const bool together = g.strides[0].n == g.strides[1].n;
  const auto images = impl.clip ? impl.clip->images : g.shape.n, encodes = together ? 1 : images;
  ExtraReads reads(sources, encodes);
  const MTLRegion clip = clip_region(impl);
  for (std::int64_t i = 0; i < encodes; ++i) {
    MTLRegion part = clip;
    if (!together) {
      part.origin.z += static_cast<NSUInteger>(i);
      part.size.depth = 1;
    }
    kernel.clipRect = part;
    auto offsets = g.offsets;
    for (std::size_t source = 0; source < 2; ++source) {
      offsets[source].z += i * g.strides[source].n;
      set_offset(impl, source, offsets[source]);
    }
    [kernel encodeToCommandBuffer:commands
                     primaryImage:sources[0]->impl().image.get()
                   secondaryImage:sources[1]->impl().image.get()
                 destinationImage:destination.impl().image.get()];
    reads.did_encode();
  }
}

}  // namespace

void Kernel::check_encode(const CommandBuffer &buffer, std::span<const Image *const> sources,
                          const BatchNormalizationState *state) const {
  const auto &row = *impl_->row;
  check_source_count(sources.size());
  check_same_device(*buffer.device(), *impl_->device, row.name.data());
  check<std::runtime_error>(buffer.status() < CommandBufferStatus::committed, row.name,
                            ": the command buffer has been committed already; its status is ", name_of(buffer.status()),
                            ".");
  for (std::size_t i = 0; i < sources.size(); ++i) {
    check_same_device(*buffer.device(), *sources[i]->device(), row.sources[i].data());
    check<std::runtime_error>(!sources[i]->is_temporary() || sources[i]->read_count() > 0, row.name, ": ",
                              row.sources[i],
                              " is a temporary image whose read_count is 0: its last read has been encoded.");
  }
  if (!state) return;
  check<TypeError>(!row.state.empty(), row.name, ": state was given; the kernel takes none.");
  check_same_device(*buffer.device(), *state->device(), "state");
}

void Kernel::check_result_is_image() const {
  check<TypeError>(impl_->row->has_image(), impl_->row->name, ": the result is a state, not an image.");
}

std::shared_ptr<BatchNormalizationState> Kernel::encode_state(CommandBuffer &buffer, const Image &source,
                                                              std::shared_ptr<BatchNormalizationState> state) {
  const auto &row = *impl_->row;
  const Image *const sources[] = {&source};
  check_encode(buffer, sources, state.get());
  return guard([&] {
    const std::scoped_lock lock(impl_->mutex);
    const auto no = [&](bool given, const char *name) {
      check(!given, row.name, ": ", name, " is set; there is no destination.");
    };
    no(impl_->clip.has_value(), "clip_rect");
    no(impl_->offsets[0].has_value(), "offset");
    no(common(*impl_).destinationFeatureChannelOffset != 0, "destination_feature_channel_offset");
    const auto channels = source_channels(*impl_, 0, source.shape());
    if (!state) state = BatchNormalizationState::make(impl_->device, channels);
    impl_->made.encode(impl_->made, buffer.impl().buffer.get(), source.impl().image.get(), nil, state.get());
    return state;
  });
}

std::shared_ptr<Image> Kernel::encode(CommandBuffer &buffer, std::span<const Image *const> sources,
                                      std::shared_ptr<Image> destination, bool temporary, std::optional<DType> dtype,
                                      BatchNormalizationState *state) {
  const auto &row = *impl_->row;
  check_encode(buffer, sources, state);
  check_result_is_image();
  std::array<ImageShape, 2> shapes;
  for (std::size_t i = 0; i < sources.size(); ++i) shapes[i] = sources[i]->shape();
  return guard([&] {
    const std::scoped_lock lock(impl_->mutex);
    const auto g = geometry(*impl_, std::span(shapes).first(sources.size()), sources[0]->impl().image.get());
    if (destination) {
      check_same_device(*buffer.device(), *destination->device(), "out");
      check<std::runtime_error>(!destination->is_temporary() || destination->read_count() > 0, row.name,
                                ": out is a temporary image whose read_count is 0.");
      check(!destination->impl().shared || !destination->impl().shared->read_only, row.name, ": out is read-only.");
      check_destination(*impl_, g, destination->shape());
    } else {
      check(!impl_->clip, row.name, ": clip_rect needs a destination (out) whose other pixels are kept.");
      auto shape = g.shape;
      shape.c += static_cast<std::int64_t>(common(*impl_).destinationFeatureChannelOffset);
      const auto type = dtype.value_or(sources[0]->dtype());
      destination = temporary ? Image::temporary(buffer, shape, type) : Image::make(impl_->device, shape, type);
    }
    id<MTLCommandBuffer> commands = buffer.impl().buffer.get();
    if (is_binary(*impl_))
      encode_binary(*impl_, commands, g, sources, *destination);
    else
      encode_unary(*impl_, commands, g, *sources[0], *destination, state);
    destination->impl().writer->set(commands);
    return destination;
  });
}

}  // namespace mpscnn
