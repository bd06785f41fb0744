// SPDX-License-Identifier: Apache-2.0
// Fusion: commands that become one call of an engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/plan/plan.hpp"
#include "engine/plan/structure.hpp"
#include "engine/problem/conv_pool.hpp"
#include "engine/problem/sums.hpp"

namespace openmps {

/// Return steps in execution order; each command is in one step. A command is fused with the next one only if the
/// engine fuses the two and the result is one whole source of that command, in memory that only these two refer to.
std::vector<Plan::Step> fuse(const Engine& engine, const std::vector<Command>& commands, const Structure& structure);

/// Return the problem of a step of several commands.
Problem fused_problem(const std::vector<Command>& commands, const Plan::Step& step);

/// Return the result of a command that is in a step with a later one.
const ImageView& result_of(const Problem& problem);

/// Return whether element (y, x, k) of the result reads element (y, x, k) of the operand, with equal extents.
bool is_plain(const Operand& operand, const ImageView& dst);

/// Extend `conv` by the next of `commands`, which reads its result, so that it stores the result of that command, or by
/// the next two: an activation and the product with it. Return their number; 0 if no such problem exists, and `conv` is
/// unchanged.
std::size_t absorb(ConvProblem& conv, const std::vector<Command>& commands, std::span<const std::uint32_t> next);

/// Return a convolution and the max pooling of its result as one problem.
ConvPoolProblem pooled(const ConvProblem& conv, const PoolProblem& pool);

}  // namespace openmps
