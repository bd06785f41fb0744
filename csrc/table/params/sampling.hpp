// SPDX-License-Identifier: Apache-2.0
// Upsampling [MPSCNNUpsampling.h] and resizing [MPSNNResize.h].
#pragma once

#include <mpscnn/table.hpp>

namespace mpscnn::p {

inline constexpr ParamSpec scale_factor{.name = "scale_factor",
                                        .type = ParamType::pair,
                                        .min = 1,
                                        .max = 65536,
                                        .unit = "result pixels per source pixel",
                                        .apple = "scaleFactorY, scaleFactorX",
                                        .summary = "Factor by which the result is larger than the source."};
inline constexpr ParamSpec align_corners{
    .name = "align_corners",
    .type = ParamType::boolean,
    .fallback = "False",
    .apple = "alignCorners",
    .summary =
        "True: the corner pixels of source and result coincide, as in PyTorch with align_corners=True. False: the "
        "first pixels coincide, without the half-pixel offset of PyTorch's align_corners=False."};
inline constexpr ParamSpec resize_size{.name = "size",
                                       .type = ParamType::pair,
                                       .min = 1,
                                       .max = 1 << 20,
                                       .unit = "pixels",
                                       .apple = "resizeHeight, resizeWidth",
                                       .summary = "Extents h, w of the result."};
inline constexpr ParamSpec regions{
    .name = "regions",
    .type = ParamType::array,
    .unit = "fractions of the source: 0 is its first pixel, 1 its last",
    .apple = "regions",
    .summary =
        "Shape (R, 4), converted to float32: y, x, height, width of each region; pixels outside of the source are 0."};
inline constexpr ParamSpec edge_mode_far{
    .name = "edge_mode",
    .type = ParamType::text,
    .fallback = "'zero'",
    .choices = "zero|clamp",
    .apple = "edgeMode",
    .summary =
        "Out-of-bounds taps read zero, which is blended into the last rows and columns of the result, as Apple does "
        "since macOS 10.14; or clamp to the edge, as in other frameworks.",
    .attribute = true};
inline constexpr ParamSpec edge_mode_samples{.name = "edge_mode",
                                             .type = ParamType::text,
                                             .fallback = "'clamp'",
                                             .choices = "zero|clamp",
                                             .apple = "edgeMode",
                                             .summary =
                                                 "Out-of-bounds taps read zero, which is blended into the last rows "
                                                 "and columns of the result, or clamp to the edge.",
                                             .attribute = true};

}  // namespace mpscnn::p
