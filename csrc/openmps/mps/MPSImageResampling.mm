// SPDX-License-Identifier: Apache-2.0
// Images scaled to another size, by Lanczos or linear interpolation [MPSImageResampling.h].

#include <cmath>

#include "engine/problem/problem.hpp"
#import "mps/MPSImageKernel+Engine.hh"

namespace openmps {
namespace {

constexpr double kMaxScale = 16384;  ///< the max extent of a texture
constexpr double kMaxTranslation = 1 << 30;

/// A pixel is an area: pixel i covers [i, i + 1), and positions are centres. unverified: the edge mode, which is Clamp
/// at first; offset, which is refused unless it is 0; without a transform, the size of the source is that of the whole
/// destination, not of clipRect.
struct ScaleState : Extends<ScaleState, UnaryImageKernelState> {
  bool is_lanczos = false;  ///< fixed by the class
  bool has_transform = false;
  MPSScaleTransform transform = {1, 1, 0, 0};

  ScaleState() { source.edge = MPSImageEdgeModeClamp; }
  explicit ScaleState(bool lanczos) : ScaleState() { is_lanczos = lanczos; }

  void check_transform() const {
    if (!has_transform) return;
    const auto check = [this](const char *name, double value, double min, double max) {
      if (!(value >= min && value <= max))
        raise_for(*this, @"scaleTransform.%s (%g) is not between %g and %g.", name, value, min, max);
    };
    check("scaleX", transform.scaleX, 1 / kMaxScale, kMaxScale);
    check("scaleY", transform.scaleY, 1 / kMaxScale, kMaxScale);
    check("translateX", transform.translateX, -kMaxTranslation, kMaxTranslation);
    check("translateY", transform.translateY, -kMaxTranslation, kMaxTranslation);
  }

  void check_encode(const Encode &, const Clip &) const override {
    check_transform();
    if (source.offset.x != 0 || source.offset.y != 0)
      raise_for(*this, @"offset (%ld, %ld) is not (0, 0); scaleTransform moves the source.", (long)source.offset.x,
                (long)source.offset.y);
  }

  /// Result pixel i has the centre i + 1/2 = scale * (position + 1/2) + translation.
  static Positions scaled(double scale, double translation) { return {(0.5 - translation) / scale - 0.5, 1, scale}; }
  /// The same for a source that fills the whole result, from pixel `first` of the result on.
  static Positions fitted(std::int64_t src, std::int64_t dst, NSUInteger first) {
    const auto from = static_cast<double>(src), to = static_cast<double>(dst);
    return {(static_cast<double>(first) + 0.5) * from / to - 0.5, from, to};
  }

  Problem make_problem(const Encode &encode) const override {
    const ImageView &src = encode.src[0];
    const MTLOrigin &first = destination.clip.origin;
    const Positions h =
        has_transform ? scaled(transform.scaleY, transform.translateY) : fitted(src.h, encode.dst_h, first.y);
    const Positions w =
        has_transform ? scaled(transform.scaleX, transform.translateX) : fitted(src.w, encode.dst_w, first.x);
    const ResampleEdge edge = source.edge == MPSImageEdgeModeClamp ? ResampleEdge::clamp : ResampleEdge::zero;
    if (is_lanczos) return LanczosProblem{src, encode.dst, edge, h, w};
    return ResampleProblem{src, encode.dst, ResampleType::bilinear, edge, {{h, w}}};
  }

  void archive(Archive &archive) override {
    UnaryImageKernelState::archive(archive);
    archive.field(@"MPSImageScale.hasScaleTransform", has_transform);
    std::vector<double> numbers = {transform.scaleX, transform.scaleY, transform.translateX, transform.translateY};
    archive.field(@"MPSImageScale.scaleTransform", numbers);
    if (numbers.size() == 4) transform = {numbers[0], numbers[1], numbers[2], numbers[3]};
  }
  void did_read(MPSKernel *kernel) override {
    UnaryImageKernelState::did_read(kernel);
    check_transform();
  }
};

}  // namespace
}  // namespace openmps

using openmps::ScaleState;

@implementation MPSImageScale

+ (openmps::KernelState *)openmps_newState {
  return new ScaleState();
}

- (instancetype)initWithDevice:(id<MTLDevice>)device {
  (void)device;
  openmps::UnwindRelease unwind(self);
  openmps::raise_unavailable(self, _cmd, "a subclass (MPSImageLanczosScale or MPSImageBilinearScale)");
}

OPENMPS_INIT_WITH_CODER

/// The kernel's own copy.
- (const MPSScaleTransform *)scaleTransform {
  const auto &state = openmps::state_of<ScaleState>(self);
  return state.has_transform ? &state.transform : NULL;
}

- (void)setScaleTransform:(const MPSScaleTransform *)scaleTransform {
  auto &state = openmps::state_of<ScaleState>(self);
  state.has_transform = scaleTransform != NULL;
  if (scaleTransform != NULL) state.transform = *scaleTransform;
}

/// The pixels that the scaled ones cover, and those that a Lanczos window reads around them.
- (MPSRegion)sourceRegionForDestinationSize:(MTLSize)destinationSize {
  const auto &state = openmps::state_of<ScaleState>(self);
  state.check_transform();
  if (!state.has_transform)
    openmps::raise_for(state, @"sourceRegionForDestinationSize: depends on the size of the source without a "
                              @"scaleTransform.");
  const MPSRegion region = [super sourceRegionForDestinationSize:destinationSize];
  const MPSScaleTransform &t = state.transform;
  const auto around = [&](double scale) { return (state.is_lanczos ? 3.0 : 1.0) * std::fmax(1.0, 1.0 / scale); };
  const double x = around(t.scaleX), y = around(t.scaleY);
  return {{-t.translateX / t.scaleX - x, -t.translateY / t.scaleY - y, region.origin.z},
          {region.size.width / t.scaleX + 2 * x, region.size.height / t.scaleY + 2 * y, region.size.depth}};
}

@end

// Defines the filter of a class.
#define OPENMPS_SCALE(NAME, IS_LANCZOS)                   \
  @implementation NAME                                    \
  +(openmps::KernelState *)openmps_newState {             \
    return new ScaleState(IS_LANCZOS);                    \
  }                                                       \
  -(instancetype)initWithDevice : (id<MTLDevice>)device { \
    return [self openmps_initWithDevice:device];          \
  }                                                       \
  OPENMPS_INIT_WITH_CODER                                 \
  @end

OPENMPS_SCALE(MPSImageLanczosScale, true)
OPENMPS_SCALE(MPSImageBilinearScale, false)
