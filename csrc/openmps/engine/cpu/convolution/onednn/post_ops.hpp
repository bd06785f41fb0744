// SPDX-License-Identifier: Apache-2.0
// Activations as oneDNN post-operations.
#pragma once

#include <dnnl.hpp>

#include "engine/problem/common.hpp"

namespace openmps::cpu {

/// Append the neuron to `ops`. Return false and leave `ops` unchanged if oneDNN has no operation that is accurate
/// enough.
bool append_neuron(dnnl::post_ops& ops, const Neuron& neuron);

}  // namespace openmps::cpu
