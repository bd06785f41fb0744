// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/problem/reduce.hpp"

namespace openmps::cpu {

/// Folds rows and columns with vectors along the channels, and channels within each pixel or, if these are few, with
/// vectors along the pixels.
void run(const ReduceProblem& problem);

/// Sums of all pixels. Return null when done, otherwise the reason for declining.
const char* pixel_sums_in_vectors(const ReduceProblem& problem);
void run(const CorrelationProblem& problem);

}  // namespace openmps::cpu
