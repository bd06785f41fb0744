// SPDX-License-Identifier: Apache-2.0
// Convolution with 1-bit weights [MPSCNNBinaryConvolution.h].
#pragma once

#include <mpscnn/table.hpp>

namespace mpscnn::p {

inline constexpr ParamSpec binary_weight{
    .name = "weight",
    .type = ParamType::weights,
    .apple =
        "initWithDevice:convolutionData:outputBiasTerms:outputScaleTerms:inputBiasTerms:inputScaleTerms:type:flags:",
    .summary =
        "uint32, shape (O, kH, kW, ceil(I / 32)), as packed by mpscnn.pack_bits(): bit c % 32 of word c // 32 is the "
        "weight of channel c. Or a data source of such weights."};
inline constexpr ParamSpec binary_in_channels{
    .name = "in_channels",
    .type = ParamType::integer,
    .fallback = "None",
    .min = 1,
    .unit = "channels",
    .apple = "inputFeatureChannels",
    .summary = "I, the number of input channels; None: 32 per word of `weight`. Bits beyond I are ignored."};
inline constexpr ParamSpec binary_type{
    .name = "type",
    .type = ParamType::text,
    .fallback = "'xnor'",
    .choices = "binary_weights|xnor|and",
    .apple = "MPSCNNBinaryConvolutionType",
    .summary =
        "Product times(u, w) of u = (x + input_bias) * input_scale and a bit w, where s is +1 for w = 1 and -1 for w = "
        "0. binary_weights: u * s. xnor: sign of u (+1 unless u < 0) * s. and: 0 if u < 0, else w."};
inline constexpr ParamSpec binary_bias{
    .name = "bias",
    .type = ParamType::array,
    .fallback = "None",
    .apple = "biasTerms",
    .summary = "One value per output channel, shape (O,), added after scaling; None: 0."};
inline constexpr ParamSpec binary_scale{
    .name = "scale",
    .type = ParamType::array,
    .fallback = "None",
    .apple = "initWithDevice:convolutionData:scaleValue:type:flags:",
    .summary = "Scale of the sum per output channel, shape (O,), or (1,) for all channels; None: 1."};
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
    .summary = "Scale of the source, applied after `input_bias`, shape (I,) or (1,); None: 1."};
inline constexpr ParamSpec beta_scaling{
    .name = "beta_scaling",
    .type = ParamType::boolean,
    .fallback = "False",
    .apple = "MPSCNNBinaryConvolutionFlagsUseBetaScaling",
    .summary = "Multiply the sum by beta, the mean of |u| over channels and taps; |u| is 0 outside of the source."};

}  // namespace mpscnn::p
