// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/problem/random.hpp"

namespace openmps::cpu {

void run(const RandomProblem& problem);

}  // namespace openmps::cpu
