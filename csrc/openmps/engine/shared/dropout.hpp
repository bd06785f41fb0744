// SPDX-License-Identifier: Apache-2.0
// Which values a dropout keeps: random bits that are a function of seed, image and place alone, so that the mask need
// not be stored, and every engine and number of threads gives the same.
//
// The bits are those of Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3; 2011):
// 128 bits from a counter of 128 and a key of 64. Key: the seed. Counter: block of the mask (64 bits, low word first),
// image (64 bits). Value number 64 * b + 16 * w + l of the mask (channels, then columns, then rows) takes word w of
// block 16 * b + l, and is kept when that is less than keep * 2^32.
#pragma once

#include <cstdint>

#include "engine/problem/pointwise.hpp"

namespace openmps {

/// One block: four words.
struct Philox {
  std::uint32_t words[4];
  Philox(std::uint64_t key, std::uint64_t low, std::uint64_t high);
};

/// Bits of values first ... first + count - 1 of the mask of the image; `first` is a multiple of 64, `bits` has room
/// for the next multiple of 64 values.
void dropout_bits(std::uint64_t seed, std::uint64_t image, std::int64_t first, std::int64_t count, std::uint32_t* bits);

/// Values whose bits are below this are kept.
std::uint32_t dropout_threshold(float keep);

/// The mask of one image, 1 where a value is kept; mask.h * mask.w * mask.c bytes.
void dropout_mask(const DropoutMask& mask, std::uint64_t image, std::uint8_t* kept);

}  // namespace openmps
