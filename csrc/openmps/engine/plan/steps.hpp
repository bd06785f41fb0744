// SPDX-License-Identifier: Apache-2.0
// Steps: the engine calls of a planned list, in order.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/plan/narrowing.hpp"
#include "engine/plan/plan.hpp"
#include "engine/problem/problem.hpp"

namespace openmps {

/// Engine calls of a list, for Engine::start(). Used by one thread at a time.
class Steps {
 public:
  Steps(const std::vector<Command>& commands, const Plan& plan, const Structure& structure);

  std::size_t size() const { return plan_.steps.size(); }
  /// Return the problem of a step; valid until the next call. A repeated list keeps those that it made.
  const Problem& problem(std::size_t step);
  /// Return how many steps from this one on the engine may solve together.
  std::size_t group(std::size_t step) const { return plan_.steps[step].group; }
  /// Return the problems of the group that begins with a step; valid until the next call of this or problem().
  std::span<const Problem* const> group_problems(std::size_t first);
  /// Return the label of the step's first command.
  const std::string& label(std::size_t step) const { return commands_[plan_.steps[step].commands.front()].label; }
  /// Return the labels of all commands of the step.
  std::string labels(std::size_t step) const;
  /// Return the problems of the step's commands, before fusion, by their number in the list.
  template <class Visit>
  void for_each_command(std::size_t step, const Visit& visit) const {
    for (const std::uint32_t command : plan_.steps[step].commands) visit(command, commands_[command].problem);
  }
  /// Release the last problem.
  void forget_problem() { planned_ = Problem(), copies_.clear(); }
  /// Return the step of the last call of problem().
  std::size_t current() const { return current_; }

  /// State that an engine keeps between the runs of a repeated list.
  struct Kept {
    virtual ~Kept() = default;
    /// Whether start() returns without waiting, for any work or for a compiler.
    virtual bool starts_at_once() const = 0;
  };
  /// Return the place of that; null for a list that runs once. All runs have the same problems and addresses.
  std::unique_ptr<Kept>* kept() { return is_repeated_ ? &kept_ : nullptr; }
  void set_repeated() { is_repeated_ = true; }

 private:
  const std::vector<Command>& commands_;
  const Plan& plan_;
  const NarrowedMemory narrowed_;
  std::size_t current_ = 0;
  Problem planned_;                                   ///< the last one that differs from its command's
  std::vector<std::unique_ptr<const Problem>> made_;  ///< those of a repeated list, by step
  std::vector<const Problem*> of_group_;
  std::deque<Problem> copies_;  ///< of problems of that group that are not kept elsewhere
  bool is_repeated_ = false;
  std::unique_ptr<Kept> kept_;
};

/// Return the problem of a step, with the formats of its commands.
Problem planned_problem(const std::vector<Command>& commands, const Plan::Step& step);

/// Return whether MPSCNN_TRACE includes the time of each step.
bool traces_steps();

/// Solve the problem with the engine, or with the processor's engine if it declines. Synchronizes before a HostTask.
void run_problem(Engine& engine, const Problem& problem);

}  // namespace openmps
