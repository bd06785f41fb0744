// SPDX-License-Identifier: Apache-2.0
// Convolutions of large images one after the other, a band of rows at a time.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "engine/memory.hpp"
#include "engine/problem/fwd.hpp"

namespace openmps::cpu {

/// Return how many of the problems from the first one on are solved in bands, 1 for none. As Engine::group().
std::size_t bands_length(const std::function<const Problem*(std::size_t)>& problem,
                         const std::function<bool(const ImageView&, std::size_t)>& ends);

/// Solve convolutions in bands, without storing whole images between them, or return false and do nothing.
bool try_bands(std::span<const Problem* const> problems);

}  // namespace openmps::cpu
