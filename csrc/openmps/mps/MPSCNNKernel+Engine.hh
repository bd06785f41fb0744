// SPDX-License-Identifier: Apache-2.0
// Common parts of the kernels on images, with any number of sources: their properties, and the functions that turn
// properties and images into views, windows and problems.
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

/// Apple's names for one source, for errors. `prefix` begins the names of its properties.
struct SourceNames {
  const char *prefix;  ///< "", "primary", "secondary"
  const char *image, *images;
  const char *suffix = "";  ///< " at index 2"
  /// "offset" -> "offset", "primaryOffset", "offset at index 2"
  std::string property(const char *name) const;
};

/// Properties of a kernel that belong to one of its sources.
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
  /// The first tap is floor(extent / 2) before `offset` [MPSCNNConvolution.h].
  Window window() const;
  void archive(Archive &archive, NSString *prefix);
  /// Raise if an extent is 0 or too large for the arithmetic (an archive may hold any value), or if a stride is below
  /// `min_stride`.
  void check(const KernelState &state, const SourceNames &names, NSUInteger min_stride = 1) const;
};

/// Properties of a kernel that belong to the destination.
struct DestinationSlot {
  MTLRegion clip = MPSRectNoClip;
  NSUInteger channel_offset = 0;
  Ref<id<MPSNNPadding>> padding;
  Ref<id<MPSImageAllocator>> allocator;  ///< nil: the default of temporary images

  void archive(Archive &archive, NSString *prefix);
};

/// The sources of one encode, in Apple's order: primary before secondary.
using Images = std::span<MPSImage *const>;
/// The same for a batch: one array for each source.
using Batches = std::span<MPSImageBatch *const>;
using Slots = std::span<SourceSlot>;

struct GradientData;

/// One encode after all checks: the input of make_problem().
struct Encode {
  std::vector<ImageView> src;         ///< the images and channels that each slot selects; as many images as dst
  ImageView dst;                      ///< the part that clipRect and destinationFeatureChannelOffset select
  std::int64_t dst_h = 0, dst_w = 0;  ///< extents of the whole destination
  MPSState *source_state = nil;       ///< input: the forward kernel's state for this gradient kernel, statistics
  bool continues = false;             ///< an earlier problem of the same batch has the same source_state
  MPSState *result_state = nil;       ///< output: for the gradient kernel
};

/// State of a kernel on images, with virtual functions for the differences between classes. Base of the states of
/// MPSCNNKernel, MPSCNNBinaryKernel and MPSCNNMultiaryKernel.
struct ImageKernelState : KernelState {
  DestinationSlot destination;

  ImageKernelState();

  virtual Slots slots() = 0;
  std::span<const SourceSlot> const_slots() const { return const_cast<ImageKernelState *>(this)->slots(); }
  virtual const SourceNames &names(std::size_t source) const = 0;

  /// Return the part of an image that a source slot selects, for `images` images of the destination.
  virtual ImageView view_of_source(std::size_t source, const ImageView &image, std::int64_t images) const;
  /// Return the part of the destination that is written, given the channels of each source.
  virtual ImageView view_of_destination(const ImageView &image, const Clip &clip,
                                        std::span<const NSUInteger> channels) const;
  /// Source channel offsets are multiples of this.
  virtual NSUInteger source_channel_step() const { return 4; }
  /// Edge modes other than Zero and Clamp exist in MPSNNPad only.
  virtual bool takes_edge(MPSImageEdgeMode edge) const { return edge <= MPSImageEdgeModeClamp; }
  /// 0 if a source's stride of 0 repeats one pixel.
  virtual NSUInteger min_stride() const { return 1; }
  virtual bool is_backwards() const { return false; }
  /// Return the channels written, given the channels of each source (after slicing). Raise if they are not supported.
  virtual NSUInteger result_channels(std::span<const NSUInteger> channels) const = 0;
  /// Return the channels of a result that is not sized yet: those of the sources with the current slots.
  virtual NSUInteger suggested_channels(Images sources, NSArray<MPSState *> *states) const;
  /// Return whether each value of the result depends on the source's value at the same place only: then the source may
  /// be the destination.
  virtual bool may_overwrite(std::size_t /*source*/) const { return false; }
  /// Check rules beyond the common ones; raise.
  virtual void check_encode(const Encode &, const Clip &) const {}
  virtual Problem make_problem(const Encode &encode) const;
  /// Update the states; called when the problem has been recorded.
  virtual void did_encode(const Encode &) const {}
  /// Return whether make_problem() or did_encode() reads the states: then images with different states are not encoded
  /// as one problem.
  virtual bool uses_states() const { return false; }
  /// Return whether results go into the source state. Then an encode does not count as a read of the state; only
  /// reading the results does.
  virtual bool writes_source_state() const { return false; }
  /// Set width and height of a result from the padding bits, and place the windows.
  virtual void size_result(Images sources, MPSImageDescriptor *descriptor);
  /// Take the offset that the padding policy computed, in pixels of the (up-sampled) source.
  virtual void take_offset(std::size_t source, NSInteger x, NSInteger y) { slots()[source].offset = {x, y, 0}; }
  /// Return the class of the kernel's state for its gradient kernel; Nil: none.
  virtual Class result_state_class() const { return Nil; }
  /// Return the data of such a state, without the sources; overridden if the gradient kernel needs more.
  virtual std::unique_ptr<GradientData> new_gradient_data() const;

  void check_slots() const;
  void did_read(MPSKernel *kernel) override;
};

/// State of an MPSCNNKernel.
struct CNNKernelState : Extends<CNNKernelState, ImageKernelState> {
  SourceSlot source;

  Slots slots() override { return {&source, 1}; }
  const SourceNames &names(std::size_t) const override;
  NSUInteger result_channels(std::span<const NSUInteger> channels) const override {
    return output_channels(channels[0]);
  }
  void check_encode(const Encode &encode, const Clip &clip) const override { check_geometry(encode.src[0], clip); }
  Problem make_problem(const Encode &encode) const override;

  /// Return the channels written for `channels` source channels (after slicing). Raise if they are not supported.
  virtual NSUInteger output_channels(NSUInteger channels) const { return channels; }
  /// Return the window and its position.
  virtual Window window() const { return source.window(); }
  /// Check geometry beyond the common rules; raise.
  virtual void check_geometry(const ImageView & /*src*/, const Clip & /*clip*/) const {}
  virtual Problem problem(const ImageView &src, const ImageView &dst, const Window &window) const;

  void archive(Archive &archive) override;
};

/// State of an MPSCNNBinaryKernel.
struct CNNBinaryKernelState : Extends<CNNBinaryKernelState, ImageKernelState> {
  std::array<SourceSlot, 2> sources;

  SourceSlot &primary() { return sources[0]; }
  SourceSlot &secondary() { return sources[1]; }
  const SourceSlot &primary() const { return sources[0]; }
  const SourceSlot &secondary() const { return sources[1]; }

  Slots slots() override { return sources; }
  const SourceNames &names(std::size_t source) const override;
  /// Sources and result have equal channels.
  NSUInteger result_channels(std::span<const NSUInteger> channels) const override;

  void archive(Archive &archive) override;
};

/// State of an MPSCNNMultiaryKernel.
struct CNNMultiaryKernelState : Extends<CNNMultiaryKernelState, ImageKernelState> {
  /// Limit for archives, which may hold any number.
  static constexpr NSUInteger kMaxSources = 1024;
  std::vector<SourceSlot> sources;

  Slots slots() override { return sources; }
  const SourceNames &names(std::size_t source) const override;
  /// unverified: those of the first source. Classes that combine channels override it.
  NSUInteger result_channels(std::span<const NSUInteger> channels) const override { return channels[0]; }
  void check_source_count(NSUInteger count) const;

  void archive(Archive &archive) override;
};

/// Data of a forward kernel for its gradient kernel.
struct GradientData : StateData {
  struct Source {
    SourceSlot slot;  ///< the properties when the state was made
    NSUInteger width = 0, height = 0;
    NSUInteger channels = 0;  ///< selected by the slot
  };
  std::vector<Source> sources;
};

/// Geometry of the forward kernel's source, for gradient kernels that do not get that source: taps outside it may have
/// clamped to its edge.
struct ForwardBorders {
  bool clamps = false;
  NSInteger offset_x = 0, offset_y = 0;
  NSUInteger width = 0, height = 0;

  void take(const GradientData::Source &forward);
  /// Return the geometry for a problem, and make `diff_dst` 0 outside. Empty if no tap clamped.
  ClampedSource source(const KernelState &state, Operand &diff_dst) const;
  void archive(Archive &archive, NSString *prefix);
};

/// State of an MPSCNNGradientKernel: the primary source is the incoming gradient, the secondary one the forward
/// kernel's source, and the destination has the latter's size.
struct GradientKernelState : Extends<GradientKernelState, CNNBinaryKernelState> {
  NSInteger kernel_offset_x = 0, kernel_offset_y = 0;

  const SourceNames &names(std::size_t source) const override;
  bool is_backwards() const override { return true; }
  struct Extents {
    NSUInteger width, height, channels;
  };
  /// Return the extents of the result for a forward source of these extents.
  virtual Extents result_extents(Extents source) const { return source; }
  void size_result(Images sources, MPSImageDescriptor *descriptor) override;
  NSUInteger result_channels(std::span<const NSUInteger> channels) const override { return channels[1]; }
  /// If there is a state, it sets the slots and the channels.
  NSUInteger suggested_channels(Images sources, NSArray<MPSState *> *states) const override;

  /// Position of the result's pixel (0, 0) in the incoming gradient after `stride` - 1 zeros have been put between its
  /// pixels: primaryOffset * stride + kernelOffset [MPSCNNKernel.h]. The stride is the forward kernel's.
  std::int64_t first_row() const;
  std::int64_t first_column() const;
  /// Return the index of the forward source that the gradient is for.
  virtual std::size_t forward_source() const { return 0; }
  /// Return the index of the forward source that is the secondary image; kNoSource if it is none of them.
  virtual std::size_t secondary_source() const { return forward_source(); }
  static constexpr std::size_t kNoSource = SIZE_MAX;
  /// Take the forward kernel's properties. Tap q of one kernel is tap extent - 1 - q of the other, so with the forward
  /// kernel's `offset`, kernelOffset = -offset, + 1 for an even extent.
  virtual void take_forward(const GradientData::Source &forward);
  /// Take the data added by the forward kernel's class.
  virtual void take_data(const GradientData &) {}

  void archive(Archive &archive) override;
};

/// A range of an axis of `extent` pixels: the existing ones of `size` pixels from `offset` on, at least one.
struct Part {
  std::int64_t begin, count;
};
Part part_of(const GradientKernelState &state, const char *what, std::int64_t offset, NSUInteger size,
             std::int64_t extent);
/// Raise if clipRect exceeds the forward kernel's source, on which the result lies pixel on pixel.
void check_lies_on_source(const GradientKernelState &state, const Clip &clip, const ImageView &source);
/// Raise if a stride of a kernel that works pixel by pixel is not 1.
void check_strides_are_1(const GradientKernelState &state);

/// Raise for offsets beyond any image: sums of offsets, strides and kernel sizes stay far from overflow.
void check_offset(const KernelState &state, NSInteger x, NSInteger y, const std::string &name);

// The common rules, one function each.
void check_image(const KernelState &state, MPSImage *image, const char *name);
/// Check that a batch is an array of `count` single images of one size and format.
void check_batch(const KernelState &state, NSArray *batch, NSUInteger count, const char *name);
/// Return the part of an image inside a rectangle; raise if it is empty. The names are for the error.
Clip clip_of(const KernelState &state, const MTLRegion &rect, const char *name, NSUInteger width, NSUInteger height,
             NSUInteger images, const char *image_name);
/// Return the part of the destination inside clipRect.
Clip clip_of(const KernelState &state, const DestinationSlot &slot, const ImageView &destination);
/// Return the number of channels that a source slot selects.
NSUInteger source_channels(const ImageKernelState &state, const SourceSlot &slot, const SourceNames &names,
                           NSUInteger channels);
/// Return the images and channels that a source slot selects: `images` of them from offset.z on.
ImageView source_view(const ImageKernelState &state, const SourceSlot &slot, const SourceNames &names,
                      const ImageView &source, std::int64_t images);
/// Return a source of an element-wise problem; a stride of 0 repeats.
Operand operand(const SourceSlot &slot, const ImageView &view);
ImageView destination_view(const KernelState &state, const DestinationSlot &slot, const ImageView &destination,
                           const Clip &clip, NSUInteger channels);

/// Call f once for each distinct object.
template <class T, class F>
void each_distinct(std::vector<T> objects, F f) {
  if (objects.size() > 1) {
    std::sort(objects.begin(), objects.end());
    objects.erase(std::unique(objects.begin(), objects.end()), objects.end());
  }
  for (T object : objects) f(object);
}

/// Return the initial padding policy of a kernel.
id<MPSNNPadding> default_padding(MPSNNPaddingMethod method);
void set_padding(ImageKernelState &state, id<MPSNNPadding> padding);
id<MPSImageAllocator> allocator_of(const ImageKernelState &state);

}  // namespace openmps

/// Methods of all kernels on images, whose common base is MPSKernel.
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

/// The states of an encode, or the batches of states of a batch; nil: none. The readCount of each distinct source state
/// is decremented.
struct States {
  id source = nil, result = nil;
  const char *source_name = "sourceStates";
};

// Building blocks of the encode forms of all classes.
void encode_image(MPSKernel *kernel, id<MTLCommandBuffer> buffer, Images sources, const States &states,
                  MPSImage *destination);
void encode_images(ImageKernel *kernel, id<MTLCommandBuffer> buffer, Batches sources, const States &states,
                   MPSImageBatch *destinations);
/// Make a destination with destinationImageAllocator, sized by the padding policy and the (first) source state.
MPSImage *new_destination(ImageKernel *kernel, id<MTLCommandBuffer> buffer, Images sources, const States &states);
MPSImageBatch *new_destinations(ImageKernel *kernel, id<MTLCommandBuffer> buffer, Batches sources,
                                const States &states);
/// Both steps: encode into a new destination, which is discarded if the encode raises.
MPSImage *encode_to_new_image(ImageKernel *kernel, id<MTLCommandBuffer> buffer, Images sources, const States &states);
MPSImageBatch *encode_to_new_images(ImageKernel *kernel, id<MTLCommandBuffer> buffer, Batches sources,
                                    const States &states);

/// Implement destinationImageDescriptorForSourceImages:sourceStates: of all classes.
MPSImageDescriptor *result_descriptor(ImageKernel *kernel, NSArray<MPSImage *> *sources, NSArray<MPSState *> *states);

/// Return the state for the gradient kernel; nil if the class has none. Temporary if `buffer` is not nil.
MPSState *new_result_state(ImageKernel *kernel, id<MTLCommandBuffer> buffer, Images sources);
/// Store the sources and their slots, for a state of a class with its own data.
void take_sources(GradientData &data, const ImageKernelState &state, Images sources);
/// Return the data of an MPSNNGradientState or its siblings. Raise for a state that no kernel has made.
GradientData &gradient_data(MPSState *state);

/// Return one state for each image, or one for all of them; nil if the kernel has none. make(index) makes one.
MPSStateBatch *new_state_batch(ImageKernel *kernel, Batches sources, MPSImageBatch *destinations,
                               MPSState * (^make)(NSUInteger index));
/// Return element `index` of each source state batch: the states that belong to one image.
NSArray<MPSState *> *states_of_image(NSArray<MPSStateBatch *> *batches, NSUInteger index);

/// Discards the destinations of an encode that raised: commit must not count temporary ones as unread.
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

/// Properties of all kernels on images. STATE: the class's own.
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
