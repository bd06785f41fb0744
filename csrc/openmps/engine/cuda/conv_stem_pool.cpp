// SPDX-License-Identifier: Apache-2.0
// A first layer with the max pooling behind it as one kernel.
#include <algorithm>
#include <memory>
#include <string>

#include "engine/cuda/conv_weights.hpp"
#include "engine/cuda/convolution.hpp"
#include "engine/cuda/kernels/conv_stem_pool.hpp"
#include "engine/failure.hpp"
#include "engine/problem/conv_pool.hpp"

namespace openmps::cuda {
namespace {

using product::stem_pool::StemPoolArgs, product::stem_pool::Shape, product::stem_pool::Pairs,
    product::stem_pool::Singles;

constexpr i64 kMaxExtent = 1 << 24;  // coordinates of values have 32 bits
constexpr i64 kMaxRows = 64;         // of a tile

i64 divided_up(i64 a, i64 b) { return (a + b - 1) / b; }

/// Return the rows of the result in a tile: high tiles convolve fewer rows twice, low ones occupy more processors.
i64 rows_of_tile(const ConvPoolProblem& p, i64 tiles_w, i64 processors) {
  i64 best = 1, least = 0;
  for (i64 rows = 1; rows <= std::min(p.dst.h, kMaxRows); ++rows) {
    const i64 rounds = divided_up(p.dst.n * tiles_w * divided_up(p.dst.h, rows), processors);
    // Pairs of rows of the source, and about as long to start a tile as for 4 more.
    const i64 cost = rounds * (2 * rows + product::stem_pool::kOpen + 4);
    if (rows == 1 || cost < least) best = rows, least = cost;
  }
  return best;
}

/// Return why no kernel computes the problem. Addresses do not matter.
const char* why_not(const ConvPoolProblem& p, const Gpu& gpu) {
  const ConvWeights& weights = *p.weights;
  const Window &w = p.window, &pool = p.pool;
  const Format format = p.dst.format;
  if (p.src.format != format || (format != Format::float16 && format != Format::float32))
    return "neither float16 nor float32";
  if (format == Format::float32 && !p.reduced_precision) return "exact float32";
  if (format == Format::float32 && !gpu.has_tf32()) return "the GPU has no tf32";
  if (weights.groups != 1 || p.src.c != 3 || weights.kernel_h != 7 || weights.kernel_w != 7)
    return "not 7 x 7 of 3 channels";
  if (p.dst.c > 64 || p.dst.c % 8) return "more than 64 channels, or no multiple of 8";
  if (w.stride_h != 2 || w.stride_w != 2 || w.dilation_h != 1 || w.dilation_w != 1 || w.edge != Edge::zero)
    return "a stride other than 2, dilation or clamped edges";
  if (p.neuron.type == NeuronType::none || !is_clip(p.neuron.type, p.neuron.a)) return "no rectifier";
  if (pool.kernel_h != 3 || pool.kernel_w != 3 || pool.stride_h != 2 || pool.stride_w != 2 || pool.dilation_h != 1 ||
      pool.dilation_w != 1)
    return "pooling other than 3 x 3 with a stride of 2";
  const auto meets = [](i64 start, i64 results, i64 size) { return start > -3 && start + 2 * (results - 1) < size; };
  if (!meets(pool.start_h, p.dst.h, p.h) || !meets(pool.start_w, p.dst.w, p.w)) return "windows outside of the source";
  if (std::max({p.src.h, p.src.w, p.dst.h, p.dst.w}) > kMaxExtent || std::min(w.start_h, w.start_w) < -kMaxExtent ||
      std::max(w.start_h, w.start_w) > kMaxExtent)
    return "far from the source";
  return nullptr;
}

const char* run_conv_pool_stem(const Call<ConvPoolProblem>& call) {
  const auto& [p, work] = call;
  if (const char* const reason = why_not(p, work.gpu())) return reason;
  const bool is_half = p.dst.format == Format::float16;
  GpuWeights& copies = GpuWeights::of(work.gpu(), *p.weights);
  StemPoolArgs args{.src = work.view(p.src),
                    .dst = work.view(p.dst),
                    .weights = {copies.stem(*p.weights, p.dst.format)},
                    .bias = copies.bias(*p.weights),
                    .start_h = static_cast<int>(p.window.start_h),
                    .start_w = static_cast<int>(p.window.start_w),
                    .conv_h = static_cast<int>(p.h),
                    .conv_w = static_cast<int>(p.w),
                    .pool_h = static_cast<int>(p.pool.start_h),
                    .pool_w = static_cast<int>(p.pool.start_w),
                    .neuron = work.activation(p.neuron)};
  args.tiles_w = static_cast<int>(divided_up(p.dst.w, is_half ? Shape<Pairs>::kColumns : Shape<Singles>::kColumns));
  args.rows = static_cast<int>(rows_of_tile(p, args.tiles_w, work.gpu().processors()));
  args.tiles_h = static_cast<int>(divided_up(p.dst.h, args.rows));
  args.tiles = p.dst.n * args.tiles_h * args.tiles_w;
  args.blocks = std::min<i64>(args.tiles, work.gpu().processors());
  const i64 of_word = is_half ? 2 : 1, of_vector = is_half ? 8 : 4;  // values
  const bool starts_words = !is_half || p.window.start_w % 2 != 0;   // one value before the windows
  args.loads_words = p.src.w_stride == 3 && starts_words && p.src.w % of_word == 0 && p.src.h_stride % of_word == 0 &&
                     p.src.n_stride % of_word == 0 && args.src.data.address % 4 == 0;
  args.stores_vectors = args.dst.data.address % 16 == 0 && p.dst.w_stride % of_vector == 0 &&
                        p.dst.h_stride % of_vector == 0 && p.dst.n_stride % of_vector == 0;
  work.launch(is_half ? product::stem_pool::conv_stem_pool : product::stem_pool::conv_stem_pool_tf32, args, args.blocks,
              {&args.src, &args.dst});
  return nullptr;
}

constexpr Implementation<Call<ConvPoolProblem>> kConvPools[] = {{"cuda_conv_stem_pool", run_conv_pool_stem}};
const ImplementationNames kConvPoolNames(kConvPools);

}  // namespace

bool solve(const ConvPoolProblem& problem, Work& work) {
  return try_first("convolve, pool", kConvPools, Call<ConvPoolProblem>{problem, work});
}

bool fuses(const ConvPoolProblem& problem, const Gpu& gpu) { return !why_not(problem, gpu); }

}  // namespace openmps::cuda
