// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/problem/sums.hpp"

namespace openmps::cpu {

void run(const NormalizeAddProblem& problem);
void run(const MaskedSumProblem& problem);
void run(const MaskedSumMomentsProblem& problem);

}  // namespace openmps::cpu
