// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/problem/sums.hpp"

namespace openmps::cpu {

void run(const NormalizeAddProblem& problem);
void run(const MaskedSumProblem& problem);

}  // namespace openmps::cpu
