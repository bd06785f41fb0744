// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/engine.hpp"

namespace openmps::onednn {

/// Own loops: sums along the rows, then along the columns.
void resample_gradient(const ResampleGradientProblem& problem);

}  // namespace openmps::onednn
