// SPDX-License-Identifier: Apache-2.0
// Arithmetic [MPSCNNMath.h].
#pragma once

#include <mpscnn/table.hpp>

namespace mpscnn::p {

inline constexpr ParamSpec primary_scale{.name = "primary_scale",
                                         .type = ParamType::real,
                                         .fallback = "1.0",
                                         .apple = "primaryScale",
                                         .summary = "Factor of a."};
inline constexpr ParamSpec secondary_scale{.name = "secondary_scale",
                                           .type = ParamType::real,
                                           .fallback = "1.0",
                                           .apple = "secondaryScale",
                                           .summary = "Factor of b."};
inline constexpr ParamSpec arithmetic_bias{.name = "bias",
                                           .type = ParamType::real,
                                           .fallback = "0.0",
                                           .apple = "bias",
                                           .summary = "Added before the result is clipped to the bounds."};
inline constexpr ParamSpec minimum_value{.name = "minimum_value",
                                         .type = ParamType::real,
                                         .fallback = "None",
                                         .apple = "minimumValue",
                                         .summary = "Lower bound of the result; None: no bound."};
inline constexpr ParamSpec maximum_value{.name = "maximum_value",
                                         .type = ParamType::real,
                                         .fallback = "None",
                                         .apple = "maximumValue",
                                         .summary = "Upper bound of the result; None: no bound."};
inline constexpr ParamSpec primary_stride{
    .name = "primary_stride",
    .type = ParamType::pair,
    .fallback = "None",
    .min = 0,
    .max = 1,
    .unit = "pixels",
    .apple = "primaryStrideInPixelsY, primaryStrideInPixelsX",
    .summary = "0 broadcasts one row or column of a along that axis; None: determined by the shapes."};
inline constexpr ParamSpec secondary_stride{
    .name = "secondary_stride",
    .type = ParamType::pair,
    .fallback = "None",
    .min = 0,
    .max = 1,
    .unit = "pixels",
    .apple = "secondaryStrideInPixelsY, secondaryStrideInPixelsX",
    .summary = "0 broadcasts one row or column of b along that axis; None: determined by the shapes."};
inline constexpr ParamSpec primary_stride_in_feature_channels{
    .name = "primary_stride_in_feature_channels",
    .type = ParamType::integer,
    .fallback = "None",
    .min = 0,
    .max = 1,
    .unit = "channels",
    .apple = "primaryStrideInFeatureChannels",
    .summary = "0 broadcasts one channel of a; None: determined by the shapes."};
inline constexpr ParamSpec secondary_stride_in_feature_channels{
    .name = "secondary_stride_in_feature_channels",
    .type = ParamType::integer,
    .fallback = "None",
    .min = 0,
    .max = 1,
    .unit = "channels",
    .apple = "secondaryStrideInFeatureChannels",
    .summary = "0 broadcasts one channel of b; None: determined by the shapes."};

inline constexpr ParamSpec comparison{.name = "comparison",
                                      .type = ParamType::text,
                                      .choices = "equal|not_equal|less|less_or_equal|greater|greater_or_equal",
                                      .apple = "comparisonType",
                                      .summary = "How a is compared with b."};
inline constexpr ParamSpec threshold{
    .name = "threshold",
    .type = ParamType::real,
    .fallback = "0.0",
    .min = 0,
    .unit = "of the values",
    .apple = "threshold",
    .summary = "Max difference of equal values, for equal and not_equal; the others ignore it."};

inline constexpr ParamSpec gradient_of{.name = "of",
                                       .type = ParamType::text,
                                       .fallback = "'a'",
                                       .choices = "a|b",
                                       .apple = "isSecondarySourceFilter",
                                       .summary = "Source with respect to which the gradient is computed."};

}  // namespace mpscnn::p
