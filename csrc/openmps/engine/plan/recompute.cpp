// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/recompute.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <type_traits>

#include "engine/engine.hpp"
#include "engine/problem/problem.hpp"

namespace openmps {
namespace {

constexpr std::size_t kMinBytes = 1 << 20;  // of a block: smaller ones are not worth a call
constexpr std::uint32_t kMinGap = 8;        // steps without a reader

/// Operands of a command that can run again.
struct Repeatable {
  const Memory *src = nullptr, *dst = nullptr;
  std::array<const Memory*, 5> parameters{};  ///< may be null
};

std::optional<Repeatable> repeatable(const Problem& problem) {
  if (const auto* neuron = std::get_if<NeuronProblem>(&problem))
    return Repeatable{neuron->src.memory.get(), neuron->dst.memory.get()};
  const auto* const p = std::get_if<NormalizeProblem>(&problem);
  if (!p || p->groups > 0) return std::nullopt;
  return Repeatable{p->src.view.memory.get(),
                    p->dst.memory.get(),
                    {p->gamma.memory.get(), p->beta.memory.get(), p->mean.memory.get(), p->variance.memory.get(),
                     p->exact.memory.get()}};
}

class Recomputer {
 public:
  Recomputer(const Engine& engine, const std::vector<Command>& commands, const Structure& structure,
             const std::vector<Plan::Step>& steps)
      : engine_(engine),
        commands_(commands),
        structure_(structure),
        steps_(steps),
        index_(structure),
        uses_(structure.blocks.size()),
        writes_(structure.blocks.size()) {
    std::size_t largest = 0;
    for (std::uint32_t at = 0; at < steps.size(); ++at)
      for (const std::uint32_t command : steps[at].commands) {
        note(command, at);
        if (const auto operands = repeatable(commands[command].problem))
          largest = std::max(largest, operands->dst->size());
      }
    min_bytes_ = std::max(kMinBytes, engine.min_recomputed(largest));
  }

  std::vector<Plan::Step> steps() {
    // Last first: a command that runs again is a late reader of its source.
    for (std::uint32_t at = static_cast<std::uint32_t>(steps_.size()); at-- > 0;)
      if (steps_[at].commands.size() == 1 && steps_[at].dequantizations.empty())
        consider(steps_[at].commands.front(), at);
    std::sort(again_.begin(), again_.end(), [](const Again& a, const Again& b) {
      return a.before != b.before ? a.before < b.before : a.command < b.command;  // sources first
    });
    std::vector<Plan::Step> all;
    auto next = again_.begin();
    for (std::uint32_t at = 0; at < steps_.size(); ++at) {
      for (; next != again_.end() && next->before == at; ++next)
        all.push_back({.commands = {next->command}, .is_again = true});
      all.push_back(steps_[at]);
    }
    return all;
  }

 private:
  /// A command that runs again before a step.
  struct Again {
    std::uint32_t before, command;
  };

  void note(std::uint32_t command, std::uint32_t at) {
    for (const std::uint32_t block : structure_.uses_of(command))
      if (uses_[block].empty() || uses_[block].back() != at) uses_[block].push_back(at);
    std::visit(
        [&](const auto& problem) {
          if constexpr (Described<std::decay_t<decltype(problem)>>)
            for_each_result(problem, [&](const std::shared_ptr<Memory>& memory) {
              if (memory) writes_[index_.of(memory.get())].push_back(at);
            });
          else
            host_tasks_.push_back(at);
        },
        commands_[command].problem);
  }

  static bool has_between(const std::vector<std::uint32_t>& steps, std::uint32_t first, std::uint32_t last) {
    const auto found = std::upper_bound(steps.begin(), steps.end(), first);
    return found != steps.end() && *found < last;
  }

  /// Return whether nothing writes to the block between two steps.
  bool stays(const Memory* memory, std::uint32_t first, std::uint32_t last) const {
    if (!memory) return true;
    const std::uint32_t block = index_.of(memory);
    return (structure_.blocks[block].is_private || structure_.blocks[block].is_apart) &&
           !has_between(writes_[block], first, last);
  }

  void consider(std::uint32_t command, std::uint32_t at) {
    const auto operands = repeatable(commands_[command].problem);
    if (!operands || operands->src == operands->dst) return;
    const std::uint32_t src = index_.of(operands->src), dst = index_.of(operands->dst);
    const auto& block = structure_.blocks[dst];
    if (!block.is_private || block.memory->size() < min_bytes_ || block.memory->storage() != engine_.image_storage())
      return;
    const auto& uses = uses_[dst];
    if (uses.front() != at || writes_[dst] != std::vector<std::uint32_t>{at}) return;
    std::uint32_t before = 0, gap = 0;
    for (std::size_t i = 2; i < uses.size(); ++i)  // the first reader follows the command
      if (uses[i] - uses[i - 1] > gap) gap = uses[i] - uses[i - 1], before = uses[i];
    if (gap < kMinGap || has_between(host_tasks_, at, before)) return;
    if (structure_.blocks[src].is_private && uses_[src].back() < before) return;  // its memory is free by then
    if (!stays(operands->src, at, before)) return;
    for (const Memory* const each : operands->parameters)
      if (!stays(each, at, before)) return;
    again_.push_back({before, command});
    auto& reads = uses_[src];
    const auto place = std::lower_bound(reads.begin(), reads.end(), before);
    if (place == reads.end() || *place != before) reads.insert(place, before);
  }

  const Engine& engine_;
  const std::vector<Command>& commands_;
  const Structure& structure_;
  const std::vector<Plan::Step>& steps_;
  const BlockIndex index_;
  std::vector<std::vector<std::uint32_t>> uses_, writes_;  ///< steps, by block, in order
  std::vector<std::uint32_t> host_tasks_;                  ///< steps
  std::size_t min_bytes_ = 0;                              ///< of a result that is computed again
  std::vector<Again> again_;
};

}  // namespace

void add_recomputations(const Engine& engine, const std::vector<Command>& commands, const Structure& structure,
                        std::vector<Plan::Step>& steps) {
  if (engine.recomputes()) steps = Recomputer(engine, commands, structure, steps).steps();
}

}  // namespace openmps
