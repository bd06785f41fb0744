// SPDX-License-Identifier: Apache-2.0
// Normalization by what surrounds a value: across channels, in a window, by the contrast in a window
// [MPSCNNNormalization.h].

#import "mps/MPSCNNKernel+Engine.hh"

namespace openmps {
namespace {

/// Apple's parameters have the same names in the three classes, and different defaults.
struct LocalNormState : Extends<LocalNormState, CNNKernelState> {
  LocalNormType type = LocalNormType::channels;  ///< the class's own
  NSUInteger size = 1;                           ///< cross-channel: kernelSize
  float alpha = 1, beta = 5, delta = 1;
  float p0 = 1, pm = 0, ps = 1;

  LocalNormState() = default;
  explicit LocalNormState(LocalNormType own) : type(own) {
    if (type == LocalNormType::contrast) alpha = 0, beta = 0.5f, delta = 1.0f / 1024;
  }

  Class result_state_class() const override { return [MPSNNGradientState class]; }

  void check_kernel() const {
    check_slots();
    if (source.kernel_width != source.kernel_height)
      raise_for(*this, @"kernelWidth (%lu) is not kernelHeight (%lu).", (unsigned long)source.kernel_width,
                (unsigned long)source.kernel_height);
    constexpr NSUInteger most = NSUInteger{1} << 31;
    if (size < 1 || size > most)
      raise_for(*this, @"kernelSize (%lu) is not between 1 and %lu.", (unsigned long)size, (unsigned long)most);
  }

  Problem problem(const ImageView &src, const ImageView &dst, const Window &window) const override {
    LocalNormProblem problem;
    problem.src = src, problem.dst = dst;
    problem.type = type;
    problem.window = window;
    problem.size = static_cast<std::int64_t>(size);
    problem.alpha = alpha, problem.beta = beta, problem.delta = delta;
    problem.p0 = p0, problem.pm = pm, problem.ps = ps;
    return problem;
  }

  void archive(Archive &archive) override {
    CNNKernelState::archive(archive);
    archive.field(@"MPSCNNNormalization.kernelSize", size);
    archive.field(@"MPSCNNNormalization.alpha", alpha);
    archive.field(@"MPSCNNNormalization.beta", beta);
    archive.field(@"MPSCNNNormalization.delta", delta);
    archive.field(@"MPSCNNNormalization.p0", p0);
    archive.field(@"MPSCNNNormalization.pm", pm);
    archive.field(@"MPSCNNNormalization.ps", ps);
  }

  void did_read(MPSKernel *kernel) override {
    CNNKernelState::did_read(kernel);
    check_kernel();
    if (source.stride_x != 1 || source.stride_y != 1 || source.dilation_x != 1 || source.dilation_y != 1)
      raise_for(*this, @"The archive holds strides or dilation rates other than 1.");
    if (type == LocalNormType::channels && source.kernel_width != 1)
      raise_for(*this, @"The archive holds a kernelWidth (%lu) other than 1.", (unsigned long)source.kernel_width);
  }
};

id init_local_norm(MPSCNNKernel *kernel, id<MTLDevice> device, NSUInteger width, NSUInteger height, NSUInteger size) {
  if (!(kernel = [kernel openmps_initWithDevice:device])) return nil;
  UnwindRelease unwind(kernel);
  auto &state = state_of<LocalNormState>(kernel);
  state.source.kernel_width = width, state.source.kernel_height = height;
  state.size = size;
  state.check_kernel();
  return unwind.done();
}

}  // namespace
}  // namespace openmps

using openmps::LocalNormState;
using openmps::LocalNormType;

#define OPENMPS_LOCAL_NORM(TYPE)                                  \
  +(openmps::KernelState *)openmps_newState {                     \
    return new LocalNormState(TYPE);                              \
  }                                                               \
  OPENMPS_INIT_WITH_CODER                                         \
  OPENMPS_PROPERTY(LocalNormState, float, alpha, setAlpha, alpha) \
  OPENMPS_PROPERTY(LocalNormState, float, beta, setBeta, beta)    \
  OPENMPS_PROPERTY(LocalNormState, float, delta, setDelta, delta)

#define OPENMPS_LOCAL_NORM_OF_WINDOW                                                                       \
  -(instancetype)initWithDevice : (id<MTLDevice>)device {                                                  \
    (void)device;                                                                                          \
    openmps::UnwindRelease unwind(self);                                                                   \
    openmps::raise_unavailable(self, _cmd, "-initWithDevice:kernelWidth:kernelHeight:");                   \
  }                                                                                                        \
  -(instancetype)initWithDevice : (id<MTLDevice>)device kernelWidth : (NSUInteger)kernelWidth kernelHeight \
      : (NSUInteger)kernelHeight {                                                                         \
    return openmps::init_local_norm(self, device, kernelWidth, kernelHeight, 1);                           \
  }

@implementation MPSCNNCrossChannelNormalization

OPENMPS_LOCAL_NORM(LocalNormType::channels)
OPENMPS_GETTER(LocalNormState, NSUInteger, kernelSize, size)

- (instancetype)initWithDevice:(id<MTLDevice>)device {
  (void)device;
  openmps::UnwindRelease unwind(self);
  openmps::raise_unavailable(self, _cmd, "-initWithDevice:kernelSize:");
}

- (instancetype)initWithDevice:(id<MTLDevice>)device kernelSize:(NSUInteger)kernelSize {
  return openmps::init_local_norm(self, device, 1, 1, kernelSize);
}

@end

@implementation MPSCNNSpatialNormalization
OPENMPS_LOCAL_NORM(LocalNormType::pixels)
OPENMPS_LOCAL_NORM_OF_WINDOW
@end

@implementation MPSCNNLocalContrastNormalization
OPENMPS_LOCAL_NORM(LocalNormType::contrast)
OPENMPS_LOCAL_NORM_OF_WINDOW
OPENMPS_PROPERTY(LocalNormState, float, p0, setP0, p0)
OPENMPS_PROPERTY(LocalNormState, float, pm, setPm, pm)
OPENMPS_PROPERTY(LocalNormState, float, ps, setPs, ps)
@end
