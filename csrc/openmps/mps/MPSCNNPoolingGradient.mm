// SPDX-License-Identifier: Apache-2.0
// Gradients of pooling: the share of each pixel in the gradients of its windows [MPSCNNPooling.h].
//
// secondaryOffset, kernel, strides and edge mode are the forward kernel's, primaryOffset is the origin of its clipRect,
// and the result lies on its source: clipRect selects the pixels that are written. unverified: that kernelOffset is
// ignored.

#import "mps/MPSCNNPooling+Engine.hh"

#include "engine/problem/problem.hpp"

namespace openmps {
namespace {

struct PoolingGradientState : Extends<PoolingGradientState, GradientKernelState> {
  PoolType type = PoolType::max;
  ZeroPad zero_pad;
  MTLSize source_size = {NSUIntegerMax, NSUIntegerMax, NSUIntegerMax};

  explicit PoolingGradientState(PoolType kind = PoolType::max) : type(kind) {}

  NSUInteger result_channels(std::span<const NSUInteger> channels) const override {
    return CNNBinaryKernelState::result_channels(channels);
  }

  void take_forward(const GradientData::Source &forward) override {
    secondary() = forward.slot;
    primary().offset = {0, 0, 0};
    kernel_offset_x = kernel_offset_y = 0;
  }

  void take_data(const GradientData &data) override {
    if (const auto *pooling = dynamic_cast<const PoolingData *>(&data)) zero_pad = pooling->zero_pad;
  }

  void check_encode(const Encode &encode, const Clip &clip) const override {
    zero_pad.check(*this);
    check_lies_on_source(*this, clip, encode.src[1]);
    if (source_size.depth < static_cast<NSUInteger>(clip.depth))
      raise_for(*this, @"sourceSize.depth (%lu) is less than the %ld images that clipRect selects.",
                (unsigned long)source_size.depth, (long)clip.depth);
  }

  Problem make_problem(const Encode &encode) const override {
    const ImageView &diff = encode.src[0];
    const Part rows = part_of(*this, "Rows", primary().offset.y, source_size.height, diff.h);
    const Part columns = part_of(*this, "Columns", primary().offset.x, source_size.width, diff.w);
    PoolGradientProblem problem;
    problem.diff_dst = diff.region(rows.begin, columns.begin, rows.count, columns.count);
    problem.src = encode.src[1];
    if (type == PoolType::average) problem.src.memory.reset();  // its values are not read
    problem.diff_src = encode.dst;
    problem.first_h = static_cast<std::int64_t>(destination.clip.origin.y);
    problem.first_w = static_cast<std::int64_t>(destination.clip.origin.x);
    problem.type = type;
    problem.window = secondary().window();
    problem.window.start_h += (rows.begin - primary().offset.y) * problem.window.stride_h;
    problem.window.start_w += (columns.begin - primary().offset.x) * problem.window.stride_w;
    problem.zero_pad_h = static_cast<std::int64_t>(zero_pad.y);
    problem.zero_pad_w = static_cast<std::int64_t>(zero_pad.x);
    return problem;
  }

  void archive(Archive &archive) override {
    GradientKernelState::archive(archive);
    zero_pad.archive(archive, @"MPSCNNPoolingGradient");
    archive.field(@"MPSCNNPoolingGradient.sourceSize.width", source_size.width);
    archive.field(@"MPSCNNPoolingGradient.sourceSize.height", source_size.height);
    archive.field(@"MPSCNNPoolingGradient.sourceSize.depth", source_size.depth);
  }

  void did_read(MPSKernel *kernel) override {
    GradientKernelState::did_read(kernel);
    zero_pad.check(*this);
  }
};

id init_pooling_gradient(MPSCNNPoolingGradient *kernel, id<MTLDevice> device, NSUInteger kernel_width,
                         NSUInteger kernel_height, NSUInteger dilation_x, NSUInteger dilation_y, NSUInteger stride_x,
                         NSUInteger stride_y) {
  if (!(kernel = [kernel openmps_initWithDevice:device])) return nil;
  UnwindRelease unwind(kernel);
  auto &state = state_of<PoolingGradientState>(kernel);
  SourceSlot &slot = state.secondary();
  slot.kernel_width = kernel_width;
  slot.kernel_height = kernel_height;
  slot.dilation_x = dilation_x;
  slot.dilation_y = dilation_y;
  slot.stride_x = stride_x;
  slot.stride_y = stride_y;
  state.check_slots();
  return unwind.done();
}

}  // namespace
}  // namespace openmps

using openmps::PoolingGradientState;
using openmps::PoolType;

@implementation MPSCNNPoolingGradient

+ (openmps::KernelState *)openmps_newState {
  return new PoolingGradientState();
}

- (instancetype)initWithDevice:(id<MTLDevice>)device {
  (void)device;
  openmps::UnwindRelease unwind(self);
  openmps::raise_unavailable(self, _cmd, "-initWithDevice:kernelWidth:kernelHeight:strideInPixelsX:strideInPixelsY:");
}

/// Strides of 1, as in MPSCNNPooling.
- (instancetype)initWithDevice:(id<MTLDevice>)device
                   kernelWidth:(NSUInteger)kernelWidth
                  kernelHeight:(NSUInteger)kernelHeight {
  return [self initWithDevice:device
                  kernelWidth:kernelWidth
                 kernelHeight:kernelHeight
              strideInPixelsX:1
              strideInPixelsY:1];
}

- (instancetype)initWithDevice:(id<MTLDevice>)device
                   kernelWidth:(NSUInteger)kernelWidth
                  kernelHeight:(NSUInteger)kernelHeight
               strideInPixelsX:(NSUInteger)strideInPixelsX
               strideInPixelsY:(NSUInteger)strideInPixelsY {
  if ([self class] == [MPSCNNPoolingGradient class]) {
    openmps::UnwindRelease unwind(self);
    openmps::raise_argument(@"MPSCNNPoolingGradient is the base of the gradients of pooling and computes nothing "
                            @"itself.");
  }
  return openmps::init_pooling_gradient(self, device, kernelWidth, kernelHeight, 1, 1, strideInPixelsX,
                                        strideInPixelsY);
}

OPENMPS_INIT_WITH_CODER
OPENMPS_PROPERTY(PoolingGradientState, MTLSize, sourceSize, setSourceSize, source_size)

@end

// The initialisers that every subclass's header repeats.
#define OPENMPS_POOLING_GRADIENT_INIT                                                                      \
  -(instancetype)initWithDevice : (id<MTLDevice>)device kernelWidth : (NSUInteger)kernelWidth kernelHeight \
      : (NSUInteger)kernelHeight strideInPixelsX : (NSUInteger)strideInPixelsX strideInPixelsY             \
      : (NSUInteger)strideInPixelsY {                                                                      \
    return [super initWithDevice:device                                                                    \
                     kernelWidth:kernelWidth                                                               \
                    kernelHeight:kernelHeight                                                              \
                 strideInPixelsX:strideInPixelsX                                                           \
                 strideInPixelsY:strideInPixelsY];                                                         \
  }                                                                                                        \
  OPENMPS_INIT_WITH_CODER

@implementation MPSCNNPoolingMaxGradient

+ (openmps::KernelState *)openmps_newState {
  return new PoolingGradientState(PoolType::max);
}

OPENMPS_POOLING_GRADIENT_INIT

@end

@implementation MPSCNNPoolingAverageGradient

+ (openmps::KernelState *)openmps_newState {
  return new PoolingGradientState(PoolType::average);
}

OPENMPS_POOLING_GRADIENT_INIT
OPENMPS_PROPERTY(PoolingGradientState, NSUInteger, zeroPadSizeX, setZeroPadSizeX, zero_pad.x)
OPENMPS_PROPERTY(PoolingGradientState, NSUInteger, zeroPadSizeY, setZeroPadSizeY, zero_pad.y)

@end

@implementation MPSCNNPoolingL2NormGradient

+ (openmps::KernelState *)openmps_newState {
  return new PoolingGradientState(PoolType::l2_norm);
}

OPENMPS_POOLING_GRADIENT_INIT

@end

@implementation MPSCNNDilatedPoolingMaxGradient

+ (openmps::KernelState *)openmps_newState {
  return new PoolingGradientState(PoolType::max);
}

- (instancetype)initWithDevice:(id<MTLDevice>)device
                   kernelWidth:(NSUInteger)kernelWidth
                  kernelHeight:(NSUInteger)kernelHeight
               strideInPixelsX:(NSUInteger)strideInPixelsX
               strideInPixelsY:(NSUInteger)strideInPixelsY {
  (void)device, (void)kernelWidth, (void)kernelHeight, (void)strideInPixelsX, (void)strideInPixelsY;
  openmps::UnwindRelease unwind(self);
  openmps::raise_unavailable(self, _cmd,
                             "-initWithDevice:kernelWidth:kernelHeight:dilationRateX:dilationRateY:strideInPixelsX:"
                             "strideInPixelsY:");
}

- (instancetype)initWithDevice:(id<MTLDevice>)device
                   kernelWidth:(NSUInteger)kernelWidth
                  kernelHeight:(NSUInteger)kernelHeight
                 dilationRateX:(NSUInteger)dilationRateX
                 dilationRateY:(NSUInteger)dilationRateY
               strideInPixelsX:(NSUInteger)strideInPixelsX
               strideInPixelsY:(NSUInteger)strideInPixelsY {
  return openmps::init_pooling_gradient(self, device, kernelWidth, kernelHeight, dilationRateX, dilationRateY,
                                        strideInPixelsX, strideInPixelsY);
}

OPENMPS_INIT_WITH_CODER

@end
