// SPDX-License-Identifier: Apache-2.0
// MPSCNNDropout.
#include "core/kernel/families/family.hh"

#include <mpscnn/error.hpp>

namespace mpscnn {

static FamilyKernel make_dropout(id<MTLDevice> device, const KernelRow &row, const Params &params) {
  const Class kind = class_of(row);
  const auto keep = static_cast<float>(real(params, "keep_probability", 0.5));
  check(keep > 0 && keep < 1, row.name, ": keep_probability (", keep, ") is not between 0 and 1, both excluded.");
  const Pair stride = pair(params, "mask_stride", {1, 1});
  const MTLSize mask = MTLSizeMake(static_cast<NSUInteger>(stride.w), static_cast<NSUInteger>(stride.h),
                                   static_cast<NSUInteger>(integer(params, "mask_stride_in_feature_channels", 1)));
  FamilyKernel made;
  made.kernel = Ref<MPSKernel *>::adopt([static_cast<MPSCNNDropout *>([kind alloc])
          initWithDevice:device
         keepProbability:keep
                    seed:static_cast<NSUInteger>(integer(params, "seed", 0))
      maskStrideInPixels:mask]);
  check<std::runtime_error>(static_cast<bool>(made.kernel), row.name, ": the device refused the kernel.");
  return made;
}

static FamilyKernel make_dropout_gradient(id<MTLDevice> device, const KernelRow &row, const FamilyKernel &forward,
                                          std::size_t) {
  const Class kind = class_of(row);
  auto *dropout = static_cast<MPSCNNDropout *>(forward.kernel.get());
  FamilyKernel made;
  made.kernel = Ref<MPSKernel *>::adopt([static_cast<MPSCNNDropoutGradient *>([kind alloc])
          initWithDevice:device
         keepProbability:dropout.keepProbability
                    seed:dropout.seed
      maskStrideInPixels:dropout.maskStrideInPixels]);
  check<std::runtime_error>(static_cast<bool>(made.kernel), row.name, ": the device refused the kernel.");
  made.needs_encoded_state = true;  // the mask
  return made;
}

static const RegisteredFamily kDropout("dropout", {.make = &make_dropout});
static const RegisteredFamily kDropoutGradient("dropout_gradient", {.make_gradient = &make_dropout_gradient});

}  // namespace mpscnn
