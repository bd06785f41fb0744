// SPDX-License-Identifier: Apache-2.0
// Values at other places, as they are: other extents, borders, other channels.
#pragma once

#include "engine/engine.hpp"

namespace openmps::onednn {

void reshape(const ReshapeProblem& problem);
void pad(const PadProblem& problem);
void pad_gradient(const PadGradientProblem& problem);

}  // namespace openmps::onednn
