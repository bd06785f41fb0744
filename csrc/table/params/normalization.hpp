// SPDX-License-Identifier: Apache-2.0
// Normalization over local windows [MPSCNNNormalization.h], or by mean and variance
// [MPSCNNBatchNormalization.h, MPSCNNInstanceNormalization.h, MPSCNNGroupNormalization.h].
#pragma once

#include <mpscnn/table.hpp>

namespace mpscnn::p {

inline constexpr ParamSpec channels_around{
    .name = "kernel_size",
    .type = ParamType::integer,
    .fallback = "5",
    .min = 1,
    .max = 1 << 30,
    .unit = "channels",
    .apple = "kernelSize",
    .summary =
        "Number of channels in the window around each channel; an even window has one more channel before than after. "
        "The divisor is the same at the first and last channels, where the window is cropped."};
inline constexpr ParamSpec square_kernel_size{
    .name = "kernel_size",
    .type = ParamType::integer,
    .min = 1,
    .max = 1 << 20,
    .unit = "pixels",
    .apple = "kernelHeight, kernelWidth",
    .summary = "Height and width of the window; an even window extends one pixel further to the top left."};
inline constexpr ParamSpec norm_alpha{.name = "alpha",
                                      .type = ParamType::real,
                                      .fallback = "1.0",
                                      .apple = "alpha",
                                      .summary = "Factor of the mean square."};
inline constexpr ParamSpec norm_alpha_contrast{.name = "alpha",
                                               .type = ParamType::real,
                                               .fallback = "0.0",
                                               .apple = "alpha",
                                               .summary = "Factor of the variance."};
inline constexpr ParamSpec norm_beta{
    .name = "beta", .type = ParamType::real, .fallback = "5.0", .apple = "beta", .summary = "Exponent."};
inline constexpr ParamSpec norm_beta_contrast{
    .name = "beta", .type = ParamType::real, .fallback = "0.5", .apple = "beta", .summary = "Exponent."};
inline constexpr ParamSpec norm_delta{.name = "delta",
                                      .type = ParamType::real,
                                      .fallback = "1.0",
                                      .apple = "delta",
                                      .summary = "Added before the power is computed."};
inline constexpr ParamSpec norm_delta_contrast{.name = "delta",
                                               .type = ParamType::real,
                                               .fallback = "0.0009765625",
                                               .apple = "delta",
                                               .summary = "Added before the power is computed."};
inline constexpr ParamSpec norm_p0{.name = "p0",
                                   .type = ParamType::real,
                                   .fallback = "1.0",
                                   .apple = "p0",
                                   .summary = "Factor of the mean that is subtracted."};
inline constexpr ParamSpec norm_pm{
    .name = "pm", .type = ParamType::real, .fallback = "0.0", .apple = "pm", .summary = "Added to the result."};
inline constexpr ParamSpec norm_ps{
    .name = "ps", .type = ParamType::real, .fallback = "1.0", .apple = "ps", .summary = "Factor of the result."};

inline constexpr ParamSpec gamma{
    .name = "gamma",
    .type = ParamType::channel_values,
    .apple = "initWithDevice:dataSource:",
    .summary = "Scale of each channel, shape (C,), converted to float32; or a data source, which provides all values."};
inline constexpr ParamSpec norm_beta_values{
    .name = "beta",
    .type = ParamType::array,
    .fallback = "None",
    .apple = "beta",
    .summary = "Added to each channel, shape (C,), converted to float32; None: 0."};
inline constexpr ParamSpec norm_mean{
    .name = "mean",
    .type = ParamType::array,
    .fallback = "None",
    .apple = "mean",
    .summary = "Mean of each channel, shape (C,), converted to float32; None: provided by a state."};
inline constexpr ParamSpec norm_variance{
    .name = "variance",
    .type = ParamType::array,
    .fallback = "None",
    .apple = "variance",
    .summary = "Variance of each channel, shape (C,), >= 0, converted to float32; None: provided by a state."};
inline constexpr ParamSpec norm_epsilon{
    .name = "epsilon",
    .type = ParamType::real,
    .fallback = "None",
    .min = 0,
    .unit = "of the variance",
    .apple = "epsilon",
    .summary = "Added to the variance. None: 1e-5 for arrays, as in PyTorch; a data source provides its own."};
inline constexpr ParamSpec norm_groups{
    .name = "groups",
    .type = ParamType::integer,
    .fallback = "None",
    .min = 1,
    .max = 1 << 30,
    .unit = "groups",
    .apple = "numberOfGroups",
    .summary =
        "Number of groups of consecutive channels, all of the same size, each normalized by its own mean and variance. "
        "Required for arrays; a data source provides its own."};

}  // namespace mpscnn::p
