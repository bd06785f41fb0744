// SPDX-License-Identifier: Apache-2.0
// Every kernel on images [MPSCNNKernel.h]; those of one source belong to MPSCNNKernel, the others to
// MPSCNNBinaryKernel.
#pragma once

#include <mpscnn/table.hpp>

namespace mpscnn::p {

/// `spec` of one of two sources: MPSCNNBinaryKernel has it once for each.
constexpr ParamSpec of_source(ParamSpec spec, std::string_view name, std::string_view apple,
                              std::string_view summary = {}) {
  spec.name = name;
  spec.apple = apple;
  if (!summary.empty()) spec.summary = summary;
  return spec;
}

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
inline constexpr ParamSpec primary_offset =
    of_source(offset, "primary_offset", "primaryOffset",
              "Pixel (and image) of the first source under the first pixel that is written; None: its first.");
inline constexpr ParamSpec primary_edge_mode =
    of_source(edge_mode, "primary_edge_mode", "primaryEdgeMode",
              "Pixels outside of the first source: zero, or the nearest pixel.");
inline constexpr ParamSpec primary_source_feature_channel_offset =
    of_source(source_feature_channel_offset, "primary_source_feature_channel_offset",
              "primarySourceFeatureChannelOffset", "First channel of the first source that is read.");
inline constexpr ParamSpec primary_source_feature_channel_max_count = of_source(
    source_feature_channel_max_count, "primary_source_feature_channel_max_count", "primarySourceFeatureChannelMaxCount",
    "At most so many channels of the first source are read; None: all.");
inline constexpr ParamSpec secondary_offset =
    of_source(offset, "secondary_offset", "secondaryOffset",
              "Pixel (and image) of the second source under the first pixel that is written; None: its first.");
inline constexpr ParamSpec secondary_edge_mode =
    of_source(edge_mode, "secondary_edge_mode", "secondaryEdgeMode",
              "Pixels outside of the second source: zero, or the nearest pixel.");
inline constexpr ParamSpec secondary_source_feature_channel_offset =
    of_source(source_feature_channel_offset, "secondary_source_feature_channel_offset",
              "secondarySourceFeatureChannelOffset", "First channel of the second source that is read.");
inline constexpr ParamSpec secondary_source_feature_channel_max_count = of_source(
    source_feature_channel_max_count, "secondary_source_feature_channel_max_count",
    "secondarySourceFeatureChannelMaxCount", "At most so many channels of the second source are read; None: all.");
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
inline constexpr ParamSpec primary_offset_none = of_source(offset_none, "primary_offset", "primaryOffset");
inline constexpr ParamSpec secondary_offset_none = of_source(offset_none, "secondary_offset", "secondaryOffset");
inline constexpr ParamSpec edge_mode_none{.name = "edge_mode",
                                          .type = ParamType::text,
                                          .fallback = "'zero'",
                                          .choices = "zero",
                                          .apple = "edgeMode",
                                          .summary = "This kernel reads no pixels outside of the source.",
                                          .attribute = true};
inline constexpr ParamSpec primary_edge_mode_none = of_source(edge_mode_none, "primary_edge_mode", "primaryEdgeMode");
inline constexpr ParamSpec secondary_edge_mode_none =
    of_source(edge_mode_none, "secondary_edge_mode", "secondaryEdgeMode");

}  // namespace mpscnn::p
