// SPDX-License-Identifier: Apache-2.0
// Problems on 8-bit numbers.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/problem/quantized.hpp"
#include "engine/shared/tensor.hpp"

namespace openmps::cpu {

void run(const QuantizedConvProblem& problem);
void run(const QuantizedSumProblem& problem);
void run(const QuantizedProductProblem& problem);
void run(const QuantizedPixelSumProblem& problem);
void run(const QuantizedMapProblem& problem);

/// Weights as whole multiples, -128...127, of a step for each output.
struct ByteWeights {
  std::vector<std::int8_t> values;  ///< in the order of ConvWeights::values
  std::vector<float> steps;

  /// Return the weights as such, null if those of an output have no common step; kept with the weights.
  static std::shared_ptr<const ByteWeights> of(const ConvWeights& weights);
};

/// A convolution whose window may use a part of the source.
struct QuantizedConvCall {
  Tensor src, dst;
  const QuantizedConvProblem& problem;
};

/// Return whether a convolution of numbers computes the neuron as exactly as none.
bool is_exact_on_sums(const Neuron& neuron);

// Each returns null when done, otherwise the reason for declining.
/// Depth-wise convolutions in registers.
const char* quantized_conv_depthwise(const QuantizedConvCall& call);
/// Windows inside of the source, without groups.
const char* quantized_conv_products(const QuantizedConvCall& call);
const char* quantized_conv_primitive(const QuantizedConvCall& call);
/// Copies the source with its border, which has the number that stands for 0.
const char* quantized_conv_materialized(const QuantizedConvCall& call);

}  // namespace openmps::cpu
