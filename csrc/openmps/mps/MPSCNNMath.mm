// SPDX-License-Identifier: Apache-2.0
// The arithmetic of two images, MPSCNNAdd, MPSCNNSubtract, MPSCNNMultiply and MPSCNNDivide, and their comparison,
// MPSNNCompare [MPSCNNMath.h].

#import "mps/MPSCNNMath+Engine.hh"

#include <cfloat>

#include "engine/problem/problem.hpp"

namespace openmps {
namespace {

struct ArithmeticState : Extends<ArithmeticState, CNNBinaryKernelState> {
  BinaryOperation operation = BinaryOperation::add;  ///< fixed by the class
  float scales[2] = {1, 1}, bias = 0;
  NSUInteger channel_strides[2] = {1, 1};
  float min = -FLT_MAX, max = FLT_MAX;

  ArithmeticState() = default;
  explicit ArithmeticState(BinaryOperation own) : operation(own) {}

  NSUInteger min_stride() const override { return 0; }
  Class result_state_class() const override { return [MPSCNNArithmeticGradientState class]; }
  bool may_overwrite(std::size_t source) const override {
    return sources[source].stride_x == 1 && sources[source].stride_y == 1 && channel_strides[source] == 1;
  }

  void check_strides() const {
    for (std::size_t i = 0; i < 2; ++i) {
      const auto check = [&](NSUInteger stride, const char *name) {
        if (stride > 1)
          raise_for(*this, @"%s (%lu) is neither 0 nor 1.", names(i).property(name).c_str(), (unsigned long)stride);
      };
      check(sources[i].stride_x, "strideInPixelsX");
      check(sources[i].stride_y, "strideInPixelsY");
      check(channel_strides[i], "strideInFeatureChannels");
    }
  }

  NSUInteger result_channels(std::span<const NSUInteger> channels) const override {
    check_strides();
    if (channel_strides[0] != 0 && channel_strides[1] != 0) return CNNBinaryKernelState::result_channels(channels);
    return channel_strides[0] != 0 ? channels[0] : channel_strides[1] != 0 ? channels[1] : 1;
  }

  /// The size of the larger source that does not repeat. unverified: Apple's rule.
  void size_result(Images images, MPSImageDescriptor *descriptor) override {
    NSUInteger width = 1, height = 1;
    for (std::size_t i = 0; i < 2; ++i) {
      if (sources[i].stride_x != 0) width = std::max(width, [images[i] width]);
      if (sources[i].stride_y != 0) height = std::max(height, [images[i] height]);
      sources[i].offset = {0, 0, 0};
    }
    [descriptor setWidth:width];
    [descriptor setHeight:height];
  }

  std::unique_ptr<GradientData> new_gradient_data() const override {
    auto data = std::make_unique<ArithmeticData>();
    std::copy_n(scales, 2, data->scales);
    std::copy_n(channel_strides, 2, data->channel_strides);
    return data;
  }

  /// The default bounds let infinities through, as measured [MPSCNNMath.h].
  bool is_bounded() const { return min > -FLT_MAX || max < FLT_MAX; }

  /// Each image's state has its own mask.
  bool uses_states() const override { return is_bounded(); }

  /// Make a mask of the values that the bounds let through, which the state keeps [MPSCNNMath.h].
  ImageView new_mask(MPSState *result_state, const ImageView &dst) const {
    if (![result_state isKindOfClass:[MPSCNNArithmeticGradientState class]])
      raise_for(*this, @"destinationState is an object of class %@, expected MPSCNNArithmeticGradientState.",
                [result_state class]);
    auto &data = static_cast<ArithmeticData &>(gradient_data(result_state));
    data.mask = {};
    if (!is_bounded()) return {};
    ImageView &mask = data.mask;
    mask.format = Format::unorm8;
    mask.n = dst.n, mask.h = dst.h, mask.w = dst.w, mask.c = dst.c;
    mask.w_stride = mask.c, mask.h_stride = mask.w * mask.c, mask.n_stride = mask.h * mask.h_stride;
    mask.memory = Memory::lazy_image([device.get() openmps_engine], static_cast<std::size_t>(mask.size()));
    return mask;
  }

  Problem make_problem(const Encode &encode) const override {
    BinaryProblem problem;
    Operand *const operands[] = {&problem.src0, &problem.src1};
    for (std::size_t i = 0; i < 2; ++i) {
      *operands[i] = operand(sources[i], encode.src[i]);
      operands[i]->repeat_c = channel_strides[i] == 0;
    }
    problem.dst = encode.dst;
    problem.function.operation = operation;
    problem.function.scale0 = scales[0];
    problem.function.scale1 = scales[1];
    problem.function.bias = bias;
    if (min > -FLT_MAX) problem.function.min = min;
    if (max < FLT_MAX) problem.function.max = max;
    if (encode.result_state != nil) problem.mask = new_mask(encode.result_state, encode.dst);
    for (std::size_t i = 0; problem.mask.memory && i < 2; ++i)  // the engine reads the sources again
      if (encode.src[i] == encode.dst)
        raise_for(*this,
                  @"%s and the destination share memory; with minimumValue or maximumValue and a state they may "
                  @"not.",
                  names(i).image);
    return problem;
  }

  void archive(Archive &archive) override {
    CNNBinaryKernelState::archive(archive);
    archive.field(@"MPSCNNArithmetic.primaryScale", scales[0]);
    archive.field(@"MPSCNNArithmetic.secondaryScale", scales[1]);
    archive.field(@"MPSCNNArithmetic.bias", bias);
    archive.field(@"MPSCNNArithmetic.primaryStrideInFeatureChannels", channel_strides[0]);
    archive.field(@"MPSCNNArithmetic.secondaryStrideInFeatureChannels", channel_strides[1]);
    archive.field(@"MPSCNNArithmetic.minimumValue", min);
    archive.field(@"MPSCNNArithmetic.maximumValue", max);
  }
};

/// unverified: the properties that the class inherits but its formula lacks. A value that would change the result is
/// refused. unverified: threshold, whose default is 0, matters for equality only.
struct CompareState : Extends<CompareState, ArithmeticState> {
  MPSNNComparisonType type = MPSNNComparisonTypeEqual;
  float threshold = 0;

  /// A comparison has no gradient kernel.
  Class result_state_class() const override { return Nil; }

  void check_encode(const Encode &, const Clip &) const override {
    check_type();
    if (scales[0] != 1 || scales[1] != 1 || bias != 0 || is_bounded())
      raise_for(*this,
                @"primaryScale (%g), secondaryScale (%g), bias (%g), minimumValue (%g) and maximumValue (%g) have no "
                @"effect on a comparison; expected 1, 1, 0, -FLT_MAX and FLT_MAX.",
                scales[0], scales[1], bias, min, max);
  }

  void check_type() const {
    if (type > MPSNNComparisonTypeGreaterOrEqual)
      raise_for(*this, @"comparisonType (%lu) is not one of 0 to 5.", (unsigned long)type);
    if (!(threshold >= 0)) raise_for(*this, @"threshold (%g) is not at least 0.", threshold);
  }

  Problem make_problem(const Encode &encode) const override {
    if (encode.result_state != nil) raise_for(*this, @"destinationState is not nil; a comparison has no gradient.");
    Problem problem = ArithmeticState::make_problem(encode);
    Arithmetic &function = std::get<BinaryProblem>(problem).function;
    constexpr auto first = static_cast<NSUInteger>(BinaryOperation::equal);
    function.operation = static_cast<BinaryOperation>(first + type);
    function.threshold = threshold;
    return problem;
  }

  void archive(Archive &archive) override {
    ArithmeticState::archive(archive);
    archive.field(@"MPSNNCompare.comparisonType", type);
    archive.field(@"MPSNNCompare.threshold", threshold);
  }

  void did_read(MPSKernel *kernel) override {
    ArithmeticState::did_read(kernel);
    check_type();
  }
};

}  // namespace
}  // namespace openmps

using openmps::ArithmeticState;
using openmps::BinaryOperation;
using openmps::CompareState;

@implementation MPSCNNArithmetic

+ (openmps::KernelState *)openmps_newState {
  return new ArithmeticState();
}

- (instancetype)initWithDevice:(id<MTLDevice>)device {
  (void)device;
  openmps::UnwindRelease unwind(self);
  openmps::raise_unavailable(self, _cmd, "a subclass (MPSCNNAdd, MPSCNNSubtract, MPSCNNMultiply or MPSCNNDivide)");
}

OPENMPS_PROPERTY(ArithmeticState, float, primaryScale, setPrimaryScale, scales[0])
OPENMPS_PROPERTY(ArithmeticState, float, secondaryScale, setSecondaryScale, scales[1])
OPENMPS_PROPERTY(ArithmeticState, float, bias, setBias, bias)
OPENMPS_PROPERTY(ArithmeticState, NSUInteger, primaryStrideInFeatureChannels, setPrimaryStrideInFeatureChannels,
                 channel_strides[0])
OPENMPS_PROPERTY(ArithmeticState, NSUInteger, secondaryStrideInFeatureChannels, setSecondaryStrideInFeatureChannels,
                 channel_strides[1])
OPENMPS_PROPERTY(ArithmeticState, float, minimumValue, setMinimumValue, min)
OPENMPS_PROPERTY(ArithmeticState, float, maximumValue, setMaximumValue, max)

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                 primaryImage:(MPSImage *)primaryImage
               secondaryImage:(MPSImage *)secondaryImage
             destinationState:(MPSCNNArithmeticGradientState *)destinationState
             destinationImage:(MPSImage *)destinationImage {
  MPSImage *const sources[] = {primaryImage, secondaryImage};
  openmps::encode_image(self, commandBuffer, sources, {.result = destinationState}, destinationImage);
}

- (void)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                     primaryImages:(MPSImageBatch *)primaryImages
                   secondaryImages:(MPSImageBatch *)secondaryImages
                 destinationStates:(MPSCNNArithmeticGradientStateBatch *)destinationStates
                 destinationImages:(MPSImageBatch *)destinationImages {
  MPSImageBatch *const sources[] = {primaryImages, secondaryImages};
  openmps::encode_images(self, commandBuffer, sources, {.result = destinationStates}, destinationImages);
}

@end

@implementation MPSCNNArithmeticGradientState
@end

// Defines the class of an operation.
#define OPENMPS_ARITHMETIC(NAME, OPERATION)               \
  @implementation NAME                                    \
  +(openmps::KernelState *)openmps_newState {             \
    return new ArithmeticState(OPERATION);                \
  }                                                       \
  -(instancetype)initWithDevice : (id<MTLDevice>)device { \
    return [self openmps_initWithDevice:device];          \
  }                                                       \
  @end

OPENMPS_ARITHMETIC(MPSCNNAdd, BinaryOperation::add)
OPENMPS_ARITHMETIC(MPSCNNSubtract, BinaryOperation::subtract)
OPENMPS_ARITHMETIC(MPSCNNMultiply, BinaryOperation::multiply)
OPENMPS_ARITHMETIC(MPSCNNDivide, BinaryOperation::divide)

@implementation MPSNNCompare

+ (openmps::KernelState *)openmps_newState {
  return new CompareState();
}

- (instancetype)initWithDevice:(id<MTLDevice>)device {
  return [self openmps_initWithDevice:device];
}

OPENMPS_PROPERTY(CompareState, MPSNNComparisonType, comparisonType, setComparisonType, type)
OPENMPS_PROPERTY(CompareState, float, threshold, setThreshold, threshold)

@end
