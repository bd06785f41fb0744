// SPDX-License-Identifier: Apache-2.0
// MPSCNNSoftMax, MPSCNNLogSoftMax: without parameters.
#include "core/kernel/families/family.hh"

#include <mpscnn/error.hpp>

namespace mpscnn {

FamilyKernel make_softmax(id<MTLDevice> device, const KernelRow &row, const Params &) {
  const Class kind = class_of(row);
  FamilyKernel made;
  made.kernel = Ref<MPSKernel *>::adopt([static_cast<MPSCNNKernel *>([kind alloc]) initWithDevice:device]);
  check<std::runtime_error>(static_cast<bool>(made.kernel), row.name, ": the device refused the kernel.");
  return made;
}

FamilyKernel make_softmax_gradient(id<MTLDevice> device, const KernelRow &row, const FamilyKernel &) {
  return make_softmax(device, row, {});  // the initializers have the same selector
}

}  // namespace mpscnn
