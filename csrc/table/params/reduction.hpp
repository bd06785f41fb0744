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
        "Part of the source that is read, as far as the source reaches; 2**30 images are all there are, and let a "
        "batch be worked on in parts. None: all of it."};
inline constexpr ParamSpec primary_source_clip_rect{
    .name = "primary_source_clip_rect",
    .type = ParamType::region,
    .fallback = "None",
    .max = 1 << 30,
    .unit = "pixels",
    .apple = "primarySourceClipRect",
    .summary = "Part of x that is read, as far as x reaches; 2**30 images are all there are. None: all of it."};
inline constexpr ParamSpec secondary_source_clip_rect{
    .name = "secondary_source_clip_rect",
    .type = ParamType::region,
    .fallback = "None",
    .max = 1 << 30,
    .unit = "pixels",
    .apple = "secondarySourceClipRect",
    .summary = "Part of `weights` that is read, of the extents that are read of x; None: all of it."};
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
    .summary = "The sum of a pixel is divided by how many of its weights are not 0, if there is one."};

}  // namespace mpscnn::p
