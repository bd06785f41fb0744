// SPDX-License-Identifier: Apache-2.0
// Every kernel on images [MPSCNNKernel.h]; those of one source belong to MPSCNNKernel, the others to
// MPSCNNBinaryKernel.
#pragma once

#include <mpscnn/table.hpp>

namespace mpscnn::p {

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

}  // namespace mpscnn::p
