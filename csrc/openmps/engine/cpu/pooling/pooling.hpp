// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/problem/pool.hpp"

namespace openmps::cpu {

/// Vectorized along the channels; any format, strides and window.
void run(const PoolProblem& problem);

}  // namespace openmps::cpu
