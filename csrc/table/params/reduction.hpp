// SPDX-License-Identifier: Apache-2.0
// Reductions [MPSNNReduce.h].
#pragma once

#include <mpscnn/table.hpp>

namespace mpscnn::p {

inline constexpr ParamSpec clip_rect_source{
    .name = "clip_rect_source",
    .type = ParamType::region,
    .fallback = "None",
    .max = 1 << 30,
    .unit = "pixels",
    .apple = "clipRectSource",
    .summary =
        "Region of the source to read, cropped to the source; 2**30 images select all of them, so that a batch can be "
        "processed in chunks. None: all of it."};
inline constexpr ParamSpec primary_source_clip_rect{
    .name = "primary_source_clip_rect",
    .type = ParamType::region,
    .fallback = "None",
    .max = 1 << 30,
    .unit = "pixels",
    .apple = "primarySourceClipRect",
    .summary = "Region of x to read, cropped to x; 2**30 images select all of them. None: all of it."};
inline constexpr ParamSpec secondary_source_clip_rect{
    .name = "secondary_source_clip_rect",
    .type = ParamType::region,
    .fallback = "None",
    .max = 1 << 30,
    .unit = "pixels",
    .apple = "secondarySourceClipRect",
    .summary = "Region of `weights` to read, with the extents of the region of x; None: all of it."};
inline constexpr ParamSpec sum_weight{.name = "weight",
                                      .type = ParamType::real,
                                      .fallback = "1.0",
                                      .apple = "weight",
                                      .summary = "Factor of every channel."};
inline constexpr ParamSpec by_nonzero_weights{
    .name = "by_nonzero_weights",
    .type = ParamType::boolean,
    .fallback = "False",
    .apple = "doWeightedSumByNonZeroWeights",
    .summary = "Divide the sum of each pixel by the number of its nonzero weights, if there are any."};

}  // namespace mpscnn::p
