// SPDX-License-Identifier: Apache-2.0
// What the kernels on images share: their common properties, and the routine that turns properties and images into
// views and windows.
#pragma once

#include "mps/Geometry.hpp"
#import "mps/MPSImage+Engine.hh"
#import "mps/MPSKernel+Engine.hh"
#import "mps/MPSState+Engine.hh"

namespace openmps {

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
  /// Raises when an extent is 0 or beyond what the arithmetic can take (archives hold anything).
  void check(const KernelState &state) const;
};

/// The properties that belong to the destination.
struct DestinationSlot {
  MTLRegion clip = MPSRectNoClip;
  NSUInteger channel_offset = 0;
  Ref<id<MPSNNPadding>> padding;
  Ref<id<MPSImageAllocator>> allocator;  ///< nil: the temporary images' default

  void archive(Archive &archive, NSString *prefix);
};

/// The data of an MPSCNNKernel, and what differs from class to class.
struct CNNKernelState : Extends<CNNKernelState, KernelState> {
  SourceSlot source;
  DestinationSlot destination;

  CNNKernelState();

  /// Channels written for `channels` source channels (after slicing). Raises when the kernel cannot take so many.
  virtual NSUInteger output_channels(NSUInteger channels) const { return channels; }
  /// Edge modes other than Zero and Clamp exist in MPSNNPad only.
  virtual bool takes_edge(MPSImageEdgeMode edge) const { return edge <= MPSImageEdgeModeClamp; }
  virtual bool is_backwards() const { return false; }
  /// Where the windows stand.
  virtual Window window() const { return source.window(); }
  /// Rules of geometry beyond the common ones; raises.
  virtual void check_geometry(const ImageView & /*src*/, const Clip & /*clip*/) const {}
  /// One encode. The views are valid, src.n == dst.n.
  virtual Problem problem(const ImageView &src, const ImageView &dst, const Window &window) const;
  /// Changes the descriptor that the padding bits gave; `offset` is set already.
  virtual void adjust_result(MPSImageDescriptor *) {}
  /// Takes the offset that the padding policy computed, in pixels of the (up-sampled) source.
  virtual void take_offset(NSInteger x, NSInteger y) { source.offset = {x, y, 0}; }
  /// An encode has been given this state to fill.
  virtual void record(MPSState *, MPSImage * /*source*/, MPSImage * /*destination*/) const {}

  void archive(Archive &archive) override;
  void did_read(MPSKernel *kernel) override;
};

/// NSInvalidArgumentException, the sentence opened by the kernel's class and label.
[[noreturn]] void raise_for(const KernelState &state, NSString *format, ...) NS_FORMAT_FUNCTION(2, 3);

/// The common rules, one function each, for kernels with any number of sources. `name` is Apple's name of the argument.
Recorder &begin_encode(const KernelState &state, id<MTLCommandBuffer> buffer);
void check_image(const KernelState &state, MPSImage *image, const char *name);
/// What clipRect leaves of the destination.
Clip clip_of(const KernelState &state, const DestinationSlot &slot, const ImageView &destination);
/// The images and channels a source slot selects: `images` of them from offset.z on.
ImageView source_view(const KernelState &state, const SourceSlot &slot, const ImageView &source, std::int64_t images,
                      const char *name);
NSUInteger source_channels(const KernelState &state, const SourceSlot &slot, NSUInteger channels, const char *name);
ImageView destination_view(const KernelState &state, const DestinationSlot &slot, const ImageView &destination,
                           const Clip &clip, NSUInteger channels);
void check_apart(const KernelState &state, const ImageView &source, const ImageView &destination, const char *name);
/// Batches: arrays of `count` single images of one size and format.
void check_batch(const KernelState &state, NSArray *batch, NSUInteger count, const char *name);

/// The padding policy a kernel has from the start.
id<MPSNNPadding> default_padding(MPSNNPaddingMethod method);
/// Size and window placement by the padding bits; width and height of `descriptor` are overwritten.
void apply_padding(CNNKernelState &state, MPSImage *source, MPSImageDescriptor *descriptor);
/// The policy's own method, if it has one.
MPSImageDescriptor *apply_custom_padding(MPSKernel *kernel, id<MPSNNPadding> padding, NSArray<MPSImage *> *sources,
                                         NSArray<MPSState *> *states, MPSImageDescriptor *descriptor);

/// Before an encode that is given states, and after one that read them: one readCount for each distinct one.
void will_use_states(NSArray<MPSState *> *states, id<MTLCommandBuffer> buffer);
void did_read_states(NSArray<MPSState *> *states);

// What the encode forms of MPSCNNKernel are made of, for classes with forms of their own. `result` and `results` may be
// nil.
void encode_image(MPSCNNKernel *kernel, id<MTLCommandBuffer> buffer, MPSImage *source, MPSState *result,
                  MPSImage *destination);
void encode_images(MPSCNNKernel *kernel, id<MTLCommandBuffer> buffer, MPSImageBatch *sources, MPSStateBatch *results,
                   MPSImageBatch *destinations);
/// Sized by the padding policy and `states`, made by destinationImageAllocator.
MPSImage *new_destination(MPSCNNKernel *kernel, id<MTLCommandBuffer> buffer, MPSImage *source,
                          NSArray<MPSState *> *states);
MPSImageBatch *new_destinations(MPSCNNKernel *kernel, id<MTLCommandBuffer> buffer, MPSImageBatch *sources,
                                NSArray<MPSState *> *states);

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
