// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/problem/normalize.hpp"

namespace openmps::cpu {

/// Own loops: sums and powers in double, so that the error is that of storing the result. A window is summed along the
/// columns, then along the rows; neighbouring channels by doubling.
void run(const LRNProblem& problem);

/// The same: what each window needs is found once, then given back to the columns and rows that it was made of.
void run(const LRNGradientProblem& problem);

}  // namespace openmps::cpu
