// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/problem/resample.hpp"

namespace openmps::cpu {

/// Sums along the rows, then along the columns.
void run(const ResampleGradientProblem& problem);

}  // namespace openmps::cpu
