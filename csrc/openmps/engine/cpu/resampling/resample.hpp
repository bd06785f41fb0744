// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/problem/resample.hpp"

namespace openmps::cpu {

/// Own loops: rows of the source are blended first, then the pixels of the blended row, with vectors along the
/// channels or, where these are few, along the row.
void run(const ResampleProblem& problem);

}  // namespace openmps::cpu
