// SPDX-License-Identifier: Apache-2.0
// Encoding of kernels and their images to command buffers.
#include "core/device/completion_check.hh"
#include "core/device/image_batch.hh"
#include "core/kernel/encode_checks.hh"
#include "core/kernel/gradient_state_impl.hh"
#include "core/kernel/kernel_impl.hh"
#include "core/kernel/kernel_sources.hh"

namespace mpscnn {

void set_geometry(const Kernel::Impl &impl, const Geometry &g) {
  if (is_binary(impl)) {
    if (impl.row->family == "arithmetic") {
      auto *arithmetic = static_cast<MPSCNNArithmetic *>(binary(impl));
      arithmetic.primaryStrideInPixelsX = static_cast<NSUInteger>(g.strides[0].w);
      arithmetic.primaryStrideInPixelsY = static_cast<NSUInteger>(g.strides[0].h);
      arithmetic.primaryStrideInFeatureChannels = static_cast<NSUInteger>(g.strides[0].c);
      arithmetic.secondaryStrideInPixelsX = static_cast<NSUInteger>(g.strides[1].w);
      arithmetic.secondaryStrideInPixelsY = static_cast<NSUInteger>(g.strides[1].h);
      arithmetic.secondaryStrideInFeatureChannels = static_cast<NSUInteger>(g.strides[1].c);
    }
    for (std::size_t source = 0; source < 2; ++source) set_offset(impl, source, g.offsets[source]);
    return;
  }
  MPSCNNKernel *kernel = unary(impl);
  kernel.offset = g.offsets[0];
  if (impl.row->family != "convolution_transpose" || impl.made.padding.kind != Padding::Kind::pixels) return;
  auto *transpose = static_cast<MPSCNNConvolutionTranspose *>(kernel);
  transpose.kernelOffsetX = g.kernel_offset.w;
  transpose.kernelOffsetY = g.kernel_offset.h;
}

namespace {

void encode_unary(Kernel::Impl &impl, id<MTLCommandBuffer> commands, const Geometry &g, const Image &source,
                  const Image &destination, BatchNormalizationState *batch, GradientState *left) {
  set_geometry(impl, g);
  MPSCNNKernel *kernel = unary(impl);
  MPSImage *from = source.impl().image.get(), *to = destination.impl().image.get();
  if (left != nullptr)
    [kernel encodeToCommandBuffer:commands
                      sourceImage:from
                 destinationState:[left->impl().states.get() objectAtIndex:0]
                 destinationImage:to];
  else if (impl.made.encode)
    impl.made.encode(impl.made, commands, from, to, batch);
  else
    [kernel encodeToCommandBuffer:commands sourceImage:from destinationImage:to];
}

/// Encode with one state per image.
void encode_single_images(const Kernel::Impl &impl, id<MTLCommandBuffer> commands, const Geometry &g,
                          std::span<const Image *const> sources, const Image &destination, const GradientState &left) {
  set_geometry(impl, of_single_images(g));
  const MTLRegion clip = clip_region(impl);
  const auto count = static_cast<NSUInteger>(impl.clip ? impl.clip->images : g.shape.n);
  const ImageBatch a(sources[0]->impl().image.get(), single_first(g, 0), count),
      to(destination.impl().image.get(), clip.origin.z, count);
  common(impl).clipRect = clip_of_single_images(clip);
  if (is_binary(impl)) {
    // An image that is both sources is read once.
    MPSImage *second = sources[1]->impl().image.get();
    const bool is_one = second == sources[0]->impl().image.get() && single_first(g, 0) == single_first(g, 1);
    const ImageBatch other = is_one ? ImageBatch() : ImageBatch(second, single_first(g, 1), count);
    const ImageBatch &b = is_one ? a : other;
    [static_cast<MPSCNNArithmetic *>(binary(impl))
        encodeBatchToCommandBuffer:commands
                     primaryImages:a.images()
                   secondaryImages:b.images()
                 destinationStates:static_cast<MPSCNNArithmeticGradientStateBatch *>(left.impl().of_images(count))
                 destinationImages:to.images()];
    if (!is_one) b.did_read();
  } else {
    [unary(impl) encodeBatchToCommandBuffer:commands
                               sourceImages:a.images()
                          destinationStates:left.impl().of_images(count)
                          destinationImages:to.images()];
  }
  a.did_read();
  common(impl).clipRect = clip;
}

/// Raises the readCount of temporary sources so that `encodes` encodes count as one read. If an encode raises, the
/// remaining reads are taken back.
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

/// Encode a kernel of two sources. MPS has no stride for images: where one source has a single image for several of the
/// other, each image gets its own encode. MPSCNNNeuronGradient is encoded without a state; its parameters are set here.
/// unverified: that Apple's MPS allows this.
void encode_binary(const Kernel::Impl &impl, id<MTLCommandBuffer> commands, const Geometry &g,
                   std::span<const Image *const> sources, const Image &destination, GradientState *left) {
  MPSCNNBinaryKernel *kernel = binary(impl);
  set_geometry(impl, g);
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
    MPSImage *a = sources[0]->impl().image.get(), *b = sources[1]->impl().image.get();
    MPSImage *to = destination.impl().image.get();
    if (left != nullptr)
      [static_cast<MPSCNNArithmetic *>(kernel) encodeToCommandBuffer:commands
                                                        primaryImage:a
                                                      secondaryImage:b
                                                    destinationState:static_cast<MPSCNNArithmeticGradientState *>(
                                                                         [left->impl().states.get() objectAtIndex:0])
                                                    destinationImage:to];
    else
      [kernel encodeToCommandBuffer:commands primaryImage:a secondaryImage:b destinationImage:to];
    reads.did_encode();
  }
}

/// Return the approximate multiply-adds. A gradient counts the forward encode's once each for source and parameters.
std::uint64_t multiply_adds(const Kernel::Impl &impl, const Geometry &g, const Image &source) {
  const auto &made = is_gradient(impl) ? impl.made.forward->impl().made : impl.made;
  const auto shape = is_gradient(impl) ? source.shape() : g.shape;
  std::int64_t each = is_gradient(impl) ? 2 : 1;
  if (made.descriptor)
    each *= made.descriptor->kernel_size.h * made.descriptor->kernel_size.w * made.descriptor->in_channels /
            std::max<std::int64_t>(made.descriptor->groups, 1);
  else if (made.window)
    each *= made.window->kernel_size.h * made.window->kernel_size.w;
  return static_cast<std::uint64_t>(shape.n * shape.h * shape.w * shape.c * std::max<std::int64_t>(each, 1));
}

void encode_into(Kernel::Impl &impl, CommandBuffer &buffer, const Geometry &g, std::span<const Image *const> sources,
                 const Image &destination, const EncodeStates &states = {}) {
  id<MTLCommandBuffer> commands = buffer.impl().buffer.get();
  for (const Image *source : sources) check_files_of(commands, {source});
  check_files_of(commands, {&destination});
  if (impl.made.source && WatchedMemory::is_any())
    check_file_of(commands, impl.made.source->borrowed(), impl.made.source);
  std::shared_ptr<GradientState> left;
  const bool is_apart = states.left != nullptr && encodes_single_images(impl, sources, destination.impl().image.get());
  std::unique_lock<std::mutex> joining;
  if (states.left != nullptr && *states.left) {
    left = *states.left;
    joining = std::unique_lock(left->impl().mutex);
    check_joins(impl, left->impl(), g, *sources[0]);
  } else if (states.left != nullptr) {
    if (is_binary(impl)) {
      const std::size_t single = g.strides[0].n == 0 ? 0 : 1;
      check<NotImplementedError>(g.strides[0].n == g.strides[1].n, impl.row->name, ": ", impl.row->sources[1 - single],
                                 " has more than 1 image, ", impl.row->sources[single],
                                 " has 1: there is no gradient of a source that is repeated over images.");
    }
    set_geometry(impl, is_apart ? of_single_images(g) : g);
    left = make_gradient_state(*impl.owner, g, sources, destination.impl().image.get());
  }
  if (impl.made.encode_gradient)
    impl.made.encode_gradient(impl.made, commands, sources[0]->impl().image.get(), sources[1]->impl().image.get(),
                              destination.impl().image.get(), states.batch);
  else if (is_gradient(impl))
    encode_gradient(impl, commands, g, sources, destination, states.gradient);
  else if (left && is_apart)
    encode_single_images(impl, commands, g, sources, destination, *left);
  else if (is_binary(impl))
    encode_binary(impl, commands, g, sources, destination, left.get());
  else
    encode_unary(impl, commands, g, *sources[0], destination, states.batch, left.get());
  destination.impl().note_write(commands);
  if (joining)
    joined(impl, left->impl(), g, *sources[0]);
  else if (left)
    *states.left = std::move(left);
  buffer.impl().note_work(multiply_adds(impl, g, *sources[0]));
}

/// Sets the channels that one encode reads and writes; restores them afterwards.
class Placed {
 public:
  Placed(const Kernel::Impl &impl, const Placement &placement) : impl_(impl), placement_(placement) {
    if (placement_.is_whole()) return;
    written_ = common(impl_).destinationFeatureChannelOffset;
    for (std::size_t i = 0; i < impl_.row->sources.size(); ++i) {
      first_[i] = first_channel(impl_, i);
      most_[i] = most_channels(impl_, i);
      const auto count = static_cast<NSUInteger>(placement_.sources[i].count);
      check(count == 0 || first_[i] < count, impl_.row->name, ": ", prefix_of(impl_, i),
            "source_feature_channel_offset (", first_[i], ") is not less than the channels of ", impl_.row->sources[i],
            " (", count, ").");
    }
    common(impl_).destinationFeatureChannelOffset = written_ + static_cast<NSUInteger>(placement_.destination);
    for (std::size_t i = 0; i < impl_.row->sources.size(); ++i) {
      const auto [first, count] = placement_.sources[i];
      if (count == 0) continue;
      set_first_channel(impl_, i, static_cast<NSUInteger>(first) + first_[i]);
      set_most_channels(impl_, i, std::min(most_[i], static_cast<NSUInteger>(count) - first_[i]));
    }
  }
  ~Placed() {
    if (placement_.is_whole()) return;
    common(impl_).destinationFeatureChannelOffset = written_;
    for (std::size_t i = 0; i < impl_.row->sources.size(); ++i) {
      set_first_channel(impl_, i, first_[i]);
      set_most_channels(impl_, i, most_[i]);
    }
  }
  Placed(const Placed &) = delete;
  Placed &operator=(const Placed &) = delete;

 private:
  const Kernel::Impl &impl_;
  const Placement &placement_;
  NSUInteger written_ = 0;
  std::array<NSUInteger, 2> first_{}, most_{};
};

/// Throw if a source is the destination: MPS may compute that or not [MPSCNNKernel.h]. Where the platform does,
/// programs would depend on it.
void check_not_in_place(const Kernel::Impl &impl, std::span<const Image *const> sources, const Image &destination) {
  const auto &out = destination.impl();
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const auto &source = sources[i]->impl();
    check(source.writer != out.writer || source.first_channel != out.first_channel || source.shape != out.shape ||
              first_channel(impl, i) != common(impl).destinationFeatureChannelOffset,
          impl.row->name, ": ", impl.row->sources[i], " and out are the same image; they share memory.");
  }
}

}  // namespace

void Kernel::check_encode(const CommandBuffer &buffer, std::span<const Image *const> sources,
                          const EncodeStates &states) const {
  const auto &row = *impl_->row;
  check_not_forked();
  check_source_count(sources.size());
  check_open(buffer, *impl_->device, row.name.data());
  for (std::size_t i = 0; i < sources.size(); ++i) {
    check_same_device(*buffer.device(), *sources[i]->device(), row.sources[i].data());
    check<std::runtime_error>(!sources[i]->is_temporary() || sources[i]->read_count() > 0, row.name, ": ",
                              row.sources[i],
                              " is a temporary image whose read_count is 0: its last read has been encoded.");
  }
  check_states(states);
}

void Kernel::check_states(const EncodeStates &states) const {
  const auto &row = *impl_->row;
  const bool is_made_of_one = impl_->made.forward != nullptr;
  if (states.batch || states.gradient) {
    check<TypeError>(!row.state.empty() || is_made_of_one, row.name, ": state was given; the kernel takes none.");
    check<TypeError>(is_made_of_one == (states.gradient != nullptr), row.name, ": state is not a ",
                     is_made_of_one ? "GradientState." : "BatchNormalizationState.");
    check_same_device(*impl_->device, states.batch ? *states.batch->device() : *states.gradient->device(), "state");
  }
  if (states.left)
    check<TypeError>(!row.gradient.empty() && !is_made_of_one && row.has_image() && row.state.empty(), row.name,
                     ": with_state was given; the kernel leaves no state for a gradient kernel.");
  if (states.left && *states.left) {
    check_same_device(*impl_->device, *(*states.left)->device(), "with_state");
    auto &left = (*states.left)->impl();
    const std::scoped_lock lock(left.mutex);
    check_joins(*impl_, left);
  }
}

std::shared_ptr<BatchNormalizationState> Kernel::encode_state(CommandBuffer &buffer,
                                                              std::span<const Image *const> sources,
                                                              std::shared_ptr<BatchNormalizationState> state) {
  const auto &row = *impl_->row;
  check_encode(buffer, sources, {.batch = state.get()});
  return guard([&] {
    const std::scoped_lock lock(impl_->mutex);
    const auto no = [&](bool given, const char *name) {
      check(!given, row.name, ": ", name, " is set; there is no destination.");
    };
    no(impl_->clip.has_value(), "clip_rect");
    no(impl_->offsets[0].has_value() || impl_->offsets[1].has_value(), "offset");
    no(common(*impl_).destinationFeatureChannelOffset != 0, "destination_feature_channel_offset");
    MPSImage *first = sources[0]->impl().image.get();
    if (impl_->made.encode_gradient) {
      check(sources[0]->shape() == sources[1]->shape(), row.name, ": ", row.sources[0], ".shape ", sources[0]->shape(),
            " is not that of ", row.sources[1], " ", sources[1]->shape(), ".");
      impl_->made.encode_gradient(impl_->made, buffer.impl().buffer.get(), first, sources[1]->impl().image.get(), nil,
                                  state.get());
      return state;
    }
    const auto channels = source_channels(*impl_, 0, sources[0]->shape());
    if (!state) state = BatchNormalizationState::make(impl_->device, channels);
    impl_->made.encode(impl_->made, buffer.impl().buffer.get(), first, nil, state.get());
    return state;
  });
}

std::shared_ptr<Image> Kernel::encode(CommandBuffer &buffer, std::span<const Image *const> sources,
                                      std::shared_ptr<Image> destination, bool temporary, std::optional<DType> dtype,
                                      const EncodeStates &states) {
  const auto &row = *impl_->row;
  check_encode(buffer, sources, states);
  check_result_is_image();
  std::array<ImageShape, 2> shapes;
  for (std::size_t i = 0; i < sources.size(); ++i) shapes[i] = sources[i]->shape();
  return guard([&] {
    const std::scoped_lock lock(impl_->mutex);
    const auto g =
        geometry(*impl_, std::span(shapes).first(sources.size()), sources.back()->impl().image.get(), states.gradient);
    if (destination) {
      check_target(*destination, *buffer.device(), row.name.data());
      check_not_in_place(*impl_, sources, *destination);
      check_destination(*impl_, g, destination->shape());
    } else {
      check(!impl_->clip, row.name, ": clip_rect needs a destination (out) whose other pixels are kept.");
      const auto shape = new_destination(*impl_, g);
      const auto type = dtype.value_or(sources[0]->dtype());
      destination = temporary ? Image::temporary(buffer, shape, type) : Image::make(impl_->device, shape, type);
    }
    encode_into(*impl_, buffer, g, sources, *destination, states);
    return destination;
  });
}

void Kernel::encode_placed(CommandBuffer &buffer, std::span<const Image *const> sources, const Image &destination,
                           const Placement &placement) {
  check_encode(buffer, sources, {});
  check_result_is_image();
  std::array<ImageShape, 2> shapes;
  for (std::size_t i = 0; i < sources.size(); ++i) shapes[i] = sources[i]->shape();
  guard([&] {
    const std::scoped_lock lock(impl_->mutex);
    const Placed placed(*impl_, placement);
    check_target(destination, *buffer.device(), impl_->row->name.data());
    auto &checked = impl_->checked;
    if (!checked || checked->changes != impl_->changes || checked->sources != shapes ||
        checked->destination != destination.shape() || checked->placement != placement) {
      checked.reset();
      auto g = geometry(*impl_, std::span(shapes).first(sources.size()), sources.back()->impl().image.get());
      check_destination(*impl_, g, destination.shape());
      // Not cached: a policy may answer differently, and a gradient's geometry depends on its forward kernel.
      if (impl_->made.padding.kind != Padding::Kind::pixels || is_gradient(*impl_))
        return encode_into(*impl_, buffer, g, sources, destination);
      checked = {shapes, destination.shape(), placement, impl_->changes, g};
    }
    encode_into(*impl_, buffer, checked->geometry, sources, destination);
  });
}

}  // namespace mpscnn
