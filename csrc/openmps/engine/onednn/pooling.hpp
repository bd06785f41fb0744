// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/engine.hpp"

namespace openmps::onednn {

/// Own loops: vectors along the channels, any format, strides and window.
void pool(const PoolProblem& problem);

}  // namespace openmps::onednn
