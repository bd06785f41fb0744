// SPDX-License-Identifier: Apache-2.0
// Pooling [MPSCNNPooling.h].
#pragma once

#include <mpscnn/table.hpp>

namespace mpscnn::p {

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
                                          .summary = "Step of the window; None: `kernel_size`."};
inline constexpr ParamSpec ceil_mode{
    .name = "ceil_mode",
    .type = ParamType::boolean,
    .fallback = "False",
    .apple = "destinationImage",
    .summary =
        "With `padding` in pixels: include a last window that extends past the padding, if it starts inside the source "
        "or the leading padding, as in PyTorch."};
inline constexpr ParamSpec zero_pad_size{
    .name = "zero_pad_size",
    .type = ParamType::pair,
    .fallback = "0",
    .min = 0,
    .max = 1 << 20,
    .unit = "pixels",
    .apple = "zeroPadSizeY, zeroPadSizeX",
    .summary = "With edge_mode \"clamp\": number of zeros around the source that count as pixels."};
inline constexpr ParamSpec count_include_pad{
    .name = "count_include_pad",
    .type = ParamType::boolean,
    .fallback = "None",
    .apple = "edgeMode, zeroPadSizeX, zeroPadSizeY",
    .summary =
        "Whether zeros of the padding count as pixels, as in PyTorch; taps past the padding never do. None: determined "
        "by `edge_mode` (\"zero\": every tap of the window counts) and `zero_pad_size`."};

}  // namespace mpscnn::p
