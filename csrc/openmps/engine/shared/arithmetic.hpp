// SPDX-License-Identifier: Apache-2.0
// Sums, differences, products and quotients of two values, each formula once. Compiles for the host and for a GPU.
#pragma once

#include "engine/engine.hpp"
#include "engine/shared/neuron.hpp"

namespace openmps {

/// The bounds are written so that NaN comes out as NaN.
template <BinaryOperation operation>
MPSCNN_HOST_DEVICE float arithmetic(const Arithmetic& f, float a, float b) {
  const float x = f.scale0 * a, y = f.scale1 * b;
  const float result = (operation == BinaryOperation::add        ? x + y
                        : operation == BinaryOperation::subtract ? x - y
                        : operation == BinaryOperation::multiply ? x * y
                                                                 : x / y) +
                       f.bias;
  const float t = result < f.least ? f.least : result;
  return t > f.greatest ? f.greatest : t;
}

}  // namespace openmps
