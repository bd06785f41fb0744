// SPDX-License-Identifier: Apache-2.0
// Max pooling of a normalized image, and the gradients of both, without storing the normalized image or the gradient by
// it.
#include "engine/cuda/kernels/normalize_pool.hpp"

#include <algorithm>

#include "engine/cuda/groups.hpp"
#include "engine/cuda/normalization.hpp"
#include "engine/cuda/pooling.hpp"
#include "engine/cuda/vectors.hpp"

namespace openmps::cuda {
namespace {

constexpr i64 kSumBlocks = 2;  // per multiprocessor

bool has_same_extents(const ImageView& a, const ImageView& b) {
  return a.n == b.n && a.h == b.h && a.w == b.w && a.c == b.c;
}
bool is_same(const ImageView& a, const ImageView& b) {
  return a.memory == b.memory && a.offset == b.offset && a.format == b.format && has_same_extents(a, b) &&
         a.n_stride == b.n_stride && a.h_stride == b.h_stride && a.w_stride == b.w_stride;
}
bool is_plain(const Operand& operand, const ImageView& dst) {
  return operand.start_h == 0 && operand.start_w == 0 && has_same_extents(operand.view, dst);
}
bool is_float(Format format) { return format == Format::float16 || format == Format::float32; }

/// Return why the pooling of the normalized image is not computed from the normalization's source.
const char* why_not(const NormalizeProblem& first, const ImageView& pooled, PoolType type, const Window& w) {
  if (first.groups > 0) return "statistics of groups";
  if (first.neuron.type != NeuronType::relu || first.neuron.a != 0) return "no ReLU, or one with a slope";
  if (!is_same(first.dst, pooled) || !is_plain(first.src, first.dst)) return "other images";
  if (!is_float(first.dst.format) || first.src.view.format != first.dst.format) return "two formats";
  if (type != PoolType::max || w.kernel_h != 3 || w.kernel_w != 3 || w.stride_h != 2 || w.stride_w != 2)
    return "not a max over 3 x 3 pixels with a stride of 2";
  if (w.dilation_h != 1 || w.dilation_w != 1) return "dilation";
  return nullptr;
}

/// Return whether each window along an axis has a tap in the source.
bool meet(i64 start, i64 windows, i64 size) { return start > -3 && start + (windows - 1) * 2 < size; }

const char* why_not(const NormalizeProblem& first, const PoolProblem& pool) {
  if (const char* const reason = why_not(first, pool.src, pool.type, pool.window)) return reason;
  if (pool.dst.format != pool.src.format) return "two formats";
  if (!meet(pool.window.start_h, pool.dst.h, pool.src.h) || !meet(pool.window.start_w, pool.dst.w, pool.src.w))
    return "windows outside of the source";
  return nullptr;
}

const char* why_not(const NormalizeProblem& first, const PoolGradientProblem& pool,
                    const BatchMomentsGradientProblem& moments, const NormalizeGradientProblem& last) {
  if (const char* const reason = why_not(first, pool.src, pool.type, pool.window)) return reason;
  if (pool.first_h != 0 || pool.first_w != 0 || !has_same_extents(pool.diff_src, pool.src)) return "other pixels";
  const ImageView& x = first.src.view;
  for (const ImageView* const each : {&pool.diff_dst, &pool.diff_src, &last.diff_src})
    if (each->format != x.format) return "two formats";
  if (!is_same(moments.diff_dst, pool.diff_src) || !is_same(moments.src.view, x) || !is_plain(moments.src, x) ||
      !is_same(last.diff_dst.view, pool.diff_src) || !is_plain(last.diff_dst, x) || !is_same(last.src.view, x) ||
      !is_plain(last.src, x) || !has_same_extents(last.diff_src, x))
    return "other images";
  if (last.groups > 0) return "statistics of groups";
  const auto is_alike = [&](const auto& p) {
    return p.gamma == first.gamma && p.beta == first.beta && p.mean == first.mean && p.variance == first.variance &&
           p.exact == first.exact && p.epsilon == first.epsilon && p.neuron == first.neuron;
  };
  if (!is_alike(moments) || !is_alike(last)) return "other normalizations";
  if (moments.diff_gamma != last.diff_gamma || moments.diff_beta != last.diff_beta) return "other sums";
  return nullptr;
}

struct PoolPair {
  const NormalizeProblem& first;
  const PoolProblem& pool;
};
struct PoolGradients {
  const NormalizeProblem& first;
  const PoolGradientProblem& pool;
  const BatchMomentsGradientProblem& moments;
  const NormalizeGradientProblem& last;
};

const char* run_normalize_pool(const Call<PoolPair>& call) {
  const auto& [first, pool] = call.problem;
  Work& work = call.work;
  if (const char* const reason = why_not(first, pool)) return reason;
  const Window& w = pool.window;
  normalize_pool::PoolArgs args{.src = work.view(first.src.view),
                                .dst = work.view(pool.dst),
                                .coefficients = {},
                                .start_h = static_cast<int>(w.start_h),
                                .start_w = static_cast<int>(w.start_w)};
  if (const char* const reason = why_no_vectors({&args.src, &args.dst})) return reason;
  args.coefficients =
      stored_coefficients(work, forward_of(work, statistics_of(work, first.mean, first.variance, first.exact),
                                           {pool.dst.c, 0}, first.gamma, first.beta, first.epsilon));
  work.launch(normalize_pool::pool_normalized_3x3, args, pool.dst.size() / lanes_in_vector(args.dst),
              {&args.src, &args.dst});
  return nullptr;
}

const char* run_normalize_pool_gradients(const Call<PoolGradients>& call) {
  const auto& [first, pool, moments, last] = call.problem;
  Work& work = call.work;
  if (const char* const reason = why_not(first, pool, moments, last)) return reason;
  PoolGradientProblem of_source = pool;
  of_source.src = first.src.view, of_source.diff_src = last.diff_src;
  normalize_pool::GradientArgs args{.pool = {},
                                    .sums = gradient_sums_of(work, moments),
                                    .neuron = work.activation(first.neuron),
                                    .parts = 1,
                                    .partial = {}};
  if (const char* const reason = max_gradient_args(of_source, work, args.pool)) return reason;
  args.pool.counts_zeros = false;  // no result is below 0
  const i64 windows = pool.diff_dst.n * pool.diff_dst.h * pool.diff_dst.w;
  if (windows > 0x7fffffff) return "too many windows";
  const i64 chunks = args.pool.chunks, processors = work.gpu().driver().is_host ? 2 : work.gpu().processors();
  args.parts = std::clamp<i64>(kSumBlocks * processors / chunks, 1, (windows + 31) / 32);
  args.partial = memory_of_sums(work, pool.src.c, args.parts);
  const View *const diff_dst = &args.pool.diff_dst, *const src = &args.pool.src, *const diff_src = &args.pool.diff_src;
  work.launch(normalize_pool::sum_pooled_gradients_3x3, args, args.parts * chunks, {diff_dst, src, diff_src});
  work.launch(normalize_pool::add_pooled_sums, args, pool.src.c, {diff_dst, src, diff_src});
  args.sums = gradient_sums_of(work, last);
  work.launch(normalize_pool::pooled_gradients_3x3, args, args.pool.blocks(), {diff_dst, src, diff_src});
  return nullptr;
}

constexpr Implementation<Call<PoolPair>> kNormalizePools[] = {{"cuda_normalize_pool", run_normalize_pool}};
const ImplementationNames kNormalizePoolNames(kNormalizePools);
constexpr Implementation<Call<PoolGradients>> kNormalizePoolGradients[] = {
    {"cuda_normalize_pool_gradients", run_normalize_pool_gradients}};
const ImplementationNames kNormalizePoolGradientNames(kNormalizePoolGradients);

}  // namespace

std::size_t group(const NormalizeProblem& first, const ProblemOfGroup& problem, const EndsOfImages& ends) {
  const Problem* const next = problem(1);
  if (const auto* const pool = std::get_if<PoolProblem>(next))
    return !why_not(first, *pool) && ends(first.dst, 2) ? 2 : 1;
  const auto* const gradient = std::get_if<PoolGradientProblem>(next);
  const Problem *const third = gradient ? problem(2) : nullptr, *const fourth = gradient ? problem(3) : nullptr;
  if (!fourth) return 1;
  const auto* const moments = std::get_if<BatchMomentsGradientProblem>(third);
  const auto* const last = std::get_if<NormalizeGradientProblem>(fourth);
  if (!moments || !last || why_not(first, *gradient, *moments, *last)) return 1;
  return ends(first.dst, 2) && ends(gradient->diff_src, 4) ? 4 : 1;
}

bool solve(const NormalizeProblem& first, std::span<const Problem> problems, Work& work) {
  if (problems.size() == 2)
    return try_first("normalize, pool", kNormalizePools,
                     Call<PoolPair>{{first, std::get<PoolProblem>(problems[1])}, work});
  return try_first("normalize, gradients of pool and normalize", kNormalizePoolGradients,
                   Call<PoolGradients>{{first, std::get<PoolGradientProblem>(problems[1]),
                                        std::get<BatchMomentsGradientProblem>(problems[2]),
                                        std::get<NormalizeGradientProblem>(problems[3])},
                                       work});
}

}  // namespace openmps::cuda
