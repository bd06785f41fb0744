// SPDX-License-Identifier: Apache-2.0
// From the list a command buffer recorded to what an engine runs, cached by the list's structure.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/problem/fwd.hpp"

namespace openmps {

class Engine;

/// How to run a list of commands of one structure: which commands become one engine call, and where private memory
/// lies. Holds no memory and no pointer of the list it was made from, so lists of the same structure share it.
struct Plan {
  /// One call of the engine.
  struct Step {
    /// Indices into the list, in order. Of several, the first is a convolution and each takes the result of the one
    /// before.
    std::vector<std::uint32_t> commands;
  };
  struct Placement {
    std::uint32_t block;  ///< in the order of their first use
    std::size_t offset;   ///< bytes
  };
  std::vector<Step> steps;
  std::vector<Placement> placements;
  std::size_t arena_bytes = 0;  ///< that the placements need
};

/// Return the key of the list's structure. Lists with equal keys share a plan.
std::string structure_key(const std::vector<Command>& commands);

/// Make a plan for the engine; unless `fused`, with a step for each command.
std::shared_ptr<const Plan> make_plan(const Engine& engine, const std::vector<Command>& commands, bool fused);

/// Return the plan of that structure: out of a cache (bounded, shared by all queues) or made anew, fused unless the
/// environment says MPSCNN_FUSE=0.
std::shared_ptr<const Plan> plan_for(const Engine& engine, const std::vector<Command>& commands);

}  // namespace openmps
