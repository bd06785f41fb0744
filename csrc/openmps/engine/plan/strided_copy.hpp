// SPDX-License-Identifier: Apache-2.0
// Copies between images and arrays of other libraries in the same device's memory, whose axes have any order.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "engine/failure.hpp"
#include "engine/memory.hpp"

namespace openmps {

/// Copy between an image and an array of its format and extents that starts with `memory`. `strides` are those of the
/// array's images, rows, columns and channels, in elements; positive where the extent is not 1. Waits for the end.
Failure copy_strided(Engine& engine, const ImageView& image, const std::shared_ptr<Memory>& memory,
                     const std::array<std::int64_t, 4>& strides, bool into_image) noexcept;

/// Before the memory is freed, wait for the default stream of other libraries, which were given its address.
void wait_at_release(Memory& memory, const std::shared_ptr<Engine>& engine);

}  // namespace openmps
