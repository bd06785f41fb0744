// SPDX-License-Identifier: Apache-2.0
// Masks of rectified sums, for which their results serve as well.
#pragma once

#include <vector>

#include "engine/plan/plan.hpp"
#include "engine/plan/structure.hpp"

namespace openmps {

class Engine;

/// Let gradients read the result of a rectified sum, which is 0 where its mask is, if the engine does so, nothing
/// else reads the mask, and the result stays until then. The mask needs no memory then. A value that a format rounds to
/// 0 counts as 0; infinities and NaN pass, as in PyTorch's gradient.
void drop_masks(const Engine& engine, const std::vector<Command>& commands, const Structure& structure,
                std::vector<Plan::Step>& steps);

/// Return a step's problem without its mask, or with the result of `sum` as its mask.
Problem without_mask(const Problem& problem);
Problem with_mask(const Problem& problem, const Problem& sum);

}  // namespace openmps
