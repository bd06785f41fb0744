// SPDX-License-Identifier: Apache-2.0
// From the list a command buffer recorded to what an engine runs, cached by the list's structure.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.hpp"
#include "engine/problem/problem.hpp"

namespace openmps {

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

/// Why a list was not run to its end.
struct Failure {
  FailureCode code = FailureCode::none;
  std::string sentence;  ///< names the label of the command

  explicit operator bool() const { return code != FailureCode::none; }
};

/// A list on its way through an engine.
class Execution {
 public:
  Execution() noexcept;
  ~Execution();
  Execution(Execution&&) noexcept;
  Execution& operator=(Execution&&) noexcept;

  /// Whether wait() returns at once.
  bool is_done() const noexcept { return !state_; }
  /// Wait until the engine has ended, and free the memory that the plan took. The first failure; later commands are
  /// then not run.
  Failure wait() noexcept;

 private:
  friend Execution start(Engine&, const std::vector<Command>&, std::shared_ptr<const Plan>) noexcept;
  struct State;
  std::unique_ptr<State> state_;  ///< of a list that is not done
  Failure failure_;
};

/// Hand the list over to the engine, by `plan` or, without one, by plan_for(). `commands` outlive the execution. Never
/// throws (called from code that cannot catch). MPSCNN_TRACE=steps prints the time of each step.
Execution start(Engine& engine, const std::vector<Command>& commands,
                std::shared_ptr<const Plan> plan = nullptr) noexcept;

/// start() and wait().
inline Failure execute(Engine& engine, const std::vector<Command>& commands,
                       std::shared_ptr<const Plan> plan = nullptr) noexcept {
  return start(engine, commands, std::move(plan)).wait();
}

}  // namespace openmps
