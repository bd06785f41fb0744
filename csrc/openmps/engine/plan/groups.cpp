// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/groups.hpp"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <type_traits>
#include <vector>

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
      const auto may_group = [&] { return engine_.may_group(commands_[steps_[at].commands.front()].problem); };
      while (may_group() && postpone(at)) {  // another step is at its place
      }
      if (!may_group()) continue;
      const StepGroup group = group_from(at);
      steps_[at].group = static_cast<std::uint32_t>(group.count), steps_[at].stores_images = group.stores_images;
    }
  }

 private:
  /// Return which steps the engine solves together from one on.
  StepGroup group_from(std::size_t at) const {
    std::deque<Problem> problems;  // whose elements stay in place
    const auto problem = [&](std::size_t i) -> const Problem* {
      while (problems.size() <= i && at + problems.size() < steps_.size())
        problems.push_back(planned_problem(commands_, steps_[at + problems.size()]));
      return i < problems.size() ? &problems[i] : nullptr;
    };
    const auto ends = [&](const ImageView& view, std::size_t count) { return this->ends(view, at + count); };
    return engine_.group(problem, ends);
  }

  /// Move a step to the first one that reads its result, if that is not the next one and the engine solves both
  /// together. Return whether it has been moved.
  bool postpone(std::size_t at) {
    const std::size_t reader = first_reader(at);
    if (reader <= at + 1) return false;
    const auto first = steps_.begin() + static_cast<std::ptrdiff_t>(at);
    const auto last = steps_.begin() + static_cast<std::ptrdiff_t>(reader);
    std::rotate(first, first + 1, last);
    if (group_from(reader - 1).count > 1) return true;
    std::rotate(first, last - 1, last);
    return false;
  }

  /// Return the first step that uses the result of another one, if that can be computed as late; else 0.
  std::size_t first_reader(std::size_t at) const {
    const Plan::Step& step = steps_[at];
    const Problem& problem = commands_[step.commands.front()].problem;
    const auto* const gradient = std::get_if<ConvGradientProblem>(&problem);
    if (!gradient && !std::holds_alternative<NormalizeProblem>(problem)) return 0;
    if (step.is_again || !step.dequantizations.empty() || step.quantization != Plan::Step::kNone) return 0;
    const ImageView& image = gradient ? gradient->diff_src : result_of(commands_[step.commands.back()].problem);
    const std::uint32_t result = index_.of(image.memory.get());
    std::vector<std::uint32_t> used;
    for (const std::uint32_t command : step.commands)
      used.insert(used.end(), structure_.uses_of(command).begin(), structure_.uses_of(command).end());
    const auto is_own = [&](std::uint32_t block) {
      return block != BlockIndex::kNone && (structure_.blocks[block].is_private || structure_.blocks[block].is_apart);
    };
    if (!is_own(result) || !structure_.blocks[result].is_private || !std::ranges::all_of(used, is_own)) return 0;
    const auto among = [](const auto& blocks, std::uint32_t block) {
      return std::ranges::find(blocks, block) != blocks.end();
    };
    std::vector<std::uint32_t> others;  // of its results
    if (gradient)
      for (const ChannelValues* const each : {&gradient->diff_weights, &gradient->diff_bias})
        if (each->memory) others.push_back(index_.of(each->memory.get()));
    const auto reads_other = [&](std::uint32_t command) {
      return std::ranges::any_of(structure_.uses_of(command), [&](std::uint32_t use) { return among(others, use); });
    };
    for (std::size_t i = at + 1; i < steps_.size(); ++i)
      for (const std::uint32_t command : steps_[i].commands) {
        if (among(structure_.uses_of(command), result)) return i;
        if (changes(command, [&](std::uint32_t block) { return among(used, block); }) || reads_other(command)) return 0;
        // Weights are outside of blocks.
        if (gradient && std::holds_alternative<LoadWeightsProblem>(commands_[command].problem)) return 0;
      }
    return 0;
  }

  /// Return whether a command writes to one of some blocks, or is a task of the host.
  template <class IsOneOf>
  bool changes(std::uint32_t command, const IsOneOf& is_one_of) const {
    return std::visit(
        [&](const auto& problem) {
          bool found = !Described<std::decay_t<decltype(problem)>>;
          if constexpr (Described<std::decay_t<decltype(problem)>>)
            for_each_result(problem, [&](const std::shared_ptr<Memory>& memory) {
              found = found || (memory && is_one_of(index_.of(memory.get())));
            });
          return found;
        },
        commands_[command].problem);
  }

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
