// SPDX-License-Identifier: Apache-2.0
// Chains of convolutions of one pixel, depth-wise, and of one pixel, as in inverted residual blocks.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "engine/memory.hpp"
#include "engine/problem/fwd.hpp"

namespace openmps::cpu {

/// Return how many of the problems from the first one on are a chain, 1 for none. As Engine::group().
std::size_t chain_length(const std::function<const Problem*(std::size_t)>& problem,
                         const std::function<bool(const ImageView&, std::size_t)>& ends);

/// Solve a chain without storing the images between its convolutions, or return false and do nothing.
bool try_chain(std::span<const Problem* const> problems);

}  // namespace openmps::cpu
