// SPDX-License-Identifier: Apache-2.0
// Samples of an image at the positions that another image has [MPSNNGridSample.h].

#import "mps/MPSCNNKernel+Engine.hh"

#include "engine/problem/problem.hpp"

namespace openmps {
namespace {

/// unverified: positions are in pixels, x in channel 0 and y in channel 1 of the secondary image; samples are
/// interpolated linearly, and beyond the primary image its edge mode applies.
struct GridSampleState : Extends<GridSampleState, CNNBinaryKernelState> {
  bool uses_grid_as_position = true;

  NSUInteger result_channels(std::span<const NSUInteger> channels) const override {
    if (channels[1] != 2)
      raise_for(*this, @"The kernel reads %lu feature channels of secondaryImage, expected 2: x and y.",
                (unsigned long)channels[1]);
    return channels[0];
  }

  /// One sample for each position.
  void size_result(Images sources, MPSImageDescriptor *descriptor) override {
    [descriptor setWidth:[sources[1] width]];
    [descriptor setHeight:[sources[1] height]];
    primary().offset = secondary().offset = {0, 0, 0};
  }

  void check_encode(const Encode &, const Clip &) const override {
    for (std::size_t i = 0; i < 2; ++i)
      if (sources[i].stride_x != 1 || sources[i].stride_y != 1)
        raise_for(*this, @"%s (%lu) and %s (%lu) are not 1.", names(i).property("strideInPixelsX").c_str(),
                  (unsigned long)sources[i].stride_x, names(i).property("strideInPixelsY").c_str(),
                  (unsigned long)sources[i].stride_y);
  }

  Problem make_problem(const Encode &encode) const override {
    GridSampleProblem problem;
    problem.src = encode.src[0];
    problem.grid = operand(secondary(), encode.src[1]);
    problem.dst = encode.dst;
    problem.edge = primary().edge == MPSImageEdgeModeClamp ? ResampleEdge::clamp : ResampleEdge::zero;
    problem.adds_position = !uses_grid_as_position;
    problem.start_h = primary().offset.y;
    problem.start_w = primary().offset.x;
    return problem;
  }

  void archive(Archive &archive) override {
    CNNBinaryKernelState::archive(archive);
    archive.field(@"MPSNNGridSample.useGridValueAsInputCoordinate", uses_grid_as_position);
  }
};

}  // namespace
}  // namespace openmps

using openmps::GridSampleState;

@implementation MPSNNGridSample

+ (openmps::KernelState *)openmps_newState {
  return new GridSampleState();
}

OPENMPS_INIT_WITH_DEVICE
OPENMPS_INIT_WITH_CODER
OPENMPS_PROPERTY(GridSampleState, BOOL, useGridValueAsInputCoordinate, setUseGridValueAsInputCoordinate,
                 uses_grid_as_position)

@end
