// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/engine.hpp"

namespace openmps::onednn {

void convolve_binary(const BinaryConvProblem& problem);

}  // namespace openmps::onednn
