// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/masks.hpp"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "engine/engine.hpp"
#include "engine/problem/problem.hpp"

namespace openmps {
namespace {

/// Return whether the mask is 1 exactly where the result is not 0.
bool is_rectified(const BinaryProblem& sum) {
  const Format format = sum.dst.format;
  return sum.mask.memory && sum.function.min == 0 && sum.function.max == std::numeric_limits<float>::infinity() &&
         (format == Format::float16 || format == Format::float32);
}

/// When commands use each block.
struct Uses {
  std::vector<std::vector<std::uint32_t>> all, writes;  ///< commands, by block, in order
  std::vector<std::uint32_t> host_tasks;

  Uses(const std::vector<Command>& commands, const Structure& structure, const BlockIndex& index)
      : all(structure.blocks.size()), writes(structure.blocks.size()) {
    for (std::uint32_t i = 0; i < commands.size(); ++i) {
      for (const std::uint32_t block : structure.uses_of(i)) all[block].push_back(i);
      std::visit(
          [&](const auto& problem) {
            if constexpr (Described<std::decay_t<decltype(problem)>>)
              for_each_result(problem, [&](const std::shared_ptr<Memory>& memory) {
                if (memory) writes[index.of(memory.get())].push_back(i);
              });
            else
              host_tasks.push_back(i);
          },
          commands[i].problem);
    }
  }
  static bool has_between(const std::vector<std::uint32_t>& commands, std::uint32_t first, std::uint32_t last) {
    for (const std::uint32_t each : commands)
      if (first < each && each < last) return true;
    return false;
  }
};

template <class P>
ImageView* mask_of(P& problem) {
  if (auto* const sum = std::get_if<BinaryProblem>(&problem)) return &sum->mask;
  if (auto* const sum = std::get_if<NormalizeAddProblem>(&problem)) return &sum->mask;
  return nullptr;
}

}  // namespace

std::int64_t values_of_mask_byte(Format format) { return format == Format::float16 ? 8 : 4; }

void drop_masks(const Engine& engine, const std::vector<Command>& commands, const Structure& structure,
                std::vector<Plan::Step>& steps) {
  if (!engine.masks_by_results()) return;
  const BlockIndex index(structure);
  const Uses uses(commands, structure, index);
  std::vector<std::uint32_t> step_of(commands.size());
  for (std::uint32_t at = 0; at < steps.size(); ++at)
    for (const std::uint32_t command : steps[at].commands) step_of[command] = at;
  for (std::uint32_t i = 0; i < commands.size(); ++i) {
    const auto* const sum = std::get_if<BinaryProblem>(&commands[i].problem);
    if (!sum || !is_rectified(*sum)) continue;
    const std::uint32_t mask = index.of(sum->mask.memory.get()), dst = index.of(sum->dst.memory.get());
    const Structure::Block& block = structure.blocks[dst];
    const auto& readers = uses.all[mask];
    if (!structure.blocks[mask].is_private || readers.front() != i || uses.writes[mask].size() != 1) continue;
    if (!block.is_private && !block.is_apart) continue;
    const std::uint32_t last = readers.back();
    if (Uses::has_between(uses.writes[dst], i, last + 1) || Uses::has_between(uses.host_tasks, i, last)) continue;
    const auto reads_mask = [&](std::uint32_t command) {
      const auto* const gradient = std::get_if<BinaryGradientProblem>(&commands[command].problem);
      return gradient && gradient->mask.view == sum->mask && gradient->mask.start_h == 0 &&
             gradient->mask.start_w == 0 && gradient->diff_dst.view.memory != sum->mask.memory &&
             gradient->other.view.memory != sum->mask.memory;
    };
    bool is_only_mask = true;
    for (const std::uint32_t each : readers) is_only_mask = is_only_mask && (each == i || reads_mask(each));
    if (!is_only_mask) continue;
    const auto is_packed = [&](std::uint32_t command) {
      const Plan::Step& step = steps[step_of[command]];
      const Problem& first = commands[step.commands.front()].problem;
      if (command == i) return step.commands.size() == 2 && std::holds_alternative<NormalizeProblem>(first);
      return step.commands.size() == 3 && std::holds_alternative<BinaryProblem>(first);  // with sums
    };
    const ImageView& view = sum->mask;
    if (engine.packs_masks() && view.offset == 0 && view.is_dense() &&
        view.c % (8 * values_of_mask_byte(sum->dst.format)) == 0 && std::ranges::all_of(readers, is_packed)) {
      for (const std::uint32_t each : readers) steps[step_of[each]].has_packed_mask = true;
      continue;
    }
    steps[step_of[i]].drops_mask = true;
    for (const std::uint32_t each : readers)
      if (each != i) steps[step_of[each]].masking = i;
  }
}

Problem without_mask(const Problem& problem) {
  Problem result = problem;
  *mask_of(result) = {};
  return result;
}

Problem with_packed_mask(const Problem& problem) {
  Problem result = problem;
  const auto pack = [](ImageView& mask, const ImageView& dst) {
    const std::int64_t values = values_of_mask_byte(dst.format);
    for (std::int64_t* const each : {&mask.c, &mask.w_stride, &mask.h_stride, &mask.n_stride}) *each /= values;
  };
  if (auto* const sum = std::get_if<NormalizeAddProblem>(&result))
    pack(sum->mask, sum->dst);
  else if (auto* const moments = std::get_if<MaskedSumMomentsProblem>(&result))
    pack(moments->mask.view, moments->dst);
  return result;
}

Problem with_mask(const Problem& problem, const Problem& sum) {
  Problem result = problem;
  const ImageView& dst = std::get<BinaryProblem>(sum).dst;
  if (auto* const masked = std::get_if<MaskedSumProblem>(&result))
    masked->mask.view = dst;
  else if (auto* const moments = std::get_if<MaskedSumMomentsProblem>(&result))
    moments->mask.view = dst;
  else
    std::get<BinaryGradientProblem>(result).mask.view = dst;
  return result;
}

}  // namespace openmps
