// SPDX-License-Identifier: Apache-2.0
// Copies of pixels between host memory of different strides, for the byte transfers of textures and images.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/problem/copy.hpp"

namespace openmps {

/// Rows of pixels; the elements of a pixel are adjacent. Strides in bytes.
struct Pixels {
  std::byte* data = nullptr;
  std::size_t pixel = 0, row = 0;
};

/// Channel planes of rows of elements. Strides in bytes.
struct Planes {
  std::byte* data = nullptr;
  std::size_t element = 0, row = 0, plane = 0;
};

/// Copy `bytes` of each of height x width pixels, in as few and as large blocks as the strides allow.
void copy_pixels(const Pixels& dst, const Pixels& src, std::size_t height, std::size_t width, std::size_t bytes);

/// Run a PixelCopyProblem on host memory.
void copy_pixels(const PixelCopyProblem& problem);

/// Set `count` elements of each pixel, starting at `first`, to one value (`size` bytes at `value`).
void fill_elements(const Pixels& dst, std::size_t height, std::size_t width, std::size_t first, std::size_t count,
                   const void* value, std::size_t size);

/// H x W x C <-> C x H x W for elements of 1, 2 or 4 bytes; large transfers on several threads.
void pixels_to_planes(const Planes& dst, const Pixels& src, std::size_t height, std::size_t width, std::size_t channels,
                      std::size_t size);
void planes_to_pixels(const Pixels& dst, const Planes& src, std::size_t height, std::size_t width, std::size_t channels,
                      std::size_t size);

}  // namespace openmps
