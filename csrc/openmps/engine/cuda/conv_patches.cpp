// SPDX-License-Identifier: Apache-2.0
// Gradients of the weights of first layers, whose few channels libraries compute badly: the windows of some images
// become rows of a matrix, and the gradient is a product.
#include <algorithm>

#include "engine/cuda/conv_staging.hpp"
#include "engine/cuda/convolution.hpp"
#include "engine/cuda/kernels/layout.hpp"
#include "engine/failure.hpp"

namespace openmps::cuda {
namespace {

constexpr i64 kFewChannels = 4;
constexpr i64 kMaxValues = 4096;  // of a window
/// Max bytes of the windows that are computed together; few on the host, so that tests have several turns.
i64 matrix_bytes_of(const Gpu& gpu) { return gpu.driver().is_host ? 64 << 10 : 64 << 20; }

const char* why_not_patches(const ConvGradientProblem& p, Work& work) {
  const ConvWeights& weights = *p.weights;
  if (!p.diff_weights.memory) return "only the gradient of the bias";
  if (const char* const reason = why_not(work, weights, p.diff_dst.size())) return reason;
  if (weights.groups > 1 || weights.in_channels_per_group > kFewChannels) return "many channels, or groups";
  if (weights.kernel_h * weights.kernel_w == 1) return "1 x 1";
  if (weights.kernel_h * weights.kernel_w > kMaxValues / kFewChannels) return "a large window";
  if (p.window.edge != Edge::zero) return "clamped edges";
  if (!is_float(p.diff_dst.format) || p.src.format != p.diff_dst.format) return "two formats";
  const auto whole = static_cast<i64>(16 / size_of(p.diff_dst.format));
  if (!p.diff_dst.is_dense() || p.diff_dst.c % whole || work.view(p.diff_dst).data.address % 16)
    return "pixels are not aligned to 16 bytes";
  return nullptr;
}

}  // namespace

const char* run_conv_weights_patches(const WeightsCall<ConvGradientProblem>& call) {
  const auto& [p, work] = call;
  if (const char* const reason = why_not_patches(p, work)) return reason;
  const ConvWeights& weights = *p.weights;
  const Format format = p.diff_dst.format;
  const auto lanes = static_cast<i64>(16 / size_of(format));
  const i64 values = weights.kernel_h * weights.kernel_w * weights.in_channels_per_group;
  const i64 columns = (values + lanes - 1) / lanes * lanes, outputs = weights.out_channels;
  const i64 windows = p.diff_dst.h * p.diff_dst.w, row_bytes = columns * static_cast<i64>(size_of(format));
  const i64 most = std::max<i64>(1, matrix_bytes_of(work.gpu()) / (windows * row_bytes));
  const i64 turns = (p.diff_dst.n + most - 1) / most;
  const auto result_bytes = aligned(static_cast<std::size_t>(outputs * columns) * sizeof(float));
  for (i64 turn = 0; turn < turns; ++turn) {
    const i64 first = p.diff_dst.n * turn / turns, count = p.diff_dst.n * (turn + 1) / turns - first;
    const ImageView src = p.src.images(first, count), diff_dst = p.diff_dst.images(first, count);
    const i64 rows = count * windows;
    ConvGraph graph;
    graph.kind = ConvGraph::Kind::weights;
    graph.format = format;
    graph.weights_format = Format::float32;
    graph.reduced_precision = p.reduced_precision;
    graph.w = {outputs, columns, 1, 1}, graph.w_strides = {columns, 1, columns, columns};
    graph.x = {1, columns, 1, rows}, graph.x_strides = {rows * columns, 1, rows * columns, columns};
    graph.y = {1, outputs, 1, rows}, graph.y_strides = {rows * outputs, 1, rows * outputs, outputs};
    const std::size_t matrix_bytes = aligned(static_cast<std::size_t>(rows * row_bytes));
    const auto operands = [&](Address scratch) {
      ConvAddresses result;
      result.x = scratch;
      result.w = scratch + matrix_bytes;
      result.writes_w = true;
      result.y = work.view(diff_dst).data.address;
      return result;
    };
    const auto gather = [&](Address scratch) {
      const layout::GatherPatchesArgs args{.src = work.view(src),
                                           .to = {scratch},
                                           .h = diff_dst.h,
                                           .w = diff_dst.w,
                                           .parts = columns / lanes,
                                           .kernel_h = weights.kernel_h,
                                           .kernel_w = weights.kernel_w,
                                           .start_h = p.window.start_h,
                                           .start_w = p.window.start_w,
                                           .stride_h = p.window.stride_h,
                                           .stride_w = p.window.stride_w,
                                           .dilation_h = p.window.dilation_h,
                                           .dilation_w = p.window.dilation_w};
      work.launch(layout::gather_patches, args, rows * args.parts, {&args.src});
    };
    const auto scratch = run_fastest(work, {graph, matrix_bytes + result_bytes, operands, gather});
    if (!scratch && turn == 0) return "no library supports it";
    if (!scratch) throw EngineError(FailureCode::internal, "no library computes the gradient of the last images.");
    work.launch(layout::add_gradient,
                {.from = {*scratch + matrix_bytes},
                 .to = work.values(p.diff_weights),
                 .format = graph.weights_format,
                 .channels = values,
                 .all_channels = columns,
                 .accumulates = p.accumulates || turn > 0},
                outputs * values);
  }
  if (!p.diff_bias.memory) return nullptr;
  ConvGradientProblem bias = p;
  bias.diff_weights = {};
  return run_conv_weights_loop({bias, work});
}

}  // namespace openmps::cuda
