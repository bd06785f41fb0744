// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/problem/conv.hpp"

namespace openmps::cpu {

void run(const BinaryConvProblem& problem);

}  // namespace openmps::cpu
