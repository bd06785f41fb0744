// SPDX-License-Identifier: Apache-2.0
// Depth-wise convolutions of 3 x 3 and 5 x 5, and their gradients.
#include <algorithm>

#include "engine/cuda/conv_weights.hpp"
#include "engine/cuda/convolution.hpp"
#include "engine/cuda/kernels/conv_depthwise.hpp"
#include "engine/cuda/kernels/conv_depthwise_5x5.hpp"
#include "engine/cuda/kernels/conv_depthwise_any.hpp"
#include "engine/cuda/kernels/conv_depthwise_weights.hpp"

namespace openmps::cuda {
namespace {

constexpr i64 kThreadsPerProcessor = 1024;
constexpr i64 kMaxExtent = 1 << 28;  // coordinates have 32 bits

/// Adjacent channels and columns of a thread, as in the kernels.
struct Shape {
  i64 lanes, columns;
};
constexpr i64 kNarrowColumns = 2;
Shape shape_of(i64 kernel, i64 stride) { return {kernel == 3 ? 4 : 2, kernel == 3 && stride == 1 ? 4 : 2}; }

const char* why_not(const ConvWeights& weights, const Window& w, i64 stride_h, i64 stride_w) {
  if (weights.in_channels_per_group != 1 || weights.groups != weights.out_channels) return "not depth-wise";
  if (weights.kernel_h != weights.kernel_w || (weights.kernel_h != 3 && weights.kernel_h != 5))
    return "neither 3 x 3 nor 5 x 5";
  if (w.dilation_h != 1 || w.dilation_w != 1) return "dilation";
  if (stride_h != stride_w || stride_h > 2) return "stride above 2";
  return nullptr;
}

/// Return why a thread cannot load `lanes` channels at once.
const char* why_not(const ImageView& view, i64 lanes) {
  if (view.format != Format::float16 && view.format != Format::float32) return "neither float16 nor float32";
  const auto bytes = static_cast<std::uint64_t>(lanes) * size_of(view.format);
  if (view.c % lanes || view.w_stride % lanes || view.h_stride % lanes || view.n_stride % lanes ||
      reinterpret_cast<std::uintptr_t>(view.memory->address() + view.offset) % bytes)
    return "channels are not aligned";
  if (view.h > kMaxExtent || view.w > kMaxExtent) return "very large image";
  return nullptr;
}

const char* why_not(const ImageView& a, const ImageView& b, i64 lanes) {
  if (a.format != b.format) return "two formats";
  if (const char* reason = why_not(a, lanes)) return reason;
  return why_not(b, lanes);
}

bool is_far(const Window& w) {
  return w.start_h < -kMaxExtent || w.start_h > kMaxExtent || w.start_w < -kMaxExtent || w.start_w > kMaxExtent;
}

/// Divide the results among threads, each with `columns` columns. Return how many threads can be used at most.
i64 divide(depthwise::DepthwiseArgs& args, i64 lanes, i64 columns, i64 wanted) {
  const View& dst = args.dst;
  args.columns = (dst.w + columns - 1) / columns;
  // Long strips read few rows twice; short ones keep all multiprocessors busy. With few threads, the time is that of
  // the loads of one thread, one row after the other: strips of one row have the fewest.
  const i64 threads_of_strip = dst.n * args.columns * (dst.c / lanes), rows = 4;
  const bool is_small = threads_of_strip * ((dst.h + rows - 1) / rows) < wanted / 4;
  const i64 most = is_small ? dst.h : (dst.h + rows - 1) / rows;
  args.strips = std::clamp<i64>((wanted + threads_of_strip - 1) / threads_of_strip, 1, most);
  args.rows = (dst.h + args.strips - 1) / args.strips;
  args.strips = (dst.h + args.rows - 1) / args.rows;
  return threads_of_strip * most;
}

/// Choose a kernel, and launch.
void launch(Work& work, depthwise::DepthwiseArgs& args, i64 kernel, i64 stride) {
  using namespace depthwise::three;
  using namespace depthwise::five;
  using namespace depthwise::any;
  const bool is_any = args.clamps || !is_clip(args.neuron.type, args.neuron.a);
  const auto [lanes, columns] = shape_of(kernel, stride);
  const i64 wanted = work.gpu().processors() * kThreadsPerProcessor;
  const i64 threads = divide(args, lanes, columns, wanted);
  const auto& usual = kernel == 3   ? stride == 1 ? (is_any ? conv_depthwise_any_3x3 : conv_depthwise_3x3)
                                      : is_any    ? conv_depthwise_any_3x3_stride_2
                                                  : conv_depthwise_3x3_stride_2
                      : stride == 1 ? (is_any ? conv_depthwise_any_5x5 : conv_depthwise_5x5)
                      : is_any      ? conv_depthwise_any_5x5_stride_2
                                    : conv_depthwise_5x5_stride_2;
  const bool is_narrow = &usual == &conv_depthwise_3x3 && threads < wanted;
  if (is_narrow) divide(args, lanes, kNarrowColumns, wanted);
  work.launch(is_narrow ? conv_depthwise_3x3_narrow : usual, args,
              args.dst.n * args.columns * (args.dst.c / lanes) * args.strips, {&args.src, &args.dst});
}

}  // namespace

const char* run_conv_depthwise(const Call<ConvProblem>& call) {
  const auto& [p, work] = call;
  const ConvWeights& weights = *p.weights;
  const Window& w = p.window;
  if (p.addend.memory) return "something is added";
  if (p.subpixel > 1) return "sub-pixel";
  if (const char* reason = why_not(weights, w, w.stride_h, w.stride_w)) return reason;
  if (const char* reason = why_not(p.src, p.dst, shape_of(weights.kernel_h, w.stride_h).lanes)) return reason;
  if (is_far(w)) return "far from the source";
  GpuWeights& copies = GpuWeights::of(work.gpu(), weights);
  depthwise::DepthwiseArgs args{.src = work.view(p.src),
                                .dst = work.view(p.dst),
                                .weights = copies.outputs_last(weights),
                                .bias = copies.bias(weights),
                                .start_h = w.start_h,
                                .start_w = w.start_w,
                                .clamps = w.edge == Edge::clamp,
                                .neuron = work.activation(p.neuron)};
  launch(work, args, weights.kernel_h, w.stride_h);
  return nullptr;
}

const char* run_conv_data_depthwise(const DataCall<ConvGradientProblem>& call) {
  const auto& [p, work] = call;
  const ConvWeights& weights = *p.weights;
  const Window& w = p.window;
  if (const char* reason = why_not(weights, w, w.stride_h, w.stride_w)) return reason;
  if (w.stride_h != 1) return "stride";
  if (w.edge == Edge::clamp) return "clamped taps";
  if (const char* reason = why_not(p.diff_dst, p.diff_src, shape_of(weights.kernel_h, 1).lanes)) return reason;
  Window seen = w;  // pixel y of the source is read by results y - start - tap: a convolution with the taps reversed
  seen.start_h = p.first_h - w.start_h - (weights.kernel_h - 1);
  seen.start_w = p.first_w - w.start_w - (weights.kernel_w - 1);
  if (is_far(seen)) return "far from the source";
  depthwise::DepthwiseArgs args{.src = work.view(p.diff_dst),
                                .dst = work.view(p.diff_src),
                                .weights = GpuWeights::of(work.gpu(), weights).outputs_last(weights),
                                .start_h = seen.start_h,
                                .start_w = seen.start_w,
                                .rotated = true};
  launch(work, args, weights.kernel_h, 1);
  return nullptr;
}

const char* run_conv_weights_depthwise(const WeightsCall<ConvGradientProblem>& call) {
  const auto& [p, work] = call;
  if (!p.diff_weights.memory) return "only the bias";
  const ConvWeights& weights = *p.weights;
  const Window& w = p.window;
  const i64 kernel = weights.kernel_h, stride = w.stride_h, lanes = shape_of(kernel, stride).lanes;
  if (const char* reason = why_not(weights, w, w.stride_h, w.stride_w)) return reason;
  if (const char* reason = why_not(p.diff_dst, p.src, lanes)) return reason;
  if (is_far(w) || p.diff_dst.n * p.diff_dst.h > 0x7fffffff) return "far from the source, or very many rows";
  const i64 threads = p.diff_dst.c / lanes;
  // Few rows per split, as the sums of a thread are float; not too few, as each split writes all partial sums.
  constexpr i64 kPixels = 128;
  const Splits splits = split_rows(p, work, threads, (kPixels + p.diff_dst.w - 1) / p.diff_dst.w);
  const depthwise::gradient::DepthwiseWeightsArgs args{.diff_dst = work.view(p.diff_dst),
                                                       .src = work.view(p.src),
                                                       .start_h = w.start_h,
                                                       .start_w = w.start_w,
                                                       .clamps = w.edge == Edge::clamp,
                                                       .rows = splits.weights_rows,
                                                       .partials = splits.weights_partials};
  const auto& chosen = kernel == 3   ? stride == 1 ? depthwise::gradient::conv_depthwise_weights_3x3
                                                   : depthwise::gradient::conv_depthwise_weights_3x3_stride_2
                       : stride == 1 ? depthwise::gradient::conv_depthwise_weights_5x5
                                     : depthwise::gradient::conv_depthwise_weights_5x5_stride_2;
  work.launch(chosen, args, splits.weights * threads, {&args.diff_dst, &args.src});
  finish_weights(p, work, splits, true);
  return nullptr;
}

}  // namespace openmps::cuda
