// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/problem/reduce.hpp"

namespace openmps::cpu {

/// Own loops: rows and columns are folded with vectors along the channels, channels within each pixel or, where they
/// are few, with vectors along the pixels.
void run(const ReduceProblem& problem);

}  // namespace openmps::cpu
