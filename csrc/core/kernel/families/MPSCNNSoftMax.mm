// SPDX-License-Identifier: Apache-2.0
// MPSCNNSoftMax, MPSCNNLogSoftMax: without parameters.
#include "core/kernel/families/family.hh"

#include <mpscnn/error.hpp>

namespace mpscnn {

static FamilyKernel make_softmax(id<MTLDevice> device, const KernelRow &row, const Params &) {
  const Class kind = class_of(row);
  FamilyKernel made;
  made.kernel = Ref<MPSKernel *>::adopt([static_cast<MPSCNNKernel *>([kind alloc]) initWithDevice:device]);
  check<std::runtime_error>(static_cast<bool>(made.kernel), row.name, ": the device refused the kernel.");
  return made;
}

static FamilyKernel make_softmax_gradient(id<MTLDevice> device, const KernelRow &row, const FamilyKernel &,
                                          std::size_t) {
  return make_softmax(device, row, {});  // the initializers have the same selector
}

static const RegisteredFamily kSoftmax("softmax", {.make = &make_softmax});
static const RegisteredFamily kSoftmaxGradient("softmax_gradient", {.make_gradient = &make_softmax_gradient});

}  // namespace mpscnn
