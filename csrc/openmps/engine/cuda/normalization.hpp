// SPDX-License-Identifier: Apache-2.0
// Coefficients and sums of normalizations, for kernels of other families.
#pragma once

#include "engine/cuda/kernels/statistics.hpp"
#include "engine/cuda/work.hpp"
#include "engine/problem/problem.hpp"

namespace openmps::cuda {

normalization::Statistics statistics_of(Work& work, const ChannelValues& mean, const ChannelValues& variance,
                                        const ChannelValues& exact);

normalization::Forward forward_of(Work& work, const normalization::Statistics& statistics,
                                  const normalization::Groups& groups, const ChannelValues& gamma,
                                  const ChannelValues& beta, float epsilon);
/// Enqueue the kernel that stores the coefficients of a batch of images in scratch memory.
normalization::StoredCoefficients stored_coefficients(Work& work, const normalization::Forward& forward);
/// Return the arguments for the sums of a gradient, without memory for coefficients.
normalization::GradientSumsArgs gradient_sums_of(Work& work, const BatchMomentsGradientProblem& problem);
normalization::GradientSumsArgs gradient_sums_of(Work& work, const NormalizeGradientProblem& problem);

/// Store the moments of an image whose values, and their squares, have been summed for each channel.
void finish_moments(const BatchMomentsProblem& problem, Work& work, Pointer<const float> sums,
                    Pointer<const float> squares);

/// Return scratch memory for the sums of `parts` of each channel.
Pointer<normalization::Pair> memory_of_sums(Work& work, std::int64_t channels, std::int64_t parts);

}  // namespace openmps::cuda
