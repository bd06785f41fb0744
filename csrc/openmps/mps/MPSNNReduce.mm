// SPDX-License-Identifier: Apache-2.0
// Reductions: one value for each row, each column or each pixel of a source, or of a part of it [MPSNNReduce.h]. The
// size of a result follows from that wording; Apple's text does not state it.

#import "mps/MPSCNNKernel+Engine.hh"

#include "engine/problem/problem.hpp"

namespace openmps {
namespace {

/// Return the images and pixels of a source inside its rectangle. Offsets are ignored: the rectangle replaces them.
ImageView part_of_source(const ImageKernelState &state, std::size_t source, const MTLRegion &rect,
                         const ImageView &image, std::int64_t images) {
  const SourceNames &names = state.names(source);
  const std::string name = source == 0 && *names.prefix == 0 ? "clipRectSource" : names.property("sourceClipRect");
  const Clip clip = clip_of(state, rect, name.c_str(), static_cast<NSUInteger>(image.w),
                            static_cast<NSUInteger>(image.h), static_cast<NSUInteger>(image.n), names.image);
  if (clip.depth < images)
    raise_for(state, @"%s selects %ld images of %s, and clipRect %ld of the destination.", name.c_str(),
              (long)clip.depth, names.image, (long)images);
  const SourceSlot &slot = state.const_slots()[source];
  const NSUInteger channels = source_channels(state, slot, names, static_cast<NSUInteger>(image.c));
  return image.images(clip.z, images)
      .region(clip.y, clip.x, clip.height, clip.width)
      .channels(static_cast<std::int64_t>(slot.channel_offset), static_cast<std::int64_t>(channels));
}

/// The axis that is reduced, and the operation.
struct Reduction {
  ReduceAxis axis = ReduceAxis::channels;
  ReduceType type = ReduceType::sum;
  bool mean = false;

  NSUInteger width(NSUInteger source) const { return axis == ReduceAxis::row ? 1 : source; }
  NSUInteger height(NSUInteger source) const { return axis == ReduceAxis::column ? 1 : source; }
  NSUInteger channels(NSUInteger source) const { return axis == ReduceAxis::channels ? 1 : source; }

  void size_result(const KernelState &state, const MTLRegion &rect, const char *name, MPSImage *image,
                   const char *image_name, MPSImageDescriptor *descriptor) const {
    const Clip clip = clip_of(state, rect, name, [image width], [image height], [image numberOfImages], image_name);
    [descriptor setWidth:width(static_cast<NSUInteger>(clip.width))];
    [descriptor setHeight:height(static_cast<NSUInteger>(clip.height))];
    [descriptor setNumberOfImages:static_cast<NSUInteger>(clip.depth)];
  }

  /// A smaller destination is filled; a larger one would have pixels without a value.
  void check_size(const KernelState &state, const ImageView &src, const Clip &clip) const {
    const auto wide = static_cast<long>(width(static_cast<NSUInteger>(src.w)));
    const auto high = static_cast<long>(height(static_cast<NSUInteger>(src.h)));
    if (clip.width > wide || clip.height > high)
      raise_for(state,
                @"clipRect leaves %ld x %ld pixels (width x height) of the destination, and the result has "
                @"%ld x %ld.",
                (long)clip.width, (long)clip.height, wide, high);
  }

  ReduceProblem problem(const ImageView &src, const ImageView &dst, double weight = 1) const {
    ReduceProblem problem;
    problem.src = src, problem.dst = dst;
    problem.axis = axis;
    problem.type = type;
    const std::int64_t count = axis == ReduceAxis::row ? src.w : axis == ReduceAxis::column ? src.h : src.c;
    problem.scale = mean ? 1.0 / static_cast<double>(count) : weight;
    return problem;
  }
};

struct ReduceState : Extends<ReduceState, CNNKernelState> {
  Reduction reduction;  ///< fixed by the class
  MTLRegion clip_source = MPSRectNoClip;
  float weight = 1;

  ReduceState() = default;
  explicit ReduceState(Reduction own) : reduction(own) {}

  NSUInteger output_channels(NSUInteger channels) const override { return reduction.channels(channels); }

  ImageView view_of_source(std::size_t, const ImageView &image, std::int64_t images) const override {
    return part_of_source(*this, 0, clip_source, image, images);
  }

  void check_geometry(const ImageView &src, const Clip &clip) const override { reduction.check_size(*this, src, clip); }

  void size_result(Images images, MPSImageDescriptor *descriptor) override {
    reduction.size_result(*this, clip_source, "clipRectSource", images[0], names(0).image, descriptor);
  }

  Problem problem(const ImageView &src, const ImageView &dst, const Window &) const override {
    return reduction.problem(src, dst, weight);
  }

  void archive(Archive &archive) override {
    CNNKernelState::archive(archive);
    archive.field(@"MPSNNReduceUnary.clipRectSource", clip_source);
    archive.field(@"MPSNNReduceFeatureChannelsSum.weight", weight);
  }
};

struct ReduceBinaryState : Extends<ReduceBinaryState, CNNBinaryKernelState> {
  Reduction reduction;  ///< over the channels; fixed by the class
  MTLRegion clips[2] = {MPSRectNoClip, MPSRectNoClip};
  bool by_nonzero_weights = false;

  ReduceBinaryState() = default;
  explicit ReduceBinaryState(bool mean) { reduction.mean = mean; }

  /// The weights have the channels of the source.
  NSUInteger result_channels(std::span<const NSUInteger> channels) const override {
    CNNBinaryKernelState::result_channels(channels);
    return 1;
  }

  ImageView view_of_source(std::size_t source, const ImageView &image, std::int64_t images) const override {
    return part_of_source(*this, source, clips[source], image, images);
  }

  void check_encode(const Encode &encode, const Clip &clip) const override {
    const ImageView &src = encode.src[0], &weights = encode.src[1];
    if (src.w != weights.w || src.h != weights.h)
      raise_for(*this,
                @"The kernel reads %ld x %ld pixels (width x height) of primaryImage and %ld x %ld of "
                @"secondaryImage.",
                (long)src.w, (long)src.h, (long)weights.w, (long)weights.h);
    reduction.check_size(*this, src, clip);
  }

  void size_result(Images images, MPSImageDescriptor *descriptor) override {
    reduction.size_result(*this, clips[0], "primarySourceClipRect", images[0], names(0).image, descriptor);
  }

  Problem make_problem(const Encode &encode) const override {
    ReduceProblem problem = reduction.problem(encode.src[0], encode.dst);
    problem.weights = encode.src[1];
    problem.by_nonzero_weights = by_nonzero_weights;
    return problem;
  }

  void archive(Archive &archive) override {
    CNNBinaryKernelState::archive(archive);
    archive.field(@"MPSNNReduceBinary.primarySourceClipRect", clips[0]);
    archive.field(@"MPSNNReduceBinary.secondarySourceClipRect", clips[1]);
    archive.field(@"MPSNNReduceFeatureChannelsAndWeightsSum.doWeightedSumByNonZeroWeights", by_nonzero_weights);
  }
};

/// Channel n * (2 * windowInX + 1) + m has the offset (m - windowInX, n - windowInY), so that x runs faster. Apple's
/// index multiplies by 2 * windowInY + 1, which does not if the windows differ.
struct LocalCorrelationState : Extends<LocalCorrelationState, ReduceBinaryState> {
  NSUInteger window_x = 0, window_y = 0, stride_x = 1, stride_y = 1;

  void check_window() const {
    constexpr NSUInteger max = 1 << 14;
    const auto check = [&](const char *name, NSUInteger value, NSUInteger min) {
      if (value < min || value > max)
        raise_for(*this, @"%s (%lu) is not between %lu and %lu.", name, (unsigned long)value, (unsigned long)min,
                  (unsigned long)max);
    };
    check("windowInX", window_x, 0);
    check("windowInY", window_y, 0);
    check("strideInX", stride_x, 1);
    check("strideInY", stride_y, 1);
  }

  NSUInteger result_channels(std::span<const NSUInteger> channels) const override {
    CNNBinaryKernelState::result_channels(channels);
    check_window();
    return (2 * window_x + 1) * (2 * window_y + 1);
  }

  Problem make_problem(const Encode &encode) const override {
    CorrelationProblem problem;
    problem.a = encode.src[0], problem.b = encode.src[1];
    problem.dst = encode.dst;
    problem.reach_h = static_cast<std::int64_t>(window_y), problem.reach_w = static_cast<std::int64_t>(window_x);
    problem.step_h = static_cast<std::int64_t>(stride_y), problem.step_w = static_cast<std::int64_t>(stride_x);
    problem.edge = secondary().edge == MPSImageEdgeModeClamp ? Edge::clamp : Edge::zero;
    return problem;
  }

  void archive(Archive &archive) override {
    ReduceBinaryState::archive(archive);
    archive.field(@"MPSNNLocalCorrelation.windowInX", window_x);
    archive.field(@"MPSNNLocalCorrelation.windowInY", window_y);
    archive.field(@"MPSNNLocalCorrelation.strideInX", stride_x);
    archive.field(@"MPSNNLocalCorrelation.strideInY", stride_y);
  }

  void did_read(MPSKernel *kernel) override {
    ReduceBinaryState::did_read(kernel);
    check_window();
  }
};

}  // namespace
}  // namespace openmps

using openmps::LocalCorrelationState;
using openmps::ReduceAxis;
using openmps::ReduceBinaryState;
using openmps::ReduceState;
using openmps::ReduceType;

@implementation MPSNNReduceUnary

+ (openmps::KernelState *)openmps_newState {
  return new ReduceState();
}

- (instancetype)initWithDevice:(id<MTLDevice>)device {
  (void)device;
  openmps::UnwindRelease unwind(self);
  openmps::raise_unavailable(self, _cmd, "a subclass (MPSNNReduceRowMax, MPSNNReduceFeatureChannelsSum, ...)");
}

OPENMPS_PROPERTY(ReduceState, MTLRegion, clipRectSource, setClipRectSource, clip_source)
OPENMPS_PROPERTY(ReduceState, MPSOffset, offset, setOffset, source.offset)

@end

// Defines the axis and the operation of a class.
#define OPENMPS_FOLDS(...)                                \
  +(openmps::KernelState *)openmps_newState {             \
    return new ReduceState({__VA_ARGS__});                \
  }                                                       \
  -(instancetype)initWithDevice : (id<MTLDevice>)device { \
    return [self openmps_initWithDevice:device];          \
  }                                                       \
  OPENMPS_INIT_WITH_CODER

#define OPENMPS_REDUCTION(NAME, ...) \
  @implementation NAME               \
  OPENMPS_FOLDS(__VA_ARGS__)         \
  @end

OPENMPS_REDUCTION(MPSNNReduceRowMin, ReduceAxis::row, ReduceType::min)
OPENMPS_REDUCTION(MPSNNReduceRowMax, ReduceAxis::row, ReduceType::max)
OPENMPS_REDUCTION(MPSNNReduceRowMean, ReduceAxis::row, ReduceType::sum, true)
OPENMPS_REDUCTION(MPSNNReduceRowSum, ReduceAxis::row, ReduceType::sum)
OPENMPS_REDUCTION(MPSNNReduceColumnMin, ReduceAxis::column, ReduceType::min)
OPENMPS_REDUCTION(MPSNNReduceColumnMax, ReduceAxis::column, ReduceType::max)
OPENMPS_REDUCTION(MPSNNReduceColumnMean, ReduceAxis::column, ReduceType::sum, true)
OPENMPS_REDUCTION(MPSNNReduceColumnSum, ReduceAxis::column, ReduceType::sum)
OPENMPS_REDUCTION(MPSNNReduceFeatureChannelsMin, ReduceAxis::channels, ReduceType::min)
OPENMPS_REDUCTION(MPSNNReduceFeatureChannelsMax, ReduceAxis::channels, ReduceType::max)
OPENMPS_REDUCTION(MPSNNReduceFeatureChannelsMean, ReduceAxis::channels, ReduceType::sum, true)
OPENMPS_REDUCTION(MPSNNReduceFeatureChannelsArgumentMin, ReduceAxis::channels, ReduceType::argument_min)
OPENMPS_REDUCTION(MPSNNReduceFeatureChannelsArgumentMax, ReduceAxis::channels, ReduceType::argument_max)

@implementation MPSNNReduceFeatureChannelsSum
OPENMPS_FOLDS(ReduceAxis::channels, ReduceType::sum)
OPENMPS_PROPERTY(ReduceState, float, weight, setWeight, weight)
@end

@implementation MPSNNReduceBinary

+ (openmps::KernelState *)openmps_newState {
  return new ReduceBinaryState();
}

- (instancetype)initWithDevice:(id<MTLDevice>)device {
  (void)device;
  openmps::UnwindRelease unwind(self);
  openmps::raise_unavailable(self, _cmd,
                             "a subclass (MPSNNReduceFeatureChannelsAndWeightsMean or "
                             "MPSNNReduceFeatureChannelsAndWeightsSum)");
}

OPENMPS_PROPERTY(ReduceBinaryState, MTLRegion, primarySourceClipRect, setPrimarySourceClipRect, clips[0])
OPENMPS_PROPERTY(ReduceBinaryState, MTLRegion, secondarySourceClipRect, setSecondarySourceClipRect, clips[1])
OPENMPS_PROPERTY(ReduceBinaryState, MPSOffset, primaryOffset, setPrimaryOffset, primary().offset)
OPENMPS_PROPERTY(ReduceBinaryState, MPSOffset, secondaryOffset, setSecondaryOffset, secondary().offset)

@end

@implementation MPSNNReduceFeatureChannelsAndWeightsMean

/// unverified: divided by the number of channels, not by the sum of the weights.
+ (openmps::KernelState *)openmps_newState {
  return new ReduceBinaryState(true);
}

- (instancetype)initWithDevice:(id<MTLDevice>)device {
  return [self openmps_initWithDevice:device];
}

OPENMPS_INIT_WITH_CODER

@end

@implementation MPSNNReduceFeatureChannelsAndWeightsSum

+ (openmps::KernelState *)openmps_newState {
  return new ReduceBinaryState(false);
}

- (instancetype)initWithDevice:(id<MTLDevice>)device {
  return [self initWithDevice:device doWeightedSumByNonZeroWeights:false];
}

- (instancetype)initWithDevice:(id<MTLDevice>)device doWeightedSumByNonZeroWeights:(bool)doWeightedSumByNonZeroWeights {
  if (!(self = [self openmps_initWithDevice:device])) return nil;
  openmps::state_of<ReduceBinaryState>(self).by_nonzero_weights = doWeightedSumByNonZeroWeights;
  return self;
}

OPENMPS_INIT_WITH_CODER
OPENMPS_GETTER(ReduceBinaryState, bool, doWeightedSumByNonZeroWeights, by_nonzero_weights)

@end

@implementation MPSNNLocalCorrelation

+ (openmps::KernelState *)openmps_newState {
  return new LocalCorrelationState();
}

- (instancetype)initWithDevice:(id<MTLDevice>)device {
  return [self initWithDevice:device windowInX:0 windowInY:0 strideInX:1 strideInY:1];
}

- (instancetype)initWithDevice:(id<MTLDevice>)device
                     windowInX:(NSUInteger)windowInX
                     windowInY:(NSUInteger)windowInY
                     strideInX:(NSUInteger)strideInX
                     strideInY:(NSUInteger)strideInY {
  if (!(self = [self openmps_initWithDevice:device])) return nil;
  openmps::UnwindRelease unwind(self);
  auto &state = openmps::state_of<LocalCorrelationState>(self);
  state.window_x = windowInX, state.window_y = windowInY;
  state.stride_x = strideInX, state.stride_y = strideInY;
  state.check_window();
  return unwind.done();
}

OPENMPS_INIT_WITH_CODER
OPENMPS_PROPERTY(LocalCorrelationState, NSUInteger, windowInX, setWindowInX, window_x)
OPENMPS_PROPERTY(LocalCorrelationState, NSUInteger, windowInY, setWindowInY, window_y)
OPENMPS_PROPERTY(LocalCorrelationState, NSUInteger, strideInX, setStrideInX, stride_x)
OPENMPS_PROPERTY(LocalCorrelationState, NSUInteger, strideInY, setStrideInY, stride_y)

@end
