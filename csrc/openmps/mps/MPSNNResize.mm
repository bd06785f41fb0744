// SPDX-License-Identifier: Apache-2.0
// Resizing to any size, of the whole source or of regions of it [MPSNNResize.h].

#import "mps/MPSCNNKernel+Engine.hh"

#include <cmath>

#include "engine/problem/problem.hpp"
#include "mps/Resample.hpp"

namespace openmps {
namespace {

struct ResizeState : Extends<ResizeState, CNNKernelState> {
  NSUInteger width = 0, height = 0;
  bool align_corners = false;

  void check_size() const {
    constexpr NSUInteger max = NSUInteger{1} << 31;
    const auto check = [&](NSUInteger size, const char *name) {
      if (size < 1 || size > max)
        raise_for(*this, @"%s (%lu) is not between 1 and %lu.", name, (unsigned long)size, (unsigned long)max);
    };
    check(width, "resizeWidth");
    check(height, "resizeHeight");
  }

  /// The policy has no effect: the size is the kernel's.
  void size_result(Images, MPSImageDescriptor *descriptor) override {
    [descriptor setWidth:width];
    [descriptor setHeight:height];
    source.offset = {0, 0, 0};
  }

  Problem problem(const ImageView &src, const ImageView &dst, const Window &) const override {
    ResampleProblem problem;
    problem.src = src, problem.dst = dst;
    problem.type = ResampleType::bilinear;
    problem.edge = source.edge == MPSImageEdgeModeClamp ? ResampleEdge::clamp : ResampleEdge::zero;
    problem.regions = {{positions_of(source.offset.y, src.h, static_cast<std::int64_t>(height), align_corners),
                        positions_of(source.offset.x, src.w, static_cast<std::int64_t>(width), align_corners)}};
    return problem;
  }

  void archive(Archive &archive) override {
    CNNKernelState::archive(archive);
    archive.field(@"MPSNNResizeBilinear.resizeWidth", width);
    archive.field(@"MPSNNResizeBilinear.resizeHeight", height);
    archive.field(@"MPSNNResizeBilinear.alignCorners", align_corners);
  }

  void did_read(MPSKernel *kernel) override {
    CNNKernelState::did_read(kernel);
    check_size();
  }
};

/// unverified: one image of the result for each region, those of the source's first image before those of its second;
/// the positions (Resample.hpp); a whole sample outside the source is 0.
struct CropState : Extends<CropState, ResizeState> {
  std::vector<MPSRegion> regions;

  std::int64_t count() const { return static_cast<std::int64_t>(regions.size()); }

  void check_regions() const {
    if (regions.empty()) raise_for(*this, @"numberOfRegions (0) is less than 1.");
    for (std::size_t i = 0; i < regions.size(); ++i) {
      const MPSRegion &region = regions[i];
      for (const double value : {region.origin.x, region.origin.y, region.size.width, region.size.height})
        if (!(std::fabs(value) <= 1e6))
          raise_for(*this,
                    @"regions[%lu], origin (%g, %g) and size (%g, %g), has a value that is not between -1e6 and "
                    @"1e6.",
                    (unsigned long)i, region.origin.x, region.origin.y, region.size.width, region.size.height);
    }
  }

  ImageView view_of_source(std::size_t slot, const ImageView &image, std::int64_t images) const override {
    if (images % count() != 0)
      raise_for(*this,
                @"clipRect selects %ld images of the destination, which is no multiple of numberOfRegions (%ld).",
                (long)images, (long)count());
    return ResizeState::view_of_source(slot, image, images / count());
  }

  void check_geometry(const ImageView &, const Clip &clip) const override {
    if (clip.z % count() != 0)
      raise_for(*this, @"clipRect.origin.z (%ld) is no multiple of numberOfRegions (%ld).", (long)clip.z,
                (long)count());
  }

  void size_result(Images sources, MPSImageDescriptor *descriptor) override {
    ResizeState::size_result(sources, descriptor);
    [descriptor setNumberOfImages:[sources[0] numberOfImages] * regions.size()];
  }

  Problem problem(const ImageView &src, const ImageView &dst, const Window &) const override {
    const auto rows = static_cast<std::int64_t>(height), columns = static_cast<std::int64_t>(width);
    ResampleProblem problem;
    problem.src = src, problem.dst = dst;
    problem.type = ResampleType::bilinear;
    problem.edge = ResampleEdge::zero_samples;
    for (const MPSRegion &region : regions) {
      problem.regions.push_back({positions_in(region.origin.y, region.size.height, src.h, rows),
                                 positions_in(region.origin.x, region.size.width, src.w, columns)});
      problem.regions.back().h.start += static_cast<double>(source.offset.y);
      problem.regions.back().w.start += static_cast<double>(source.offset.x);
    }
    return problem;
  }

  void archive(Archive &archive) override {
    ResizeState::archive(archive);
    std::vector<double> numbers;
    for (const MPSRegion &region : regions) {
      for (const double number : {region.origin.x, region.origin.y, region.origin.z, region.size.width,
                                  region.size.height, region.size.depth})
        numbers.push_back(number);
    }
    archive.field(@"MPSNNCropAndResizeBilinear.regions", numbers);
    if (!archive.is_reading()) return;
    regions.clear();
    for (std::size_t i = 0; i + 6 <= numbers.size(); i += 6) {
      const double *n = numbers.data() + i;
      regions.push_back({{n[0], n[1], n[2]}, {n[3], n[4], n[5]}});
    }
  }

  void did_read(MPSKernel *kernel) override {
    ResizeState::did_read(kernel);
    check_regions();
  }
};

}  // namespace
}  // namespace openmps

using openmps::CropState;
using openmps::ResizeState;

@implementation MPSNNResizeBilinear

+ (openmps::KernelState *)openmps_newState {
  return new ResizeState();
}

- (instancetype)initWithDevice:(id<MTLDevice>)device {
  (void)device;
  openmps::UnwindRelease unwind(self);
  openmps::raise_unavailable(self, _cmd, "-initWithDevice:resizeWidth:resizeHeight:alignCorners:");
}

- (instancetype)initWithDevice:(id<MTLDevice>)device
                   resizeWidth:(NSUInteger)resizeWidth
                  resizeHeight:(NSUInteger)resizeHeight
                  alignCorners:(BOOL)alignCorners {
  if (!(self = [self openmps_initWithDevice:device])) return nil;
  openmps::UnwindRelease unwind(self);
  auto &state = openmps::state_of<ResizeState>(self);
  state.width = resizeWidth;
  state.height = resizeHeight;
  state.align_corners = alignCorners;
  state.check_size();
  return unwind.done();
}

OPENMPS_INIT_WITH_CODER
OPENMPS_GETTER(ResizeState, NSUInteger, resizeWidth, width)
OPENMPS_GETTER(ResizeState, NSUInteger, resizeHeight, height)
OPENMPS_GETTER(ResizeState, BOOL, alignCorners, align_corners)

@end

@implementation MPSNNCropAndResizeBilinear

+ (openmps::KernelState *)openmps_newState {
  return new CropState();
}

- (instancetype)initWithDevice:(id<MTLDevice>)device {
  (void)device;
  openmps::UnwindRelease unwind(self);
  openmps::raise_unavailable(self, _cmd, "-initWithDevice:resizeWidth:resizeHeight:numberOfRegions:regions:");
}

- (instancetype)initWithDevice:(id<MTLDevice>)device
                   resizeWidth:(NSUInteger)resizeWidth
                  resizeHeight:(NSUInteger)resizeHeight
               numberOfRegions:(NSUInteger)numberOfRegions
                       regions:(const MPSRegion *)regions {
  if (!(self = [self openmps_initWithDevice:device])) return nil;
  openmps::UnwindRelease unwind(self);
  auto &state = openmps::state_of<CropState>(self);
  if (regions == NULL) openmps::raise_for(state, @"regions is NULL.");
  state.width = resizeWidth;
  state.height = resizeHeight;
  state.regions.assign(regions, regions + numberOfRegions);
  state.check_size();
  state.check_regions();
  return unwind.done();
}

OPENMPS_INIT_WITH_CODER
OPENMPS_GETTER(CropState, NSUInteger, resizeWidth, width)
OPENMPS_GETTER(CropState, NSUInteger, resizeHeight, height)
OPENMPS_GETTER(CropState, NSUInteger, numberOfRegions, regions.size())
OPENMPS_GETTER(CropState, const MPSRegion *, regions, regions.data())

@end
