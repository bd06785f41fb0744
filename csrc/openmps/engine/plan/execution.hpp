// SPDX-License-Identifier: Apache-2.0
// Execution: a list of commands on its way through an engine.
#pragma once

#include <memory>
#include <vector>

#include "engine/failure.hpp"
#include "engine/problem/fwd.hpp"

namespace openmps {

class Engine;
struct Plan;

class Execution {
 public:
  Execution() noexcept;
  ~Execution();
  Execution(Execution&&) noexcept;
  Execution& operator=(Execution&&) noexcept;

  /// Whether wait() returns at once.
  bool is_done() const noexcept { return !state_; }
  /// Wait until the engine has ended, and free the memory that the plan took. Return the first failure; later commands
  /// are then not run.
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
