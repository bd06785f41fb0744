// SPDX-License-Identifier: Apache-2.0
// Convolutions and their gradients by the kernels that take everything.
#include <algorithm>

#include "engine/cuda/conv_weights.hpp"
#include "engine/cuda/convolution.hpp"
#include "engine/cuda/kernels/convolution.hpp"
#include "engine/cuda/vectors.hpp"

namespace openmps::cuda {
namespace {

using convolution::Axis, convolution::Filters;

constexpr i64 kThreadsPerProcessor = 1024;  // that keep a multiprocessor busy
constexpr i64 kPartialFloats = 16 << 20;    // max partial sums of gradients by weights
constexpr i64 kBlockTerms = 512;            // min products of a result for which a block pays
constexpr i64 kFewSplits = 12;              // max partial sums that one thread adds
constexpr i64 kManySums = 1 << 11;          // from which on one block adds those of 32 sums

Axis axis_h(const Window& w, i64 extent, bool transposed = false) {
  return {.start = w.start_h,
          .stride = w.stride_h,
          .dilation = w.dilation_h,
          .extent = extent,
          .clamps = w.edge == Edge::clamp,
          .transposed = transposed};
}
Axis axis_w(const Window& w, i64 extent, bool transposed = false) {
  return {.start = w.start_w,
          .stride = w.stride_w,
          .dilation = w.dilation_w,
          .extent = extent,
          .clamps = w.edge == Edge::clamp,
          .transposed = transposed};
}

enum class Order : std::uint8_t { inputs_last, outputs_last };

/// Return the weights in the order in which adjacent threads read adjacent values.
Filters filters_of(Gpu& gpu, const ConvWeights& weights, Order order) {
  const i64 outputs = weights.out_channels, inputs = weights.in_channels_per_group;
  GpuWeights& copies = GpuWeights::of(gpu, weights);
  Filters filters = {.values = order == Order::outputs_last ? copies.outputs_last(weights) : copies.values(weights),
                     .bias = copies.bias(weights),
                     .outputs = outputs / weights.groups,
                     .inputs = inputs};
  if (order == Order::outputs_last)
    filters.o_step = 1, filters.i_step = outputs, filters.tap_step = inputs * outputs;
  else
    filters.o_step = weights.kernel_h * weights.kernel_w * inputs, filters.i_step = 1, filters.tap_step = inputs;
  return filters;
}

/// Run a ConvProblem or a TransposeProblem; the latter has no addend.
template <class P>
const char* run_forward(const Call<P>& call, bool transposed) {
  const auto& [p, work] = call;
  Gpu& gpu = work.gpu();
  const ConvWeights& weights = *p.weights;
  const i64 results = p.dst.size(), terms = weights.kernel_h * weights.kernel_w * weights.in_channels_per_group;
  const i64 enough = gpu.processors() * kThreadsPerProcessor;
  const bool by_block = terms >= kBlockTerms && results * 4 <= enough;
  convolution::ForwardArgs args{
      .src = work.view(p.src),
      .dst = work.view(p.dst),
      .filters = filters_of(gpu, weights, by_block ? Order::inputs_last : Order::outputs_last),
      .h = axis_h(p.window, p.src.h, transposed),
      .w = axis_w(p.window, p.src.w, transposed),
      .kernel_h = weights.kernel_h,
      .kernel_w = weights.kernel_w,
      .neuron = work.activation(p.neuron)};
  if constexpr (requires { p.addend; }) {
    args.addend = work.view(p.addend);
    args.after = work.activation(p.after);
    args.subpixel = std::max<i64>(p.subpixel, 1);
  }
  const std::initializer_list<const View*> images = {&args.src, &args.dst, &args.addend};
  const i64 columns = (p.dst.w + convolution::kColumns - 1) / convolution::kColumns;
  const i64 threads = p.dst.n * p.dst.h * columns * p.dst.c;
  if (by_block)
    work.launch(convolution::conv_sums, args, results, images);
  else if (args.subpixel == 1 && threads >= enough)
    work.launch(convolution::conv_columns, args, threads, images);
  else
    work.launch(convolution::conv_values, args, results, images);
  return nullptr;
}

const char* run_data(const ConvGradientProblem& p, Work& work, bool transposed) {
  const ConvWeights& weights = *p.weights;
  const bool depthwise = weights.groups == weights.out_channels && weights.in_channels_per_group == 1;
  const convolution::DataArgs args{
      .diff_dst = work.view(p.diff_dst),
      .diff_src = work.view(p.diff_src),
      .filters = filters_of(work.gpu(), weights, depthwise ? Order::outputs_last : Order::inputs_last),
      .h = axis_h(p.window, p.src.h, transposed),
      .w = axis_w(p.window, p.src.w, transposed),
      .kernel_h = weights.kernel_h,
      .kernel_w = weights.kernel_w,
      .first_h = p.first_h,
      .first_w = p.first_w};
  work.launch(convolution::conv_data, args, p.diff_src.size(), {&args.diff_dst, &args.diff_src});
  return nullptr;
}

const char* run_weights(const ConvGradientProblem& p, Work& work, bool transposed) {
  const ConvWeights& weights = *p.weights;
  const i64 outputs = weights.out_channels / weights.groups, taps = weights.kernel_h * weights.kernel_w;
  const bool by_tiles = outputs > 1;
  const i64 tiles = by_tiles ? (outputs + convolution::kOutputs - 1) / convolution::kOutputs : outputs;
  const i64 threads = taps * weights.groups * tiles * weights.in_channels_per_group;
  const Splits splits = split_rows(p, work, threads);
  if (p.diff_weights.memory) {
    const convolution::WeightsArgs args{.diff_dst = work.view(p.diff_dst),
                                        .src = work.view(p.src),
                                        .h = axis_h(p.window, p.src.h, transposed),
                                        .w = axis_w(p.window, p.src.w, transposed),
                                        .kernel_h = weights.kernel_h,
                                        .kernel_w = weights.kernel_w,
                                        .groups = weights.groups,
                                        .rows = splits.weights_rows,
                                        .partials = splits.weights_partials};
    work.launch(by_tiles ? convolution::conv_weights_tiles : convolution::conv_weights, args, splits.weights * threads,
                {&args.diff_dst, &args.src});
  }
  finish_weights(p, work, splits);
  return nullptr;
}

/// Return how many channels a thread sums for the gradient by the bias.
i64 lanes_of_bias(const View& diff_dst) { return why_no_vectors({&diff_dst}) ? 1 : lanes_in_vector(diff_dst); }

/// sums = the sums of their partial sums.
void add_up(Work& work, const convolution::SumArgs& args) {
  if (args.splits <= kFewSplits)
    work.launch(convolution::conv_add_few, args, args.count);
  else if (args.count < kManySums)
    work.launch(convolution::conv_add_many, args, args.count);
  else
    work.launch(convolution::conv_add_by_warps, args, (args.count + 31) / 32);
}

}  // namespace

Splits split_rows(const ConvGradientProblem& p, Work& work, i64 threads, i64 least) {
  const i64 rows = p.diff_dst.n * p.diff_dst.h, enough = work.gpu().processors() * kThreadsPerProcessor;
  const auto count = [&](i64 rows_of_split) { return (rows + rows_of_split - 1) / rows_of_split; };
  const auto rows_for = [&](i64 threads_of_split, i64 floats) {
    const i64 splits = std::min((enough + threads_of_split - 1) / threads_of_split, kPartialFloats / floats);
    return std::max((rows + std::max<i64>(splits, 1) - 1) / std::max<i64>(splits, 1), least);
  };
  Splits splits;
  const i64 weights = p.diff_weights.memory ? static_cast<i64>(p.weights->values.size()) : 0, outputs = p.diff_dst.c;
  if (weights) splits.weights_rows = rows_for(threads, weights), splits.weights = count(splits.weights_rows);
  if (p.diff_bias.memory) {
    splits.bias_rows = rows_for(outputs / lanes_of_bias(work.view(p.diff_dst)), outputs);
    splits.bias = count(splits.bias_rows);
  }
  const std::size_t floats = static_cast<std::size_t>(splits.weights * weights + splits.bias * outputs);
  if (floats == 0) return splits;
  splits.weights_partials = {work.scratch(floats * sizeof(float))};
  splits.bias_partials = {splits.weights_partials.address +
                          static_cast<std::size_t>(splits.weights * weights) * sizeof(float)};
  return splits;
}

void finish_weights(const ConvGradientProblem& p, Work& work, const Splits& splits, bool taps_first) {
  const ConvWeights& weights = *p.weights;
  if (p.diff_weights.memory)
    add_up(work, {.partials = {splits.weights_partials.address},
                  .sums = work.values(p.diff_weights),
                  .splits = splits.weights,
                  .count = static_cast<i64>(weights.values.size()),
                  .taps = taps_first ? weights.kernel_h * weights.kernel_w : 1,
                  .accumulates = p.accumulates});
  if (!p.diff_bias.memory) return;
  const convolution::BiasArgs args{
      .diff_dst = work.view(p.diff_dst), .rows = splits.bias_rows, .partials = splits.bias_partials};
  const i64 lanes = lanes_of_bias(args.diff_dst);
  work.launch(lanes > 1 ? convolution::conv_bias_vectors : convolution::conv_bias, args,
              splits.bias * (p.diff_dst.c / lanes), {&args.diff_dst});
  add_up(work, {.partials = {splits.bias_partials.address},
                .sums = work.values(p.diff_bias),
                .splits = splits.bias,
                .count = p.diff_dst.c,
                .accumulates = p.accumulates});
}

const char* run_conv_loop(const Call<ConvProblem>& call) { return run_forward(call, false); }
const char* run_transpose_loop(const Call<TransposeProblem>& call) { return run_forward(call, true); }
const char* run_conv_data_loop(const DataCall<ConvGradientProblem>& call) {
  return run_data(call.problem, call.work, false);
}
const char* run_transpose_data_loop(const DataCall<TransposeGradientProblem>& call) {
  return run_data(call.problem, call.work, true);
}
const char* run_conv_weights_loop(const WeightsCall<ConvGradientProblem>& call) {
  return run_weights(call.problem, call.work, false);
}
const char* run_transpose_weights_loop(const WeightsCall<TransposeGradientProblem>& call) {
  return run_weights(call.problem, call.work, true);
}

const char* run_binary_conv_loop(const Call<BinaryConvProblem>& call) {
  const auto& [p, work] = call;
  Gpu& gpu = work.gpu();
  const std::shared_ptr<const BinaryWeights>& weights = p.weights;
  const BinaryWeights& w = *weights;
  const auto constants = [&](const std::vector<float>& values) {
    return work.constants(std::shared_ptr<const std::vector<float>>(weights, &values));
  };
  const bool real = w.type == BinaryConvType::binary_weights;
  const i64 pixels = p.src.n * p.src.h * p.src.w, words = w.words_per_pixel();
  convolution::BinaryArgs args{
      .source = {.src = work.view(p.src), .bias = constants(w.input_bias), .scale = constants(w.input_scale)},
      .dst = work.view(p.dst),
      .type = static_cast<convolution::BinaryType>(w.type),
      .words = words,
      .h = axis_h(p.window, p.src.h),
      .w = axis_w(p.window, p.src.w),
      .kernel_h = w.kernel_h,
      .kernel_w = w.kernel_w,
      .neuron = work.activation(p.neuron)};
  if (real) {
    args.filters = filters_of(gpu, *w.signs, Order::outputs_last);  // with the scale
  } else {
    const std::shared_ptr<const std::vector<std::uint32_t>> by_word(weights, &w.by_word);
    args.by_word = constant_words(gpu, by_word);
    args.lanes = static_cast<i64>(w.by_word.size()) / (w.kernel_h * w.kernel_w * words);
    args.scale = constants(w.scale);
  }
  args.bias = constants(w.bias);
  const std::size_t sizes_bytes = w.uses_beta ? static_cast<std::size_t>(pixels) * sizeof(float) : 0;
  const std::size_t bits_bytes = real ? 0 : static_cast<std::size_t>(pixels * words) * sizeof(std::uint32_t);
  const Address scratch = sizes_bytes + bits_bytes ? work.scratch(sizes_bytes + bits_bytes) : 0;
  if (w.uses_beta) {
    args.sizes = {scratch};
    const convolution::BinarySizesArgs sizes{args.source, {scratch}};
    work.launch(convolution::conv_binary_sizes, sizes, pixels, {&sizes.source.src});
  }
  if (!real) {
    args.words_of_pixels = {scratch + sizes_bytes};
    const convolution::BinaryBitsArgs bits{args.source, words, {scratch + sizes_bytes}};
    work.launch(convolution::conv_binary_bits, bits, pixels * words, {&bits.source.src});
  }
  work.launch(convolution::conv_binary, args, p.dst.size(), {&args.source.src, &args.dst});
  return nullptr;
}

}  // namespace openmps::cuda
