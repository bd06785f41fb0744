// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/groups.hpp"

#include <algorithm>
#include <cstddef>
#include <deque>

#include "engine/engine.hpp"
#include "engine/plan/fusion.hpp"
#include "engine/plan/steps.hpp"
#include "engine/problem/problem.hpp"

namespace openmps {
namespace {

class Grouper {
 public:
  Grouper(const Engine& engine, const std::vector<Command>& commands, const Structure& structure,
          std::vector<Plan::Step>& steps)
      : engine_(engine), commands_(commands), structure_(structure), index_(structure), steps_(steps) {}

  void group() {
    for (std::size_t at = 0; at < steps_.size(); at += steps_[at].group) {
      if (!engine_.may_group(commands_[steps_[at].commands.front()].problem)) continue;
      std::deque<Problem> problems;  // whose elements stay in place
      const auto problem = [&](std::size_t i) -> const Problem* {
        while (problems.size() <= i && at + problems.size() < steps_.size())
          problems.push_back(planned_problem(commands_, steps_[at + problems.size()]));
        return i < problems.size() ? &problems[i] : nullptr;
      };
      const auto ends = [&](const ImageView& view, std::size_t count) { return this->ends(view, at + count); };
      steps_[at].group = static_cast<std::uint32_t>(engine_.group(problem, ends));
    }
  }

 private:
  /// Return whether no step from `first` on reads the values that an image has before.
  bool ends(const ImageView& view, std::size_t first) const {
    const std::uint32_t block = index_.of(view.memory.get());
    if (block == BlockIndex::kNone || !structure_.blocks[block].is_private) return false;
    const auto uses = [&](std::uint32_t command) {
      return std::ranges::find(structure_.uses_of(command), block) != structure_.uses_of(command).end();
    };
    for (std::size_t at = first; at < steps_.size(); ++at) {
      const Plan::Step& step = steps_[at];
      if (std::ranges::any_of(step.commands, uses))
        return step.is_again && result_of(commands_[step.commands.back()].problem).memory == view.memory;
    }
    return true;
  }

  const Engine& engine_;
  const std::vector<Command>& commands_;
  const Structure& structure_;
  const BlockIndex index_;
  std::vector<Plan::Step>& steps_;
};

}  // namespace

void group_steps(const Engine& engine, const std::vector<Command>& commands, const Structure& structure,
                 std::vector<Plan::Step>& steps) {
  Grouper(engine, commands, structure, steps).group();
}

}  // namespace openmps
