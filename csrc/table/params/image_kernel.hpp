// SPDX-License-Identifier: Apache-2.0
// Parameters of every kernel on images [MPSCNNKernel.h]: MPSCNNKernel has those for one source, MPSCNNBinaryKernel
// those for two.
#pragma once

#include <mpscnn/table.hpp>

namespace mpscnn::p {

/// Return `spec` for one of two sources; MPSCNNBinaryKernel has one per source.
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
    .summary =
        "Source pixel (and first source image) at the centre of the first window; None: computed from the padding.",
    .attribute = true};
inline constexpr ParamSpec clip_rect{.name = "clip_rect",
                                     .type = ParamType::region,
                                     .fallback = "None",
                                     .max = 1 << 30,
                                     .unit = "pixels",
                                     .apple = "clipRect",
                                     .summary = "Region of the destination to write; None: all of it.",
                                     .attribute = true};
inline constexpr ParamSpec edge_mode{.name = "edge_mode",
                                     .type = ParamType::text,
                                     .fallback = "'zero'",
                                     .choices = "zero|clamp",
                                     .apple = "edgeMode",
                                     .summary = "Out-of-bounds taps read zero, or clamp to the edge.",
                                     .attribute = true};
inline constexpr ParamSpec edge_mode_clamp{.name = "edge_mode",
                                           .type = ParamType::text,
                                           .fallback = "'clamp'",
                                           .choices = "zero|clamp",
                                           .apple = "edgeMode",
                                           .summary =
                                               "Out-of-bounds taps read zero, or clamp to the edge, which does not "
                                               "change the maximum unless the window is dilated.",
                                           .attribute = true};
inline constexpr ParamSpec source_feature_channel_offset{.name = "source_feature_channel_offset",
                                                         .type = ParamType::integer,
                                                         .fallback = "0",
                                                         .min = 0,
                                                         .max = 1 << 30,
                                                         .unit = "channels, a multiple of 4",
                                                         .apple = "sourceFeatureChannelOffset",
                                                         .summary = "First source channel to read.",
                                                         .attribute = true};
inline constexpr ParamSpec source_feature_channel_max_count{
    .name = "source_feature_channel_max_count",
    .type = ParamType::integer,
    .fallback = "None",
    .min = 1,
    .max = 1 << 30,
    .unit = "channels",
    .apple = "sourceFeatureChannelMaxCount",
    .summary = "Maximum number of source channels to read; None: all.",
    .attribute = true};
inline constexpr ParamSpec primary_offset =
    of_source(offset, "primary_offset", "primaryOffset",
              "Pixel (and image) of the first source for the first pixel written; None: its first pixel.");
inline constexpr ParamSpec primary_edge_mode =
    of_source(edge_mode, "primary_edge_mode", "primaryEdgeMode",
              "Out-of-bounds taps of the first source read zero, or clamp to the edge.");
inline constexpr ParamSpec primary_source_feature_channel_offset =
    of_source(source_feature_channel_offset, "primary_source_feature_channel_offset",
              "primarySourceFeatureChannelOffset", "First channel to read of the first source.");
inline constexpr ParamSpec primary_source_feature_channel_max_count = of_source(
    source_feature_channel_max_count, "primary_source_feature_channel_max_count", "primarySourceFeatureChannelMaxCount",
    "Maximum number of channels to read of the first source; None: all.");
inline constexpr ParamSpec secondary_offset =
    of_source(offset, "secondary_offset", "secondaryOffset",
              "Pixel (and image) of the second source for the first pixel written; None: its first pixel.");
inline constexpr ParamSpec secondary_edge_mode =
    of_source(edge_mode, "secondary_edge_mode", "secondaryEdgeMode",
              "Out-of-bounds taps of the second source read zero, or clamp to the edge.");
inline constexpr ParamSpec secondary_source_feature_channel_offset =
    of_source(source_feature_channel_offset, "secondary_source_feature_channel_offset",
              "secondarySourceFeatureChannelOffset", "First channel to read of the second source.");
inline constexpr ParamSpec secondary_source_feature_channel_max_count = of_source(
    source_feature_channel_max_count, "secondary_source_feature_channel_max_count",
    "secondarySourceFeatureChannelMaxCount", "Maximum number of channels to read of the second source; None: all.");
inline constexpr ParamSpec destination_feature_channel_offset{.name = "destination_feature_channel_offset",
                                                              .type = ParamType::integer,
                                                              .fallback = "0",
                                                              .min = 0,
                                                              .max = 1 << 30,
                                                              .unit = "channels, a multiple of 4",
                                                              .apple = "destinationFeatureChannelOffset",
                                                              .summary = "First destination channel to write.",
                                                              .attribute = true};
inline constexpr ParamSpec allow_reduced_precision{.name = "allow_reduced_precision",
                                                   .type = ParamType::boolean,
                                                   .fallback = "False",
                                                   .apple = "MPSKernelOptionsAllowReducedPrecision",
                                                   .summary = "Allow products in bfloat16 or float16.",
                                                   .attribute = true};
inline constexpr ParamSpec label{.name = "label",
                                 .type = ParamType::text,
                                 .fallback = "None",
                                 .apple = "label",
                                 .summary = "Name shown in errors and traces.",
                                 .attribute = true};

// Offsets and edge modes of kernels that read whole sources, or that have source rectangles of their own.
inline constexpr ParamSpec offset_none{.name = "offset",
                                       .type = ParamType::offset,
                                       .fallback = "None",
                                       .min = 0,
                                       .max = 0,
                                       .unit = "pixels",
                                       .apple = "offset",
                                       .summary = "This kernel has no offset.",
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
