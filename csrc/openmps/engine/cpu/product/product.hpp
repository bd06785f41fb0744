// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/problem/product.hpp"

namespace openmps::cpu {

/// Multiplies in place where the matrices are floats with rows at equal distances, otherwise on copies.
void run(const ProductProblem& problem);

}  // namespace openmps::cpu
