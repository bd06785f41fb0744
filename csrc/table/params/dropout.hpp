// SPDX-License-Identifier: Apache-2.0
// Dropout [MPSCNNDropout.h].
#pragma once

#include <mpscnn/table.hpp>

namespace mpscnn::p {

inline constexpr ParamSpec keep_probability{
    .name = "keep_probability",
    .type = ParamType::real,
    .fallback = "0.5",
    .min = 0,
    .max = 1,
    .unit = "probability",
    .apple = "keepProbability",
    .summary =
        "Probability that a value is kept, greater than 0 and less than 1; PyTorch's p is 1 - keep_probability."};
inline constexpr ParamSpec dropout_seed{
    .name = "seed",
    .type = ParamType::integer,
    .fallback = "0",
    .min = 0,
    .unit = "any number",
    .apple = "seed",
    .summary = "Seed of the random masks; kernels with the same seed draw the same sequence of masks."};
inline constexpr ParamSpec mask_stride{
    .name = "mask_stride",
    .type = ParamType::pair,
    .fallback = "1",
    .min = 0,
    .max = 1,
    .unit = "pixels",
    .apple = "maskStrideInPixels",
    .summary = "0: all rows, or all columns, share one mask; 0 for both drops whole channels, as PyTorch's dropout2d."};
inline constexpr ParamSpec mask_stride_in_feature_channels{.name = "mask_stride_in_feature_channels",
                                                           .type = ParamType::integer,
                                                           .fallback = "1",
                                                           .min = 0,
                                                           .max = 1,
                                                           .unit = "channels",
                                                           .apple = "maskStrideInPixels",
                                                           .summary = "0: all channels of a pixel share one mask."};

}  // namespace mpscnn::p
