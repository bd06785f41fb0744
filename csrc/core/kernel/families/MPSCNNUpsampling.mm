// SPDX-License-Identifier: Apache-2.0
// MPSCNNUpsamplingNearest, MPSCNNUpsamplingBilinear.
#include "core/kernel/families/family.hh"

#include <mpscnn/error.hpp>

namespace mpscnn {

static FamilyKernel make_upsampling(id<MTLDevice> device, const KernelRow &row, const Params &params) {
  const Class kind = class_of(row);
  const Pair factor = pair(params, "scale_factor", {1, 1});
  const auto x = static_cast<NSUInteger>(factor.w), y = static_cast<NSUInteger>(factor.h);
  FamilyKernel made;
  if (row.is_own("align_corners")) {
    made.kernel = Ref<MPSKernel *>::adopt([static_cast<MPSCNNUpsamplingBilinear *>([kind alloc])
             initWithDevice:device
        integerScaleFactorX:x
        integerScaleFactorY:y
               alignCorners:boolean(params, "align_corners", false)]);
  } else {
    made.kernel = Ref<MPSKernel *>::adopt([static_cast<MPSCNNUpsamplingNearest *>([kind alloc]) initWithDevice:device
                                                                                           integerScaleFactorX:x
                                                                                           integerScaleFactorY:y]);
  }
  check<std::runtime_error>(static_cast<bool>(made.kernel), row.name, ": the device refused the kernel.");
  made.result_shape = [factor](ImageShape read) {
    return ImageShape{read.n, read.h * factor.h, read.w * factor.w, read.c};
  };
  return made;
}

static FamilyKernel make_upsampling_gradient(id<MTLDevice> device, const KernelRow &row, const FamilyKernel &forward,
                                             std::size_t) {
  const Class kind = class_of(row);
  auto *upsampling = static_cast<MPSCNNUpsampling *>(forward.kernel.get());
  const auto x = static_cast<NSUInteger>(upsampling.scaleFactorX), y = static_cast<NSUInteger>(upsampling.scaleFactorY);
  FamilyKernel made;
  MPSCNNUpsamplingGradient *kernel = [kind alloc];
  if ([upsampling isKindOfClass:[MPSCNNUpsamplingBilinear class]]) {
    made.kernel = Ref<MPSKernel *>::adopt([static_cast<MPSCNNUpsamplingBilinearGradient *>(kernel) initWithDevice:device
                                                                                              integerScaleFactorX:x
                                                                                              integerScaleFactorY:y]);
  } else {
    made.kernel = Ref<MPSKernel *>::adopt([static_cast<MPSCNNUpsamplingNearestGradient *>(kernel) initWithDevice:device
                                                                                             integerScaleFactorX:x
                                                                                             integerScaleFactorY:y]);
  }
  check<std::runtime_error>(static_cast<bool>(made.kernel), row.name, ": the device refused the kernel.");
  return made;
}

static const RegisteredFamily kUpsampling("upsampling", {.make = &make_upsampling});
static const RegisteredFamily kUpsamplingGradient("upsampling_gradient", {.make_gradient = &make_upsampling_gradient});

}  // namespace mpscnn
