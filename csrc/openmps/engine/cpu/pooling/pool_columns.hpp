// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/problem/pool.hpp"

namespace openmps::cpu {

/// Maxima and averages of windows of 2 or 3 columns: columns are reduced first, and adjacent windows share them. Return
/// null or the reason why not.
const char* pool_columns(const PoolProblem& problem);

}  // namespace openmps::cpu
