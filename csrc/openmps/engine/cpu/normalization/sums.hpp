// SPDX-License-Identifier: Apache-2.0
// Sums behind normalizations, and masked sums before gradients of normalizations.
#pragma once

#include "engine/problem/sums.hpp"

namespace openmps::cpu {

/// Return whether the images are float32 and have no gaps; masks may be unorm8. Then one pass is faster than two or
/// three.
bool fuses(const NormalizeAddProblem& problem);
bool fuses(const MaskedSumProblem& problem);
bool fuses(const MaskedSumMomentsProblem& problem);

void run(const NormalizeAddProblem& problem);
void run(const MaskedSumProblem& problem);
void run(const MaskedSumMomentsProblem& problem);

}  // namespace openmps::cpu
