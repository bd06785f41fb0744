// SPDX-License-Identifier: Apache-2.0
// Functions of programs, compiled for the processor.
#pragma once

#include "engine/problem/function.hpp"

namespace openmps::cpu {

void run(const FunctionProblem& problem);

}  // namespace openmps::cpu
