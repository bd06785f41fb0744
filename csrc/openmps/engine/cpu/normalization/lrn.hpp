// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/problem/normalize.hpp"

namespace openmps::cpu {

/// Sums and powers are in double, so that the only error is that of storing the result. A window is summed along the
/// columns, then along the rows; neighbouring channels by doubling.
void run(const LRNProblem& problem);

/// The same; the terms of each window are computed once, then added to the columns and rows that it reads.
void run(const LRNGradientProblem& problem);

}  // namespace openmps::cpu
