// SPDX-License-Identifier: Apache-2.0
// Values at other places, as they are: other extents, borders, other channels.
#pragma once

#include "engine/problem/reshape.hpp"

namespace openmps::cpu {

void run(const ReshapeProblem& problem);
void run(const PadProblem& problem);
void run(const PadGradientProblem& problem);

}  // namespace openmps::cpu
