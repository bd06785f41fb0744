// SPDX-License-Identifier: Apache-2.0
// MPSCNNAdd, MPSCNNSubtract, MPSCNNMultiply and MPSCNNDivide, which have the same properties; MPSNNCompare.
#include "core/kernel/families/family.hh"

#include <algorithm>
#include <string_view>

#include <mpscnn/error.hpp>

namespace mpscnn {
namespace {

Repeat repeat(const Params &params, const char *pixels, const char *channels) {
  Repeat repeat;
  if (has(params, pixels)) {
    const auto stride = pair(params, pixels, {1, 1});
    repeat.h = stride.h == 0;
    repeat.w = stride.w == 0;
  }
  if (has(params, channels)) repeat.c = integer(params, channels, 1) == 0;
  return repeat;
}

/// Return the value of MPSNNComparisonType, whose order is that of the table's choices.
MPSNNComparisonType comparison_of(std::string_view name) {
  constexpr std::string_view names[] = {"equal", "not_equal", "less", "less_or_equal", "greater", "greater_or_equal"};
  return static_cast<MPSNNComparisonType>(std::find(std::begin(names), std::end(names), name) - std::begin(names));
}

}  // namespace

static FamilyKernel make_arithmetic(id<MTLDevice> device, const KernelRow &row, const Params &params) {
  const Class kind = class_of(row);
  FamilyKernel made;
  made.repeat = {repeat(params, "primary_stride", "primary_stride_in_feature_channels"),
                 repeat(params, "secondary_stride", "secondary_stride_in_feature_channels")};
  MPSCNNArithmetic *kernel = [static_cast<MPSCNNAdd *>([kind alloc]) initWithDevice:device];
  made.kernel = Ref<MPSKernel *>::adopt(kernel);
  check<std::runtime_error>(kernel != nil, row.name, ": the device refused the kernel.");
  const auto number = [&](const char *name, double fallback) {
    return static_cast<float>(real(params, name, fallback));
  };
  if (row.is_own("comparison")) {
    MPSNNCompare *compare = static_cast<MPSNNCompare *>(kernel);
    compare.comparisonType = comparison_of(text(params, "comparison", ""));
    compare.threshold = number("threshold", 0);
    return made;
  }
  kernel.primaryScale = number("primary_scale", 1);
  kernel.secondaryScale = number("secondary_scale", 1);
  kernel.bias = number("bias", 0);
  if (has(params, "minimum_value")) kernel.minimumValue = number("minimum_value", 0);
  if (has(params, "maximum_value")) kernel.maximumValue = number("maximum_value", 0);
  check(!(kernel.minimumValue > kernel.maximumValue), row.name, ": minimum_value (", kernel.minimumValue,
        ") is greater than maximum_value (", kernel.maximumValue, ").");
  return made;
}

static FamilyKernel make_arithmetic_gradient(id<MTLDevice> device, const KernelRow &row, const FamilyKernel &,
                                             std::size_t source) {
  const Class kind = class_of(row);
  FamilyKernel made;
  // Scales, strides and clamping come with the state.
  made.kernel = Ref<MPSKernel *>::adopt([static_cast<MPSCNNAddGradient *>([kind alloc]) initWithDevice:device
                                                                               isSecondarySourceFilter:source == 1]);
  check<std::runtime_error>(static_cast<bool>(made.kernel), row.name, ": the device refused the kernel.");
  made.needs_encoded_state = true;
  return made;
}

static const RegisteredFamily kArithmetic("arithmetic", {.make = &make_arithmetic});
static const RegisteredFamily kArithmeticGradient("arithmetic_gradient", {.make_gradient = &make_arithmetic_gradient});

}  // namespace mpscnn
