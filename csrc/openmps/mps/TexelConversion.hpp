// SPDX-License-Identifier: Apache-2.0
// Colours between alpha conventions, for MPSImageConversion. Plain C++.
#pragma once

#include <array>
#include <cstdint>

#include "engine/problem/common.hpp"

namespace openmps {

/// Values of MPSAlphaType: the meaning of the fourth channel for the other three.
enum class Alpha : std::uint8_t { non_premultiplied = 0, one, premultiplied };

/// With (c, a) a texel of src, a = 1 if it has no fourth channel or src_alpha is one, and C = c or, premultiplied, c /
/// a (0 if a is 0): dst = (C, a), (C * a, a), or for dst_alpha one (C * a + background * (1 - a), 1). Texels have 3 or
/// 4 channels, or as many in src as in dst; the fourth of dst is left out if dst has three.
struct TexelConversion {
  ImageView src, dst;                     ///< share no memory; equal numbers of images
  std::int64_t start_h = 0, start_w = 0;  ///< texel (0, 0) of dst in src
  Edge edge = Edge::zero;
  Alpha src_alpha = Alpha::one, dst_alpha = Alpha::one;
  std::array<float, 3> background = {0, 0, 0};
};

/// Throw std::bad_alloc if there is no memory for the host's copies.
void convert_texels(const TexelConversion& conversion);

}  // namespace openmps
