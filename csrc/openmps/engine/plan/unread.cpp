// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/unread.hpp"

#include "engine/problem/problem.hpp"

namespace openmps {
namespace {

/// Return the problem if it is a gradient of a convolution, transposed or not; otherwise null.
template <class P>
auto* gradient_of(P& problem) {
  auto* const plain = std::get_if<ConvGradientProblem>(&problem);
  return plain ? plain : std::get_if<TransposeGradientProblem>(&problem);
}

}  // namespace

void drop_unread(const std::vector<Command>& commands, const Structure& structure, std::vector<Plan::Step>& steps) {
  const BlockIndex index(structure);
  const auto block_of = [&](std::uint32_t command) {
    const auto* const gradient = gradient_of(commands[command].problem);
    return gradient ? index.of(gradient->diff_bias.memory.get()) : BlockIndex::kNone;
  };
  std::vector<std::uint32_t> writers(structure.blocks.size());
  for (std::uint32_t i = 0; i < commands.size(); ++i)
    if (const std::uint32_t block = block_of(i); block != BlockIndex::kNone) ++writers[block];
  for (Plan::Step& step : steps) {
    const std::uint32_t at = block_of(step.commands.front());
    if (at == BlockIndex::kNone) continue;
    const Structure::Block& block = structure.blocks[at];
    step.drops_bias_gradient = block.is_private && block.references == writers[at];
  }
}

Problem without_bias_gradient(const Problem& problem) {
  Problem result = problem;
  gradient_of(result)->diff_bias = {};
  return result;
}

}  // namespace openmps
