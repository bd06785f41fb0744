// SPDX-License-Identifier: Apache-2.0
// Gradients of weights that cuDNN computes badly: few channels, or few weights, whose sums over many windows it does
// not divide. Some windows at a time become rows of a matrix, and the gradient is a product.
#include <algorithm>

#include "engine/cuda/conv_staging.hpp"
#include "engine/cuda/convolution.hpp"
#include "engine/cuda/kernels/layout.hpp"
#include "engine/cuda/vectors.hpp"
#include "engine/failure.hpp"

namespace openmps::cuda {
namespace {

constexpr i64 kFewChannels = 4;
constexpr i64 kMaxValues = 4096;      // of a window with few channels
constexpr i64 kRows = 64;             // that the turns but the last have a multiple of
constexpr i64 kFewWeights = 1 << 19;  // 32 tiles of 128 x 128, a quarter of the multiprocessors of an H200
/// Max bytes of the windows that are computed together; few on the host, so that tests have several turns.
i64 matrix_bytes_of(const Gpu& gpu) { return gpu.driver().is_host ? 64 << 10 : 64 << 20; }

i64 divided_up(i64 a, i64 b) { return (a + b - 1) / b; }

/// Return whether 16 bytes of a window are values of one tap.
bool gathers_vectors(const View& src) { return !why_no_vectors({&src}); }

const char* why_not_patches(const ConvGradientProblem& p, Work& work) {
  const ConvWeights& weights = *p.weights;
  if (!p.diff_weights.memory) return "only the gradient of the bias";
  if (const char* const reason = why_not(work, weights, p.diff_dst.size())) return reason;
  if (weights.groups > 1) return "groups";
  if (weights.kernel_h * weights.kernel_w == 1) return "1 x 1";
  if (weights.in_channels_per_group <= kFewChannels) {
    if (weights.kernel_h * weights.kernel_w > kMaxValues / kFewChannels) return "a large window";
  } else {
    if (static_cast<i64>(weights.values.size()) >= kFewWeights) return "many weights";
    // cuDNN has good plans for tf32; for exact float32, and for float16 with sums of float32, it has one each.
    if (p.src.format == Format::float32 && p.reduced_precision) return "many channels of tf32";
    if (!gathers_vectors(work.view(p.src))) return "many channels that are not aligned to 16 bytes";
  }
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
  const i64 columns = divided_up(values, lanes) * lanes, outputs = weights.out_channels;
  const i64 windows = p.diff_dst.n * p.diff_dst.h * p.diff_dst.w,
            row_bytes = columns * static_cast<i64>(size_of(format));
  const i64 turns = divided_up(windows * row_bytes, matrix_bytes_of(work.gpu()));
  const i64 of_turn = divided_up(divided_up(windows, turns), kRows) * kRows;
  const auto result_bytes = aligned(static_cast<std::size_t>(outputs * columns) * sizeof(float));
  const View src = work.view(p.src);
  const bool by_vectors = gathers_vectors(src);
  for (i64 first = 0; first < windows; first += of_turn) {
    const i64 rows = std::min(of_turn, windows - first);
    ConvGraph graph;
    graph.kind = ConvGraph::Kind::weights;
    graph.format = format;
    graph.weights_format = Format::float32;
    graph.reduced_precision = p.reduced_precision;
    graph.w = {outputs, columns, 1, 1}, graph.w_strides = {columns, 1, columns, columns};
    graph.x = {1, columns, 1, rows}, graph.x_strides = {rows * columns, 1, rows * columns, columns};
    graph.y = {1, outputs, 1, rows}, graph.y_strides = {rows * outputs, 1, rows * outputs, outputs};
    const std::size_t matrix_bytes = aligned(static_cast<std::size_t>(rows * row_bytes));
    const bool adds = p.accumulates || first > 0;
    const Address at_once = adds || values != columns ? 0 : whole_address(work.values(p.diff_weights));
    const auto operands = [&](Address scratch) {
      ConvAddresses result;
      result.x = scratch;
      result.w = at_once ? at_once : scratch + matrix_bytes;
      result.writes_w = true;
      result.y = work.view(p.diff_dst).data.address + static_cast<Address>(first * outputs) * size_of(format);
      return result;
    };
    const auto gather = [&](Address scratch) {
      const layout::GatherPatchesArgs args{.src = src,
                                           .to = {scratch},
                                           .first = first,
                                           .h = p.diff_dst.h,
                                           .w = p.diff_dst.w,
                                           .parts = columns / lanes,
                                           .kernel_h = weights.kernel_h,
                                           .kernel_w = weights.kernel_w,
                                           .start_h = p.window.start_h,
                                           .start_w = p.window.start_w,
                                           .stride_h = p.window.stride_h,
                                           .stride_w = p.window.stride_w,
                                           .dilation_h = p.window.dilation_h,
                                           .dilation_w = p.window.dilation_w};
      if (by_vectors)
        work.launch(layout::gather_taps, args, rows * args.parts / args.kernel_w, {&args.src});
      else
        work.launch(layout::gather_patches, args, rows * args.parts, {&args.src});
    };
    const auto scratch = run_fastest(work, {graph, matrix_bytes + result_bytes, operands, gather});
    if (!scratch && first == 0) return "no library supports it";
    if (!scratch) throw EngineError(FailureCode::internal, "no library computes the gradient of the last windows.");
    if (!at_once)
      work.launch(layout::add_gradient,
                  {.from = {*scratch + matrix_bytes},
                   .to = work.values(p.diff_weights),
                   .format = graph.weights_format,
                   .channels = values,
                   .all_channels = columns,
                   .accumulates = adds},
                  outputs * values);
  }
  if (!p.diff_bias.memory) return nullptr;
  ConvGradientProblem bias = p;
  bias.diff_weights = {};
  return run_conv_weights_loop({bias, work});
}

}  // namespace openmps::cuda
