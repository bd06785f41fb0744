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
    .summary = "Probability p with which a value is kept, neither 0 nor 1; PyTorch's p is 1 - keep_probability."};
inline constexpr ParamSpec dropout_seed{
    .name = "seed",
    .type = ParamType::integer,
    .fallback = "0",
    .min = 0,
    .unit = "any number",
    .apple = "seed",
    .summary = "Start of the random numbers: kernels of one seed draw the same masks, one after the other."};
inline constexpr ParamSpec mask_stride{
    .name = "mask_stride",
    .type = ParamType::pair,
    .fallback = "1",
    .min = 0,
    .max = 1,
    .unit = "pixels",
    .apple = "maskStrideInPixels",
    .summary =
        "0: all rows, or all columns, are kept and dropped alike; 0 for both drops whole channels, as PyTorch's "
        "dropout2d."};
inline constexpr ParamSpec mask_stride_in_feature_channels{
    .name = "mask_stride_in_feature_channels",
    .type = ParamType::integer,
    .fallback = "1",
    .min = 0,
    .max = 1,
    .unit = "channels",
    .apple = "maskStrideInPixels",
    .summary = "0: all channels of a pixel are kept and dropped alike."};

}  // namespace mpscnn::p
