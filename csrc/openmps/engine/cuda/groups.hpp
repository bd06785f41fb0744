// SPDX-License-Identifier: Apache-2.0
// Groups of problems that kernels solve together, by the first one. group() does not look at addresses, solve() may
// decline.
#pragma once

#include "engine/cuda/families.hpp"

namespace openmps::cuda {

// normalize_pool.cpp
std::size_t group(const NormalizeProblem& first, const ProblemOfGroup& problem, const EndsOfImages& ends);
bool solve(const NormalizeProblem& first, std::span<const Problem> problems, Work& work);

// conv_tuned.cpp
/// Return whether the moments of a convolution's result may be found with the convolution.
bool may_sum(const ConvProblem& conv, const BatchMomentsProblem& moments);
bool solve(const ConvProblem& conv, const BatchMomentsProblem& moments, Work& work);

// normalization.cpp
/// Return whether the sum's addend is the result of another normalization, which need not be stored then.
bool may_add(const NormalizeProblem& first, const NormalizeAddProblem& next);
bool solve(const NormalizeProblem& first, const NormalizeAddProblem& next, Work& work);
/// Return whether a convolution reads every stride-th pixel of its source, so that the other ones' gradients are 0.
bool samples(const ConvGradientProblem& gradient);
/// Return whether the sum reads the gradient by the source of such a convolution, whose zeros need not be stored then.
bool may_add(const ConvGradientProblem& gradient, const MaskedSumMomentsProblem& next);
bool solve(const ConvGradientProblem& gradient, const MaskedSumMomentsProblem& next, Work& work);

}  // namespace openmps::cuda
