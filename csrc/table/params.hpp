// SPDX-License-Identifier: Apache-2.0
// Parameter specs that rows of the table name. A row that needs its own default takes a variant.
#pragma once

#include <mpscnn/table.hpp>

#include "neurons.hpp"

namespace mpscnn::p {

// Convolution family [MPSCNNConvolution.h].
inline constexpr ParamSpec weight{
    .name = "weight",
    .type = ParamType::weights,
    .apple = "initWithDevice:weights:",
    .summary =
        "Weights in the order `layout`, or a data source. float32, float16, bfloat16 (widened to float32) or uint8 "
        "(with `ranges` or `lookup_table`)."};
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
                                           "IOHW is PyTorch's order, (in, out / groups, height, width), whose kernel "
                                           "is rotated by 180 degrees for MPS; OHWI is "
                                           "MPS's own and taken as it is."};
inline constexpr ParamSpec layout_linear{
    .name = "layout",
    .type = ParamType::text,
    .fallback = "'OI'",
    .choices = "OI|OIHW|OHWI",
    .apple = "weights",
    .summary = "OI is PyTorch's linear layer, (O, C * H * W), with `feature_map` telling C, H and W."};
inline constexpr ParamSpec feature_map{
    .name = "feature_map",
    .type = ParamType::shape,
    .fallback = "None",
    .min = 1,
    .unit = "(channels, height, width)",
    .apple = "kernelWidth, kernelHeight",
    .summary =
        "Extents of the source that was flattened in front of a linear layer; None: 1 x 1 pixels of I channels."};
inline constexpr ParamSpec stride{.name = "stride",
                                  .type = ParamType::pair,
                                  .fallback = "1",
                                  .min = 1,
                                  .max = 65535,
                                  .unit = "pixels",
                                  .apple = "strideInPixelsY, strideInPixelsX",
                                  .summary = "Step of the window; of the result for a transposed convolution."};
inline constexpr ParamSpec padding{.name = "padding",
                                   .type = ParamType::padding,
                                   .fallback = "0",
                                   .min = 0,
                                   .max = 1 << 20,
                                   .unit = "pixels",
                                   .apple = "padding, offset",
                                   .summary =
                                       "Pixels around the source as PyTorch counts them, or \"same\" (remainder at the "
                                       "bottom right) or \"valid\" by MPS's padding policy "
                                       "(which centres the area it reads)."};
inline constexpr ParamSpec padding_transpose{
    .name = "padding",
    .type = ParamType::padding,
    .fallback = "0",
    .min = 0,
    .max = 1 << 20,
    .unit = "pixels",
    .apple = "padding, kernelOffsetX, kernelOffsetY",
    .summary = "Pixels cut from each border of the result, as PyTorch counts them."};
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
                                    .summary = "Step between the taps of the window."};
inline constexpr ParamSpec groups{.name = "groups",
                                  .type = ParamType::integer,
                                  .fallback = "1",
                                  .min = 1,
                                  .max = 1 << 20,
                                  .unit = "groups",
                                  .apple = "groups",
                                  .summary =
                                      "Channels are split into so many independent convolutions, each of a multiple of "
                                      "4 input and output channels; groups == input "
                                      "channels == output channels is a depth-wise convolution."};
inline constexpr ParamSpec activation{
    .name = "activation",
    .type = ParamType::activation,
    .fallback = "None",
    .apple = "fusedNeuronDescriptor",
    .summary = "Applied to the result before it is stored: a name as \"relu\", a NeuronDescriptor or a neuron kernel."};
inline constexpr ParamSpec sub_pixel_scale_factor{
    .name = "sub_pixel_scale_factor",
    .type = ParamType::integer,
    .fallback = "1",
    .min = 1,
    .max = 256,
    .unit = "pixels",
    .apple = "MPSCNNSubPixelConvolutionDescriptor.subPixelScaleFactor",
    .summary = "r: r * r groups of result channels become r x r pixels, position-major (depth to space)."};
inline constexpr ParamSpec ranges{.name = "ranges",
                                  .type = ParamType::array,
                                  .fallback = "None",
                                  .apple = "rangesForUInt8Kernel",
                                  .summary = "uint8 weights: (O, 2), the values of 0 and 255 for each output channel."};
inline constexpr ParamSpec lookup_table{.name = "lookup_table",
                                        .type = ParamType::array,
                                        .fallback = "None",
                                        .apple = "lookupTableForUInt8Kernel",
                                        .summary = "uint8 weights: (256,), the value of each code."};
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
inline constexpr ParamSpec kernel_dtype{
    .name = "kernel_dtype",
    .type = ParamType::text,
    .fallback = "None",
    .choices = "float32|float16",
    .apple = "kernelWeightsDataType",
    .summary = "Precision in which the kernel keeps the weights; None: that of `weight`, float16 for uint8."};

// Neurons [MPSCNNNeuron.h].
inline constexpr ParamSpec neuron_type{.name = "type",
                                       .type = ParamType::text,
                                       .choices = kNeuronChoices,
                                       .apple = "neuronType",
                                       .summary = "Which function, in Apple's spelling or PyTorch's."};
inline constexpr ParamSpec neuron_a_named{.name = "a",
                                          .type = ParamType::real,
                                          .fallback = "None",
                                          .apple = "a",
                                          .summary = "First parameter of the formula; None: that of the name."};
inline constexpr ParamSpec neuron_b_named{.name = "b",
                                          .type = ParamType::real,
                                          .fallback = "None",
                                          .apple = "b",
                                          .summary = "Second parameter of the formula; None: that of the name."};
inline constexpr ParamSpec neuron_c_named{.name = "c",
                                          .type = ParamType::real,
                                          .fallback = "None",
                                          .apple = "c",
                                          .summary = "Third parameter of the formula; None: that of the name."};
inline constexpr ParamSpec neuron_a{.name = "a",
                                    .type = ParamType::real,
                                    .fallback = "0.0",
                                    .apple = "a",
                                    .summary = "First parameter of the formula."};
inline constexpr ParamSpec neuron_b{.name = "b",
                                    .type = ParamType::real,
                                    .fallback = "0.0",
                                    .apple = "b",
                                    .summary = "Second parameter of the formula."};
inline constexpr ParamSpec neuron_a_one{.name = "a",
                                        .type = ParamType::real,
                                        .fallback = "1.0",
                                        .apple = "a",
                                        .summary = "First parameter of the formula."};
inline constexpr ParamSpec neuron_b_one{.name = "b",
                                        .type = ParamType::real,
                                        .fallback = "1.0",
                                        .apple = "b",
                                        .summary = "Second parameter of the formula."};
inline constexpr ParamSpec neuron_c_one{.name = "c",
                                        .type = ParamType::real,
                                        .fallback = "1.0",
                                        .apple = "c",
                                        .summary = "Third parameter of the formula."};
inline constexpr ParamSpec neuron_c_natural{
    .name = "c", .type = ParamType::real, .fallback = "-1.0", .apple = "c", .summary = "Base; -1 means e."};
inline constexpr ParamSpec neuron_a_hard{
    .name = "a", .type = ParamType::real, .fallback = "0.2", .apple = "a", .summary = "Slope."};
inline constexpr ParamSpec neuron_b_hard{
    .name = "b", .type = ParamType::real, .fallback = "0.5", .apple = "b", .summary = "Value at 0."};
inline constexpr ParamSpec neuron_b_six{
    .name = "b", .type = ParamType::real, .fallback = "6.0", .apple = "b", .summary = "Largest result."};
inline constexpr ParamSpec neuron_data{.name = "data",
                                       .type = ParamType::array,
                                       .fallback = "None",
                                       .apple = "data",
                                       .summary = "PReLU: slope below zero, one float32 per channel."};
inline constexpr ParamSpec neuron_slopes{.name = "a",
                                         .type = ParamType::array,
                                         .apple = "initWithDevice:a:count:",
                                         .summary = "Slope below zero, one float32 per channel."};

// Pooling [MPSCNNPooling.h].
inline constexpr ParamSpec kernel_size{.name = "kernel_size",
                                       .type = ParamType::pair,
                                       .min = 1,
                                       .max = 1 << 20,
                                       .unit = "pixels",
                                       .apple = "kernelHeight, kernelWidth",
                                       .summary = "Extents of the window."};
inline constexpr ParamSpec pooling_stride{.name = "stride",
                                          .type = ParamType::pair,
                                          .fallback = "None",
                                          .min = 1,
                                          .max = 65535,
                                          .unit = "pixels",
                                          .apple = "strideInPixelsY, strideInPixelsX",
                                          .summary = "Step of the window; None: its extents."};
inline constexpr ParamSpec ceil_mode{
    .name = "ceil_mode",
    .type = ParamType::boolean,
    .fallback = "False",
    .apple = "destinationImage",
    .summary =
        "With `padding` in pixels: a last window that reaches beyond the padding counts as well, if it begins "
        "before the padding behind the source."};
inline constexpr ParamSpec zero_pad_size{
    .name = "zero_pad_size",
    .type = ParamType::pair,
    .fallback = "0",
    .min = 0,
    .max = 1 << 20,
    .unit = "pixels",
    .apple = "zeroPadSizeY, zeroPadSizeX",
    .summary = "With edge_mode \"clamp\": so many zeros around the source count as pixels."};
inline constexpr ParamSpec count_include_pad{
    .name = "count_include_pad",
    .type = ParamType::boolean,
    .fallback = "None",
    .apple = "edgeMode, zeroPadSizeX, zeroPadSizeY",
    .summary =
        "PyTorch's: whether zeros of the padding count as pixels; pixels beyond it never do. None: as "
        "`edge_mode` (\"zero\": every tap of the window counts) and `zero_pad_size` say."};

// Neuron gradients [MPSCNNNeuron.h].
inline constexpr ParamSpec neuron_of_gradient{
    .name = "activation",
    .type = ParamType::activation,
    .apple = "initWithDevice:neuronDescriptor:",
    .summary = "The function of the forward kernel: a name as \"relu\", a NeuronDescriptor or a neuron kernel."};

// Arithmetic [MPSCNNMath.h].
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
                                           .summary = "Added before the bounds are applied."};
inline constexpr ParamSpec minimum_value{.name = "minimum_value",
                                         .type = ParamType::real,
                                         .fallback = "None",
                                         .apple = "minimumValue",
                                         .summary = "Smaller results become this; None: no bound."};
inline constexpr ParamSpec maximum_value{.name = "maximum_value",
                                         .type = ParamType::real,
                                         .fallback = "None",
                                         .apple = "maximumValue",
                                         .summary = "Larger results become this; None: no bound."};
inline constexpr ParamSpec primary_stride{
    .name = "primary_stride",
    .type = ParamType::pair,
    .fallback = "None",
    .min = 0,
    .max = 1,
    .unit = "pixels",
    .apple = "primaryStrideInPixelsY, primaryStrideInPixelsX",
    .summary = "0 repeats one row or column of a along that axis; None: as the shapes broadcast."};
inline constexpr ParamSpec secondary_stride{
    .name = "secondary_stride",
    .type = ParamType::pair,
    .fallback = "None",
    .min = 0,
    .max = 1,
    .unit = "pixels",
    .apple = "secondaryStrideInPixelsY, secondaryStrideInPixelsX",
    .summary = "0 repeats one row or column of b along that axis; None: as the shapes broadcast."};
inline constexpr ParamSpec primary_stride_in_feature_channels{
    .name = "primary_stride_in_feature_channels",
    .type = ParamType::integer,
    .fallback = "None",
    .min = 0,
    .max = 1,
    .unit = "channels",
    .apple = "primaryStrideInFeatureChannels",
    .summary = "0 repeats one channel of a; None: as the shapes broadcast."};
inline constexpr ParamSpec secondary_stride_in_feature_channels{
    .name = "secondary_stride_in_feature_channels",
    .type = ParamType::integer,
    .fallback = "None",
    .min = 0,
    .max = 1,
    .unit = "channels",
    .apple = "secondaryStrideInFeatureChannels",
    .summary = "0 repeats one channel of b; None: as the shapes broadcast."};

// Upsampling [MPSCNNUpsampling.h] and resizing [MPSNNResize.h].
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
        "Pixels outside of the source: zero, with which the last rows and columns of the result are blended, as Apple's "
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

// Reductions [MPSNNReduce.h].
inline constexpr ParamSpec clip_rect_source{
    .name = "clip_rect_source",
    .type = ParamType::region,
    .fallback = "None",
    .max = 1 << 30,
    .unit = "pixels",
    .apple = "clipRectSource",
    .summary = "Part of the source that is read, as far as the source reaches; None: all of it."};
inline constexpr ParamSpec primary_source_clip_rect{
    .name = "primary_source_clip_rect",
    .type = ParamType::region,
    .fallback = "None",
    .max = 1 << 30,
    .unit = "pixels",
    .apple = "primarySourceClipRect",
    .summary = "Part of x that is read, as far as x reaches; None: all of it."};
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

// Kernels that read whole sources, or have rectangles of their own for them: what their offsets and edge modes may be.
inline constexpr ParamSpec offset_none{.name = "offset",
                                       .type = ParamType::offset,
                                       .fallback = "None",
                                       .min = 0,
                                       .max = 0,
                                       .unit = "pixels",
                                       .apple = "offset",
                                       .summary = "This kernel has none.",
                                       .attribute = true};
inline constexpr ParamSpec primary_offset_none{.name = "primary_offset",
                                               .type = ParamType::offset,
                                               .fallback = "None",
                                               .min = 0,
                                               .max = 0,
                                               .unit = "pixels",
                                               .apple = "primaryOffset",
                                               .summary = "This kernel has none.",
                                               .attribute = true};
inline constexpr ParamSpec secondary_offset_none{.name = "secondary_offset",
                                                 .type = ParamType::offset,
                                                 .fallback = "None",
                                                 .min = 0,
                                                 .max = 0,
                                                 .unit = "pixels",
                                                 .apple = "secondaryOffset",
                                                 .summary = "This kernel has none.",
                                                 .attribute = true};
inline constexpr ParamSpec edge_mode_none{.name = "edge_mode",
                                          .type = ParamType::text,
                                          .fallback = "'zero'",
                                          .choices = "zero",
                                          .apple = "edgeMode",
                                          .summary = "This kernel reads no pixels outside of the source.",
                                          .attribute = true};
inline constexpr ParamSpec primary_edge_mode_none{.name = "primary_edge_mode",
                                                  .type = ParamType::text,
                                                  .fallback = "'zero'",
                                                  .choices = "zero",
                                                  .apple = "primaryEdgeMode",
                                                  .summary = "This kernel reads no pixels outside of the source.",
                                                  .attribute = true};
inline constexpr ParamSpec secondary_edge_mode_none{.name = "secondary_edge_mode",
                                                    .type = ParamType::text,
                                                    .fallback = "'zero'",
                                                    .choices = "zero",
                                                    .apple = "secondaryEdgeMode",
                                                    .summary = "This kernel reads no pixels outside of the source.",
                                                    .attribute = true};

// Slices [MPSNNSlice.h], reshaping and padding [MPSNNReshape.h].
inline constexpr ParamSpec slice_size{.name = "size",
                                      .type = ParamType::pair,
                                      .fallback = "None",
                                      .min = 1,
                                      .max = 1 << 20,
                                      .unit = "pixels",
                                      .apple = "destinationImage",
                                      .summary = "Extents h, w of the result, from `offset` on; None: the source's."};
inline constexpr ParamSpec reshape_shape{
    .name = "shape",
    .type = ParamType::extents,
    .min = -1,
    .max = 1 << 20,
    .unit = "(height, width, channels)",
    .apple = "destinationImage",
    .summary = "Extents h, w, c of each image of the result; one of them may be -1: what the others leave."};
inline constexpr ParamSpec pad_padding{
    .name = "padding",
    .type = ParamType::padding,
    .fallback = "0",
    .min = 0,
    .max = 1 << 20,
    .unit = "pixels",
    .apple = "paddingSizeBefore, paddingSizeAfter",
    .summary =
        "Rows and columns around the source: all four sides, (rows, columns) or ((top, bottom), (left, right))."};
inline constexpr ParamSpec channels_before{.name = "channels_before",
                                           .type = ParamType::integer,
                                           .fallback = "0",
                                           .min = 0,
                                           .max = 8192,
                                           .unit = "channels",
                                           .apple = "paddingSizeBefore",
                                           .summary = "Channels in front of those of the source."};
inline constexpr ParamSpec channels_after{.name = "channels_after",
                                          .type = ParamType::integer,
                                          .fallback = "0",
                                          .min = 0,
                                          .max = 8192,
                                          .unit = "channels",
                                          .apple = "paddingSizeAfter",
                                          .summary = "Channels behind those of the source."};
inline constexpr ParamSpec pad_value{.name = "value",
                                     .type = ParamType::real,
                                     .fallback = "None",
                                     .apple = "fillValue",
                                     .summary = "With edge_mode \"constant\": what is put around; None: 0."};
inline constexpr ParamSpec channel_values{
    .name = "channel_values",
    .type = ParamType::array,
    .fallback = "None",
    .apple = "initWithDevice:paddingSizeBefore:paddingSizeAfter:fillValueArray:",
    .summary =
        "With edge_mode \"constant\": instead of `value`, one for each channel of the result, converted to "
        "float32."};
inline constexpr ParamSpec edge_mode_pad{
    .name = "edge_mode",
    .type = ParamType::text,
    .fallback = "'constant'",
    .choices = "zero|clamp|mirror|mirror_with_edge|constant",
    .apple = "edgeMode",
    .summary =
        "What is put around, along all three axes: zero, the nearest value (PyTorch's replicate), the source mirrored "
        "at its outermost values (reflect) or with them repeated (symmetric), or a constant.",
    .attribute = true};
inline constexpr ParamSpec pad_source_feature_channel_offset{.name = "source_feature_channel_offset",
                                                             .type = ParamType::integer,
                                                             .fallback = "0",
                                                             .min = 0,
                                                             .max = 1 << 30,
                                                             .unit = "channels",
                                                             .apple = "sourceFeatureChannelOffset",
                                                             .summary = "First source channel that is read; any.",
                                                             .attribute = true};

// Dropout [MPSCNNDropout.h].
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
// Normalization by what surrounds a value [MPSCNNNormalization.h].
inline constexpr ParamSpec channels_around{.name = "kernel_size",
                                           .type = ParamType::integer,
                                           .fallback = "5",
                                           .min = 1,
                                           .max = 1 << 30,
                                           .unit = "channels",
                                           .apple = "kernelSize",
                                           .summary =
                                               "Channels whose squares are summed around each one, one more before it "
                                               "than behind if even. The divisor is the same where some are missing."};
inline constexpr ParamSpec square_kernel_size{
    .name = "kernel_size",
    .type = ParamType::integer,
    .min = 1,
    .max = 1 << 20,
    .unit = "pixels",
    .apple = "kernelHeight, kernelWidth",
    .summary = "Rows and columns of the window; an even one reaches further to the top left."};
inline constexpr ParamSpec norm_alpha{.name = "alpha",
                                      .type = ParamType::real,
                                      .fallback = "1.0",
                                      .apple = "alpha",
                                      .summary = "Factor of the mean of the squares."};
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
                                      .summary = "Added before the power is taken."};
inline constexpr ParamSpec norm_delta_contrast{.name = "delta",
                                               .type = ParamType::real,
                                               .fallback = "0.0009765625",
                                               .apple = "delta",
                                               .summary = "Added before the power is taken."};
inline constexpr ParamSpec norm_p0{.name = "p0",
                                   .type = ParamType::real,
                                   .fallback = "1.0",
                                   .apple = "p0",
                                   .summary = "Factor of the mean that is subtracted."};
inline constexpr ParamSpec norm_pm{
    .name = "pm", .type = ParamType::real, .fallback = "0.0", .apple = "pm", .summary = "Added to the result."};
inline constexpr ParamSpec norm_ps{
    .name = "ps", .type = ParamType::real, .fallback = "1.0", .apple = "ps", .summary = "Factor of the result."};

// Normalization by mean and variance [MPSCNNBatchNormalization.h, MPSCNNInstanceNormalization.h,
// MPSCNNGroupNormalization.h].
inline constexpr ParamSpec gamma{
    .name = "gamma",
    .type = ParamType::channel_values,
    .apple = "initWithDevice:dataSource:",
    .summary =
        "Factor of each channel, shape (C,), converted to float32; or a data source, which provides all the values."};
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
    .summary = "Mean of each channel, shape (C,), converted to float32; None: only a state has one."};
inline constexpr ParamSpec norm_variance{
    .name = "variance",
    .type = ParamType::array,
    .fallback = "None",
    .apple = "variance",
    .summary = "Variance of each channel, shape (C,), >= 0, converted to float32; None: only a state has one."};
inline constexpr ParamSpec norm_epsilon{
    .name = "epsilon",
    .type = ParamType::real,
    .fallback = "None",
    .min = 0,
    .unit = "of the variance",
    .apple = "epsilon",
    .summary = "Added to the variance. None: PyTorch's 1e-5 for arrays; a data source has its own."};
inline constexpr ParamSpec norm_groups{.name = "groups",
                                       .type = ParamType::integer,
                                       .fallback = "None",
                                       .min = 1,
                                       .max = 1 << 30,
                                       .unit = "groups",
                                       .apple = "numberOfGroups",
                                       .summary =
                                           "Channels are split into so many runs of the same length, each with a mean "
                                           "and variance of its own. Required for arrays; a data source has its own."};

// Every kernel on images [MPSCNNKernel.h]; those of one source belong to MPSCNNKernel, the others to
// MPSCNNBinaryKernel.
inline constexpr ParamSpec offset{
    .name = "offset",
    .type = ParamType::offset,
    .fallback = "None",
    .min = -(1 << 30),
    .max = 1 << 30,
    .unit = "pixels",
    .apple = "offset",
    .summary = "Source pixel (and first source image) under the centre of the first window; None: from the padding.",
    .attribute = true};
inline constexpr ParamSpec clip_rect{.name = "clip_rect",
                                     .type = ParamType::region,
                                     .fallback = "None",
                                     .max = 1 << 30,
                                     .unit = "pixels",
                                     .apple = "clipRect",
                                     .summary = "Part of the destination that is written; None: all of it.",
                                     .attribute = true};
inline constexpr ParamSpec edge_mode{.name = "edge_mode",
                                     .type = ParamType::text,
                                     .fallback = "'zero'",
                                     .choices = "zero|clamp",
                                     .apple = "edgeMode",
                                     .summary = "Pixels outside of the source: zero, or the nearest pixel.",
                                     .attribute = true};
inline constexpr ParamSpec edge_mode_clamp{.name = "edge_mode",
                                           .type = ParamType::text,
                                           .fallback = "'clamp'",
                                           .choices = "zero|clamp",
                                           .apple = "edgeMode",
                                           .summary =
                                               "Pixels outside of the source: zero, or the nearest pixel, which "
                                               "changes no maximum of a window without gaps.",
                                           .attribute = true};
inline constexpr ParamSpec source_feature_channel_offset{.name = "source_feature_channel_offset",
                                                         .type = ParamType::integer,
                                                         .fallback = "0",
                                                         .min = 0,
                                                         .max = 1 << 30,
                                                         .unit = "channels, a multiple of 4",
                                                         .apple = "sourceFeatureChannelOffset",
                                                         .summary = "First source channel that is read.",
                                                         .attribute = true};
inline constexpr ParamSpec source_feature_channel_max_count{
    .name = "source_feature_channel_max_count",
    .type = ParamType::integer,
    .fallback = "None",
    .min = 1,
    .max = 1 << 30,
    .unit = "channels",
    .apple = "sourceFeatureChannelMaxCount",
    .summary = "At most so many source channels are read; None: all.",
    .attribute = true};
inline constexpr ParamSpec primary_offset{
    .name = "primary_offset",
    .type = ParamType::offset,
    .fallback = "None",
    .min = -(1 << 30),
    .max = 1 << 30,
    .unit = "pixels",
    .apple = "primaryOffset",
    .summary = "Pixel (and image) of the first source under the first pixel that is written; None: its first.",
    .attribute = true};
inline constexpr ParamSpec primary_edge_mode{
    .name = "primary_edge_mode",
    .type = ParamType::text,
    .fallback = "'zero'",
    .choices = "zero|clamp",
    .apple = "primaryEdgeMode",
    .summary = "Pixels outside of the first source: zero, or the nearest pixel.",
    .attribute = true};
inline constexpr ParamSpec primary_source_feature_channel_offset{
    .name = "primary_source_feature_channel_offset",
    .type = ParamType::integer,
    .fallback = "0",
    .min = 0,
    .max = 1 << 30,
    .unit = "channels, a multiple of 4",
    .apple = "primarySourceFeatureChannelOffset",
    .summary = "First channel of the first source that is read.",
    .attribute = true};
inline constexpr ParamSpec primary_source_feature_channel_max_count{
    .name = "primary_source_feature_channel_max_count",
    .type = ParamType::integer,
    .fallback = "None",
    .min = 1,
    .max = 1 << 30,
    .unit = "channels",
    .apple = "primarySourceFeatureChannelMaxCount",
    .summary = "At most so many channels of the first source are read; None: all.",
    .attribute = true};
inline constexpr ParamSpec secondary_offset{
    .name = "secondary_offset",
    .type = ParamType::offset,
    .fallback = "None",
    .min = -(1 << 30),
    .max = 1 << 30,
    .unit = "pixels",
    .apple = "secondaryOffset",
    .summary = "Pixel (and image) of the second source under the first pixel that is written; None: its first.",
    .attribute = true};
inline constexpr ParamSpec secondary_edge_mode{
    .name = "secondary_edge_mode",
    .type = ParamType::text,
    .fallback = "'zero'",
    .choices = "zero|clamp",
    .apple = "secondaryEdgeMode",
    .summary = "Pixels outside of the second source: zero, or the nearest pixel.",
    .attribute = true};
inline constexpr ParamSpec secondary_source_feature_channel_offset{
    .name = "secondary_source_feature_channel_offset",
    .type = ParamType::integer,
    .fallback = "0",
    .min = 0,
    .max = 1 << 30,
    .unit = "channels, a multiple of 4",
    .apple = "secondarySourceFeatureChannelOffset",
    .summary = "First channel of the second source that is read.",
    .attribute = true};
inline constexpr ParamSpec secondary_source_feature_channel_max_count{
    .name = "secondary_source_feature_channel_max_count",
    .type = ParamType::integer,
    .fallback = "None",
    .min = 1,
    .max = 1 << 30,
    .unit = "channels",
    .apple = "secondarySourceFeatureChannelMaxCount",
    .summary = "At most so many channels of the second source are read; None: all.",
    .attribute = true};
inline constexpr ParamSpec destination_feature_channel_offset{.name = "destination_feature_channel_offset",
                                                              .type = ParamType::integer,
                                                              .fallback = "0",
                                                              .min = 0,
                                                              .max = 1 << 30,
                                                              .unit = "channels, a multiple of 4",
                                                              .apple = "destinationFeatureChannelOffset",
                                                              .summary = "First destination channel that is written.",
                                                              .attribute = true};
inline constexpr ParamSpec allow_reduced_precision{.name = "allow_reduced_precision",
                                                   .type = ParamType::boolean,
                                                   .fallback = "False",
                                                   .apple = "MPSKernelOptionsAllowReducedPrecision",
                                                   .summary = "Permit bfloat16 or half products inside.",
                                                   .attribute = true};
inline constexpr ParamSpec label{.name = "label",
                                 .type = ParamType::text,
                                 .fallback = "None",
                                 .apple = "label",
                                 .summary = "Name in errors and traces.",
                                 .attribute = true};

}  // namespace mpscnn::p
