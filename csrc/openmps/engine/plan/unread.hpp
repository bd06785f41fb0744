// SPDX-License-Identifier: Apache-2.0
// Results that nothing reads, which are not computed.
#pragma once

#include <vector>

#include "engine/plan/plan.hpp"
#include "engine/plan/structure.hpp"

namespace openmps {

/// Mark the steps whose gradient of the biases nothing reads: its memory is private, and only such gradients refer to
/// it. MPS computes this gradient for convolutions without biases, too [MPSCNNConvolution.h].
void drop_unread(const std::vector<Command>& commands, const Structure& structure, std::vector<Plan::Step>& steps);

/// Return the problem of such a step without that gradient.
Problem without_bias_gradient(const Problem& problem);

}  // namespace openmps
