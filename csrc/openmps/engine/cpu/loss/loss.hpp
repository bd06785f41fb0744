// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/problem/loss.hpp"

namespace openmps::cpu {

/// Computes losses and gradients in one pass over the pixels of all images, threaded. Sums are reproducible with the
/// same number of threads.
void run(const LossProblem& problem);

}  // namespace openmps::cpu
