// SPDX-License-Identifier: Apache-2.0
// Products of an image and one pixel per image, as squeeze-and-excitation has, in front of convolutions of one pixel.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "engine/memory.hpp"
#include "engine/problem/fwd.hpp"

namespace openmps::cpu {

/// Return whether the problem may be such a product.
bool may_gate(const Problem& first);

/// Return 2 if the first problem is such a product, and the second one a convolution that alone reads it; 1 otherwise.
/// As Engine::group().
std::size_t gated_length(const std::function<const Problem*(std::size_t)>& problem,
                         const std::function<bool(const ImageView&, std::size_t)>& ends);

/// Solve both without storing the product, or return false and do nothing.
bool try_gated(std::span<const Problem* const> problems);

}  // namespace openmps::cpu
