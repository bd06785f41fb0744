// SPDX-License-Identifier: Apache-2.0
// Element-wise arithmetic of two values, each formula once. Compiles for the host and for a GPU.
#pragma once

#include "engine/problem/pointwise.hpp"
#include "engine/shared/neuron.hpp"

namespace openmps {

/// result = f(a, b). The bounds are written so that NaN stays NaN. Value is float or a vector of floats; by reference
/// because not every caller's instruction set has a register for it.
template <BinaryOperation operation, class Value>
MPSCNN_HOST_DEVICE void arithmetic(const Arithmetic& f, const Value& a, const Value& b, Value& result) {
  const Value x = f.scale0 * a, y = f.scale1 * b;
  if constexpr (operation == BinaryOperation::add) result = x + y + f.bias;
  if constexpr (operation == BinaryOperation::subtract) result = x - y + f.bias;
  if constexpr (operation == BinaryOperation::multiply) result = x * y + f.bias;
  if constexpr (operation == BinaryOperation::divide) result = x / y + f.bias;
  if constexpr (operation >= BinaryOperation::equal) {
    const Value difference = x - y, apart = difference < 0.0f ? -difference : difference;
    if constexpr (operation == BinaryOperation::equal) result = apart <= f.threshold ? 1.0f : 0.0f;
    if constexpr (operation == BinaryOperation::not_equal) result = apart <= f.threshold ? 0.0f : 1.0f;
    if constexpr (operation == BinaryOperation::less) result = x < y ? 1.0f : 0.0f;
    if constexpr (operation == BinaryOperation::less_or_equal) result = x <= y ? 1.0f : 0.0f;
    if constexpr (operation == BinaryOperation::greater) result = x > y ? 1.0f : 0.0f;
    if constexpr (operation == BinaryOperation::greater_or_equal) result = x >= y ? 1.0f : 0.0f;
    result = result + f.bias;
  }
  result = result < f.min ? f.min : result;
  result = result > f.max ? f.max : result;
}

}  // namespace openmps
