// SPDX-License-Identifier: Apache-2.0
// Reshape: the values of an image in another shape. Pad: with a border or more channels around them [MPSNNReshape.h].

#import "mps/MPSNNReshape+Engine.hh"

#include "engine/problem/problem.hpp"

namespace openmps {
namespace {

/// unverified: the order of the values, which is channels, then columns, then rows; Apple's text gives none. Whole
/// images are reshaped: pixel (0, 0) of a part corresponds to no pixel of the source.
struct ReshapeState : Extends<ReshapeState, CNNKernelState> {
  /// The shape requested by an encode's arguments; width 0: none, the result is like the source.
  struct Shape {
    NSUInteger width = 0, height = 0, channels = 0;
  } shape;

  Class result_state_class() const override { return [MPSNNGradientState class]; }

  void size_result(Images sources, MPSImageDescriptor *descriptor) override {
    CNNKernelState::size_result(sources, descriptor);
    if (shape.width == 0) return;
    const NSUInteger channels = source_channels(*this, source, names(0), [sources[0] featureChannels]);
    const NSUInteger values = [sources[0] width] * [sources[0] height] * channels;
    NSUInteger wanted = 0;
    if (__builtin_mul_overflow(shape.width, shape.height, &wanted) ||
        __builtin_mul_overflow(wanted, shape.channels, &wanted) || wanted != values)
      raise_for(*this,
                @"reshapedWidth (%lu), reshapedHeight (%lu) and reshapedFeatureChannels (%lu) do not make the "
                @"%lu values of the source of %lu x %lu x %lu (width x height x channels).",
                (unsigned long)shape.width, (unsigned long)shape.height, (unsigned long)shape.channels,
                (unsigned long)values, (unsigned long)[sources[0] width], (unsigned long)[sources[0] height],
                (unsigned long)channels);
    [descriptor setWidth:shape.width];
    [descriptor setHeight:shape.height];
    [descriptor setFeatureChannels:destination.channel_offset + shape.channels];
  }

  /// As many channels as the destination has.
  ImageView view_of_destination(const ImageView &image, const Clip &clip, std::span<const NSUInteger>) const override {
    const auto all = static_cast<NSUInteger>(image.c);
    const NSUInteger channels = all > destination.channel_offset ? all - destination.channel_offset : 1;
    return destination_view(*this, destination, image, clip, channels);
  }

  void check_encode(const Encode &encode, const Clip &) const override {
    const ImageView &src = encode.src[0], &dst = encode.dst;
    if (source.offset.x != 0 || source.offset.y != 0)
      raise_for(*this, @"offset (%ld, %ld) is not (0, 0): the whole source is reshaped.", (long)source.offset.x,
                (long)source.offset.y);
    if (src.h * src.w * src.c != dst.h * dst.w * dst.c)
      raise_for(*this,
                @"The %ld values of the source, %ld x %ld x %ld (width x height x channels), are not the %ld of "
                @"the destination, %ld x %ld x %ld.",
                (long)(src.h * src.w * src.c), (long)src.w, (long)src.h, (long)src.c, (long)(dst.h * dst.w * dst.c),
                (long)dst.w, (long)dst.h, (long)dst.c);
  }

  Problem problem(const ImageView &src, const ImageView &dst, const Window &) const override {
    return ReshapeProblem{src, dst};
  }
};

/// Scope in which results have this shape.
class Reshaping {
 public:
  Reshaping(MPSNNReshape *kernel, NSUInteger width, NSUInteger height, NSUInteger channels)
      : state_(state_of<ReshapeState>(kernel)) {
    if (width == 0 || height == 0 || channels == 0)
      raise_for(state_, @"reshapedWidth (%lu), reshapedHeight (%lu) or reshapedFeatureChannels (%lu) is less than 1.",
                (unsigned long)width, (unsigned long)height, (unsigned long)channels);
    state_.shape = {width, height, channels};
  }
  ~Reshaping() { state_.shape = {}; }
  Reshaping(const Reshaping &) = delete;
  Reshaping &operator=(const Reshaping &) = delete;

 private:
  ReshapeState &state_;
};

struct PadState : Extends<PadState, CNNKernelState> {
  MPSImageCoordinate before = {0, 0, 0}, after = {0, 0, 0};
  float fill = 0;
  std::vector<float> fills;  ///< one for each channel written, or none

  Class result_state_class() const override { return [MPSNNGradientState class]; }
  std::unique_ptr<GradientData> new_gradient_data() const override {
    auto data = std::make_unique<PadData>();
    data->channels_before = before.channel;
    return data;
  }
  bool takes_edge(MPSImageEdgeMode edge) const override { return edge <= MPSImageEdgeModeConstant; }
  NSUInteger source_channel_step() const override { return 1; }

  void check_sizes() const {
    constexpr NSUInteger max = NSUInteger{1} << 31;
    const auto check = [&](const MPSImageCoordinate &size, const char *name) {
      if (size.x > max || size.y > max || size.channel > max)
        raise_for(*this, @"%s (%lu, %lu, %lu) has a value that is greater than %lu.", name, (unsigned long)size.x,
                  (unsigned long)size.y, (unsigned long)size.channel, (unsigned long)max);
    };
    check(before, "paddingSizeBefore");
    check(after, "paddingSizeAfter");
  }

  NSUInteger output_channels(NSUInteger channels) const override {
    check_sizes();
    const NSUInteger written = before.channel + channels + after.channel;
    if (!fills.empty() && fills.size() != written)
      raise_for(*this, @"fillValueArray has %lu values, and the kernel writes %lu feature channels.",
                (unsigned long)fills.size(), (unsigned long)written);
    return written;
  }

  /// Row and column paddings are only used here: with a given destination, offset and clipRect place the source.
  void size_result(Images sources, MPSImageDescriptor *descriptor) override {
    [descriptor setWidth:before.x + [sources[0] width] + after.x];
    [descriptor setHeight:before.y + [sources[0] height] + after.y];
    source.offset = {-static_cast<NSInteger>(before.x), -static_cast<NSInteger>(before.y), 0};
  }

  Problem problem(const ImageView &src, const ImageView &dst, const Window &) const override {
    PadProblem problem;
    problem.src = src, problem.dst = dst;
    problem.start_h = source.offset.y;
    problem.start_w = source.offset.x;
    problem.start_c = -static_cast<std::int64_t>(before.channel);
    problem.edge = pad_edge_of(source.edge);
    if (source.edge == MPSImageEdgeModeConstant) {
      problem.fill = fill;
      if (!fills.empty()) problem.fill_per_channel = std::make_shared<const std::vector<float>>(fills);
    }
    return problem;
  }

  void archive(Archive &archive) override {
    CNNKernelState::archive(archive);
    archive.field(@"MPSNNPad.paddingSizeBefore.x", before.x);
    archive.field(@"MPSNNPad.paddingSizeBefore.y", before.y);
    archive.field(@"MPSNNPad.paddingSizeBefore.channel", before.channel);
    archive.field(@"MPSNNPad.paddingSizeAfter.x", after.x);
    archive.field(@"MPSNNPad.paddingSizeAfter.y", after.y);
    archive.field(@"MPSNNPad.paddingSizeAfter.channel", after.channel);
    archive.field(@"MPSNNPad.fillValue", fill);
    archive.field(@"MPSNNPad.fillValueArray", fills);
  }

  void did_read(MPSKernel *kernel) override {
    CNNKernelState::did_read(kernel);
    check_sizes();
  }
};

}  // namespace
}  // namespace openmps

using openmps::PadState;
using openmps::Reshaping;

@implementation MPSNNReshape

+ (openmps::KernelState *)openmps_newState {
  return new openmps::ReshapeState();
}

OPENMPS_INIT_WITH_DEVICE
OPENMPS_INIT_WITH_CODER

- (MPSImage *)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                        sourceImage:(MPSImage *)sourceImage
                      reshapedWidth:(NSUInteger)reshapedWidth
                     reshapedHeight:(NSUInteger)reshapedHeight
            reshapedFeatureChannels:(NSUInteger)reshapedFeatureChannels {
  Reshaping reshaping(self, reshapedWidth, reshapedHeight, reshapedFeatureChannels);
  return [self encodeToCommandBuffer:commandBuffer sourceImage:sourceImage];
}

- (MPSImage *)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                        sourceImage:(MPSImage *)sourceImage
                   destinationState:(MPSState **)outState
        destinationStateIsTemporary:(BOOL)isTemporary
                      reshapedWidth:(NSUInteger)reshapedWidth
                     reshapedHeight:(NSUInteger)reshapedHeight
            reshapedFeatureChannels:(NSUInteger)reshapedFeatureChannels {
  Reshaping reshaping(self, reshapedWidth, reshapedHeight, reshapedFeatureChannels);
  return [self encodeToCommandBuffer:commandBuffer
                         sourceImage:sourceImage
                    destinationState:outState
         destinationStateIsTemporary:isTemporary];
}

- (MPSImageBatch *)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                 sourceImages:(MPSImageBatch *)sourceImages
                                reshapedWidth:(NSUInteger)reshapedWidth
                               reshapedHeight:(NSUInteger)reshapedHeight
                      reshapedFeatureChannels:(NSUInteger)reshapedFeatureChannels {
  Reshaping reshaping(self, reshapedWidth, reshapedHeight, reshapedFeatureChannels);
  return [self encodeBatchToCommandBuffer:commandBuffer sourceImages:sourceImages];
}

- (MPSImageBatch *)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                 sourceImages:(MPSImageBatch *)sourceImages
                            destinationStates:(MPSStateBatch **)outStates
                  destinationStateIsTemporary:(BOOL)isTemporary
                                reshapedWidth:(NSUInteger)reshapedWidth
                               reshapedHeight:(NSUInteger)reshapedHeight
                      reshapedFeatureChannels:(NSUInteger)reshapedFeatureChannels {
  Reshaping reshaping(self, reshapedWidth, reshapedHeight, reshapedFeatureChannels);
  return [self encodeBatchToCommandBuffer:commandBuffer
                             sourceImages:sourceImages
                        destinationStates:outStates
              destinationStateIsTemporary:isTemporary];
}

@end

@implementation MPSNNPad

+ (openmps::KernelState *)openmps_newState {
  return new PadState();
}

OPENMPS_INIT_WITH_DEVICE

- (instancetype)initWithDevice:(id<MTLDevice>)device
             paddingSizeBefore:(MPSImageCoordinate)paddingSizeBefore
              paddingSizeAfter:(MPSImageCoordinate)paddingSizeAfter {
  return [self initWithDevice:device
            paddingSizeBefore:paddingSizeBefore
             paddingSizeAfter:paddingSizeAfter
               fillValueArray:nil];
}

- (instancetype)initWithDevice:(id<MTLDevice>)device
             paddingSizeBefore:(MPSImageCoordinate)paddingSizeBefore
              paddingSizeAfter:(MPSImageCoordinate)paddingSizeAfter
                fillValueArray:(NSData *)fillValueArray {
  if (!(self = [self openmps_initWithDevice:device])) return nil;
  openmps::UnwindRelease unwind(self);
  auto &state = openmps::state_of<PadState>(self);
  state.before = paddingSizeBefore;
  state.after = paddingSizeAfter;
  state.check_sizes();
  if ([fillValueArray length] % sizeof(float) != 0)
    openmps::raise_for(state, @"fillValueArray.length (%lu) is no multiple of 4, the size of a float.",
                       (unsigned long)[fillValueArray length]);
  const float *values = static_cast<const float *>([fillValueArray bytes]);
  state.fills.assign(values, values + [fillValueArray length] / sizeof(float));
  return unwind.done();
}

OPENMPS_INIT_WITH_CODER
OPENMPS_PROPERTY(PadState, MPSImageCoordinate, paddingSizeBefore, setPaddingSizeBefore, before)
OPENMPS_PROPERTY(PadState, MPSImageCoordinate, paddingSizeAfter, setPaddingSizeAfter, after)
OPENMPS_PROPERTY(PadState, float, fillValue, setFillValue, fill)

@end
