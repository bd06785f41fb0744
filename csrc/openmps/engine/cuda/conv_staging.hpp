// SPDX-License-Identifier: Apache-2.0
// What convolutions, transposed ones and their gradients by cuDNN and cuBLASLt have in common.
#pragma once

#include <functional>
#include <optional>

#include "engine/cuda/conv_choices.hpp"
#include "engine/cuda/cudnn.hpp"
#include "engine/problem/conv.hpp"

namespace openmps::cuda {

inline bool is_float(Format format) { return format == Format::float16 || format == Format::float32; }

/// Round up to a multiple of the alignment of cuDNN's operands.
inline std::size_t aligned(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

ConvGraph::Extents extents_of(const ImageView& v);
ConvGraph::Extents strides_of(const ImageView& v);

/// Return why no library is asked. `size`: values of the result, each the sum of as many products as a window has.
const char* why_not(Work& work, const ConvWeights& weights, i64 size);

/// Return the address of gradients that a library can write; 0 if it is not aligned to 16 bytes.
inline Address whole_address(const Pointer<float>& gradients) { return gradients.address % 16 ? 0 : gradients.address; }

/// Fill in window and weights. `image` and `result` are the two sides of the forward convolution.
void set_window(ConvGraph& graph, const Window& window, const ConvWeights& weights, const ImageView& image,
                const ImageView& result, std::int64_t channels);

/// Remove rows and columns that no window reads, so that no padding is negative. Return why that cannot be done.
const char* crop(ImageView& image, Window& window, const ConvWeights& weights, const ImageView& result);

/// Return whether cuDNN may load and store 16 bytes at once. With other strides, or gaps in the last 16 bytes of a
/// pixel, it writes beside the channels [the former seen on an H200].
bool is_aligned(const View& view);

/// Return whether the padding after the image is less than a window.
bool pads_after(const ConvGraph& graph);
/// Let the last windows end before the image does, which cuDNN takes as no padding.
const char* why_not_paddings(ConvGraph& graph);

/// The source of a graph: an image, or a dense copy of it in the graph's format, with `channels` channels.
class StagedSource {
 public:
  StagedSource(ConvGraph& graph, const ImageView& src, bool is_copied, std::int64_t channels)
      : graph_(graph), src_(src), is_copied_(is_copied) {
    graph.x = {src.n, is_copied ? channels : src.c, src.h, src.w};
    graph.x_strides =
        is_copied ? ConvGraph::Extents{src.h * src.w * channels, 1, src.w * channels, channels} : strides_of(src);
  }
  /// Bytes of the copy.
  std::size_t bytes() const {
    return is_copied_ ? aligned(static_cast<std::size_t>(graph_.x[0] * graph_.x_strides[0]) * size_of(graph_.format))
                      : 0;
  }
  Address address(Work& work, Address copy) const { return is_copied_ ? copy : work.view(src_).data.address; }
  void stage(Work& work, Address copy) const {
    if (is_copied_) copy_to(work, copy);
  }

 private:
  void copy_to(Work& work, Address to) const;

  const ConvGraph& graph_;
  const ImageView& src_;
  const bool is_copied_;
};

/// Return the alignment of the addresses of images and addend, at most the graph's.
std::int64_t alignment_of(const Tunable& tunable);

/// Run a convolution in the fastest way. Return the address of the scratch memory that holds its operands; none if
/// nothing computes it.
std::optional<Address> run_fastest(Work& work, const Tunable& tunable);

}  // namespace openmps::cuda
