// SPDX-License-Identifier: Apache-2.0
// Reshape and padding.
#pragma once

#include "engine/problem/reshape.hpp"

namespace openmps::cpu {

void run(const ReshapeProblem& problem);
void run(const PadProblem& problem);
void run(const PadGradientProblem& problem);

}  // namespace openmps::cpu
