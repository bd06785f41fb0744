// SPDX-License-Identifier: Apache-2.0
// Element-wise work on one or two sources. Threaded where it pays.
#pragma once

#include "engine/problem/pointwise.hpp"

namespace openmps::cpu {

void run(const BinaryProblem& problem);
void run(const BinaryGradientProblem& problem);
void run(const NeuronGradientProblem& problem);
void run(const DropoutProblem& problem);

}  // namespace openmps::cpu
