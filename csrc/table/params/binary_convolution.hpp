// SPDX-License-Identifier: Apache-2.0
// Convolution with weights of one bit [MPSCNNBinaryConvolution.h].
#pragma once

#include <mpscnn/table.hpp>

namespace mpscnn::p {

inline constexpr ParamSpec binary_weight{
    .name = "weight",
    .type = ParamType::weights,
    .apple =
        "initWithDevice:convolutionData:outputBiasTerms:outputScaleTerms:inputBiasTerms:inputScaleTerms:type:flags:",
    .summary =
        "uint32, shape (O, kH, kW, ceil(I / 32)): bit c % 32 of word c / 32 is the weight of channel c; "
        "mpscnn.pack_bits() makes them. Or a data source of such weights."};
inline constexpr ParamSpec binary_in_channels{
    .name = "in_channels",
    .type = ParamType::integer,
    .fallback = "None",
    .min = 1,
    .unit = "channels",
    .apple = "inputFeatureChannels",
    .summary = "I; None: 32 for each word of `weight`. Bits beyond count for nothing."};
inline constexpr ParamSpec binary_type{
    .name = "type",
    .type = ParamType::text,
    .fallback = "'xnor'",
    .choices = "binary_weights|xnor|and",
    .apple = "MPSCNNBinaryConvolutionType",
    .summary =
        "times() of u = (x + input_bias) * input_scale and a bit: binary_weights, u times +1 or -1; xnor, the "
        "sign of u (+1 unless u < 0) times +1 or -1; and, 1 where the bit is 1 and u is not less than 0, else "
        "0."};
inline constexpr ParamSpec binary_bias{
    .name = "bias",
    .type = ParamType::array,
    .fallback = "None",
    .apple = "biasTerms",
    .summary = "One value per output channel, shape (O,), added after the scales; None: 0."};
inline constexpr ParamSpec binary_scale{.name = "scale",
                                        .type = ParamType::array,
                                        .fallback = "None",
                                        .apple = "initWithDevice:convolutionData:scaleValue:type:flags:",
                                        .summary =
                                            "Factor of the sum for each output channel, shape (O,), or (1,) for one of "
                                            "all; None: 1."};
inline constexpr ParamSpec input_bias{
    .name = "input_bias",
    .type = ParamType::array,
    .fallback = "None",
    .apple =
        "initWithDevice:convolutionData:outputBiasTerms:outputScaleTerms:inputBiasTerms:inputScaleTerms:type:flags:",
    .summary = "Added to the source, shape (I,) or (1,); None: 0."};
inline constexpr ParamSpec input_scale{
    .name = "input_scale",
    .type = ParamType::array,
    .fallback = "None",
    .apple =
        "initWithDevice:convolutionData:outputBiasTerms:outputScaleTerms:inputBiasTerms:inputScaleTerms:type:flags:",
    .summary = "Factor of source plus `input_bias`, shape (I,) or (1,); None: 1."};
inline constexpr ParamSpec beta_scaling{
    .name = "beta_scaling",
    .type = ParamType::boolean,
    .fallback = "False",
    .apple = "MPSCNNBinaryConvolutionFlagsUseBetaScaling",
    .summary = "The sum is multiplied by beta, the mean of |u| over channels and taps, 0 outside of the source."};

}  // namespace mpscnn::p
