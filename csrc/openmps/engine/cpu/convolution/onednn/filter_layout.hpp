// SPDX-License-Identifier: Apache-2.0
// Reorders float32 filters between OHWI and the blocked layouts of oneDNN's convolutions, which may be of bfloat16.
// Training does this in every step, and oneDNN's own reorders read memory lines that collide in the cache.
#pragma once

#include <cstddef>

#include <dnnl.hpp>

namespace openmps::cpu {

/// Return false and do nothing if only oneDNN's own reorder supports the layout. Filters have no groups.
bool pack_filter(const float* values, std::byte* packed, const dnnl::memory::desc& layout);
/// The same for one filter per channel: groups of one input and one output. oneDNN 3.2's reorder ends the process on
/// processors without AVX: it adds memory that is not aligned.
bool pack_depthwise_filter(const float* values, std::byte* packed, const dnnl::memory::desc& layout);
bool unpack_filter(const float* packed, float* values, const dnnl::memory::desc& layout);

}  // namespace openmps::cpu
