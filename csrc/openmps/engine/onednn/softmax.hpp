// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/engine.hpp"

namespace openmps::onednn {

/// Own loops over the channels of each pixel, or over whole runs of pixels where they have few channels.
void softmax(const SoftmaxProblem& problem);
void softmax_gradient(const SoftmaxGradientProblem& problem);

}  // namespace openmps::onednn
