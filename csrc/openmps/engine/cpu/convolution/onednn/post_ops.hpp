// SPDX-License-Identifier: Apache-2.0
// Activations as oneDNN post-operations.
#pragma once

#include <dnnl.hpp>

#include "engine/problem/common.hpp"

namespace openmps::cpu {

/// Appends what computes the neuron to `ops`. False if oneDNN has no operation that is accurate enough; `ops` is then
/// unchanged.
bool append_neuron(dnnl::post_ops& ops, const Neuron& neuron);

}  // namespace openmps::cpu
