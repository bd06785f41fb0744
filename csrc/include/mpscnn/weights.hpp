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

/// Throws std::invalid_argument naming the parameter `what`, the value and the known names.
Layout layout_from_name(std::string_view name, const char* what = "layout");
const char* name_of(Layout layout);

/// For every axis in `target` order, its index in `source` order.
std::array<std::uint8_t, 4> axes_from(Layout source, Layout target);

/// Shape of `shape` (given in `source` order) when its axes stand in `target` order.
Extents reordered_shape(const Extents& shape, Layout source, Layout target, const char* source_name = "source",
                        const char* target_name = "target");

/// Copies `source` into `target`, axis by axis, on up to `threads` threads (0: as many as the machine has).
/// Same dtype on both sides; any strides; the two must not overlap. Allocates nothing of the tensor's size.
/// The names stand in the errors' sentences.
void reorder(const ArrayView& source, Layout source_layout, const ArrayView& target, Layout target_layout,
             int threads = 0, const char* source_name = "source", const char* target_name = "target");

/// Whether the elements of such an array lie in memory in the order of the target layout already, without gaps.
bool is_in_order(const std::int64_t* shape, const std::int64_t* strides, Layout source_layout, Layout target_layout,
                 std::size_t word);

/// The same into new contiguous memory, without the checks: four extents and strides, `word` bytes an element (1, 2, 4
/// or 8).
void reorder_unchecked(const void* source, const std::int64_t* shape, const std::int64_t* strides, Layout source_layout,
                       void* target, Layout target_layout, std::size_t word, int threads = 0);

/// Weights of a linear layer behind a flattened feature map, (O, C*H*W), as a view of four axes in `layout` order: OIHW
/// where the map was flattened as (C, H, W); OHWI where as (H, W, C); HWIO where the weights are (H*W*C, O) (Keras). No
/// copy.
ArrayView unflatten(const ArrayView& source, const Extents& feature_map_chw, Layout layout = Layout::OIHW,
                    const char* source_name = "source");

/// Weights of a linear layer behind a flattened C x H x W feature map, (O, C*H*W), as the OHWI weights of a
/// fully connected kernel, (O, H, W, C).
void reorder_linear(const ArrayView& source, const Extents& feature_map_chw, const ArrayView& target, int threads = 0,
                    const char* source_name = "source", const char* target_name = "target");

/// The C library's memcpy of equal parts on `threads` threads: the yardstick of the benchmarks.
void copy_threads(void* target, const void* source, std::size_t bytes, int threads);

}  // namespace mpscnn
