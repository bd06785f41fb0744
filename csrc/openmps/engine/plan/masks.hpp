// SPDX-License-Identifier: Apache-2.0
// Masks of rectified sums, for which their results serve as well.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/memory.hpp"
#include "engine/plan/plan.hpp"
#include "engine/plan/structure.hpp"

namespace openmps {

class Engine;

/// Let gradients read the result of a rectified sum, which is 0 where its mask is, if the engine does so, nothing
/// else reads the mask, and the result stays until then. The mask needs no memory then. A value that a format rounds to
/// 0 counts as 0; infinities and NaN pass, as in PyTorch's gradient. If the engine packs masks, and normalizations with
/// sums write it and sums with sums of their values read it, a mask with a bit per value stays instead.
void drop_masks(const Engine& engine, const std::vector<Command>& commands, const Structure& structure,
                std::vector<Plan::Step>& steps);

/// Return how many values of a result in that format share a byte of a packed mask.
std::int64_t values_of_mask_byte(Format format);
/// Return a step's problem with its mask packed, as an image of bytes.
Problem with_packed_mask(const Problem& problem);

/// Return a step's problem without its mask, or with the result of `sum` as its mask.
Problem without_mask(const Problem& problem);
Problem with_mask(const Problem& problem, const Problem& sum);

}  // namespace openmps
