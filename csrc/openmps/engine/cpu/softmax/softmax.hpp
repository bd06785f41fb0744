// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/problem/normalize.hpp"

namespace openmps::cpu {

/// Own loops over the channels of each pixel, or over whole runs of pixels where they have few channels.
void run(const SoftmaxProblem& problem);
void run(const SoftmaxGradientProblem& problem);

}  // namespace openmps::cpu
