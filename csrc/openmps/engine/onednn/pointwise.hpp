// SPDX-License-Identifier: Apache-2.0
// What is done value by value to one or two sources. Threaded where it pays.
#pragma once

#include "engine/engine.hpp"

namespace openmps::onednn {

void binary(const BinaryProblem& problem);
void binary_gradient(const BinaryGradientProblem& problem);
void neuron_gradient(const NeuronGradientProblem& problem);
void dropout(const DropoutProblem& problem);

}  // namespace openmps::onednn
