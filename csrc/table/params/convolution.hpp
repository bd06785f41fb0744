// SPDX-License-Identifier: Apache-2.0
// Convolution, transposed convolution and fully connected layers [MPSCNNConvolution.h].
#pragma once

#include <mpscnn/table.hpp>

namespace mpscnn::p {

inline constexpr ParamSpec weight{
    .name = "weight",
    .type = ParamType::weights,
    .apple = "initWithDevice:weights:",
    .summary =
        "Weights with axes in the order `layout`, or a data source. The dtype is float32, float16, bfloat16 (widened "
        "to float32) or uint8 (with `ranges` or `lookup_table`)."};
inline constexpr ParamSpec bias{.name = "bias",
                                .type = ParamType::array,
                                .fallback = "None",
                                .apple = "biasTerms",
                                .summary = "One value per output channel, shape (O,), converted to float32."};
inline constexpr ParamSpec layout_oihw{.name = "layout",
                                       .type = ParamType::text,
                                       .fallback = "'OIHW'",
                                       .choices = "OIHW|OHWI|HWIO|C1HW",
                                       .apple = "weights",
                                       .summary = "Order of the axes of `weight`; I counts the channels of one group."};
inline constexpr ParamSpec layout_iohw{.name = "layout",
                                       .type = ParamType::text,
                                       .fallback = "'IOHW'",
                                       .choices = "IOHW|OHWI",
                                       .apple = "weights",
                                       .summary =
                                           "IOHW is PyTorch's order, (in, out / groups, height, width); the kernel is "
                                           "rotated by 180 degrees for MPS. OHWI is MPS's own order, used as is."};
inline constexpr ParamSpec layout_linear{
    .name = "layout",
    .type = ParamType::text,
    .fallback = "'OI'",
    .choices = "OI|OIHW|OHWI",
    .apple = "weights",
    .summary = "OI is the order of PyTorch's linear layer, (O, C * H * W); `feature_map` gives C, H and W."};
inline constexpr ParamSpec feature_map{
    .name = "feature_map",
    .type = ParamType::shape,
    .fallback = "None",
    .min = 1,
    .unit = "(channels, height, width)",
    .apple = "kernelWidth, kernelHeight",
    .summary = "Extents of the source before it was flattened for a linear layer; None: 1 x 1 pixels of I channels."};
inline constexpr ParamSpec stride{
    .name = "stride",
    .type = ParamType::pair,
    .fallback = "1",
    .min = 1,
    .max = 65535,
    .unit = "pixels",
    .apple = "strideInPixelsY, strideInPixelsX",
    .summary = "Step of the window on the source; on the result for a transposed convolution."};
inline constexpr ParamSpec padding{
    .name = "padding",
    .type = ParamType::padding,
    .fallback = "0",
    .min = 0,
    .max = 1 << 20,
    .unit = "pixels",
    .apple = "padding, offset",
    .summary =
        "Pixels of padding around the source, as in PyTorch; or \"same\" (an odd pixel goes to the bottom right) or "
        "\"valid\" (the area that is read is centred), as in MPS's padding policy."};
inline constexpr ParamSpec padding_transpose{
    .name = "padding",
    .type = ParamType::padding,
    .fallback = "0",
    .min = 0,
    .max = 1 << 20,
    .unit = "pixels",
    .apple = "padding, kernelOffsetX, kernelOffsetY",
    .summary = "Pixels cropped from each border of the result, as in PyTorch."};
inline constexpr ParamSpec output_padding{
    .name = "output_padding",
    .type = ParamType::pair,
    .fallback = "0",
    .min = 0,
    .max = 65535,
    .unit = "pixels",
    .apple = "destinationImage",
    .summary = "Rows and columns added at the bottom and right of the result; less than `stride`."};
inline constexpr ParamSpec dilation{.name = "dilation",
                                    .type = ParamType::pair,
                                    .fallback = "1",
                                    .min = 1,
                                    .max = 65535,
                                    .unit = "pixels",
                                    .apple = "dilationRateY, dilationRateX",
                                    .summary = "Spacing between the taps of the window."};
inline constexpr ParamSpec groups{
    .name = "groups",
    .type = ParamType::integer,
    .fallback = "1",
    .min = 1,
    .max = 1 << 20,
    .unit = "groups",
    .apple = "groups",
    .summary =
        "Number of independent convolutions that the channels are split into, each with a multiple of 4 input and "
        "output channels; groups == input channels == output channels is a depth-wise convolution."};
inline constexpr ParamSpec activation{
    .name = "activation",
    .type = ParamType::activation,
    .fallback = "None",
    .apple = "fusedNeuronDescriptor",
    .summary =
        "Applied to the result before it is stored: a name such as \"relu\", a NeuronDescriptor or a neuron kernel."};
inline constexpr ParamSpec sub_pixel_scale_factor{
    .name = "sub_pixel_scale_factor",
    .type = ParamType::integer,
    .fallback = "1",
    .min = 1,
    .max = 256,
    .unit = "pixels",
    .apple = "MPSCNNSubPixelConvolutionDescriptor.subPixelScaleFactor",
    .summary = "Depth-to-space factor r: r * r groups of result channels become r x r pixels, position-major."};
inline constexpr ParamSpec ranges{
    .name = "ranges",
    .type = ParamType::array,
    .fallback = "None",
    .apple = "rangesForUInt8Kernel",
    .summary = "For uint8 weights: shape (O, 2), the values of codes 0 and 255 for each output channel."};
inline constexpr ParamSpec lookup_table{.name = "lookup_table",
                                        .type = ParamType::array,
                                        .fallback = "None",
                                        .apple = "lookupTableForUInt8Kernel",
                                        .summary = "For uint8 weights: shape (256,), the value of each code."};
inline constexpr ParamSpec kernel_dtype{
    .name = "kernel_dtype",
    .type = ParamType::text,
    .fallback = "None",
    .choices = "float32|float16",
    .apple = "kernelWeightsDataType",
    .summary = "Dtype in which the kernel stores the weights; None: that of `weight`, or float16 for uint8."};

inline constexpr ParamSpec gradient_option{
    .name = "gradient_option",
    .type = ParamType::text,
    .fallback = "'all'",
    .choices = "all|data|weights_and_bias",
    .apple = "gradientOption",
    .summary = "Gradients to compute: with respect to the source (data), to the weights and biases, or to all of them.",
    .attribute = true};
inline constexpr ParamSpec activation_before{
    .name = "activation",
    .type = ParamType::activation,
    .fallback = "None",
    .apple = "initWithDevice:fusedNeuronDescriptor:",
    .summary = "Activation of the forward kernel: a name such as \"relu\", a NeuronDescriptor or a neuron kernel."};

}  // namespace mpscnn::p
