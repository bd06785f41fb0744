// SPDX-License-Identifier: Apache-2.0
// Execution: a list of commands that an engine runs.
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
  /// Wait until the engine has finished, and free the plan's memory. Return the first failure; commands after it do not
  /// run.
  Failure wait() noexcept;

 private:
  friend Execution start(Engine&, const std::vector<Command>&, std::shared_ptr<const Plan>) noexcept;
  struct State;
  std::unique_ptr<State> state_;  ///< null once done
  Failure failure_;
};

/// Start to run the list on the engine by `plan` or, if null, by plan_for(). `commands` must outlive the execution.
/// Never throws (called from code that cannot catch). MPSCNN_TRACE=steps prints the time of each step.
Execution start(Engine& engine, const std::vector<Command>& commands,
                std::shared_ptr<const Plan> plan = nullptr) noexcept;

/// start() and wait().
inline Failure execute(Engine& engine, const std::vector<Command>& commands,
                       std::shared_ptr<const Plan> plan = nullptr) noexcept {
  return start(engine, commands, std::move(plan)).wait();
}

}  // namespace openmps
