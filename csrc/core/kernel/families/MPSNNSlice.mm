// SPDX-License-Identifier: Apache-2.0
// MPSNNSlice: selects by offset, channel offset and destination.
#include "core/kernel/families/family.hh"

#include <mpscnn/error.hpp>

namespace mpscnn {

static FamilyKernel make_slice(id<MTLDevice> device, const KernelRow &row, const Params &params) {
  const Class kind = class_of(row);
  FamilyKernel made;
  made.kernel = Ref<MPSKernel *>::adopt([static_cast<MPSNNSlice *>([kind alloc]) initWithDevice:device]);
  check<std::runtime_error>(static_cast<bool>(made.kernel), row.name, ": the device refused the kernel.");
  made.result_shape = [size = has(params, "size") ? std::optional(pair(params, "size", {1, 1})) : std::nullopt](
                          ImageShape read) { return size ? ImageShape{read.n, size->h, size->w, read.c} : read; };
  return made;
}

static const RegisteredFamily kSlice("slice", {.make = &make_slice});

}  // namespace mpscnn
