// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/groups.hpp"

namespace openmps::cuda {

bool may_group(const Problem& first) { return std::holds_alternative<NormalizeProblem>(first); }

std::size_t group(const ProblemOfGroup& problem, const EndsOfImages& ends) {
  const auto* const normalize = std::get_if<NormalizeProblem>(problem(0));
  return normalize && problem(1) ? group(*normalize, problem, ends) : 1;
}

bool solve(std::span<const Problem> problems, Work& work) {
  return solve(std::get<NormalizeProblem>(problems[0]), problems, work);
}

}  // namespace openmps::cuda
