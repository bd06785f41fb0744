// SPDX-License-Identifier: Apache-2.0
// Gradients of normalization by mean and variance, in two passes over gradient and source. Sums are in double, of
// distances from the mean.
#pragma once

#include "engine/problem/normalize.hpp"

namespace openmps::cpu {

void run(const BatchMomentsGradientProblem& problem);
void run(const NormalizeGradientProblem& problem);

}  // namespace openmps::cpu
