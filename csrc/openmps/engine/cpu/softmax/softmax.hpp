// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/problem/normalize.hpp"

namespace openmps::cpu {

/// Loops over the channels of each pixel, or over runs of pixels if they have few channels.
void run(const SoftmaxProblem& problem);
void run(const SoftmaxGradientProblem& problem);

}  // namespace openmps::cpu
