// SPDX-License-Identifier: Apache-2.0
// MPSCNNCrossChannelNormalization, MPSCNNSpatialNormalization, MPSCNNLocalContrastNormalization.
#include "core/kernel/families/family.hh"

#include <mpscnn/error.hpp>

namespace mpscnn {

static FamilyKernel make_local_normalization(id<MTLDevice> device, const KernelRow &row, const Params &params) {
  const Class kind = class_of(row);
  FamilyKernel made;
  const auto size = static_cast<NSUInteger>(integer(params, "kernel_size", 5));
  const auto number = [&](const char *name, float fallback) {
    return static_cast<float>(real(params, name, static_cast<double>(fallback)));
  };
  // Parameters that are not given keep the object's defaults, which the table repeats.
  const auto set = [&](auto *kernel) {
    made.kernel = Ref<MPSKernel *>::adopt(kernel);
    check<std::runtime_error>(kernel != nil, row.name, ": the device refused the kernel.");
    kernel.alpha = number("alpha", kernel.alpha);
    kernel.beta = number("beta", kernel.beta);
    kernel.delta = number("delta", kernel.delta);
  };
  if (row.is_own("p0")) {
    MPSCNNLocalContrastNormalization *kernel = [kind alloc];
    kernel = [kernel initWithDevice:device kernelWidth:size kernelHeight:size];
    set(kernel);
    kernel.p0 = number("p0", kernel.p0);
    kernel.pm = number("pm", kernel.pm);
    kernel.ps = number("ps", kernel.ps);
  } else if ([kind instancesRespondToSelector:@selector(initWithDevice:kernelSize:)]) {
    MPSCNNCrossChannelNormalization *kernel = [kind alloc];
    set([kernel initWithDevice:device kernelSize:size]);
  } else {
    MPSCNNSpatialNormalization *kernel = [kind alloc];
    set([kernel initWithDevice:device kernelWidth:size kernelHeight:size]);
  }
  return made;
}

static FamilyKernel make_local_normalization_gradient(id<MTLDevice> device, const KernelRow &row,
                                                      const FamilyKernel &forward, std::size_t) {
  const Class kind = class_of(row);
  FamilyKernel made;
  const auto set = [&](auto *kernel, auto *from) {
    made.kernel = Ref<MPSKernel *>::adopt(kernel);
    check<std::runtime_error>(kernel != nil, row.name, ": the device refused the kernel.");
    kernel.alpha = from.alpha;
    kernel.beta = from.beta;
    kernel.delta = from.delta;
  };
  MPSKernel *given = forward.kernel.get();
  if ([given isKindOfClass:[MPSCNNLocalContrastNormalization class]]) {
    auto *from = static_cast<MPSCNNLocalContrastNormalization *>(given);
    MPSCNNLocalContrastNormalizationGradient *kernel = [kind alloc];
    kernel = [kernel initWithDevice:device kernelWidth:from.kernelWidth kernelHeight:from.kernelHeight];
    set(kernel, from);
    kernel.p0 = from.p0;
    kernel.pm = from.pm;
    kernel.ps = from.ps;
  } else if ([given isKindOfClass:[MPSCNNCrossChannelNormalization class]]) {
    auto *from = static_cast<MPSCNNCrossChannelNormalization *>(given);
    MPSCNNCrossChannelNormalizationGradient *kernel = [kind alloc];
    set([kernel initWithDevice:device kernelSize:from.kernelSize], from);
  } else {
    auto *from = static_cast<MPSCNNSpatialNormalization *>(given);
    MPSCNNSpatialNormalizationGradient *kernel = [kind alloc];
    set([kernel initWithDevice:device kernelWidth:from.kernelWidth kernelHeight:from.kernelHeight], from);
  }
  return made;
}

static const RegisteredFamily kLocalNormalization("local_normalization", {.make = &make_local_normalization});
static const RegisteredFamily kLocalNormalizationGradient("local_normalization_gradient",
                                                          {.make_gradient = &make_local_normalization_gradient});

}  // namespace mpscnn
