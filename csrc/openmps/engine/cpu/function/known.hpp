// SPDX-License-Identifier: Apache-2.0
// Functions whose program says what they compute (function::Meaning). They are computed as that says; calls with
// arguments of another form are declined. docs/metal_functions.md describes the arguments.
#pragma once

#include "engine/problem/function.hpp"

namespace openmps::cpu {

/// For each row of images, the product of a matrix of `a` and one of `b`.
const char* function_product(const FunctionProblem& problem);

/// A copy with the axes of a tensor in another order, repeated or in part.
const char* function_permutation(const FunctionProblem& problem);

/// Return whether the result is one image, and each thread's `across` pixels of a slice are all of it.
bool covers(const FunctionExtent& threads, const FunctionTexture& texture, std::uint32_t across);

}  // namespace openmps::cpu
