// SPDX-License-Identifier: Apache-2.0
// Slices [MPSNNSlice.h], reshaping and padding [MPSNNReshape.h].
#pragma once

#include <mpscnn/table.hpp>

namespace mpscnn::p {

inline constexpr ParamSpec slice_size{
    .name = "size",
    .type = ParamType::pair,
    .fallback = "None",
    .min = 1,
    .max = 1 << 20,
    .unit = "pixels",
    .apple = "destinationImage",
    .summary = "Extents h, w of the result, starting at `offset`; None: those of the source."};
inline constexpr ParamSpec reshape_shape{
    .name = "shape",
    .type = ParamType::extents,
    .min = -1,
    .max = 1 << 20,
    .unit = "(height, width, channels)",
    .apple = "destinationImage",
    .summary =
        "Extents h, w, c of each image of the result; one of them may be -1 and is then inferred from the others."};
inline constexpr ParamSpec pad_padding{.name = "padding",
                                       .type = ParamType::padding,
                                       .fallback = "0",
                                       .min = 0,
                                       .max = 1 << 20,
                                       .unit = "pixels",
                                       .apple = "paddingSizeBefore, paddingSizeAfter",
                                       .summary =
                                           "Rows and columns around the source: one number for all four sides, (rows, "
                                           "columns) or ((top, bottom), (left, right))."};
inline constexpr ParamSpec channels_before{.name = "channels_before",
                                           .type = ParamType::integer,
                                           .fallback = "0",
                                           .min = 0,
                                           .max = 8192,
                                           .unit = "channels",
                                           .apple = "paddingSizeBefore",
                                           .summary = "Channels added before those of the source."};
inline constexpr ParamSpec channels_after{.name = "channels_after",
                                          .type = ParamType::integer,
                                          .fallback = "0",
                                          .min = 0,
                                          .max = 8192,
                                          .unit = "channels",
                                          .apple = "paddingSizeAfter",
                                          .summary = "Channels added after those of the source."};
inline constexpr ParamSpec pad_value{.name = "value",
                                     .type = ParamType::real,
                                     .fallback = "None",
                                     .apple = "fillValue",
                                     .summary = "With edge_mode \"constant\": fill value; None: 0."};
inline constexpr ParamSpec channel_values{.name = "channel_values",
                                          .type = ParamType::array,
                                          .fallback = "None",
                                          .apple = "initWithDevice:paddingSizeBefore:paddingSizeAfter:fillValueArray:",
                                          .summary =
                                              "With edge_mode \"constant\": one fill value per channel of the result "
                                              "instead of `value`, converted to float32."};
inline constexpr ParamSpec edge_mode_pad{
    .name = "edge_mode",
    .type = ParamType::text,
    .fallback = "'constant'",
    .choices = "zero|clamp|mirror|mirror_with_edge|constant",
    .apple = "edgeMode",
    .summary =
        "Padding along all three axes: zero; clamp to the edge (PyTorch's replicate); mirror, without repeating the "
        "edge values (reflect); mirror_with_edge, repeating them (symmetric); or constant.",
    .attribute = true};
inline constexpr ParamSpec pad_source_feature_channel_offset{
    .name = "source_feature_channel_offset",
    .type = ParamType::integer,
    .fallback = "0",
    .min = 0,
    .max = 1 << 30,
    .unit = "channels",
    .apple = "sourceFeatureChannelOffset",
    .summary = "First source channel to read; need not be a multiple of 4.",
    .attribute = true};

}  // namespace mpscnn::p
