// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/engine.hpp"

namespace openmps::onednn {

/// One pass over all values, threaded.
void optimize(const OptimizeProblem& problem);

}  // namespace openmps::onednn
