// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/problem/optimize.hpp"

namespace openmps::cpu {

/// One pass over all values, threaded.
void run(const OptimizeProblem& problem);

}  // namespace openmps::cpu
