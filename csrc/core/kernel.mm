// SPDX-License-Identifier: Apache-2.0
// Row -> MPS object -> properties -> encode. No branch on kernel names.
#include <mpscnn/error.hpp>
#include <mpscnn/kernel.hpp>

#include <algorithm>
#include <mutex>

#include "device_impl.hh"
#include "families/family.hh"
#include "objc_scope.hh"

namespace mpscnn {

struct Kernel::Impl {
  const KernelRow *row;
  std::shared_ptr<Device> device;
  Made made;
  Params attributes = {};  ///< common parameters as they were set
  std::optional<Offset3> offset = {};
  std::optional<Region3> clip = {};
  std::mutex mutex = {};  ///< encode writes properties of the MPS object
};

namespace {

MPSCNNKernel *object(const Kernel::Impl &impl) { return impl.made.kernel.get(); }

Made make(id<MTLDevice> device, const KernelRow &row, const Params &params) {
  switch (row.family) {
    case Family::convolution:
    case Family::convolution_transpose:
    case Family::fully_connected: return make_convolution(device, row, params);
    case Family::neuron: return make_neuron(device, row, params);
  }
  throw NotImplementedError(say(row.name, ": no such family."));
}

/// Sets one common parameter on the MPS object.
void apply(Kernel::Impl &impl, std::string_view name, const Value &value) {
  MPSCNNKernel *kernel = object(impl);
  const bool none = std::holds_alternative<std::monostate>(value);
  const auto number = [&] { return static_cast<NSUInteger>(std::get<std::int64_t>(value)); };
  const auto channel_offset = [&] {
    check(number() % 4 == 0, impl.row->name, ": ", name, " (", number(), ") is not a multiple of 4.");
    return number();
  };
  if (name == "offset") {
    impl.offset = to_offset(value);
  } else if (name == "clip_rect") {
    impl.clip = to_region(value);
    MTLRegion clip = MPSRectNoClip;
    if (impl.clip) {
      const auto &[origin, height, width, images] = *impl.clip;
      clip = MTLRegionMake3D(origin.x, origin.y, origin.image, width, height, images);
    }
    kernel.clipRect = clip;
  } else if (name == "edge_mode") {
    kernel.edgeMode = std::get<std::string>(value) == "clamp" ? MPSImageEdgeModeClamp : MPSImageEdgeModeZero;
  } else if (name == "source_feature_channel_offset") {
    kernel.sourceFeatureChannelOffset = channel_offset();
  } else if (name == "source_feature_channel_max_count") {
    kernel.sourceFeatureChannelMaxCount = none ? NSUIntegerMax : number();
  } else if (name == "destination_feature_channel_offset") {
    kernel.destinationFeatureChannelOffset = channel_offset();
  } else if (name == "allow_reduced_precision") {
    kernel.options = std::get<bool>(value) ? kernel.options | MPSKernelOptionsAllowReducedPrecision
                                           : kernel.options & ~MPSKernelOptionsAllowReducedPrecision;
  } else if (name == "label") {
    kernel.label = none ? nil : ns(std::get<std::string>(value));
  }
}

std::int64_t dilated(std::int64_t k, std::int64_t dilation) { return (k - 1) * dilation + 1; }

/// Channels of the source that the kernel reads.
std::int64_t source_channels(const Kernel::Impl &impl, ImageShape source) {
  MPSCNNKernel *kernel = object(impl);
  const auto first = static_cast<std::int64_t>(kernel.sourceFeatureChannelOffset);
  check(first < source.c, impl.row->name, ": source_feature_channel_offset (", first,
        ") is not less than the channels of x (", source.c, ").");
  const auto most = kernel.sourceFeatureChannelMaxCount;
  return static_cast<std::int64_t>(std::min<NSUInteger>(source.c - first, most));
}

/// How the result lies on the source: its extents and the kernel's offset.
struct Geometry {
  ImageShape shape;
  MPSOffset offset{0, 0, 0};
  Pair kernel_offset{0, 0};  ///< transposed convolution
};

MPSNNDefaultPadding *policy(Padding::Kind kind) {
  // "same" has its remainder where PyTorch, ONNX (SAME_UPPER) and TensorFlow have it; MPS's own default is the top
  // left.
  const MPSNNPaddingMethod method =
      MPSNNPaddingMethodAlignCentered | MPSNNPaddingMethodAddRemainderToBottomRight |
      (kind == Padding::Kind::same ? MPSNNPaddingMethodSizeSame : MPSNNPaddingMethodSizeValidOnly);
  return [MPSNNDefaultPadding paddingWithMethod:method];
}

Geometry window_geometry(const ConvolutionDescriptor &d, const Padding &padding, ImageShape source) {
  const auto kh = dilated(d.kernel_size.h, d.dilation.h), kw = dilated(d.kernel_size.w, d.dilation.w);
  const auto r = d.sub_pixel_scale_factor;
  Geometry g;
  g.shape = {source.n, window_extent(source.h, kh, d.stride.h, padding.top, padding.bottom) * r,
             window_extent(source.w, kw, d.stride.w, padding.left, padding.right) * r, d.out_channels / (r * r)};
  g.offset = {.x = kw / 2 - padding.left, .y = kh / 2 - padding.top, .z = 0};
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
  MPSCNNKernel *kernel = object(impl);
  kernel.padding = policy(kind);
  MPSImageDescriptor *result = [kernel destinationImageDescriptorForSourceImages:@[ source ] sourceStates:nil];
  Geometry g;
  g.shape = {static_cast<std::int64_t>(result.numberOfImages), static_cast<std::int64_t>(result.height),
             static_cast<std::int64_t>(result.width), static_cast<std::int64_t>(result.featureChannels)};
  g.offset = kernel.offset;
  return g;
}

Geometry geometry(const Kernel::Impl &impl, ImageShape source, MPSImage *image) {
  const auto &row = *impl.row;
  const auto channels = source_channels(impl, source);
  Geometry g;
  g.shape = {source.n, source.h, source.w, channels};
  if (const auto &d = impl.made.descriptor) {
    check(channels == d->in_channels, row.name, ": x has ", channels,
          " channels to read; the weights have in_channels (", d->in_channels, ").");
    if (row.family == Family::fully_connected) {
      check(source.h == d->kernel_size.h && source.w == d->kernel_size.w, row.name, ": x has ", source.h, " x ",
            source.w, " pixels; the weights cover kernel_size (", d->kernel_size.h, ", ", d->kernel_size.w, ").");
      g.shape = {source.n, 1, 1, d->out_channels};
    } else if (impl.made.padding.kind != Padding::Kind::pixels) {
      // Where a kernel does not fit at all, a policy has nothing to size.
      const auto kh = dilated(d->kernel_size.h, d->dilation.h), kw = dilated(d->kernel_size.w, d->dilation.w);
      check(impl.made.padding.kind == Padding::Kind::same || row.family == Family::convolution_transpose ||
                (source.h >= kh && source.w >= kw),
            row.name, ": kernel_size (", kh, ", ", kw, ") dilated is greater than x (", source.h, ", ", source.w,
            ") with padding \"valid\".");
      g = policy_geometry(impl, image, impl.made.padding.kind);
      // Its channels include destinationFeatureChannelOffset, which the callers add themselves.
      g.shape.c = d->out_channels / (d->sub_pixel_scale_factor * d->sub_pixel_scale_factor);
    } else if (row.family == Family::convolution_transpose) {
      g = transpose_geometry(*d, impl.made.padding, impl.made.output_padding, source);
    } else {
      g = window_geometry(*d, impl.made.padding, source);
    }
    check(g.shape.h >= 1 && g.shape.w >= 1, row.name, ": the result has ", g.shape.h, " x ", g.shape.w,
          " pixels, less than the minimum (1 x 1): kernel_size (", d->kernel_size.h, ", ", d->kernel_size.w,
          "), dilation (", d->dilation.h, ", ", d->dilation.w, ") do not fit x (", source.h, ", ", source.w,
          ") with its padding.");
  } else if (!impl.made.neuron.data.empty()) {
    check(static_cast<std::int64_t>(impl.made.neuron.data.size()) == channels, row.name, ": x has ", channels,
          " channels to read; there are ", impl.made.neuron.data.size(), " slopes.");
  }
  if (impl.offset) {
    g.offset = {.x = impl.offset->x, .y = impl.offset->y, .z = impl.offset->image};
    check(impl.offset->image >= 0 && impl.offset->image < source.n, row.name, ": offset has image (",
          impl.offset->image, "), not in [0, ", source.n, ").");
    g.shape.n = source.n - impl.offset->image;
  }
  return g;
}

/// What must hold of a destination the caller gives. Without a clip_rect the result fills it exactly.
void check_destination(const Kernel::Impl &impl, const Geometry &g, ImageShape out) {
  const auto &row = *impl.row;
  const auto first = static_cast<std::int64_t>(object(impl).destinationFeatureChannelOffset);
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
    check(images <= g.shape.n, row.name, ": clip_rect has ", images, " images; x provides ", g.shape.n, ".");
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
    for (const auto *spec : common_params())
      if (const auto given = params.find(spec->name); given != params.end()) kernel->set(spec->name, given->second);
    return kernel;
  });
}

const KernelRow &Kernel::row() const { return *impl_->row; }
std::shared_ptr<Device> Kernel::device() const { return impl_->device; }

std::optional<NeuronDescriptor> Kernel::neuron() const {
  if (impl_->row->family == Family::neuron) return impl_->made.neuron;
  const auto &descriptor = impl_->made.descriptor;
  return descriptor && descriptor->activation.type != MPSCNNNeuronTypeNone ? std::optional(descriptor->activation)
                                                                           : std::nullopt;
}

std::shared_ptr<DataSource> Kernel::data_source() const {
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

void Kernel::reload() {
  check<std::runtime_error>(impl_->made.source != nullptr, impl_->row->name, ": there is no data source to reload.");
  guard([&] {
    const std::scoped_lock lock(impl_->mutex);
    MPSCNNKernel *kernel = object(*impl_);
    check<NotImplementedError>([kernel respondsToSelector:@selector(reloadWeightsAndBiasesFromDataSource)],
                               impl_->row->apple_class, " cannot reload its weights.");
    if (!impl_->made.source->load()) impl_->made.source->rethrow();
    impl_->made.source->purge();
    impl_->made.source->rethrow();
    [static_cast<MPSCNNConvolution *>(kernel) reloadWeightsAndBiasesFromDataSource];
    impl_->made.source->rethrow();
  });
}

ImageShape Kernel::result_shape(const ImageShape &source) const {
  // With the limits of the parameters this keeps every sum and product of extents within 64 bits.
  for (auto extent : source.nhwc())
    check<MemoryError>(extent <= std::int64_t{1} << 31, impl_->row->name, ": x of shape ", to_string(source.nhwc()),
                       " has an extent (", extent, ") greater than the maximum (", std::int64_t{1} << 31, ").");
  return guard([&] {
    const std::scoped_lock lock(impl_->mutex);
    // A policy wants an image to look at; its storage is never touched.
    auto image =
        impl_->made.padding.kind == Padding::Kind::pixels
            ? Ref<MPSImage *>()
            : Ref<MPSImage *>::adopt([[MPSImage alloc] initWithDevice:impl_->device->impl().device.get()
                                                      imageDescriptor:image_descriptor(source, DType::float32)]);
    auto shape = geometry(*impl_, source, image.get()).shape;
    shape.c += static_cast<std::int64_t>(object(*impl_).destinationFeatureChannelOffset);
    return shape;
  });
}

std::shared_ptr<Image> Kernel::encode(CommandBuffer &buffer, const Image &source, std::shared_ptr<Image> destination,
                                      bool temporary, std::optional<DType> dtype) {
  check_same_device(*buffer.device(), *impl_->device, impl_->row->name.data());
  check_same_device(*buffer.device(), *source.device(), "x");
  check<std::runtime_error>(buffer.status() < CommandBufferStatus::committed, impl_->row->name,
                            ": the command buffer has been committed already; its status is ", name_of(buffer.status()),
                            ".");
  check<std::runtime_error>(!source.is_temporary() || source.read_count() > 0, impl_->row->name,
                            ": x is a temporary image whose read_count is 0: its last read has been encoded.");
  return guard([&] {
    const std::scoped_lock lock(impl_->mutex);
    MPSCNNKernel *kernel = object(*impl_);
    MPSImage *from = source.impl().image.get();
    const auto g = geometry(*impl_, source.shape(), from);
    if (destination) {
      check_same_device(*buffer.device(), *destination->device(), "out");
      check<std::runtime_error>(!destination->is_temporary() || destination->read_count() > 0, impl_->row->name,
                                ": out is a temporary image whose read_count is 0.");
      check(!destination->impl().shared || !destination->impl().shared->read_only, impl_->row->name,
            ": out is read-only.");
      check_destination(*impl_, g, destination->shape());
    } else {
      check(!impl_->clip, impl_->row->name, ": clip_rect needs a destination (out) whose other pixels are kept.");
      auto shape = g.shape;
      shape.c += static_cast<std::int64_t>(kernel.destinationFeatureChannelOffset);
      const auto type = dtype.value_or(source.dtype());
      destination = temporary ? Image::temporary(buffer, shape, type) : Image::make(impl_->device, shape, type);
    }
    kernel.offset = g.offset;
    if (impl_->row->family == Family::convolution_transpose && impl_->made.padding.kind == Padding::Kind::pixels) {
      auto *transpose = static_cast<MPSCNNConvolutionTranspose *>(kernel);
      transpose.kernelOffsetX = g.kernel_offset.w;
      transpose.kernelOffsetY = g.kernel_offset.h;
    }
    id<MTLCommandBuffer> commands = buffer.impl().buffer.get();
    [kernel encodeToCommandBuffer:commands sourceImage:from destinationImage:destination->impl().image.get()];
    destination->impl().writer->set(commands);
    return destination;
  });
}

}  // namespace mpscnn
