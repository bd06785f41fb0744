// SPDX-License-Identifier: Apache-2.0
// Gradients by the weights that our kernels compute on tensor cores, float16: 3 x 3 convolutions, and first layers.
// The libraries do not divide the sums over many pixels, or load each pixel for every tap.
#include <algorithm>

#include "engine/cuda/convolution.hpp"
#include "engine/cuda/kernels/conv_weights_3x3.hpp"
#include "engine/cuda/kernels/conv_weights_stem.hpp"
#include "engine/cuda/vectors.hpp"

namespace openmps::cuda {
namespace {

using product::weights_3x3::WeightsArgs, product::weights_stem::StemWeightsArgs;

constexpr i64 kMinChannels = 32;     // fewer would leave more than half of a tile empty
constexpr i64 kMinChunks = 8;        // of a part
constexpr i64 kMaxPixels = 1 << 27;  // places of their channels have 32 bits
constexpr i64 kStemBlocks = 2;       // per multiprocessor
constexpr i64 kMinLines = 4;         // of a block

i64 divided_up(i64 a, i64 b) { return (a + b - 1) / b; }

/// Return the multiprocessors that share the pixels; on the host several, so that tests have several parts.
i64 processors_of(const Gpu& gpu) { return gpu.driver().is_host ? 8 : gpu.processors(); }

const char* why_not_3x3(const ConvGradientProblem& p, const View& diff_dst, const View& src, bool by_groups) {
  const ConvWeights& weights = *p.weights;
  const Window& w = p.window;
  if (diff_dst.format != Format::float16) return "not float16";
  if (const char* const reason = why_no_vectors({&diff_dst, &src})) return reason;
  if (weights.groups != 1 || weights.kernel_h != 3 || weights.kernel_w != 3) return "groups, or not 3 x 3";
  const i64 stride = w.stride_h;
  if (w.stride_w != stride || stride > (by_groups ? 2 : 1) || w.dilation_h != 1 || w.dilation_w != 1)
    return "strides or dilation";
  // A row and a column of diff_dst more would have windows beyond the source.
  const auto is_padded = [&](i64 from, i64 to) {
    return stride == 1 ? from == to : from == 2 * to || from == 2 * to - 1;
  };
  if (w.start_h != -1 || w.start_w != -1 || !is_padded(src.h, diff_dst.h) || !is_padded(src.w, diff_dst.w))
    return "other padding than 1";
  if (w.edge != Edge::zero) return "clamped edges";
  if (std::min(diff_dst.c, src.c) < kMinChannels) return "few channels";
  using namespace product::weights_3x3;
  const i64 most = stride == 2 ? MemoryOfPlanes::kMaxWidth : by_groups ? MemoryOfGroups::kMaxWidth : Memory::kMaxWidth;
  if (diff_dst.w > most) return "wide images";
  if (src.n * (src.h + 1) * (src.w + 1) > kMaxPixels) return "too many pixels";
  return nullptr;
}

const char* why_not_stem(const ConvGradientProblem& p, const View& diff_dst, const View& src) {
  using namespace product::weights_stem;
  const ConvWeights& weights = *p.weights;
  const Window& w = p.window;
  if (diff_dst.format != Format::float16 || src.format != Format::float16) return "not float16";
  if (const char* const reason = why_no_vectors({&diff_dst})) return reason;
  if (weights.groups != 1 || weights.kernel_h != kKernel || weights.kernel_w != kKernel || src.c != kInputs)
    return "not 7 x 7 of 3 channels";
  if (w.stride_h != kStride || w.stride_w != kStride || w.dilation_h != 1 || w.dilation_w != 1)
    return "a stride other than 2, or dilation";
  if (w.edge != Edge::zero) return "clamped edges";
  if (diff_dst.c > kOutputs) return "more than 64 outputs";
  if (diff_dst.w > kMaxColumns || src.w > kMaxWidth) return "wide images";
  if (w.start_w < kMinStart || w.start_w > 0) return "windows that start far from the source";
  if (src.w_stride != kInputs || src.w % 8 || src.h_stride % 8 || src.n_stride % 8 || src.data.address % 16)
    return "rows of the source are not aligned to 16 bytes, or have gaps";
  if (std::max(diff_dst.n * diff_dst.h, std::max(src.h, std::abs(w.start_h))) > kMaxPixels) return "too many pixels";
  return nullptr;
}

/// Sum the gradients by the weights of all parts, and compute the gradient by the bias.
const char* finish(const ConvGradientProblem& p, Work& work, i64 parts, Pointer<float> partials) {
  ConvGradientProblem weights = p, bias = p;
  weights.diff_bias = {}, bias.diff_weights = {};
  Splits splits;
  splits.weights = parts, splits.weights_partials = partials;
  finish_weights(weights, work, splits);
  return p.diff_bias.memory ? run_conv_weights_loop({bias, work}) : nullptr;
}

Pointer<float> memory_of_parts(Work& work, i64 parts, i64 weights) {
  return {work.scratch(static_cast<std::size_t>(parts * weights) * sizeof(float))};
}

}  // namespace

namespace {

const char* run_3x3(const WeightsCall<ConvGradientProblem>& call, bool by_groups) {
  const auto& [p, work] = call;
  if (!p.diff_weights.memory) return "only the gradient of the bias";
  constexpr i64 kPixels = product::weights_3x3::kPixels, kChannels = product::weights_3x3::kChannels;
  WeightsArgs args{.diff_dst = work.view(p.diff_dst), .src = work.view(p.src)};
  if (by_groups && !work.gpu().has_wgmma()) return "not compute capability 9.0";
  if (const char* const reason = why_not_3x3(p, args.diff_dst, args.src, by_groups)) return reason;
  const View& pixels = args.diff_dst;
  const bool has_planes = p.window.stride_h == 2;  // whose taps are all before a pixel, or the pixel
  args.pixels = static_cast<int>(pixels.n * (pixels.h + 1) * (pixels.w + 1));
  args.ahead = static_cast<int>(divided_up((has_planes ? 1 : 2) * args.max_distance(), kPixels));
  args.by_row = ExactDivisor(static_cast<std::uint32_t>(pixels.w + 1));
  args.by_image = ExactDivisor(static_cast<std::uint32_t>(pixels.h + 1));
  args.output_tiles = static_cast<int>(divided_up(args.diff_dst.c, kChannels));
  args.input_tiles = static_cast<int>(divided_up(args.src.c, kChannels));
  args.weights = static_cast<i64>(p.weights->values.size());
  const i64 tiles = args.output_tiles * args.input_tiles, chunks = divided_up(args.pixels, kPixels);
  if (by_groups && chunks < kMinChunks) return "few pixels";
  // Their additional rows and columns are 1.3 times the pixels: cuDNN took 141 instead of 217 us for 512 channels.
  if (has_planes && 4 * (pixels.h + 1) * (pixels.w + 1) > 5 * pixels.h * pixels.w) return "small images";
  const i64 most = std::clamp<i64>(processors_of(work.gpu()) / tiles, 1, divided_up(chunks, kMinChunks));
  args.chunks = static_cast<int>(divided_up(chunks, most));
  if (by_groups) {
    constexpr int kTurn = product::weights_3x3::kChunksOfTurn;
    args.chunks = static_cast<int>(divided_up(args.chunks, kTurn)) * kTurn;
  }
  const i64 parts = divided_up(chunks, args.chunks);
  args.partials = memory_of_parts(work, parts, args.weights);
  if (has_planes)
    work.launch(product::weights_3x3::conv_weights_3x3_planes_wgmma, args, parts * tiles, {&args.diff_dst, &args.src});
  else if (by_groups)
    work.launch(product::weights_3x3::conv_weights_3x3_wgmma, args, parts * tiles, {&args.diff_dst, &args.src});
  else
    work.launch(product::weights_3x3::conv_weights_3x3, args, parts * tiles, {&args.diff_dst, &args.src});
  return finish(p, work, parts, args.partials);
}

}  // namespace

const char* run_conv_weights_3x3_wgmma(const WeightsCall<ConvGradientProblem>& call) { return run_3x3(call, true); }
const char* run_conv_weights_3x3(const WeightsCall<ConvGradientProblem>& call) { return run_3x3(call, false); }

const char* run_conv_weights_stem(const WeightsCall<ConvGradientProblem>& call) {
  const auto& [p, work] = call;
  if (!p.diff_weights.memory) return "only the gradient of the bias";
  StemWeightsArgs args{.diff_dst = work.view(p.diff_dst), .src = work.view(p.src)};
  if (const char* const reason = why_not_stem(p, args.diff_dst, args.src)) return reason;
  args.start_h = static_cast<int>(p.window.start_h), args.start_w = static_cast<int>(p.window.start_w);
  args.lines = static_cast<int>(args.diff_dst.n * args.diff_dst.h);
  args.weights = static_cast<i64>(p.weights->values.size());
  const i64 blocks = std::min(kStemBlocks * processors_of(work.gpu()), divided_up(args.lines, kMinLines));
  args.lines_of_block = static_cast<int>(divided_up(args.lines, blocks));
  const i64 parts = divided_up(args.lines, args.lines_of_block);
  args.partials = memory_of_parts(work, parts, args.weights);
  work.launch(product::weights_stem::conv_weights_stem, args, parts, {&args.diff_dst, &args.src});
  return finish(p, work, parts, args.partials);
}

}  // namespace openmps::cuda
