// SPDX-License-Identifier: Apache-2.0
// Arguments of the kernels for the gradient of max pooling, which other families use, too.
#pragma once

#include "engine/cuda/kernels/max_pool_gradient.hpp"
#include "engine/cuda/work.hpp"
#include "engine/problem/problem.hpp"

namespace openmps::cuda {

/// Set the arguments, or return why these kernels do not compute the problem.
const char* max_gradient_args(const PoolGradientProblem& problem, Work& work, max_pool_gradient::Args& args);

}  // namespace openmps::cuda
