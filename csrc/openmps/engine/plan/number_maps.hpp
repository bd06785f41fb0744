// SPDX-License-Identifier: Apache-2.0
// Chains of functions from 8-bit numbers to 8-bit numbers, as tables.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/problem/fwd.hpp"
#include "engine/problem/quantized.hpp"

namespace openmps {

/// Return the map that activations and arithmetic, in order, are together: each result is a function of the numbers
/// that the conversions read, pixel by pixel, and the last one is stored as numbers. Nothing if they are none. The
/// table has the results of the commands for all 256 numbers, so intermediate results are rounded to their formats.
std::optional<QuantizedMapProblem> number_map(const std::vector<Command>& commands,
                                              std::span<const std::uint32_t> conversions,
                                              std::span<const std::uint32_t> chain);

}  // namespace openmps
