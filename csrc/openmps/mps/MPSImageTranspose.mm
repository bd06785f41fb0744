// SPDX-License-Identifier: Apache-2.0
// Images with rows and columns exchanged [MPSImageTranspose.h].

#include "engine/problem/problem.hpp"
#import "mps/MPSImageKernel+Engine.hh"

namespace openmps {
namespace {

/// unverified: offset is the pixel of the source that clipRect's first pixel reads.
struct ImageTransposeState : Extends<ImageTransposeState, UnaryImageKernelState> {
  Problem make_problem(const Encode &encode) const override {
    ImageView src = encode.src[0];
    std::swap(src.h, src.w);
    std::swap(src.h_stride, src.w_stride);
    Window window;
    window.start_h = source.offset.x, window.start_w = source.offset.y;
    const ImageView &dst = encode.dst;
    if (is_inside(window, src, dst)) return CopyProblem{src.region(window.start_h, window.start_w, dst.h, dst.w), dst};
    PadProblem problem;
    problem.src = src, problem.dst = dst;
    problem.start_h = window.start_h, problem.start_w = window.start_w;
    problem.edge = source.edge == MPSImageEdgeModeClamp ? PadEdge::clamp : PadEdge::constant;
    return problem;
  }
};

}  // namespace
}  // namespace openmps

@implementation MPSImageTranspose

+ (openmps::KernelState *)openmps_newState {
  return new openmps::ImageTransposeState();
}

- (MPSRegion)sourceRegionForDestinationSize:(MTLSize)destinationSize {
  MPSRegion region = [super sourceRegionForDestinationSize:destinationSize];
  std::swap(region.size.width, region.size.height);
  return region;
}

@end
