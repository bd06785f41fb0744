// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/groups.hpp"

namespace openmps::cuda {

bool may_group(const Problem& first) {
  if (const auto* const gradient = std::get_if<ConvGradientProblem>(&first)) return samples(*gradient);
  return std::holds_alternative<NormalizeProblem>(first) || std::holds_alternative<ConvProblem>(first);
}

std::size_t group(const ProblemOfGroup& problem, const EndsOfImages& ends) {
  if (!problem(1)) return 1;
  if (const auto* const conv = std::get_if<ConvProblem>(problem(0))) {
    const auto* const moments = std::get_if<BatchMomentsProblem>(problem(1));
    return moments && may_sum(*conv, *moments) ? 2 : 1;
  }
  if (const auto* const gradient = std::get_if<ConvGradientProblem>(problem(0))) {
    const auto* const sum = std::get_if<MaskedSumMomentsProblem>(problem(1));
    return sum && may_add(*gradient, *sum) && ends(gradient->diff_src, 2) ? 2 : 1;
  }
  const auto* const normalize = std::get_if<NormalizeProblem>(problem(0));
  if (!normalize) return 1;
  if (const auto* const sum = std::get_if<NormalizeAddProblem>(problem(1)))
    return may_add(*normalize, *sum) && ends(normalize->dst, 2) ? 2 : 1;
  return group(*normalize, problem, ends);
}

bool solve(std::span<const Problem> problems, Work& work) {
  if (const auto* const conv = std::get_if<ConvProblem>(&problems[0]))
    return solve(*conv, std::get<BatchMomentsProblem>(problems[1]), work);
  if (const auto* const gradient = std::get_if<ConvGradientProblem>(&problems[0]))
    return solve(*gradient, std::get<MaskedSumMomentsProblem>(problems[1]), work);
  const auto& first = std::get<NormalizeProblem>(problems[0]);
  if (const auto* const sum = std::get_if<NormalizeAddProblem>(&problems[1])) return solve(first, *sum, work);
  return solve(first, problems, work);
}

}  // namespace openmps::cuda
