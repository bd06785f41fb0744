// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/problem/loss.hpp"

namespace openmps::cpu {

/// Losses and gradients in one pass over the pixels of all images, threaded. Sums are the same whenever the number of
/// threads is.
void run(const LossProblem& problem);

}  // namespace openmps::cpu
