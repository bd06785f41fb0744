// SPDX-License-Identifier: Apache-2.0
// Whether the threads of a kernel can compute several adjacent values each (kernels/lanes.hpp).
#pragma once

#include <initializer_list>

#include "engine/cuda/kernels/lanes.hpp"

namespace openmps::cuda {

/// Divide the values of `dst` among threads, or return why not. `images` and `sources` are all that the kernel uses;
/// images have dst's extents. `by_channel`: the kernel needs the channel of a value.
const char* divide(const View& dst, std::initializer_list<const View*> images,
                   std::initializer_list<const Source*> sources, bool by_channel, Chunks& chunks);

/// Return the number of threads.
inline i64 threads_of(const Chunks& chunks) { return (chunks.values + chunks.lanes - 1) / chunks.lanes; }

/// Return whether the values of an image have no gaps between them.
bool is_dense(const View& view);
/// Return whether each element of `dst` reads the element of the source at its own position.
bool is_like(const Source& source, const View& dst);

}  // namespace openmps::cuda
