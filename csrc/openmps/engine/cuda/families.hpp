// SPDX-License-Identifier: Apache-2.0
// Problems that the CUDA engine solves; each family has a file of its own.
#pragma once

#include <functional>
#include <span>

#include "engine/cuda/work.hpp"
#include "engine/problem/problem.hpp"
#include "engine/shared/implementations.hpp"

namespace openmps::cuda {

/// A problem on a thread's stream, as lists of implementations take it.
template <class P>
struct Call {
  const P& problem;
  Work& work;
};

// Enqueue the problem's kernels, or return false and do nothing.
bool solve(const NeuronProblem& problem, Work& work);
bool solve(const NeuronGradientProblem& problem, Work& work);
bool solve(const BinaryProblem& problem, Work& work);
bool solve(const BinaryGradientProblem& problem, Work& work);
bool solve(const NormalizeAddProblem& problem, Work& work);
bool solve(const MaskedSumProblem& problem, Work& work);
bool solve(const MaskedSumMomentsProblem& problem, Work& work);
bool solve(const DropoutProblem& problem, Work& work);
bool solve(const CopyProblem& problem, Work& work);
bool solve(const LoadWeightsProblem& problem, Work& work);
bool solve(const ConvProblem& problem, Work& work);
bool solve(const TransposeProblem& problem, Work& work);
bool solve(const BinaryConvProblem& problem, Work& work);
bool solve(const ConvGradientProblem& problem, Work& work);
bool solve(const TransposeGradientProblem& problem, Work& work);
bool solve(const LossProblem& problem, Work& work);
bool solve(const BufferCopyProblem& problem, Work& work);
bool solve(const BufferFillProblem& problem, Work& work);
bool solve(const PixelCopyProblem& problem, Work& work);
bool solve(const StridedCopyProblem& problem, Work& work);
bool solve(const ReshapeProblem& problem, Work& work);
bool solve(const PadProblem& problem, Work& work);
bool solve(const PadGradientProblem& problem, Work& work);
bool solve(const OptimizeProblem& problem, Work& work);
bool solve(const ResampleProblem& problem, Work& work);
bool solve(const ResampleGradientProblem& problem, Work& work);
bool solve(const ConvPoolProblem& problem, Work& work);
bool solve(const PoolProblem& problem, Work& work);
bool solve(const PoolGradientProblem& problem, Work& work);
bool solve(const SoftmaxProblem& problem, Work& work);
bool solve(const SoftmaxGradientProblem& problem, Work& work);
bool solve(const NormalizeProblem& problem, Work& work);
bool solve(const BatchMomentsProblem& problem, Work& work);
bool solve(const BatchMomentsGradientProblem& problem, Work& work);
bool solve(const NormalizeGradientProblem& problem, Work& work);
bool solve(const LRNProblem& problem, Work& work);
bool solve(const LRNGradientProblem& problem, Work& work);
bool solve(const ReduceProblem& problem, Work& work);
bool solve(const CorrelationProblem& problem, Work& work);
bool solve(const LanczosProblem& problem, Work& work);
bool solve(const GridSampleProblem& problem, Work& work);
bool solve(const ProductProblem& problem, Work& work);
bool solve(const RandomProblem& problem, Work& work);
bool solve(const FunctionProblem& problem, Work& work);

/// Solve the problems of a group in one call, or return false and do nothing.
bool solve(std::span<const Problem> problems, Work& work);
/// As Engine::may_group() and Engine::group().
bool may_group(const Problem& first);
using ProblemOfGroup = std::function<const Problem*(std::size_t)>;
using EndsOfImages = std::function<bool(const ImageView&, std::size_t)>;
std::size_t group(const ProblemOfGroup& problem, const EndsOfImages& ends);

/// Return whether the problem may wait for others of its kind (Work::gathered()).
bool may_gather(const Problem& problem);

/// Return whether a kernel computes both.
bool fuses(const ConvPoolProblem& problem, const Gpu& gpu);
/// Return whether one pass over the images computes the two.
bool fuses(const NormalizeAddProblem& problem);
bool fuses(const MaskedSumMomentsProblem& problem);

}  // namespace openmps::cuda
