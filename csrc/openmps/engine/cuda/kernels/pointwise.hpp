// SPDX-License-Identifier: Apache-2.0
// Element-wise kernels: one value of the result each.
#pragma once

#include "engine/cuda/kernels/device.hpp"
#include "engine/problem/pointwise.hpp"
#include "engine/shared/arithmetic.hpp"

namespace openmps::cuda::pointwise {

inline constexpr const char* kFile = "engine/cuda/kernels/pointwise.hpp";

struct CopyArgs {
  View src, dst;
};
MPSCNN_VALUE_KERNEL(copy, CopyArgs) {
  const Place at = place_of(index, args.dst);
  store(args.dst, at, load(args.src, at));
}

struct NeuronArgs {
  View src, dst;
  Activation neuron;
};
MPSCNN_VALUE_KERNEL(neuron, NeuronArgs) {
  const Place at = place_of(index, args.dst);
  store(args.dst, at, activate(args.neuron, load(args.src, at), at.k));
}

struct BinaryArgs {
  Source src0, src1;
  View dst, mask;
  Arithmetic function;
};
MPSCNN_VALUE_KERNEL(binary, BinaryArgs) {
  const Place at = place_of(index, args.dst);
  const float a = load(args.src0, at), b = load(args.src1, at);
  Arithmetic unbounded = args.function;
  unbounded.min = -std::numeric_limits<float>::infinity();
  unbounded.max = std::numeric_limits<float>::infinity();
  float value = 0;
  switch (args.function.operation) {
    case BinaryOperation::add: arithmetic<BinaryOperation::add>(unbounded, a, b, value); break;
    case BinaryOperation::subtract: arithmetic<BinaryOperation::subtract>(unbounded, a, b, value); break;
    case BinaryOperation::multiply: arithmetic<BinaryOperation::multiply>(unbounded, a, b, value); break;
    case BinaryOperation::divide: arithmetic<BinaryOperation::divide>(unbounded, a, b, value); break;
  }
  if (args.mask) store(args.mask, at, value > args.function.min && value < args.function.max ? 1.0f : 0.0f);
  value = value < args.function.min ? args.function.min : value;
  value = value > args.function.max ? args.function.max : value;
  store(args.dst, at, value);
}

}  // namespace openmps::cuda::pointwise
