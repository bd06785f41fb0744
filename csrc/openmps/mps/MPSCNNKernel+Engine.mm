// SPDX-License-Identifier: Apache-2.0
// Rules of all kernels on images: the pixels, channels and images that they read and write [MPSCNNKernel.h].

#import "mps/MPSCNNKernel+Engine.hh"

#import "mps/ImageState.hh"

#include <cstring>

#include "engine/problem/problem.hpp"
#include "mps/PaddingPolicy.hpp"

namespace openmps {

namespace {

/// Beyond any image; keeps sums of offsets, strides and kernel sizes far from overflow.
constexpr NSInteger kFarthest = NSInteger{1} << 31;

constexpr NSUInteger kLargest = static_cast<NSUInteger>(kFarthest);

}  // namespace

std::string SourceNames::property(const char *name) const {
  std::string text = prefix;
  const bool opens = text.empty();
  text += name;
  if (!opens) text[text.size() - std::strlen(name)] ^= 'a' ^ 'A';
  return text + suffix;
}

ImageKernelState::ImageKernelState() {
  destination.padding = Ref<id<MPSNNPadding>>(default_padding(MPSNNPaddingMethodSizeSame));
}

Problem ImageKernelState::make_problem(const Encode &) const {
  raise_for(*this, @"The class cannot be encoded; use one of its subclasses.");
}

NSUInteger ImageKernelState::suggested_channels(Images sources, NSArray<MPSState *> *) const {
  std::vector<NSUInteger> channels(sources.size());
  for (std::size_t i = 0; i < sources.size(); ++i)
    channels[i] = source_channels(*this, const_slots()[i], names(i), [sources[i] featureChannels]);
  return result_channels(channels);
}

ImageView ImageKernelState::view_of_source(std::size_t source, const ImageView &image, std::int64_t images) const {
  return source_view(*this, const_slots()[source], names(source), image, images);
}

ImageView ImageKernelState::view_of_destination(const ImageView &image, const Clip &clip,
                                                std::span<const NSUInteger> channels) const {
  return destination_view(*this, destination, image, clip, result_channels(channels));
}

void ImageKernelState::check_slots() const {
  std::size_t source = 0;
  for (const SourceSlot &slot : const_slots()) slot.check(*this, names(source++), min_stride());
}

void ImageKernelState::did_read(MPSKernel *kernel) {
  KernelState::did_read(kernel);
  check_slots();
}

// -------------------------------------------------------------------------------------------- the slots

Window SourceSlot::window() const {
  Window window;
  window.kernel_h = static_cast<std::int64_t>(kernel_height);
  window.kernel_w = static_cast<std::int64_t>(kernel_width);
  window.stride_h = static_cast<std::int64_t>(stride_y);
  window.stride_w = static_cast<std::int64_t>(stride_x);
  window.dilation_h = static_cast<std::int64_t>(dilation_y);
  window.dilation_w = static_cast<std::int64_t>(dilation_x);
  window.start_h = offset.y - extent_y() / 2;
  window.start_w = offset.x - extent_x() / 2;
  window.edge = edge == MPSImageEdgeModeClamp ? Edge::clamp : Edge::zero;
  return window;
}

void SourceSlot::archive(Archive &archive, NSString *prefix) {
  const auto key = [prefix](NSString *name) { return [prefix stringByAppendingString:name]; };
  archive.field(key(@".offset.x"), offset.x);
  archive.field(key(@".offset.y"), offset.y);
  archive.field(key(@".offset.z"), offset.z);
  archive.field(key(@".featureChannelOffset"), channel_offset);
  archive.field(key(@".featureChannelMaxCount"), channel_max);
  archive.field(key(@".edgeMode"), edge);
  archive.field(key(@".kernelWidth"), kernel_width);
  archive.field(key(@".kernelHeight"), kernel_height);
  archive.field(key(@".strideInPixelsX"), stride_x);
  archive.field(key(@".strideInPixelsY"), stride_y);
  archive.field(key(@".dilationRateX"), dilation_x);
  archive.field(key(@".dilationRateY"), dilation_y);
}

void SourceSlot::check(const KernelState &state, const SourceNames &names, NSUInteger min_stride) const {
  const auto check = [&](NSUInteger value, NSUInteger min, const char *name) {
    if (value < min || value > kLargest)
      raise_for(state, @"%s (%lu) is not between %lu and %ld.", names.property(name).c_str(), (unsigned long)value,
                (unsigned long)min, (long)kFarthest);
  };
  check(kernel_width, 1, "kernelWidth");
  check(kernel_height, 1, "kernelHeight");
  check(stride_x, min_stride, "strideInPixelsX");
  check(stride_y, min_stride, "strideInPixelsY");
  check(dilation_x, 1, "dilationRateX");
  check(dilation_y, 1, "dilationRateY");
  if ((kernel_width - 1) * dilation_x >= kLargest || (kernel_height - 1) * dilation_y >= kLargest)
    raise_for(state, @"The dilated kernel is larger than %ld pixels.", (long)kFarthest);
}

void DestinationSlot::archive(Archive &archive, NSString *prefix) {
  const auto key = [prefix](NSString *name) { return [prefix stringByAppendingString:name]; };
  archive.field(key(@".clipRect"), clip);
  archive.field(key(@".featureChannelOffset"), channel_offset);
  Ref<id<MPSNNPadding>> policy = padding;
  archive.object_answering(key(@".padding"), @selector(paddingMethod), policy);
  if (policy) padding = policy;
  archive.object_answering(key(@".allocator"), @selector(imageForCommandBuffer:imageDescriptor:kernel:), allocator);
}

// --------------------------------------------------------------------------------------- checks of an encode

void check_image(const KernelState &state, MPSImage *image, const char *name) {
  if (image == nil) raise_for(state, @"%s is nil.", name);
  if ([image device] != state.device.get()) raise_for(state, @"%s belongs to another device than the kernel.", name);
}

Clip clip_of(const KernelState &state, const MTLRegion &rect, const char *name, NSUInteger width, NSUInteger height,
             NSUInteger images, const char *image_name) {
  Clip clip;
  clip.x = static_cast<std::int64_t>(rect.origin.x);
  clip.y = static_cast<std::int64_t>(rect.origin.y);
  clip.z = static_cast<std::int64_t>(rect.origin.z);
  clip.width = clipped(rect.origin.x, rect.size.width, width);
  clip.height = clipped(rect.origin.y, rect.size.height, height);
  clip.depth = clipped(rect.origin.z, rect.size.depth, images);
  if (clip.is_empty())
    raise_for(state,
              @"%s, origin (%lu, %lu, %lu) and size (%lu, %lu, %lu), leaves nothing of the %s of %lu x %lu pixels "
              @"(width x height) and %lu images.",
              name, (unsigned long)rect.origin.x, (unsigned long)rect.origin.y, (unsigned long)rect.origin.z,
              (unsigned long)rect.size.width, (unsigned long)rect.size.height, (unsigned long)rect.size.depth,
              image_name, (unsigned long)width, (unsigned long)height, (unsigned long)images);
  return clip;
}

Clip clip_of(const KernelState &state, const DestinationSlot &slot, const ImageView &destination) {
  return clip_of(state, slot.clip, "clipRect", static_cast<NSUInteger>(destination.w),
                 static_cast<NSUInteger>(destination.h), static_cast<NSUInteger>(destination.n), "destination");
}

void check_offset(const KernelState &state, NSInteger x, NSInteger y, const std::string &name) {
  if (x < -kFarthest || x > kFarthest || y < -kFarthest || y > kFarthest)
    raise_for(state, @"%s (%ld, %ld) is farther than %ld pixels away.", name.c_str(), (long)x, (long)y,
              (long)kFarthest);
}

NSUInteger source_channels(const ImageKernelState &state, const SourceSlot &slot, const SourceNames &names,
                           NSUInteger channels) {
  if (slot.channel_offset % state.source_channel_step() != 0)
    raise_for(state, @"%s (%lu) is not a multiple of %lu.", names.property("sourceFeatureChannelOffset").c_str(),
              (unsigned long)slot.channel_offset, (unsigned long)state.source_channel_step());
  if (slot.channel_offset >= channels)
    raise_for(state, @"%s (%lu) is not less than the %lu feature channels of %s.",
              names.property("sourceFeatureChannelOffset").c_str(), (unsigned long)slot.channel_offset,
              (unsigned long)channels, names.image);
  if (slot.channel_max == 0)
    raise_for(state, @"%s (0) is less than 1.", names.property("sourceFeatureChannelMaxCount").c_str());
  return std::min(slot.channel_max, channels - slot.channel_offset);
}

ImageView source_view(const ImageKernelState &state, const SourceSlot &slot, const SourceNames &names,
                      const ImageView &source, std::int64_t images) {
  if (slot.offset.x < -kFarthest || slot.offset.x > kFarthest || slot.offset.y < -kFarthest ||
      slot.offset.y > kFarthest)
    check_offset(state, slot.offset.x, slot.offset.y, names.property("offset"));
  if (slot.offset.z < 0 || slot.offset.z >= source.n || images > source.n - slot.offset.z)
    raise_for(state, @"%s (%ld) and the %ld images that clipRect selects are beyond the %ld images of %s.",
              names.property("offset.z").c_str(), (long)slot.offset.z, (long)images, (long)source.n, names.image);
  const NSUInteger channels = source_channels(state, slot, names, static_cast<NSUInteger>(source.c));
  ImageView view = source;
  if (images != source.n) view = view.images(slot.offset.z, images);
  if (static_cast<std::int64_t>(channels) != source.c)
    view = view.channels(static_cast<std::int64_t>(slot.channel_offset), static_cast<std::int64_t>(channels));
  return view;
}

Operand operand(const SourceSlot &slot, const ImageView &view) {
  Operand result;
  result.view = view;
  result.start_h = slot.offset.y;
  result.start_w = slot.offset.x;
  result.repeat_h = slot.stride_y == 0;
  result.repeat_w = slot.stride_x == 0;
  result.edge = slot.window().edge;
  return result;
}

ImageView destination_view(const KernelState &state, const DestinationSlot &slot, const ImageView &destination,
                           const Clip &clip, NSUInteger channels) {
  if (slot.channel_offset % 4 != 0)
    raise_for(state, @"destinationFeatureChannelOffset (%lu) is not a multiple of 4.",
              (unsigned long)slot.channel_offset);
  const NSUInteger available = static_cast<NSUInteger>(destination.c);
  if (slot.channel_offset >= available || channels > available - slot.channel_offset)
    raise_for(
        state,
        @"The kernel writes %lu feature channels from destinationFeatureChannelOffset (%lu) on, and the destination "
        @"has %lu.",
        (unsigned long)channels, (unsigned long)slot.channel_offset, (unsigned long)available);
  ImageView view = destination;
  if (clip.depth != view.n) view = view.images(clip.z, clip.depth);
  if (clip.width != view.w || clip.height != view.h) view = view.region(clip.y, clip.x, clip.height, clip.width);
  if (channels != available)
    view = view.channels(static_cast<std::int64_t>(slot.channel_offset), static_cast<std::int64_t>(channels));
  return view;
}

void check_batch(const KernelState &state, NSArray *batch, NSUInteger count, const char *name) {
  if ([batch count] != count || count == 0)
    raise_for(state, @"%s has %lu images, expected %lu, at least 1.", name, (unsigned long)[batch count],
              (unsigned long)count);
  MPSImage *first = nil;
  for (MPSImage *image in batch) {
    check_image(state, image, name);
    if ([image numberOfImages] != 1)
      raise_for(state, @"%s has an image with numberOfImages (%lu); in a batch it is 1.", name,
                (unsigned long)[image numberOfImages]);
    if (first == nil) {
      first = image;
      continue;
    }
    if ([image width] != [first width] || [image height] != [first height] ||
        [image featureChannels] != [first featureChannels] ||
        [image featureChannelFormat] != [first featureChannelFormat])
      raise_for(state,
                @"%s mixes images of %lu x %lu x %lu (height x width x channels, format %lu) and of %lu x %lu x %lu "
                @"(format %lu).",
                name, (unsigned long)[first height], (unsigned long)[first width],
                (unsigned long)[first featureChannels], (unsigned long)[first featureChannelFormat],
                (unsigned long)[image height], (unsigned long)[image width], (unsigned long)[image featureChannels],
                (unsigned long)[image featureChannelFormat]);
  }
}

// ------------------------------------------------------------------------------------------ padding policies

id<MPSNNPadding> default_padding(MPSNNPaddingMethod method) {
  static MPSNNDefaultPadding *const same = [[MPSNNDefaultPadding
      paddingWithMethod:MPSNNPaddingMethodAlignCentered | MPSNNPaddingMethodAddRemainderToTopLeft |
                        MPSNNPaddingMethodSizeSame] retain];
  static MPSNNDefaultPadding *const valid =
      [[MPSNNDefaultPadding paddingWithMethod:MPSNNPaddingMethodSizeValidOnly] retain];
  return method == MPSNNPaddingMethodSizeValidOnly ? valid : same;
}

void set_padding(ImageKernelState &state, id<MPSNNPadding> padding) {
  if (padding == nil) raise_for(state, @"padding is nil.");
  state.destination.padding = Ref<id<MPSNNPadding>>(padding);
}

id<MPSImageAllocator> allocator_of(const ImageKernelState &state) {
  id<MPSImageAllocator> allocator = state.destination.allocator.get();
  return allocator != nil ? allocator : [MPSTemporaryImage defaultAllocator];
}

/// Each source places its windows; the first one sizes the result. unverified: for sources of different sizes.
void ImageKernelState::size_result(Images images, MPSImageDescriptor *descriptor) {
  const MPSNNPaddingMethod method = [destination.padding.get() paddingMethod];
  const bool backwards = is_backwards();
  const auto axis = [&](bool vertical, NSUInteger size, std::int64_t kernel, NSUInteger stride) {
    const AxisMethod rule = axis_method(method, vertical);
    const auto pixels = static_cast<std::int64_t>(size), step = static_cast<std::int64_t>(stride);
    return backwards ? reverse_axis(rule, pixels, kernel, step) : forward_axis(rule, pixels, kernel, step);
  };
  for (std::size_t i = 0; i < images.size(); ++i) {
    const SourceSlot &slot = slots()[i];
    const Axis x = axis(false, [images[i] width], slot.extent_x(), slot.stride_x);
    const Axis y = axis(true, [images[i] height], slot.extent_y(), slot.stride_y);
    take_offset(i, x.offset, y.offset);
    if (i > 0) continue;
    // Sizes below 1 wrap around and back: a custom policy may add its own padding to them. They are refused later.
    [descriptor setWidth:static_cast<NSUInteger>(x.size)];
    [descriptor setHeight:static_cast<NSUInteger>(y.size)];
  }
}

namespace {

/// Apply the policy's own method, if it has one.
MPSImageDescriptor *apply_custom_padding(MPSKernel *kernel, const ImageKernelState &state, NSArray<MPSImage *> *sources,
                                         NSArray<MPSState *> *states, MPSImageDescriptor *descriptor) {
  id<MPSNNPadding> padding = state.destination.padding.get();
  if ([padding respondsToSelector:
                   @selector(destinationImageDescriptorForSourceImages:sourceStates:forKernel:suggestedDescriptor:)]) {
    descriptor = [padding destinationImageDescriptorForSourceImages:sources
                                                       sourceStates:states
                                                          forKernel:kernel
                                                suggestedDescriptor:descriptor];
    if (descriptor == nil) raise_for(state, @"The padding policy (%@) returned no descriptor.", padding);
  }
  const NSUInteger width = [descriptor width], height = [descriptor height];
  if (width - 1 >= NSUInteger{1} << 31 || height - 1 >= NSUInteger{1} << 31)
    raise_for(state,
              @"The padding policy makes a result of %ld x %ld pixels (width x height) from a source of %lu x %lu.",
              (long)width, (long)height, (unsigned long)[[sources objectAtIndex:0] width],
              (unsigned long)[[sources objectAtIndex:0] height]);
  return descriptor;
}

}  // namespace

/// Order: padding bits and class, the source states, the policy's own method [MPSCNNKernel.h].
MPSImageDescriptor *result_descriptor(ImageKernel *kernel, NSArray<MPSImage *> *sources, NSArray<MPSState *> *states) {
  auto &state = state_of<ImageKernelState>(kernel);
  const NSUInteger count = state.slots().size();
  if ([sources count] != count)
    raise_for(state, @"sourceImages has %lu images, expected %lu.", (unsigned long)[sources count],
              (unsigned long)count);
  std::vector<MPSImage *> images(count);
  for (NSUInteger i = 0; i < count; ++i) {
    images[i] = [sources objectAtIndex:i];
    check_image(state, images[i], "sourceImages");
  }
  state.check_slots();
  const MPSNNPaddingMethod method = [state.destination.padding.get() paddingMethod];
  if (!is_padding_method(method))
    raise_for(state, @"padding.paddingMethod (0x%lx) has bits that mean nothing.", (unsigned long)method);
  MPSImageDescriptor *descriptor = [MPSImageDescriptor
      imageDescriptorWithChannelFormat:[images[0] featureChannelFormat]
                                 width:1
                                height:1
                       featureChannels:state.destination.channel_offset + state.suggested_channels(images, states)
                        numberOfImages:[images[0] numberOfImages]
                                 usage:MTLTextureUsageShaderRead | MTLTextureUsageShaderWrite];
  if ([images[0] openmps_state].has_no_slice_limit) [descriptor setHasNoSliceLimit:YES];
  state.size_result(images, descriptor);
  for (MPSState *source_state in states)
    descriptor = [source_state destinationImageDescriptorForSourceImages:sources
                                                            sourceStates:states
                                                               forKernel:kernel
                                                     suggestedDescriptor:descriptor];
  return apply_custom_padding(kernel, state, sources, states, descriptor);
}

}  // namespace openmps
