// SPDX-License-Identifier: Apache-2.0
// Upsampling [MPSCNNUpsampling.h] and resizing [MPSNNResize.h].
#pragma once

#include <mpscnn/table.hpp>

namespace mpscnn::p {

inline constexpr ParamSpec scale_factor{.name = "scale_factor",
                                        .type = ParamType::pair,
                                        .min = 1,
                                        .max = 65536,
                                        .unit = "pixels of the result for one of the source",
                                        .apple = "scaleFactorY, scaleFactorX",
                                        .summary = "How many times larger the result is."};
inline constexpr ParamSpec align_corners{
    .name = "align_corners",
    .type = ParamType::boolean,
    .fallback = "False",
    .apple = "alignCorners",
    .summary =
        "True: the outermost pixels of source and result stand on each other, as PyTorch's align_corners=True "
        "has it. False: pixel 0 stands on pixel 0, without the half pixel by which PyTorch's "
        "align_corners=False is shifted."};
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
    .unit = "fractions of the source, 0 its first pixel and 1 its last",
    .apple = "regions",
    .summary = "(R, 4), converted to float32: y, x, height, width of each region; what lies beyond the source is 0."};
inline constexpr ParamSpec edge_mode_far{
    .name = "edge_mode",
    .type = ParamType::text,
    .fallback = "'zero'",
    .choices = "zero|clamp",
    .apple = "edgeMode",
    .summary =
        "Pixels outside of the source: zero, with which the last rows and columns of the result are blended, as "
        "Apple's "
        "have been since macOS 10.14; or the nearest pixel, as other frameworks have it.",
    .attribute = true};
inline constexpr ParamSpec edge_mode_samples{
    .name = "edge_mode",
    .type = ParamType::text,
    .fallback = "'clamp'",
    .choices = "zero|clamp",
    .apple = "edgeMode",
    .summary =
        "Pixels outside of the source: zero, with which the last rows and columns of the result are blended, or "
        "the nearest pixel.",
    .attribute = true};

}  // namespace mpscnn::p
