// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/problem/resample.hpp"

namespace openmps::cpu {

/// Blends rows of the source first, then pixels of the blended row, vectorized along the channels or, if these are few,
/// along the row.
void run(const ResampleProblem& problem);
void run(const LanczosProblem& problem);
void run(const GridSampleProblem& problem);

}  // namespace openmps::cpu
