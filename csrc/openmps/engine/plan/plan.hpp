// SPDX-License-Identifier: Apache-2.0
// Plans: how an engine runs the commands of a list; cached by the list's structure.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/problem/fwd.hpp"

namespace openmps {

class Engine;

/// How to run a list of commands of one structure: which commands become one engine call, and where private memory is
/// placed. Holds no memory and no pointer of its list, so lists of the same structure share it.
struct Plan {
  /// One call of the engine.
  struct Step {
    /// Indices into the list, in order. If there are several, each reads the result of the previous one. Only the last
    /// result is stored, and that of a gradient behind which sums of its values are found.
    std::vector<std::uint32_t> commands;
    bool is_again = false;      ///< its result was computed before, and its memory was used for something else since
    std::uint32_t group = 1;    ///< steps from this one on that the engine may solve together
    bool stores_images = true;  ///< those between the group's steps
    bool drops_bias_gradient = false;  ///< because nothing reads it
    bool drops_mask = false;           ///< because its readers read the result instead
    bool has_packed_mask = false;      ///< its mask has a bit per value [NormalizeAddProblem]
    static constexpr std::uint32_t kNone = 0xffffffff;
    std::uint32_t masking = kNone;  ///< the command whose result is read instead of its mask
    /// Conversions of 8-bit numbers to floats whose source, the numbers, is read instead of their result, by their
    /// index into the list.
    std::vector<std::uint32_t> dequantizations;
    std::uint32_t quantization = kNone;  ///< the last of `commands`, which only stores the result as 8-bit numbers
    bool is_map = false;  ///< 8-bit numbers as functions of those that the conversions read [QuantizedMapProblem]
  };
  struct Placement {
    std::uint32_t block;  ///< index into Structure::blocks
    std::size_t offset;   ///< in bytes
  };
  std::vector<Step> steps;
  std::vector<std::uint32_t> narrowed;  ///< blocks of float32 that hold bfloat16, by their index, in order
  std::vector<Placement> placements;
  std::size_t arena_bytes = 0;  ///< needed by the placements
};

/// Return the key of the list's structure. Lists with equal keys share a plan.
std::string structure_key(const std::vector<Command>& commands);

/// Make a plan for the engine; unless `fused`, with a step for each command.
std::shared_ptr<const Plan> make_plan(const Engine& engine, const std::vector<Command>& commands, bool fused);

/// Return the plan for the list's structure, from a cache (bounded, shared by all queues) or newly made; fused unless
/// the environment has MPSCNN_FUSE=0.
std::shared_ptr<const Plan> plan_for(const Engine& engine, const std::vector<Command>& commands);

}  // namespace openmps
