// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/engine.hpp"

namespace openmps::onednn {

/// Own loops. Averages and norms gather along the rows, then along the columns; the greatest pixels of a row of windows
/// are looked up once, then each pixel asks the windows that see it.
void pool_gradient(const PoolGradientProblem& problem);

}  // namespace openmps::onednn
