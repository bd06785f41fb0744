// SPDX-License-Identifier: Apache-2.0
// Pooling: the max, the mean or the Euclidean norm of a window, channel by channel [MPSCNNPooling.h].

#import "mps/MPSCNNPooling+Engine.hh"

#include "engine/problem/problem.hpp"

namespace openmps {
namespace {

struct PoolingState : Extends<PoolingState, CNNKernelState> {
  PoolType type = PoolType::max;
  ZeroPad zero_pad;

  explicit PoolingState(PoolType kind = PoolType::max) : type(kind) {}

  Class result_state_class() const override { return [MPSNNGradientState class]; }
  std::unique_ptr<GradientData> new_gradient_data() const override {
    auto data = std::make_unique<PoolingData>();
    data->zero_pad = zero_pad;
    return data;
  }

  Problem problem(const ImageView &src, const ImageView &dst, const Window &window) const override {
    zero_pad.check(*this);
    PoolProblem problem;
    problem.src = src, problem.dst = dst;
    problem.type = type;
    problem.window = window;
    problem.zero_pad_h = static_cast<std::int64_t>(zero_pad.y);
    problem.zero_pad_w = static_cast<std::int64_t>(zero_pad.x);
    return problem;
  }

  /// A policy that excludes the edges does not count pixels outside [MPSNeuralNetworkTypes.h]. Which properties it sets
  /// is not documented.
  void size_result(Images sources, MPSImageDescriptor *descriptor) override {
    CNNKernelState::size_result(sources, descriptor);
    if (type == PoolType::average && ([destination.padding.get() paddingMethod] & MPSNNPaddingMethodExcludeEdges) != 0)
      source.edge = MPSImageEdgeModeClamp;
  }

  void archive(Archive &archive) override {
    CNNKernelState::archive(archive);
    zero_pad.archive(archive, @"MPSCNNPooling");
  }

  void did_read(MPSKernel *kernel) override {
    CNNKernelState::did_read(kernel);
    zero_pad.check(*this);
  }
};

id init_pooling(MPSCNNPooling *kernel, id<MTLDevice> device, NSUInteger kernel_width, NSUInteger kernel_height,
                NSUInteger dilation_x, NSUInteger dilation_y, NSUInteger stride_x, NSUInteger stride_y) {
  if (!(kernel = [kernel openmps_initWithDevice:device])) return nil;
  UnwindRelease unwind(kernel);
  auto &state = state_of<PoolingState>(kernel);
  state.source.kernel_width = kernel_width;
  state.source.kernel_height = kernel_height;
  state.source.dilation_x = dilation_x;
  state.source.dilation_y = dilation_y;
  state.source.stride_x = stride_x;
  state.source.stride_y = stride_y;
  state.check_slots();
  return unwind.done();
}

}  // namespace
}  // namespace openmps

using openmps::PoolingState;
using openmps::PoolType;

@implementation MPSCNNPooling

+ (openmps::KernelState *)openmps_newState {
  return new PoolingState();
}

- (instancetype)initWithDevice:(id<MTLDevice>)device {
  (void)device;
  openmps::UnwindRelease unwind(self);
  openmps::raise_unavailable(self, _cmd, "-initWithDevice:kernelWidth:kernelHeight:strideInPixelsX:strideInPixelsY:");
}

/// Strides of 1; not documented.
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
  if ([self class] == [MPSCNNPooling class]) {
    openmps::UnwindRelease unwind(self);
    openmps::raise_argument(@"MPSCNNPooling is the base of the pooling kernels and computes nothing itself.");
  }
  return openmps::init_pooling(self, device, kernelWidth, kernelHeight, 1, 1, strideInPixelsX, strideInPixelsY);
}

OPENMPS_INIT_WITH_CODER

@end

// The initialisers that every subclass's header repeats.
#define OPENMPS_POOLING_INIT                                                                               \
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

@implementation MPSCNNPoolingMax

+ (openmps::KernelState *)openmps_newState {
  return new PoolingState(PoolType::max);
}

OPENMPS_POOLING_INIT

@end

@implementation MPSCNNDilatedPoolingMax

+ (openmps::KernelState *)openmps_newState {
  return new PoolingState(PoolType::max);
}

- (instancetype)initWithDevice:(id<MTLDevice>)device
                   kernelWidth:(NSUInteger)kernelWidth
                  kernelHeight:(NSUInteger)kernelHeight
                 dilationRateX:(NSUInteger)dilationRateX
                 dilationRateY:(NSUInteger)dilationRateY
               strideInPixelsX:(NSUInteger)strideInPixelsX
               strideInPixelsY:(NSUInteger)strideInPixelsY {
  return openmps::init_pooling(self, device, kernelWidth, kernelHeight, dilationRateX, dilationRateY, strideInPixelsX,
                               strideInPixelsY);
}

OPENMPS_INIT_WITH_CODER
OPENMPS_GETTER(PoolingState, NSUInteger, dilationRateX, source.dilation_x)
OPENMPS_GETTER(PoolingState, NSUInteger, dilationRateY, source.dilation_y)

@end

@implementation MPSCNNPoolingAverage

+ (openmps::KernelState *)openmps_newState {
  return new PoolingState(PoolType::average);
}

OPENMPS_POOLING_INIT
OPENMPS_PROPERTY(PoolingState, NSUInteger, zeroPadSizeX, setZeroPadSizeX, zero_pad.x)
OPENMPS_PROPERTY(PoolingState, NSUInteger, zeroPadSizeY, setZeroPadSizeY, zero_pad.y)

@end

@implementation MPSCNNPoolingL2Norm

+ (openmps::KernelState *)openmps_newState {
  return new PoolingState(PoolType::l2_norm);
}

OPENMPS_POOLING_INIT

@end
