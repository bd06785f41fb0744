// SPDX-License-Identifier: Apache-2.0
// What the kernels on images share, whatever their number of sources: their common properties, and the routines that
// turn properties and images into views, windows and problems.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <span>

#include "mps/Geometry.hpp"
#import "mps/MPSImage+Engine.hh"
#import "mps/MPSKernel+Engine.hh"
#import "mps/MPSState+Engine.hh"

namespace openmps {

/// Apple's names of what belongs to one source, for errors. `prefix` opens the names of its properties.
struct SourceNames {
  const char *prefix;  ///< "", "primary", "secondary"
  const char *image, *images;
  const char *suffix = "";  ///< " at index 2"
  /// "offset" -> "offset", "primaryOffset", "offset at index 2"
  std::string property(const char *name) const;
};

/// The properties of a kernel that belong to one of its sources.
struct SourceSlot {
  MPSOffset offset = {0, 0, 0};
  NSUInteger channel_offset = 0;
  NSUInteger channel_max = NSUIntegerMax;
  MPSImageEdgeMode edge = MPSImageEdgeModeZero;
  NSUInteger kernel_width = 1, kernel_height = 1;
  NSUInteger stride_x = 1, stride_y = 1;
  NSUInteger dilation_x = 1, dilation_y = 1;

  /// Pixels from the first tap to the last, both included.
  std::int64_t extent_x() const { return static_cast<std::int64_t>((kernel_width - 1) * dilation_x + 1); }
  std::int64_t extent_y() const { return static_cast<std::int64_t>((kernel_height - 1) * dilation_y + 1); }
  /// The first tap stands floor(extent / 2) before `offset` [MPSCNNConvolution.h].
  Window window() const;
  void archive(Archive &archive, NSString *prefix);
  /// Raises when an extent is 0 or beyond what the arithmetic can take (archives hold anything), or a stride below
  /// `least_stride`.
  void check(const KernelState &state, const SourceNames &names, NSUInteger least_stride = 1) const;
};

/// The properties that belong to the destination.
struct DestinationSlot {
  MTLRegion clip = MPSRectNoClip;
  NSUInteger channel_offset = 0;
  Ref<id<MPSNNPadding>> padding;
  Ref<id<MPSImageAllocator>> allocator;  ///< nil: the temporary images' default

  void archive(Archive &archive, NSString *prefix);
};

/// The sources of one encode, in Apple's order: primary before secondary.
using Images = std::span<MPSImage *const>;
/// The same for a batch: one array for each source.
using Batches = std::span<MPSImageBatch *const>;
using Slots = std::span<SourceSlot>;

struct GradientData;

/// One encode after all checks: what a class makes its problem from.
struct Encode {
  std::vector<ImageView> src;    ///< the images and channels that each slot selects; as many images as dst
  ImageView dst;                 ///< what clipRect and destinationFeatureChannelOffset leave
  MPSState *source_state = nil;  ///< read: what a forward kernel left for this gradient kernel, statistics
  bool continues = false;        ///< an earlier problem of the same batch has the same source_state
  MPSState *result_state = nil;  ///< to be filled for the gradient kernel
};

/// The data of a kernel on images, and what differs from class to class. MPSCNNKernel, MPSCNNBinaryKernel and
/// MPSCNNMultiaryKernel derive theirs from it.
struct ImageKernelState : KernelState {
  DestinationSlot destination;

  ImageKernelState();

  virtual Slots slots() = 0;
  std::span<const SourceSlot> const_slots() const { return const_cast<ImageKernelState *>(this)->slots(); }
  virtual const SourceNames &names(std::size_t source) const = 0;

  /// What of an image a source slot selects, for so many images of the destination.
  virtual ImageView view_of_source(std::size_t source, const ImageView &image, std::int64_t images) const;
  /// What is written of the destination, from so many channels of each source.
  virtual ImageView view_of_destination(const ImageView &image, const Clip &clip,
                                        std::span<const NSUInteger> channels) const;
  /// What an offset of source channels is a multiple of.
  virtual NSUInteger source_channel_step() const { return 4; }
  /// Edge modes other than Zero and Clamp exist in MPSNNPad only.
  virtual bool takes_edge(MPSImageEdgeMode edge) const { return edge <= MPSImageEdgeModeClamp; }
  /// 0 where a source's stride of 0 repeats one pixel.
  virtual NSUInteger least_stride() const { return 1; }
  virtual bool is_backwards() const { return false; }
  /// Channels written for so many channels of each source (after slicing). Raises when the kernel cannot take them.
  virtual NSUInteger result_channels(std::span<const NSUInteger> channels) const = 0;
  /// Channels of a result that is yet to be sized: those of the sources, as the slots are now.
  virtual NSUInteger suggested_channels(Images sources, NSArray<MPSState *> *states) const;
  /// Rules beyond the common ones; raises.
  virtual void check_encode(const Encode &, const Clip &) const {}
  virtual Problem make_problem(const Encode &encode) const;
  /// The problem has been recorded: what the states now hold.
  virtual void did_encode(const Encode &) const {}
  /// Whether make_problem() or did_encode() looks at the states: then images with states of their own are not taken
  /// together.
  virtual bool uses_states() const { return false; }
  /// Whether results go into the source state. Then an encode does not count as one that has read it: whoever takes the
  /// results out reads it.
  virtual bool writes_source_state() const { return false; }
  /// Width and height of a result by the padding bits, and where the windows stand.
  virtual void size_result(Images sources, MPSImageDescriptor *descriptor);
  /// Takes the offset that the padding policy computed, in pixels of the (up-sampled) source.
  virtual void take_offset(std::size_t source, NSInteger x, NSInteger y) { slots()[source].offset = {x, y, 0}; }
  /// The class of the state that the kernel leaves for its gradient kernel; Nil: none.
  virtual Class result_state_class() const { return Nil; }
  /// The data of such a state, without the sources; a class derives its own when its gradient kernel is to know more.
  virtual std::unique_ptr<GradientData> new_gradient_data() const;

  void check_slots() const;
  void did_read(MPSKernel *kernel) override;
};

/// The data of an MPSCNNKernel.
struct CNNKernelState : Extends<CNNKernelState, ImageKernelState> {
  SourceSlot source;

  Slots slots() override { return {&source, 1}; }
  const SourceNames &names(std::size_t) const override;
  NSUInteger result_channels(std::span<const NSUInteger> channels) const override {
    return output_channels(channels[0]);
  }
  void check_encode(const Encode &encode, const Clip &clip) const override { check_geometry(encode.src[0], clip); }
  Problem make_problem(const Encode &encode) const override;

  /// Channels written for `channels` source channels (after slicing). Raises when the kernel cannot take so many.
  virtual NSUInteger output_channels(NSUInteger channels) const { return channels; }
  /// Where the windows stand.
  virtual Window window() const { return source.window(); }
  /// Rules of geometry beyond the common ones; raises.
  virtual void check_geometry(const ImageView & /*src*/, const Clip & /*clip*/) const {}
  virtual Problem problem(const ImageView &src, const ImageView &dst, const Window &window) const;

  void archive(Archive &archive) override;
};

/// The data of an MPSCNNBinaryKernel.
struct CNNBinaryKernelState : Extends<CNNBinaryKernelState, ImageKernelState> {
  std::array<SourceSlot, 2> sources;

  SourceSlot &primary() { return sources[0]; }
  SourceSlot &secondary() { return sources[1]; }
  const SourceSlot &primary() const { return sources[0]; }
  const SourceSlot &secondary() const { return sources[1]; }

  Slots slots() override { return sources; }
  const SourceNames &names(std::size_t source) const override;
  /// The sources have equal channels, and so has the result.
  NSUInteger result_channels(std::span<const NSUInteger> channels) const override;

  void archive(Archive &archive) override;
};

/// The data of an MPSCNNMultiaryKernel.
struct CNNMultiaryKernelState : Extends<CNNMultiaryKernelState, ImageKernelState> {
  /// More make no sense, and an archive may hold any number.
  static constexpr NSUInteger kMaxSources = 1024;
  std::vector<SourceSlot> sources;

  Slots slots() override { return sources; }
  const SourceNames &names(std::size_t source) const override;
  /// unverified: of the first source. Classes that combine channels say otherwise.
  NSUInteger result_channels(std::span<const NSUInteger> channels) const override { return channels[0]; }
  void check_source_count(NSUInteger count) const;

  void archive(Archive &archive) override;
};

/// What a forward kernel did, for the gradient kernel that undoes it.
struct GradientData : StateData {
  struct Source {
    SourceSlot slot;  ///< the properties as they were when the state was made
    NSUInteger width = 0, height = 0;
    NSUInteger channels = 0;  ///< that the slot selects
  };
  std::vector<Source> sources;
};

/// What gradient kernels that are not given the forward kernel's source keep of it, for results that saw the pixels at
/// its borders from outside.
struct ForwardBorders {
  bool clamps = false;
  NSInteger offset_x = 0, offset_y = 0;
  NSUInteger width = 0, height = 0;

  void take(const GradientData::Source &forward);
  /// As the problem has it, whose diff_dst is then 0 beyond its pixels.
  ClampedSource source(const KernelState &state, Operand &diff_dst) const;
  void archive(Archive &archive, NSString *prefix);
};

/// The data of an MPSCNNGradientKernel: the primary source is the gradient that comes in, the secondary one the forward
/// kernel's source, and the destination is as large as that.
struct GradientKernelState : Extends<GradientKernelState, CNNBinaryKernelState> {
  NSInteger kernel_offset_x = 0, kernel_offset_y = 0;

  const SourceNames &names(std::size_t source) const override;
  bool is_backwards() const override { return true; }
  struct Extents {
    NSUInteger width, height, channels;
  };
  /// Of a result for a forward source of these extents.
  virtual Extents result_extents(Extents source) const { return source; }
  void size_result(Images sources, MPSImageDescriptor *descriptor) override;
  NSUInteger result_channels(std::span<const NSUInteger> channels) const override { return channels[1]; }
  /// With a state it is the state that sets the slots and the channels.
  NSUInteger suggested_channels(Images sources, NSArray<MPSState *> *states) const override;

  /// Where pixel (0, 0) of the result stands in the incoming gradient after `stride` - 1 zeros have been put between
  /// its pixels: primaryOffset * stride + kernelOffset [MPSCNNKernel.h]. The stride is the forward kernel's.
  std::int64_t first_row() const;
  std::int64_t first_column() const;
  /// Which of the forward kernel's sources the gradient is for.
  virtual std::size_t forward_source() const { return 0; }
  /// Which of them the secondary image is; kNoSource where it is the forward kernel's result.
  virtual std::size_t secondary_source() const { return forward_source(); }
  static constexpr std::size_t kNoSource = SIZE_MAX;
  /// Takes the forward kernel's properties. Tap q of the one meets tap extent - 1 - q of the other, so with `offset`
  /// the forward kernel's, kernelOffset = -offset, + 1 for an even extent.
  virtual void take_forward(const GradientData::Source &forward);
  /// And what else the forward kernel's class has left.
  virtual void take_data(const GradientData &) {}

  void archive(Archive &archive) override;
};

/// A run of an axis of `extent` pixels: those of the `size` from `offset` on that exist, at least one.
struct Part {
  std::int64_t begin, count;
};
Part part_of(const GradientKernelState &state, const char *what, std::int64_t offset, NSUInteger size,
             std::int64_t extent);
/// Kernels whose result lies on the forward kernel's source, pixel on pixel: clipRect is within it.
void check_lies_on_source(const GradientKernelState &state, const Clip &clip, const ImageView &source);
/// Kernels that see one pixel for each pixel: the strides are 1.
void check_strides_are_1(const GradientKernelState &state);

/// Offsets beyond any image are refused: sums of offsets, strides and kernel sizes stay far from overflow.
void check_offset(const KernelState &state, NSInteger x, NSInteger y, const std::string &name);

// The common rules, one function each.
void check_image(const KernelState &state, MPSImage *image, const char *name);
/// Batches: arrays of `count` single images of one size and format.
void check_batch(const KernelState &state, NSArray *batch, NSUInteger count, const char *name);
/// What a rectangle leaves of an image; raises when that is nothing. The names are for the sentence.
Clip clip_of(const KernelState &state, const MTLRegion &rect, const char *name, NSUInteger width, NSUInteger height,
             NSUInteger images, const char *image_name);
/// What clipRect leaves of the destination.
Clip clip_of(const KernelState &state, const DestinationSlot &slot, const ImageView &destination);
/// How many channels a source slot selects.
NSUInteger source_channels(const ImageKernelState &state, const SourceSlot &slot, const SourceNames &names,
                           NSUInteger channels);
/// The images and channels a source slot selects: `images` of them from offset.z on.
ImageView source_view(const ImageKernelState &state, const SourceSlot &slot, const SourceNames &names,
                      const ImageView &source, std::int64_t images);
/// A source of a problem that works value by value; a stride of 0 repeats.
Operand operand(const SourceSlot &slot, const ImageView &view);
ImageView destination_view(const KernelState &state, const DestinationSlot &slot, const ImageView &destination,
                           const Clip &clip, NSUInteger channels);

/// Calls f once for each distinct object.
template <class T, class F>
void each_distinct(std::vector<T> objects, F f) {
  if (objects.size() > 1) {
    std::sort(objects.begin(), objects.end());
    objects.erase(std::unique(objects.begin(), objects.end()), objects.end());
  }
  for (T object : objects) f(object);
}

/// The padding policy a kernel has from the start.
id<MPSNNPadding> default_padding(MPSNNPaddingMethod method);
void set_padding(ImageKernelState &state, id<MPSNNPadding> padding);
id<MPSImageAllocator> allocator_of(const ImageKernelState &state);

}  // namespace openmps

/// What the classes of kernels on images have in common: there is no class between them and MPSKernel.
@protocol OpenMPSImageKernel
- (id<MPSImageAllocator>)destinationImageAllocator;
- (MPSImageDescriptor *)destinationImageDescriptorForSourceImages:(NSArray<MPSImage *> *)sourceImages
                                                     sourceStates:(NSArray<MPSState *> *)sourceStates;
- (BOOL)isResultStateReusedAcrossBatch;
@end
@interface MPSCNNKernel (Engine) <OpenMPSImageKernel>
@end
@interface MPSCNNBinaryKernel (Engine) <OpenMPSImageKernel>
@end
@interface MPSCNNMultiaryKernel (Engine) <OpenMPSImageKernel>
@end

namespace openmps {

using ImageKernel = MPSKernel<OpenMPSImageKernel>;

/// The states of an encode, or the batches of states of a batch; nil: none. A source state's readCount goes down by one
/// for each distinct one.
struct States {
  id source = nil, result = nil;
  const char *source_name = "sourceStates";
};

// What the encode forms of all classes are made of.
void encode_image(MPSKernel *kernel, id<MTLCommandBuffer> buffer, Images sources, const States &states,
                  MPSImage *destination);
void encode_images(ImageKernel *kernel, id<MTLCommandBuffer> buffer, Batches sources, const States &states,
                   MPSImageBatch *destinations);
/// Sized by the padding policy and the source state (the first one of a batch), made by destinationImageAllocator.
MPSImage *new_destination(ImageKernel *kernel, id<MTLCommandBuffer> buffer, Images sources, const States &states);
MPSImageBatch *new_destinations(ImageKernel *kernel, id<MTLCommandBuffer> buffer, Batches sources,
                                const States &states);
/// Both steps: the encode into a new destination, which nobody gets to see when it raises.
MPSImage *encode_to_new_image(ImageKernel *kernel, id<MTLCommandBuffer> buffer, Images sources, const States &states);
MPSImageBatch *encode_to_new_images(ImageKernel *kernel, id<MTLCommandBuffer> buffer, Batches sources,
                                    const States &states);

/// destinationImageDescriptorForSourceImages:sourceStates: of all classes.
MPSImageDescriptor *result_descriptor(ImageKernel *kernel, NSArray<MPSImage *> *sources, NSArray<MPSState *> *states);

/// The state that the class leaves for its gradient kernel, nil when it leaves none. On a command buffer (not nil) it
/// is temporary.
MPSState *new_result_state(ImageKernel *kernel, id<MTLCommandBuffer> buffer, Images sources);
/// What the kernel did, for a state of a class with data of its own.
void take_sources(GradientData &data, const ImageKernelState &state, Images sources);
/// Raises for a state that no kernel has made. For MPSNNGradientState and its siblings.
GradientData &gradient_data(MPSState *state);

/// One state for each image, or one for all of them; nil when the kernel has none. make(index) makes one.
MPSStateBatch *new_state_batch(ImageKernel *kernel, Batches sources, MPSImageBatch *destinations,
                               MPSState * (^make)(NSUInteger index));
/// Element `index` of each source state batch: the states that belong to one image.
NSArray<MPSState *> *states_of_image(NSArray<MPSStateBatch *> *batches, NSUInteger index);

/// Destinations which nobody got to see, because the encode raised: temporary ones must not be missed at commit.
class Discard {
 public:
  explicit Discard(MPSImageBatch *images) : images_(images) {}
  ~Discard();
  Discard(const Discard &) = delete;
  Discard &operator=(const Discard &) = delete;
  void keep() { images_ = nil; }

 private:
  MPSImageBatch *images_;
};

}  // namespace openmps

/// Properties that all kernels on images answer alike. STATE is the class's own.
#define OPENMPS_IMAGE_KERNEL_PROPERTIES(STATE)                                                             \
  OPENMPS_PROPERTY(STATE, MTLRegion, clipRect, setClipRect, destination.clip)                              \
  OPENMPS_PROPERTY(STATE, NSUInteger, destinationFeatureChannelOffset, setDestinationFeatureChannelOffset, \
                   destination.channel_offset)                                                             \
  OPENMPS_GETTER(STATE, BOOL, isBackwards, is_backwards())                                                 \
  -(BOOL)isStateModified {                                                                                 \
    return NO;                                                                                             \
  }                                                                                                        \
  -(id<MPSNNPadding>)padding {                                                                             \
    return openmps::state_of<STATE>(self).destination.padding.get();                                       \
  }                                                                                                        \
  -(void)setPadding : (id<MPSNNPadding>)padding {                                                          \
    openmps::set_padding(openmps::state_of<STATE>(self), padding);                                         \
  }                                                                                                        \
  -(id<MPSImageAllocator>)destinationImageAllocator {                                                      \
    return openmps::allocator_of(openmps::state_of<STATE>(self));                                          \
  }                                                                                                        \
  -(void)setDestinationImageAllocator : (id<MPSImageAllocator>)allocator {                                 \
    openmps::state_of<STATE>(self).destination.allocator = openmps::Ref<id<MPSImageAllocator>>(allocator); \
  }                                                                                                        \
  -(BOOL)isResultStateReusedAcrossBatch {                                                                  \
    return NO;                                                                                             \
  }                                                                                                        \
  -(BOOL)appendBatchBarrier {                                                                              \
    return NO;                                                                                             \
  }
