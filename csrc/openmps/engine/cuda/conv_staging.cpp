// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/conv_staging.hpp"

#include <algorithm>
#include <utility>

#include "engine/cuda/convolution.hpp"
#include "engine/cuda/kernels/layout.hpp"
#include "engine/cuda/lanes.hpp"

namespace openmps::cuda {

ConvGraph::Extents extents_of(const ImageView& v) { return {v.n, v.c, v.h, v.w}; }
ConvGraph::Extents strides_of(const ImageView& v) {
  // Strides along axes of extent 1 are what cuDNN takes for channels last.
  const std::int64_t w = v.w > 1 ? v.w_stride : std::max(v.w_stride, v.c), h = v.h > 1 ? v.h_stride : v.w * w;
  return {v.n > 1 ? v.n_stride : v.h * h, 1, h, w};
}

const char* why_not(Work& work, const ConvWeights& weights, i64 size) {
  const i64 window = weights.kernel_h * weights.kernel_w * weights.in_channels_per_group;
  const bool on_host = work.gpu().driver().is_host;  // libraries of tests, which are small
  if (!on_host && size <= kFewProducts / window) return "few products";
  if (!has_cudnn(work.gpu())) return on_host ? "no cuDNN on the host" : "cuDNN is not installed";
  return nullptr;
}

void set_window(ConvGraph& graph, const Window& window, const ConvWeights& weights, const ImageView& image,
                const ImageView& result, std::int64_t channels) {
  graph.w = {weights.out_channels, channels, weights.kernel_h, weights.kernel_w};
  graph.w_strides = {weights.kernel_h * weights.kernel_w * channels, 1, weights.kernel_w * channels, channels};
  graph.stride = {window.stride_h, window.stride_w};
  graph.dilation = {window.dilation_h, window.dilation_w};
  graph.pad_before = {-window.start_h, -window.start_w};
  const auto after = [](std::int64_t size, std::int64_t results, std::int64_t start, std::int64_t stride,
                        std::int64_t dilation, std::int64_t kernel) {
    return start + (results - 1) * stride + dilation * (kernel - 1) + 1 - size;
  };
  graph.pad_after = {after(image.h, result.h, window.start_h, window.stride_h, window.dilation_h, weights.kernel_h),
                     after(image.w, result.w, window.start_w, window.stride_w, window.dilation_w, weights.kernel_w)};
}

const char* crop(ImageView& image, Window& window, const ConvWeights& weights, const ImageView& result) {
  const auto one = [](std::int64_t& size, std::int64_t& start, std::int64_t results, std::int64_t stride,
                      std::int64_t dilation, std::int64_t kernel) {
    const std::int64_t skipped = std::max<std::int64_t>(0, start), reach = dilation * (kernel - 1) + 1;
    start -= skipped;
    size = std::min(size - skipped, start + (results - 1) * stride + reach);
    return std::pair(skipped, size > 0 && -start < reach);
  };
  const auto [top, has_rows] =
      one(image.h, window.start_h, result.h, window.stride_h, window.dilation_h, weights.kernel_h);
  const auto [left, has_columns] =
      one(image.w, window.start_w, result.w, window.stride_w, window.dilation_w, weights.kernel_w);
  if (!has_rows || !has_columns) return "windows outside of the source";
  image.offset += static_cast<std::size_t>(top * image.h_stride + left * image.w_stride) * size_of(image.format);
  return nullptr;
}

bool pads_after(const ConvGraph& graph) {
  return graph.pad_after[0] < graph.dilation[0] * (graph.w[2] - 1) + 1 &&
         graph.pad_after[1] < graph.dilation[1] * (graph.w[3] - 1) + 1;
}

bool is_aligned(const View& view) {
  const auto is_whole = [&](i64 values) { return values * static_cast<i64>(size_of(view.format)) % 16 == 0; };
  const auto fits = [&](i64 extent, i64 stride) { return extent == 1 || is_whole(stride); };
  return view.data.address % 16 == 0 &&
         (is_dense(view) || (is_whole(view.c) && fits(view.n, view.n_stride) && fits(view.h, view.h_stride) &&
                             fits(view.w, view.w_stride)));
}

const char* why_not_paddings(ConvGraph& graph) {
  for (std::size_t i = 0; i < 2; ++i) {
    if (graph.pad_before[i] < 0 || graph.pad_after[i] <= -graph.stride[i]) return "pixels that no window reads";
    graph.pad_after[i] = std::max<std::int64_t>(graph.pad_after[i], 0);
  }
  return pads_after(graph) ? nullptr : "windows outside of the source";
}

void StagedSource::copy_to(Work& work, Address to) const {
  const ConvGraph& graph = graph_;
  const ImageView& src = src_;
  const auto part = static_cast<i64>(sizeof(Vector) / size_of(src.format));
  const Address from = work.view(src).data.address;
  const i64 pixels = src.n * src.h * src.w;
  const auto is_whole = [&](i64 values) { return values % part == 0; };
  if (src.format == graph.format && src.c == graph.x[1] && is_whole(src.c) && is_whole(src.w_stride) &&
      is_whole(src.h_stride) && is_whole(src.n_stride) && from % sizeof(Vector) == 0) {
    const layout::GatherPixelsArgs args{.src = {from},
                                        .dst = {to},
                                        .h = src.h,
                                        .w = src.w,
                                        .parts = src.c / part,
                                        .n_stride = src.n_stride / part,
                                        .h_stride = src.h_stride / part,
                                        .w_stride = src.w_stride / part};
    return work.launch(layout::gather_pixels, args, src.size() / part);
  }
  if (src.format == Format::float16 && graph.format == Format::float16 && src.c == 3 && graph.x[1] == 4 &&
      src.is_dense())
    return work.launch(layout::pad_three, {{from}, {to}}, pixels);
  if (src.format == Format::unorm8 && graph.format == Format::float16 && src.c == 3 && graph.x[1] == 4 &&
      src.is_dense() && pixels % 4 == 0 && from % 4 == 0)
    return work.launch(layout::pad_three_bytes, {{from}, {to}}, pixels / 4);
  const View staged{.data = {to},
                    .format = graph.format,
                    .n = graph.x[0],
                    .h = graph.x[2],
                    .w = graph.x[3],
                    .c = graph.x[1],
                    .n_stride = graph.x_strides[0],
                    .h_stride = graph.x_strides[2],
                    .w_stride = graph.x_strides[3]};
  work.launch(layout::pad_channels, {work.view(src), staged}, pixels);
}

std::int64_t alignment_of(const Tunable& tunable) {
  std::int64_t alignment = tunable.graph.alignment;
  const ConvAddresses known = tunable.operands(0);  // without scratch memory, which is aligned
  while ((known.x | known.addend | known.y) % static_cast<Address>(alignment)) alignment /= 2;
  return alignment;
}

std::optional<Address> run_fastest(Work& work, const Tunable& tunable) {
  ConvGraph at_addresses = tunable.graph;
  at_addresses.alignment = alignment_of(tunable);
  const Tunable here{at_addresses, tunable.staged, tunable.operands, tunable.prepare, tunable.finish, tunable.own};
  const auto choice = Choices::all().of(work, here);
  if (!choice) return std::nullopt;
  const Address scratch = work.scratch(tunable.staged + choice->workspace_bytes() + 1);
  here.run(work, *choice, scratch);
  return scratch;
}

}  // namespace openmps::cuda
