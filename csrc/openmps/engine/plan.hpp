// SPDX-License-Identifier: Apache-2.0
// From the list a command buffer recorded to what an engine runs, cached by the list's structure.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.hpp"

namespace openmps {

/// How to run a list of commands of one structure: which commands become one engine call. Holds no memory and no
/// pointer of the list it was made from, so lists of the same structure share it.
struct Plan {
  struct Step {
    std::vector<std::uint32_t> commands;  ///< indices into the list, in order
  };
  std::vector<Step> steps;
};

/// Kinds, extents, strides, formats, windows, neurons and which commands share memory, without addresses or values:
/// lists of equal structure have equal keys.
std::string structure_key(const std::vector<Command>& commands);

/// The plan of that structure: out of a cache (bounded, shared by all queues) or made anew.
std::shared_ptr<const Plan> plan_for(const std::vector<Command>& commands);

/// Runs the list on the engine and waits. Returns an empty string, or the sentence of the first failure, which names
/// the command's label; later commands are then not run. Never throws (called from code that cannot catch).
std::string execute(Engine& engine, const std::vector<Command>& commands) noexcept;

}  // namespace openmps
