// SPDX-License-Identifier: Apache-2.0
// Quantization: kernels between conversions from and to 8-bit numbers, which compute with these numbers instead.
//
// A network stores 8-bit numbers as images of Format::unorm8: a linear function converts values to them, another one
// converts them back. A convolution, sum or max pooling that reads such a result reads the numbers themselves, and
// stores numbers if a conversion to them is its only reader.
#pragma once

#include <vector>

#include "engine/memory.hpp"
#include "engine/plan/plan.hpp"
#include "engine/plan/structure.hpp"
#include "engine/problem/fwd.hpp"

namespace openmps {

/// Set the conversions that steps include, and remove the steps of those that nothing else reads, if the engine
/// computes with 8-bit numbers.
void quantize(const Engine& engine, const std::vector<Command>& commands, const Structure& structure,
              std::vector<Plan::Step>& steps);

/// Return the problem of a step that includes conversions.
Problem quantized_problem(const std::vector<Command>& commands, const Plan::Step& step);

/// Return the images that a conversion reads and writes.
const ImageView& numbers_of(const Command& dequantization);
const ImageView& values_of(const Command& dequantization);

}  // namespace openmps
