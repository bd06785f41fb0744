// SPDX-License-Identifier: Apache-2.0
// Gram matrices of an image's channels, for losses of style, and their gradient [MPSCNNConvolution.h].

#import "mps/MPSCNNKernel+Engine.hh"

#include "engine/problem/problem.hpp"

namespace openmps {
namespace {

/// Apple's kernel takes no other offset or clipRect.
void check_whole(const KernelState &state, const MPSOffset &offset, const char *name, const ImageView &dst,
                 std::int64_t w, std::int64_t h) {
  if (offset.x != 0 || offset.y != 0)
    raise_for(state, @"%s (%ld, %ld) is not (0, 0), the only one that the kernel has.", name, (long)offset.x,
              (long)offset.y);
  if (dst.w != w || dst.h != h)
    raise_for(state, @"The kernel writes %ld x %ld pixels (width x height), and clipRect selects %ld x %ld.", (long)w,
              (long)h, (long)dst.w, (long)dst.h);
}

struct GramData : GradientData {
  float alpha = 1;
};

/// Column f of the result's row has the products of channel f and all channels, each summed over the pixels.
struct GramState : Extends<GramState, CNNKernelState> {
  float alpha = 1;

  Class result_state_class() const override { return [MPSNNGradientState class]; }
  std::unique_ptr<GradientData> new_gradient_data() const override {
    auto data = std::make_unique<GramData>();
    data->alpha = alpha;
    return data;
  }

  void size_result(Images sources, MPSImageDescriptor *descriptor) override {
    [descriptor setWidth:source_channels(*this, source, names(0), [sources[0] featureChannels])];
    [descriptor setHeight:1];
    source.offset = {0, 0, 0};
  }

  void check_encode(const Encode &encode, const Clip &) const override {
    check_whole(*this, source.offset, "offset", encode.dst, encode.src[0].c, 1);
  }

  Problem problem(const ImageView &src, const ImageView &dst, const Window &) const override {
    ProductProblem problem;
    problem.a = problem.b = src;
    problem.dst = dst;
    problem.transpose_a = true;
    problem.alpha = alpha;
    return problem;
  }

  void archive(Archive &archive) override {
    CNNKernelState::archive(archive);
    archive.field(@"MPSNNGramMatrixCalculation.alpha", alpha);
  }
};

struct GramGradientState : Extends<GramGradientState, GradientKernelState> {
  float alpha = 1;

  bool uses_states() const override { return true; }

  static const GramData *data_of(const GradientData &data) { return dynamic_cast<const GramData *>(&data); }
  void take_data(const GradientData &data) override {
    if (const GramData *gram = data_of(data)) alpha = gram->alpha;
  }

  void check_encode(const Encode &encode, const Clip &) const override {
    const ImageView &diff = encode.src[0], &src = encode.src[1];
    if (diff.h != 1 || diff.w != src.c || diff.c != src.c)
      raise_for(*this,
                @"sourceGradient has %ld x %ld x %ld values (width x height x channels), expected %ld x 1 x %ld for a "
                @"sourceImage of %ld feature channels.",
                (long)diff.w, (long)diff.h, (long)diff.c, (long)src.c, (long)src.c, (long)src.c);
    if (primary().offset.x != 0 || primary().offset.y != 0 || kernel_offset_x != 0 || kernel_offset_y != 0)
      raise_for(*this, @"primaryOffset (%ld, %ld) or kernelOffset (%ld, %ld) is not (0, 0).", (long)primary().offset.x,
                (long)primary().offset.y, (long)kernel_offset_x, (long)kernel_offset_y);
    check_whole(*this, secondary().offset, "secondaryOffset", encode.dst, src.w, src.h);
  }

  /// alpha is the state's, if there is one.
  Problem make_problem(const Encode &encode) const override {
    const GramData *data = encode.source_state == nil ? nullptr : data_of(gradient_data(encode.source_state));
    ProductProblem problem;
    problem.a = encode.src[1];
    problem.b = encode.src[0];
    problem.dst = encode.dst;
    problem.symmetric_b = true;
    problem.alpha = data == nullptr ? alpha : data->alpha;
    return problem;
  }

  void archive(Archive &archive) override {
    GradientKernelState::archive(archive);
    archive.field(@"MPSNNGramMatrixCalculationGradient.alpha", alpha);
  }
};

}  // namespace
}  // namespace openmps

// Defines one of the two classes.
#define OPENMPS_GRAM(NAME, STATE)                                              \
  @implementation NAME                                                         \
  +(openmps::KernelState *)openmps_newState {                                  \
    return new openmps::STATE();                                               \
  }                                                                            \
  -(instancetype)initWithDevice : (id<MTLDevice>)device {                      \
    return [self initWithDevice:device alpha:1];                               \
  }                                                                            \
  -(instancetype)initWithDevice : (id<MTLDevice>)device alpha : (float)alpha { \
    if (!(self = [self openmps_initWithDevice:device])) return nil;            \
    openmps::state_of<openmps::STATE>(self).alpha = alpha;                     \
    return self;                                                               \
  }                                                                            \
  OPENMPS_INIT_WITH_CODER                                                      \
  OPENMPS_PROPERTY(openmps::STATE, float, alpha, setAlpha, alpha)              \
  @end

OPENMPS_GRAM(MPSNNGramMatrixCalculation, GramState)
OPENMPS_GRAM(MPSNNGramMatrixCalculationGradient, GramGradientState)
