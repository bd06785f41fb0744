// SPDX-License-Identifier: Apache-2.0
// Colours between alpha conventions: what MPSImageConversion does besides converting the format. Plain C++.
#pragma once

#include <array>
#include <cstdint>

#include "engine/problem/common.hpp"

namespace openmps {

/// Values of MPSAlphaType: what the fourth channel says about the other three.
enum class Alpha : std::uint8_t { non_premultiplied = 0, one, premultiplied };

/// With (c, a) a texel of src, a = 1 where it has no fourth channel or src_alpha is one, and C = c or, premultiplied,
/// c / a (0 where a is 0): dst = (C, a), (C * a, a), or for dst_alpha one (C * a + background * (1 - a), 1). Texels of
/// 3 or 4 channels, or of as many in both; the fourth of dst is left out where dst has three.
struct TexelConversion {
  ImageView src, dst;                     ///< share no memory; as many images
  std::int64_t start_h = 0, start_w = 0;  ///< texel (0, 0) of dst in src
  Edge edge = Edge::zero;
  Alpha src_alpha = Alpha::one, dst_alpha = Alpha::one;
  std::array<float, 3> background = {0, 0, 0};
};

/// Throws std::bad_alloc if there is no memory for the host's copies.
void convert_texels(const TexelConversion& conversion);

}  // namespace openmps
