// SPDX-License-Identifier: Apache-2.0
// Local normalization: across channels, in a window, by the contrast in a window [MPSCNNNormalization.h].

#import "mps/MPSCNNNormalization+Engine.hh"

#include "engine/problem/problem.hpp"

namespace openmps {

void LRNParameters::check(const KernelState &state, const SourceSlot &slot, const SourceNames &names) const {
  if (slot.kernel_width != slot.kernel_height)
    raise_for(state, @"%s (%lu) is not %s (%lu).", names.property("kernelWidth").c_str(),
              (unsigned long)slot.kernel_width, names.property("kernelHeight").c_str(),
              (unsigned long)slot.kernel_height);
  constexpr NSUInteger max = NSUInteger{1} << 31;
  if (size < 1 || size > max)
    raise_for(state, @"kernelSize (%lu) is not between 1 and %lu.", (unsigned long)size, (unsigned long)max);
}

void LRNParameters::did_read(const KernelState &state, const SourceSlot &slot, const SourceNames &names) const {
  check(state, slot, names);
  if (slot.stride_x != 1 || slot.stride_y != 1 || slot.dilation_x != 1 || slot.dilation_y != 1)
    raise_for(state, @"The archive holds strides or dilation rates other than 1.");
  if (type == LRNType::channels && slot.kernel_width != 1)
    raise_for(state, @"The archive holds a kernelWidth (%lu) other than 1.", (unsigned long)slot.kernel_width);
}

void LRNParameters::archive(Archive &archive) {
  archive.field(@"MPSCNNNormalization.kernelSize", size);
  archive.field(@"MPSCNNNormalization.alpha", alpha);
  archive.field(@"MPSCNNNormalization.beta", beta);
  archive.field(@"MPSCNNNormalization.delta", delta);
  archive.field(@"MPSCNNNormalization.p0", p0);
  archive.field(@"MPSCNNNormalization.pm", pm);
  archive.field(@"MPSCNNNormalization.ps", ps);
}

LRNProblem LRNParameters::problem(const ImageView &src, const ImageView &dst, const Window &window) const {
  LRNProblem problem;
  problem.src = src, problem.dst = dst;
  problem.type = type;
  problem.window = window;
  problem.size = static_cast<std::int64_t>(size);
  problem.alpha = alpha, problem.beta = beta, problem.delta = delta;
  problem.p0 = p0, problem.pm = pm, problem.ps = ps;
  return problem;
}

namespace {

struct LRNState : Extends<LRNState, CNNKernelState> {
  LRNParameters parameters;

  explicit LRNState(LRNType type) : parameters(type) {}

  Class result_state_class() const override { return [MPSNNGradientState class]; }

  Problem problem(const ImageView &src, const ImageView &dst, const Window &window) const override {
    return parameters.problem(src, dst, window);
  }

  void archive(Archive &archive) override {
    CNNKernelState::archive(archive);
    parameters.archive(archive);
  }

  void did_read(MPSKernel *kernel) override {
    CNNKernelState::did_read(kernel);
    parameters.did_read(*this, source, names(0));
  }
};

id init_lrn(MPSCNNKernel *kernel, id<MTLDevice> device, NSUInteger width, NSUInteger height, NSUInteger size) {
  if (!(kernel = [kernel openmps_initWithDevice:device])) return nil;
  UnwindRelease unwind(kernel);
  auto &state = state_of<LRNState>(kernel);
  state.source.kernel_width = width, state.source.kernel_height = height;
  state.parameters.size = size;
  state.check_slots();
  state.parameters.check(state, state.source, state.names(0));
  return unwind.done();
}

}  // namespace
}  // namespace openmps

using openmps::init_lrn;
using openmps::LRNState;
using openmps::LRNType;

#define OPENMPS_NEW_STATE(TYPE)               \
  +(openmps::KernelState *)openmps_newState { \
    return new LRNState(TYPE);                \
  }

@implementation MPSCNNCrossChannelNormalization
OPENMPS_NEW_STATE(LRNType::channels)
OPENMPS_CROSS_CHANNEL_NORM(LRNState, init_lrn)
@end

@implementation MPSCNNSpatialNormalization
OPENMPS_NEW_STATE(LRNType::pixels)
OPENMPS_WINDOW_NORM(LRNState, init_lrn)
@end

@implementation MPSCNNLocalContrastNormalization
OPENMPS_NEW_STATE(LRNType::contrast)
#undef OPENMPS_NEW_STATE
OPENMPS_CONTRAST_NORM(LRNState, init_lrn)
@end
