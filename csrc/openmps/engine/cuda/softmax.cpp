// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/kernels/softmax.hpp"

#include "engine/cuda/families.hpp"

namespace openmps::cuda {
namespace {

using softmax::SoftmaxArgs, softmax::SoftmaxGradientArgs;

constexpr i64 kFew = 32;                                      // channels of a pixel for which one thread suffices
constexpr i64 kManyChannels = 256, kManyMoreChannels = 8192;  // for which a warp does, of few and of many pixels
constexpr i64 kManyPixels = 1024;

/// Threads per pixel.
enum class By { threads, warps, blocks };

/// Return null if so many threads per pixel suit the image, otherwise why not.
const char* why_not_by(By by, const ImageView& image) {
  if (by == By::threads && image.c >= kFew) return "many channels";
  if (by == By::warps && image.c > (image.n * image.h * image.w < kManyPixels ? kManyChannels : kManyMoreChannels))
    return "very many channels";
  return nullptr;
}

template <By by>
const char* run(const Call<SoftmaxProblem>& call) {
  const auto& [p, work] = call;
  if (const char* why_not = why_not_by(by, p.dst)) return why_not;
  const SoftmaxArgs args{work.source(p.src), work.view(p.dst), p.log};
  const auto& kernel = by == By::threads ? softmax::softmax_few_channels
                       : by == By::warps ? softmax::softmax_by_warps
                                         : softmax::softmax_by_blocks;
  work.launch(kernel, args, p.dst.n * p.dst.h * p.dst.w, {&args.src.view, &args.dst});
  return nullptr;
}

constexpr Implementation<Call<SoftmaxProblem>> kSoftmaxes[] = {
    {"cuda_softmax_few_channels", run<By::threads>},
    {"cuda_softmax_by_warps", run<By::warps>},
    {"cuda_softmax_by_blocks", run<By::blocks>},
};
const ImplementationNames kSoftmaxNames(kSoftmaxes);

SoftmaxGradientArgs args_of(const Call<SoftmaxGradientProblem>& call) {
  const auto& [p, work] = call;
  const ClampedSource& s = p.source;
  const ImageView& results = p.diff_dst.view;
  return {.diff_dst = work.source(p.diff_dst),
          .dst = work.source(p.dst),
          .diff_src = work.view(p.diff_src),
          .log = p.log,
          .start_h = s.start_h,
          .start_w = s.start_w,
          .rows = {s.start_h - p.diff_dst.start_h, 1, 1, 1, s.h, results.h, true},
          .columns = {s.start_w - p.diff_dst.start_w, 1, 1, 1, s.w, results.w, true},
          .sums = {}};
}

bool is_read_twice(const WindowAxis& axis) {
  return axis.size > 0 && (axis.start < 0 || axis.start + axis.windows > axis.size);
}

/// Each pixel of the source is read by one result.
template <By by>
const char* run_gradient(const Call<SoftmaxGradientProblem>& call) {
  const auto& [p, work] = call;
  if (const char* why_not = why_not_by(by, p.diff_src)) return why_not;
  const SoftmaxGradientArgs args = args_of(call);
  if (is_read_twice(args.rows) || is_read_twice(args.columns)) return "several results read a pixel";
  const auto& kernel = by == By::threads ? softmax::softmax_gradient_few_channels
                       : by == By::warps ? softmax::softmax_gradient_by_warps
                                         : softmax::softmax_gradient_by_blocks;
  work.launch(kernel, args, p.diff_src.n * p.diff_src.h * p.diff_src.w,
              {&args.diff_dst.view, &args.dst.view, &args.diff_src});
  return nullptr;
}

const char* run_gradient_of_clamped(const Call<SoftmaxGradientProblem>& call) {
  const auto& [p, work] = call;
  SoftmaxGradientArgs args = args_of(call);
  args.dst.start_h -= args.diff_dst.start_h, args.dst.start_w -= args.diff_dst.start_w;
  args.diff_dst.start_h = args.diff_dst.start_w = 0;
  const i64 results = p.diff_src.n * args.rows.windows * args.columns.windows;
  args.sums = {work.scratch(static_cast<std::size_t>(results) * sizeof(float))};
  work.launch(softmax::softmax_gradient_sums, args, results, {&args.diff_dst.view, &args.dst.view});
  work.launch(softmax::softmax_gradient_gather, args, p.diff_src.size(),
              {&args.diff_dst.view, &args.dst.view, &args.diff_src});
  return nullptr;
}

constexpr Implementation<Call<SoftmaxGradientProblem>> kSoftmaxGradients[] = {
    {"cuda_softmax_gradient_few_channels", run_gradient<By::threads>},
    {"cuda_softmax_gradient_by_warps", run_gradient<By::warps>},
    {"cuda_softmax_gradient_by_blocks", run_gradient<By::blocks>},
    {"cuda_softmax_gradient_of_clamped", run_gradient_of_clamped},
};
const ImplementationNames kSoftmaxGradientNames(kSoftmaxGradients);

}  // namespace

bool solve(const SoftmaxProblem& problem, Work& work) {
  return try_first("softmax", kSoftmaxes, Call<SoftmaxProblem>{problem, work});
}
bool solve(const SoftmaxGradientProblem& problem, Work& work) {
  return try_first("softmax_gradient", kSoftmaxGradients, Call<SoftmaxGradientProblem>{problem, work});
}

}  // namespace openmps::cuda
