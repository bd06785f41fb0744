// SPDX-License-Identifier: Apache-2.0
// Upsampling by whole factors: nearest or bilinear [MPSCNNUpsampling.h].

#import "mps/MPSCNNUpsampling+Engine.hh"

#include "engine/problem/problem.hpp"
#include "mps/Resample.hpp"

namespace openmps {
namespace {

struct UpsamplingState : Extends<UpsamplingState, CNNKernelState> {
  ResampleType type = ResampleType::nearest;  ///< fixed by the class
  UpsamplingFactors factors;
  bool align_corners = false;

  UpsamplingState() = default;
  explicit UpsamplingState(ResampleType own) : type(own) {}

  Class result_state_class() const override { return [MPSNNGradientState class]; }

  std::unique_ptr<GradientData> new_gradient_data() const override {
    auto data = std::make_unique<UpsamplingData>();
    data->align_corners = align_corners;
    return data;
  }

  /// The policy has no effect: an enlarged image has one size.
  void size_result(Images sources, MPSImageDescriptor *descriptor) override {
    [descriptor setWidth:[sources[0] width] * factors.x];
    [descriptor setHeight:[sources[0] height] * factors.y];
    source.offset = {0, 0, 0};
  }

  /// unverified: `offset` is the source position of the result's first pixel, and clipRect does not change the spacing.
  Problem problem(const ImageView &src, const ImageView &dst, const Window &) const override {
    const auto enlarged = [](std::int64_t size, NSUInteger factor) { return size * static_cast<std::int64_t>(factor); };
    ResampleProblem problem;
    problem.src = src, problem.dst = dst;
    problem.type = type;
    problem.edge = source.edge == MPSImageEdgeModeClamp ? ResampleEdge::clamp : ResampleEdge::zero;
    problem.regions = {{positions_of(source.offset.y, src.h, enlarged(src.h, factors.y), align_corners),
                        positions_of(source.offset.x, src.w, enlarged(src.w, factors.x), align_corners)}};
    return problem;
  }

  void archive(Archive &archive) override {
    CNNKernelState::archive(archive);
    factors.archive(archive, @"MPSCNNUpsampling");
    archive.field(@"MPSCNNUpsampling.alignCorners", align_corners);
  }

  void did_read(MPSKernel *kernel) override {
    CNNKernelState::did_read(kernel);
    factors.check(*this);
  }
};

id init_upsampling(MPSCNNUpsampling *kernel, id<MTLDevice> device, NSUInteger factor_x, NSUInteger factor_y,
                   bool align_corners) {
  if (!(kernel = [kernel openmps_initWithDevice:device])) return nil;
  UnwindRelease unwind(kernel);
  auto &state = state_of<UpsamplingState>(kernel);
  state.factors = {factor_x, factor_y};
  state.align_corners = align_corners;
  state.factors.check(state);
  return unwind.done();
}

}  // namespace
}  // namespace openmps

using openmps::init_upsampling;
using openmps::ResampleType;
using openmps::UpsamplingState;

@implementation MPSCNNUpsampling

+ (openmps::KernelState *)openmps_newState {
  return new UpsamplingState();
}

- (instancetype)initWithDevice:(id<MTLDevice>)device {
  (void)device;
  openmps::UnwindRelease unwind(self);
  openmps::raise_unavailable(self, _cmd, "-initWithDevice:integerScaleFactorX:integerScaleFactorY: of a subclass");
}

OPENMPS_GETTER(UpsamplingState, double, scaleFactorX, factors.x)
OPENMPS_GETTER(UpsamplingState, double, scaleFactorY, factors.y)
OPENMPS_GETTER(UpsamplingState, BOOL, alignCorners, align_corners)

@end

@implementation MPSCNNUpsamplingNearest

+ (openmps::KernelState *)openmps_newState {
  return new UpsamplingState(ResampleType::nearest);
}

- (instancetype)initWithDevice:(id<MTLDevice>)device
           integerScaleFactorX:(NSUInteger)integerScaleFactorX
           integerScaleFactorY:(NSUInteger)integerScaleFactorY {
  return init_upsampling(self, device, integerScaleFactorX, integerScaleFactorY, false);
}

@end

@implementation MPSCNNUpsamplingBilinear

+ (openmps::KernelState *)openmps_newState {
  return new UpsamplingState(ResampleType::bilinear);
}

- (instancetype)initWithDevice:(id<MTLDevice>)device
           integerScaleFactorX:(NSUInteger)integerScaleFactorX
           integerScaleFactorY:(NSUInteger)integerScaleFactorY {
  return init_upsampling(self, device, integerScaleFactorX, integerScaleFactorY, false);
}

- (instancetype)initWithDevice:(id<MTLDevice>)device
           integerScaleFactorX:(NSUInteger)integerScaleFactorX
           integerScaleFactorY:(NSUInteger)integerScaleFactorY
                  alignCorners:(BOOL)alignCorners {
  return init_upsampling(self, device, integerScaleFactorX, integerScaleFactorY, alignCorners);
}

@end
