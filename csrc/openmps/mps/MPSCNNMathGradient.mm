// SPDX-License-Identifier: Apache-2.0
// Gradients of the arithmetic of two images: MPSCNNAddGradient, MPSCNNSubtractGradient, MPSCNNMultiplyGradient
// [MPSCNNMath.h].
//
// The secondary image is the forward source that the gradient is for, or the other one for a product; its offset and
// strides are the forward kernel's. If the source that the gradient is for had a stride of 0, its gradient is a sum
// over that axis, and the result has one value along it.
//
// unverified: the meaning of the scales. Here they are the forward kernel's, and the result is multiplied by the chain
// rule: for a sum or difference by the scale of its own source, for a product by both.

#import "mps/MPSCNNMath+Engine.hh"

#include <cfloat>

#include "engine/problem/problem.hpp"

namespace openmps {
namespace {

struct ArithmeticGradientState : Extends<ArithmeticGradientState, GradientKernelState> {
  BinaryOperation operation = BinaryOperation::add;  ///< fixed by the class
  bool is_secondary = false;
  float scales[2] = {1, 1}, bias = 0;
  NSUInteger channel_stride = 1;  ///< of the secondary image
  float min = -FLT_MAX, max = FLT_MAX;
  /// Strides (width, height, channels) of the source that a product's gradient is for, known only from a state.
  bool knows_own = false;
  NSUInteger own_strides[3] = {1, 1, 1};
  ForwardBorders own_borders;
  bool own_is_unread = false;  ///< the forward kernel repeated a zero from outside the source

  ArithmeticGradientState() = default;
  explicit ArithmeticGradientState(BinaryOperation own) : operation(own) {}

  bool is_product() const { return operation == BinaryOperation::multiply; }
  NSUInteger min_stride() const override { return 0; }
  bool uses_states() const override { return true; }
  std::size_t forward_source() const override { return is_secondary ? 1 : 0; }
  /// A sum's gradient needs no source.
  std::size_t secondary_source() const override { return is_product() ? 1 - forward_source() : kNoSource; }

  void check_strides() const {
    const auto check = [&](NSUInteger stride, const char *name) {
      if (stride > 1) raise_for(*this, @"%s (%lu) is neither 0 nor 1.", name, (unsigned long)stride);
    };
    check(secondary().stride_x, "secondaryStrideInPixelsX");
    check(secondary().stride_y, "secondaryStrideInPixelsY");
    check(channel_stride, "secondaryStrideInFeatureChannels");
    if (primary().stride_x != 1 || primary().stride_y != 1)
      raise_for(*this, @"primaryStrideInPixelsX (%lu) and primaryStrideInPixelsY (%lu) are not 1.",
                (unsigned long)primary().stride_x, (unsigned long)primary().stride_y);
  }

  /// Return whether the source that the gradient is for was repeated along an axis. `is_one`: the result has one value
  /// along it, and clipRect is not the reason.
  bool is_summed(NSUInteger secondary_stride, NSUInteger own_stride, bool is_one) const {
    if (!is_product()) return secondary_stride == 0;
    return knows_own ? own_stride == 0 : is_one;
  }

  /// One value along each summed axis [MPSCNNMath.h].
  Extents result_extents(Extents source) const override {
    if (is_summed(secondary().stride_x, own_strides[0], false)) source.width = 1;
    if (is_summed(secondary().stride_y, own_strides[1], false)) source.height = 1;
    if (is_summed(channel_stride, own_strides[2], false)) source.channels = 1;
    return source;
  }

  NSUInteger result_channels(std::span<const NSUInteger> channels) const override {
    check_strides();
    if (is_product() && channel_stride != 0) CNNBinaryKernelState::result_channels(channels);
    return is_summed(channel_stride, own_strides[2], false) ? 1 : channels[0];
  }

  ImageView view_of_destination(const ImageView &image, const Clip &clip,
                                std::span<const NSUInteger> channels) const override {
    NSUInteger written = result_channels(channels);
    const bool is_one = static_cast<NSUInteger>(image.c) == destination.channel_offset + 1;
    if (is_summed(channel_stride, own_strides[2], is_one)) written = 1;
    return destination_view(*this, destination, image, clip, written);
  }

  void take_forward(const GradientData::Source &forward) override {
    GradientKernelState::take_forward(forward);
    own_strides[0] = forward.slot.stride_x;
    own_strides[1] = forward.slot.stride_y;
    if (forward.slot.stride_x == 0) kernel_offset_x = 0;
    if (forward.slot.stride_y == 0) kernel_offset_y = 0;
    own_borders.take(forward);
    own_is_unread = repeats_a_zero(forward.slot, forward.width, forward.height);
  }

  /// Return whether a stride of 0 repeats a row or column of zeros outside the source.
  static bool repeats_a_zero(const SourceSlot &slot, NSUInteger width, NSUInteger height) {
    const auto is_outside = [](NSUInteger stride, NSInteger offset, NSUInteger extent) {
      return stride == 0 && (offset < 0 || static_cast<NSUInteger>(offset) >= extent);
    };
    return slot.window().edge == Edge::zero &&
           (is_outside(slot.stride_x, slot.offset.x, width) || is_outside(slot.stride_y, slot.offset.y, height));
  }

  /// Return whether the gradient is 0 for that reason. A sum's secondary image is the source itself.
  bool is_unread(const ImageView &seen) const {
    if (is_product()) return own_is_unread;
    return repeats_a_zero(secondary(), static_cast<NSUInteger>(seen.w), static_cast<NSUInteger>(seen.h));
  }

  void take_data(const GradientData &data) override {
    const auto *arithmetic = dynamic_cast<const ArithmeticData *>(&data);
    if (arithmetic == nullptr) return;
    knows_own = true;
    std::copy_n(arithmetic->scales, 2, scales);
    own_strides[2] = arithmetic->channel_strides[forward_source()];
    const std::size_t seen = is_product() ? secondary_source() : forward_source();
    secondary() = data.sources[seen].slot;
    channel_stride = arithmetic->channel_strides[seen];
    // Pixels (0, 0) of both sources coincide, as in the forward kernel.
    if (secondary().stride_x != 0) secondary().offset.x += kernel_offset_x;
    if (secondary().stride_y != 0) secondary().offset.y += kernel_offset_y;
  }

  /// A sum's secondary image is not read, so it may have any channels.
  ImageView view_of_source(std::size_t source, const ImageView &image, std::int64_t images) const override {
    if (source == 1 && !is_product()) return image;
    return GradientKernelState::view_of_source(source, image, images);
  }

  const ArithmeticData *data_of(MPSState *state) const {
    if (state == nil) return nullptr;
    if (![state isKindOfClass:[MPSCNNArithmeticGradientState class]])
      raise_for(*this, @"gradientState is an object of class %@, expected MPSCNNArithmeticGradientState.",
                [state class]);
    return static_cast<const ArithmeticData *>(&gradient_data(state));
  }

  /// Return the geometry of the source that the gradient is for, if the forward kernel clamped to its edge. A sum's
  /// secondary image is the source itself.
  ClampedSource clamped_source(Operand &diff_dst, const ImageView &seen) const {
    const SourceSlot &slot = secondary();
    ClampedSource source;
    if (knows_own) {
      source = own_borders.source(*this, diff_dst);
    } else if (!is_product() && slot.window().edge == Edge::clamp) {
      diff_dst.edge = Edge::zero;
      source = {seen.h, seen.w, slot.offset.y, slot.offset.x};
    }
    if (source.h == 0) return source;
    if (is_summed(slot.stride_y, own_strides[1], false)) source.h = 1, source.start_h = 0;
    if (is_summed(slot.stride_x, own_strides[0], false)) source.w = 1, source.start_w = 0;
    return source;
  }

  float scale() const {
    if (is_product()) return scales[0] * scales[1];
    const float own = scales[forward_source()];
    return operation == BinaryOperation::subtract && is_secondary ? -own : own;
  }

  Problem make_problem(const Encode &encode) const override {
    check_offset(*this, kernel_offset_x, kernel_offset_y, "kernelOffset");
    const ImageView &diff = encode.src[0], &dst = encode.dst;
    BinaryGradientProblem problem;
    problem.diff_dst = operand(primary(), diff);
    problem.diff_dst.start_h += kernel_offset_y;
    problem.diff_dst.start_w += kernel_offset_x;
    problem.diff_src = dst;
    problem.scale = scale();
    const auto sum = [&](bool is_summed, std::int64_t written, std::int64_t there, const char *axis) -> std::int64_t {
      if (!is_summed) return 1;
      if (written != 1)
        raise_for(*this,
                  @"The forward kernel repeated its source along the %s, so its gradient has 1 of them, not %ld.", axis,
                  (long)written);
      if (there < 1) raise_for(*this, @"primaryOffset leaves nothing of sourceGradient to sum over its %s.", axis);
      return there;
    };
    const MTLSize clip = destination.clip.size;
    problem.sum_h = sum(is_summed(secondary().stride_y, own_strides[1], dst.h == 1 && clip.height != 1), dst.h,
                        diff.h - problem.diff_dst.start_h, "rows");
    problem.sum_w = sum(is_summed(secondary().stride_x, own_strides[0], dst.w == 1 && clip.width != 1), dst.w,
                        diff.w - problem.diff_dst.start_w, "columns");
    problem.sum_c = sum(is_summed(channel_stride, own_strides[2], dst.c == 1), dst.c, diff.c, "feature channels");
    problem.source = clamped_source(problem.diff_dst, encode.src[1]);
    if (is_product()) {
      problem.other = operand(secondary(), encode.src[1]);
      problem.other.repeat_c = channel_stride == 0;
    }
    if (const ArithmeticData *data = data_of(encode.source_state); data && data->mask.memory) {
      const std::int64_t first = primary().offset.z;
      if (first + dst.n > data->mask.n || data->mask.c != diff.c)
        raise_for(*this,
                  @"gradientState is that of an encode of %ld images with %ld feature channels; there are %ld "
                  @"with %ld here.",
                  (long)data->mask.n, (long)data->mask.c, (long)(first + dst.n), (long)diff.c);
      problem.mask.view = data->mask.images(first, dst.n);
      problem.mask.start_h = kernel_offset_y;
      problem.mask.start_w = kernel_offset_x;
    }
    if (is_unread(encode.src[1])) {  // read the zeros beyond the incoming gradient
      problem.diff_dst.start_h = diff.h;
      problem.diff_dst.edge = Edge::zero;
      problem.diff_dst.repeat_h = false;
      problem.other = problem.mask = {};
      problem.sum_h = problem.sum_w = problem.sum_c = 1;
      problem.source = {};
    }
    return problem;
  }

  void archive(Archive &archive) override {
    GradientKernelState::archive(archive);
    archive.field(@"MPSCNNArithmeticGradient.isSecondarySourceFilter", is_secondary);
    archive.field(@"MPSCNNArithmeticGradient.primaryScale", scales[0]);
    archive.field(@"MPSCNNArithmeticGradient.secondaryScale", scales[1]);
    archive.field(@"MPSCNNArithmeticGradient.bias", bias);
    archive.field(@"MPSCNNArithmeticGradient.secondaryStrideInFeatureChannels", channel_stride);
    archive.field(@"MPSCNNArithmeticGradient.minimumValue", min);
    archive.field(@"MPSCNNArithmeticGradient.maximumValue", max);
    archive.field(@"MPSCNNArithmeticGradient.knowsSource", knows_own);
    archive.field(@"MPSCNNArithmeticGradient.sourceStrideInPixelsX", own_strides[0]);
    archive.field(@"MPSCNNArithmeticGradient.sourceStrideInPixelsY", own_strides[1]);
    archive.field(@"MPSCNNArithmeticGradient.sourceStrideInFeatureChannels", own_strides[2]);
    archive.field(@"MPSCNNArithmeticGradient.isSourceUnread", own_is_unread);
    own_borders.archive(archive, @"MPSCNNArithmeticGradient");
  }
};

id init_arithmetic_gradient(MPSCNNArithmeticGradient *kernel, id<MTLDevice> device, BOOL is_secondary) {
  if (!(kernel = [kernel openmps_initWithDevice:device])) return nil;
  state_of<ArithmeticGradientState>(kernel).is_secondary = is_secondary;
  return kernel;
}

}  // namespace
}  // namespace openmps

using openmps::ArithmeticGradientState;
using openmps::BinaryOperation;

@implementation MPSCNNArithmeticGradient

+ (openmps::KernelState *)openmps_newState {
  return new ArithmeticGradientState();
}

- (instancetype)initWithDevice:(id<MTLDevice>)device {
  (void)device;
  openmps::UnwindRelease unwind(self);
  openmps::raise_unavailable(self, _cmd, "-initWithDevice:isSecondarySourceFilter: of a subclass");
}

- (instancetype)initWithDevice:(id<MTLDevice>)device isSecondarySourceFilter:(BOOL)isSecondarySourceFilter {
  (void)device, (void)isSecondarySourceFilter;
  openmps::UnwindRelease unwind(self);
  openmps::raise_unavailable(self, _cmd,
                             "a subclass (MPSCNNAddGradient, MPSCNNSubtractGradient or MPSCNNMultiplyGradient)");
}

OPENMPS_PROPERTY(ArithmeticGradientState, float, primaryScale, setPrimaryScale, scales[0])
OPENMPS_PROPERTY(ArithmeticGradientState, float, secondaryScale, setSecondaryScale, scales[1])
OPENMPS_PROPERTY(ArithmeticGradientState, float, bias, setBias, bias)
OPENMPS_PROPERTY(ArithmeticGradientState, NSUInteger, secondaryStrideInFeatureChannels,
                 setSecondaryStrideInFeatureChannels, channel_stride)
OPENMPS_PROPERTY(ArithmeticGradientState, float, minimumValue, setMinimumValue, min)
OPENMPS_PROPERTY(ArithmeticGradientState, float, maximumValue, setMaximumValue, max)
OPENMPS_GETTER(ArithmeticGradientState, BOOL, isSecondarySourceFilter, is_secondary)

@end

#define OPENMPS_ARITHMETIC_GRADIENT(NAME, OPERATION)                                                              \
  @implementation NAME                                                                                            \
  +(openmps::KernelState *)openmps_newState {                                                                     \
    return new ArithmeticGradientState(OPERATION);                                                                \
  }                                                                                                               \
  -(instancetype)initWithDevice : (id<MTLDevice>)device isSecondarySourceFilter : (BOOL)isSecondarySourceFilter { \
    return openmps::init_arithmetic_gradient(self, device, isSecondarySourceFilter);                              \
  }                                                                                                               \
  @end

OPENMPS_ARITHMETIC_GRADIENT(MPSCNNAddGradient, BinaryOperation::add)
OPENMPS_ARITHMETIC_GRADIENT(MPSCNNSubtractGradient, BinaryOperation::subtract)
OPENMPS_ARITHMETIC_GRADIENT(MPSCNNMultiplyGradient, BinaryOperation::multiply)
