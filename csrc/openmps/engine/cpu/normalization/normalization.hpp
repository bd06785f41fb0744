// SPDX-License-Identifier: Apache-2.0
// Normalization by mean and variance: own loops. Sums are kept in double, of the distances from a value of the channel,
// so that a mean far from 0 does not cost the variance its digits.
#pragma once

#include "engine/problem/normalize.hpp"

namespace openmps::cpu {

void run(const NormalizeProblem& problem);
void run(const BatchMomentsProblem& problem);

}  // namespace openmps::cpu
