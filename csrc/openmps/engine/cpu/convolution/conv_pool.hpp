// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/problem/conv_pool.hpp"

namespace openmps::cpu {

/// One after the other; for lists of other engines whose memory only the processor reaches.
void run(const ConvPoolProblem& problem);

}  // namespace openmps::cpu
