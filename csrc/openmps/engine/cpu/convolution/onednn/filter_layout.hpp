// SPDX-License-Identifier: Apache-2.0
// Filters of float32 between their own order (OHWI) and the blocked ones that oneDNN's convolutions ask for. Training
// does this with every step, and oneDNN's reorders read lines of memory that collide in the cache.
#pragma once

#include <dnnl.hpp>

namespace openmps::cpu {

/// False, and nothing is done: of such layouts there is only oneDNN's own reorder. Filters without groups.
bool pack_filter(const float* values, float* packed, const dnnl::memory::desc& layout);
bool unpack_filter(const float* packed, float* values, const dnnl::memory::desc& layout);

}  // namespace openmps::cpu
