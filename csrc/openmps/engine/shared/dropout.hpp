// SPDX-License-Identifier: Apache-2.0
// Dropout masks: random bits that depend only on seed, image and position, so that masks need not be stored and are the
// same on every engine and with any number of threads.
//
// The bits are those of Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3; 2011):
// 128 bits from a 128-bit counter and a 64-bit key. Key: the seed. Counter: block of the mask (64 bits, low word
// first), image (64 bits). Value number 64 * b + 16 * w + l of the mask (channels, then columns, then rows) takes word
// w of block 16 * b + l, and is kept if that is less than keep * 2^32.
#pragma once

#include <cstdint>

#include "engine/problem/pointwise.hpp"
#include "engine/shared/philox.hpp"

namespace openmps {

/// Write the bits of values first ... first + count - 1 of the image's mask; `first` is a multiple of 64, `bits` has
/// room for `count` rounded up to a multiple of 64.
void dropout_bits(std::uint64_t seed, std::uint64_t image, std::int64_t first, std::int64_t count, std::uint32_t* bits);

/// Return the limit below which a value's bits mean that it is kept.
std::uint32_t dropout_threshold(float keep);

/// Write the mask of one image, 1 where a value is kept; mask.h * mask.w * mask.c bytes.
void dropout_mask(const DropoutMask& mask, std::uint64_t image, std::uint8_t* kept);

}  // namespace openmps
