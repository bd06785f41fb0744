// SPDX-License-Identifier: Apache-2.0
// Orders of convolution weights and the reordering between them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <mpscnn/array.hpp>

namespace mpscnn {

/// Axis orders. I counts the input channels of one group.
enum class Layout : std::uint32_t {
  OIHW,  ///< PyTorch convolution
  OHWI,  ///< MPS, every kernel with weights
  HWIO,  ///< TensorFlow, Keras, Flax
  IOHW,  ///< PyTorch transposed convolution (in, out, h, w)
  C1HW,  ///< depth-wise weights, (C, 1, H, W)
};

/// Throw std::invalid_argument with the parameter `what`, the value and the known names.
Layout layout_from_name(std::string_view name, const char* what = "layout");
const char* name_of(Layout layout);

/// Return, for every axis in `target` order, its index in `source` order.
std::array<std::uint8_t, 4> axes_from(Layout source, Layout target);

/// Return `shape`, given in `source` order, in `target` order.
Extents reordered_shape(const Extents& shape, Layout source, Layout target, const char* source_name = "source",
                        const char* target_name = "target");

/// Copy `source` into `target`, axis by axis, on up to `threads` threads (0: all of the machine's). Equal dtypes; any
/// strides; no overlap. Allocates nothing of the tensor's size. The names are used in error messages.
void reorder(const ArrayView& source, Layout source_layout, const ArrayView& target, Layout target_layout,
             int threads = 0, const char* source_name = "source", const char* target_name = "target");

/// Return whether the elements already are in the order of the target layout in memory, without gaps.
bool is_in_order(const std::int64_t* shape, const std::int64_t* strides, Layout source_layout, Layout target_layout,
                 std::size_t word);

/// Reorder into contiguous memory, without checks: four extents and strides, `word` bytes per element (1, 2, 4 or 8).
void reorder_unchecked(const void* source, const std::int64_t* shape, const std::int64_t* strides, Layout source_layout,
                       void* target, Layout target_layout, std::size_t word, int threads = 0);

/// Return the weights of a linear layer after a flattened feature map, (O, C*H*W), as a 4-D view in `layout` order:
/// OIHW if the map was flattened as (C, H, W); OHWI for (H, W, C); HWIO for weights (H*W*C, O) (Keras). No copy.
ArrayView unflatten(const ArrayView& source, const Extents& feature_map_chw, Layout layout = Layout::OIHW,
                    const char* source_name = "source");

/// Reorder the weights of a linear layer after a flattened C x H x W feature map, (O, C*H*W), to the OHWI weights of a
/// fully connected kernel, (O, H, W, C).
void reorder_linear(const ArrayView& source, const Extents& feature_map_chw, const ArrayView& target, int threads = 0,
                    const char* source_name = "source", const char* target_name = "target");

/// memcpy in equal chunks on `threads` threads: the baseline of the benchmarks.
void copy_threads(void* target, const void* source, std::size_t bytes, int threads);

}  // namespace mpscnn
