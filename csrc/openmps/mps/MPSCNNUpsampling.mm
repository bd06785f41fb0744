// SPDX-License-Identifier: Apache-2.0
// Upsampling by whole factors: the nearest pixel, or between the nearest ones [MPSCNNUpsampling.h].

#import "mps/MPSCNNKernel+Engine.hh"

#include "mps/Resample.hpp"

namespace openmps {
namespace {

struct UpsamplingState : Extends<UpsamplingState, CNNKernelState> {
  ResampleType type = ResampleType::nearest;  ///< the class's own
  NSUInteger factor_x = 1, factor_y = 1;
  bool align_corners = false;

  UpsamplingState() = default;
  explicit UpsamplingState(ResampleType own) : type(own) {}

  Class result_state_class() const override { return [MPSNNGradientState class]; }

  void check_factors() const {
    constexpr NSUInteger most = NSUInteger{1} << 16;  // beyond the result of any image
    const auto check = [&](NSUInteger factor, const char *name) {
      if (factor < 1 || factor > most)
        raise_for(*this, @"%s (%lu) is not between 1 and %lu.", name, (unsigned long)factor, (unsigned long)most);
    };
    check(factor_x, "integerScaleFactorX");
    check(factor_y, "integerScaleFactorY");
  }

  /// The policy has no say: an enlarged image has one size.
  void size_result(Images sources, MPSImageDescriptor *descriptor) override {
    [descriptor setWidth:[sources[0] width] * factor_x];
    [descriptor setHeight:[sources[0] height] * factor_y];
    source.offset = {0, 0, 0};
  }

  /// unverified: `offset` is where the first pixel of the result looks, and clipRect leaves the spacing as it is.
  Problem problem(const ImageView &src, const ImageView &dst, const Window &) const override {
    const auto enlarged = [](std::int64_t size, NSUInteger factor) { return size * static_cast<std::int64_t>(factor); };
    ResampleProblem problem;
    problem.src = src, problem.dst = dst;
    problem.type = type;
    problem.edge = source.edge == MPSImageEdgeModeClamp ? ResampleEdge::clamp : ResampleEdge::zero;
    problem.regions = {{positions_of(source.offset.y, src.h, enlarged(src.h, factor_y), align_corners),
                        positions_of(source.offset.x, src.w, enlarged(src.w, factor_x), align_corners)}};
    return problem;
  }

  void archive(Archive &archive) override {
    CNNKernelState::archive(archive);
    archive.field(@"MPSCNNUpsampling.scaleFactorX", factor_x);
    archive.field(@"MPSCNNUpsampling.scaleFactorY", factor_y);
    archive.field(@"MPSCNNUpsampling.alignCorners", align_corners);
  }

  void did_read(MPSKernel *kernel) override {
    CNNKernelState::did_read(kernel);
    check_factors();
  }
};

id init_upsampling(MPSCNNUpsampling *kernel, id<MTLDevice> device, NSUInteger factor_x, NSUInteger factor_y,
                   bool align_corners) {
  if (!(kernel = [kernel openmps_initWithDevice:device])) return nil;
  UnwindRelease unwind(kernel);
  auto &state = state_of<UpsamplingState>(kernel);
  state.factor_x = factor_x;
  state.factor_y = factor_y;
  state.align_corners = align_corners;
  state.check_factors();
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

OPENMPS_GETTER(UpsamplingState, double, scaleFactorX, factor_x)
OPENMPS_GETTER(UpsamplingState, double, scaleFactorY, factor_y)
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
