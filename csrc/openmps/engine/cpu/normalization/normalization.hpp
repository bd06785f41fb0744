// SPDX-License-Identifier: Apache-2.0
// Normalization by mean and variance. Sums are in double, of distances from a value of the channel, so that a mean far
// from 0 costs the variance no digits.
#pragma once

#include "engine/problem/normalize.hpp"

namespace openmps::cpu {

void run(const NormalizeProblem& problem);
void run(const BatchMomentsProblem& problem);

}  // namespace openmps::cpu
