// SPDX-License-Identifier: Apache-2.0
// Transposed convolutions and their gradients as graphs of cuDNN, or by our own kernels. A transposed convolution is
// the gradient of a convolution by its source: pixel j of our source is result j of that convolution, which reads
// result j * stride + tap * dilation - before of ours. Here, result r reads tap p if start + r + p * dilation = j *
// stride. So taps are in reverse order, and before = start + dilation * (kernel - 1).
#include <algorithm>

#include "engine/cuda/conv_staging.hpp"
#include "engine/cuda/conv_weights.hpp"
#include "engine/cuda/convolution.hpp"
#include "engine/cuda/kernels/layout.hpp"
#include "engine/cuda/vectors.hpp"

namespace openmps::cuda {
namespace {

/// The extents of that convolution's weights.
void set_shape(ConvWeights& shape, const ConvWeights& weights) {
  shape.out_channels = weights.in_channels_per_group * weights.groups;
  shape.in_channels_per_group = weights.out_channels / weights.groups;
  shape.kernel_h = weights.kernel_h, shape.kernel_w = weights.kernel_w;
  shape.groups = weights.groups;
}

/// Its window, if its first result is pixel (first_h, first_w) of our source.
Window window_of(const Window& window, std::int64_t first_h, std::int64_t first_w) {
  Window result = window;
  result.start_h = first_h * window.stride_h - window.start_h - window.dilation_h * (window.kernel_h - 1);
  result.start_w = first_w * window.stride_w - window.start_w - window.dilation_w * (window.kernel_w - 1);
  return result;
}

/// The pixels of the source that contribute to the result.
struct Contribution {
  std::int64_t first, count;
};
Contribution contribution(std::int64_t extent, std::int64_t results, std::int64_t start, std::int64_t stride,
                          std::int64_t reach) {
  const std::int64_t first = start > 0 ? (start + stride - 1) / stride : 0, last = start + results - 1 + reach - 1;
  return {first, std::min(extent, last < 0 ? 0 : last / stride + 1) - first};
}

/// Describe the convolution between `result` and the pixels of `src` that contribute to it, to which `src` is reduced.
const char* describe(ConvGraph& graph, ConvWeights& shape, const ConvWeights& weights, const Window& window,
                     ImageView& src, const ImageView& result) {
  const Contribution rows = contribution(src.h, result.h, window.start_h, window.stride_h,
                                         window.dilation_h * (window.kernel_h - 1) + 1),
                     columns = contribution(src.w, result.w, window.start_w, window.stride_w,
                                            window.dilation_w * (window.kernel_w - 1) + 1);
  if (rows.count <= 0 || columns.count <= 0) return "no pixel of the source is used";
  src = src.region(rows.first, columns.first, rows.count, columns.count);
  set_shape(shape, weights);
  set_window(graph, window_of(window, rows.first, columns.first), shape, result, src, shape.in_channels_per_group);
  graph.x = extents_of(result), graph.x_strides = strides_of(result);
  graph.y = extents_of(src), graph.y_strides = strides_of(src);
  return why_not_paddings(graph);
}

/// Return why no library is asked.
const char* why_not(Work& work, const ConvWeights& weights, const ImageView& src, const ImageView& result) {
  if (const char* const reason = why_not(work, weights, src.n * src.h * src.w * result.c)) return reason;
  if (!is_float(result.format)) return "neither float16 nor float32";
  if (src.format != result.format) return "two formats";
  if (!is_aligned(work.view(src)) || !is_aligned(work.view(result))) return "pixels are not aligned to 16 bytes";
  return nullptr;
}

/// dst = neuron(dst + bias).
void add_bias(Work& work, const ImageView& dst, Pointer<const float> bias, const Neuron& neuron) {
  const View image = work.view(dst), row = flattened(image, true);
  const bool is_relu = neuron.type == NeuronType::relu;
  if (row.n == 1 && row.h == 1 && (is_relu || neuron_is_identity(neuron)) && !why_no_vectors({&row})) {
    const i64 step = (row.w + layout::kBiasPixels - 1) / layout::kBiasPixels;
    const layout::AddBiasRowArgs args{row, bias, is_relu, neuron.a, step};
    return work.launch(layout::add_bias_row, args, step * (row.c / lanes_in_vector(row)), {&args.image});
  }
  const layout::AddBiasArgs args{image, bias, work.activation(neuron)};
  work.launch(layout::add_bias, args, image.size(), {&args.image});
}

}  // namespace

const char* run_transpose_tuned(const Call<TransposeProblem>& call) {
  const auto& [p, work] = call;
  const ConvWeights& weights = *p.weights;
  if (const char* const reason = why_not(work, weights, p.src, p.dst)) return reason;
  ImageView src = p.src;
  ConvGraph graph;
  ConvWeights shape;
  graph.kind = ConvGraph::Kind::data;
  graph.format = p.dst.format;
  graph.reduced_precision = p.reduced_precision;
  if (const char* const reason = describe(graph, shape, weights, p.window, src, p.dst)) return reason;
  GpuWeights& copies = GpuWeights::of(work.gpu(), weights);
  const auto operands = [&](Address) {
    ConvAddresses result;
    result.x = work.view(p.dst).data.address;
    result.w = copies.transposed(weights, graph.format);
    result.y = work.view(src).data.address;
    result.turned_w = [&] { return copies.padded(weights, weights.in_channels_per_group, graph.format); };
    return result;
  };
  Tunable tunable{.graph = graph, .operands = operands, .own = own_kernels(call)};
  if (!weights.bias.empty() || !neuron_is_identity(p.neuron))
    tunable.finish = [&, &p = p, &work = work] { add_bias(work, p.dst, copies.bias(weights), p.neuron); };
  return run_fastest(work, tunable) ? nullptr : "no library supports it";
}

const char* run_transpose_data_tuned(const DataCall<TransposeGradientProblem>& call) {
  const auto& [p, work] = call;
  const ConvWeights& weights = *p.weights;
  if (const char* const reason = why_not(work, weights, p.diff_src, p.diff_dst)) return reason;
  ConvGraph graph;
  ConvWeights shape;
  graph.format = p.diff_dst.format;
  graph.reduced_precision = p.reduced_precision;
  set_shape(shape, weights);
  ImageView source = p.diff_dst;
  Window window = window_of(p.window, p.first_h, p.first_w);
  if (const char* const reason = crop(source, window, shape, p.diff_src)) return reason;
  set_window(graph, window, shape, source, p.diff_src, shape.in_channels_per_group);
  if (!pads_after(graph)) return "windows outside of the source";
  graph.x = extents_of(source), graph.x_strides = strides_of(source);
  graph.y = extents_of(p.diff_src), graph.y_strides = strides_of(p.diff_src);
  GpuWeights& copies = GpuWeights::of(work.gpu(), weights);
  const auto operands = [&](Address) {
    ConvAddresses result;
    result.x = work.view(source).data.address;
    result.w = copies.transposed(weights, graph.format);
    result.y = work.view(p.diff_src).data.address;
    return result;
  };
  if (!run_fastest(work, {graph, 0, operands})) return "no library supports it";
  return nullptr;
}

const char* run_transpose_weights_tuned(const WeightsCall<TransposeGradientProblem>& call) {
  const auto& [p, work] = call;
  const ConvWeights& weights = *p.weights;
  if (!p.diff_weights.memory) return "only the gradient of the bias";
  if (const char* const reason = why_not(work, weights, p.src, p.diff_dst)) return reason;
  ImageView src = p.src;
  ConvGraph graph;
  ConvWeights shape;
  graph.kind = ConvGraph::Kind::weights;
  graph.format = p.diff_dst.format;
  graph.weights_format = Format::float32;  // a float16 would lose digits of the sums
  graph.reduced_precision = p.reduced_precision;
  if (const char* const reason = describe(graph, shape, weights, p.window, src, p.diff_dst)) return reason;
  const auto count = static_cast<i64>(weights.values.size());
  const auto operands = [&](Address scratch) {
    ConvAddresses result;
    result.x = work.view(p.diff_dst).data.address;
    result.w = scratch;
    result.writes_w = true;
    result.y = work.view(src).data.address;
    return result;
  };
  const std::size_t bytes = aligned(static_cast<std::size_t>(count) * sizeof(float));
  const auto scratch = run_fastest(work, {graph, bytes, operands});
  if (!scratch) return "no library supports it";
  work.launch(layout::add_transposed_gradient,
              {.from = {*scratch},
               .to = work.values(p.diff_weights),
               .outputs = shape.in_channels_per_group,
               .taps = weights.kernel_h * weights.kernel_w,
               .inputs = weights.in_channels_per_group,
               .accumulates = p.accumulates},
              count);
  if (!p.diff_bias.memory) return nullptr;
  TransposeGradientProblem bias = p;
  bias.diff_weights = {};
  return run_transpose_weights_loop({bias, work});
}

}  // namespace openmps::cuda
