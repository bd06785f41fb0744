// SPDX-License-Identifier: Apache-2.0
// Which commands become one call of an engine.
#pragma once

#include "engine/plan/plan.hpp"
#include "engine/plan/structure.hpp"

namespace openmps {

/// Steps in the order in which they run: each command once. What is fused is what nobody can observe: the result of a
/// convolution that is one whole float32 source of the next command, in memory which only these two refer to. Parts of
/// a batch that follow each other are one step.
std::vector<Plan::Step> fuse(const std::vector<Command>& commands, const Structure& structure);

/// The call that some commands of a step are: one, or those that were fused.
Problem problem_of(const std::vector<Command>& commands, std::span<const std::uint32_t> fused);

/// Makes `conv` compute what `next` makes of its result, which has the same extents, and store it where `next` does.
/// False: there is no such problem.
bool absorb(ConvProblem& conv, const Problem& next);

}  // namespace openmps
