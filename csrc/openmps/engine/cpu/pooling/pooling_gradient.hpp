// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/problem/pool.hpp"

namespace openmps::cpu {

/// Averages and norms gather along the rows, then along the columns; windows add their gradient to their max in the
/// order of the windows.
void run(const PoolGradientProblem& problem);

}  // namespace openmps::cpu
