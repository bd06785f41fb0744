// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/kernels/softmax.hpp"

#include "engine/cuda/families.hpp"

namespace openmps::cuda {
namespace {

using softmax::SoftmaxArgs, softmax::SoftmaxGradientArgs;

constexpr i64 kFew = 32;  // channels of a pixel for which one thread suffices

const char* run_few(const Call<SoftmaxProblem>& call) {
  const auto& [p, work] = call;
  if (p.dst.c >= kFew) return "many channels";
  const SoftmaxArgs args{work.source(p.src), work.view(p.dst), p.log};
  work.launch(softmax::softmax_few_channels, args, p.dst.n * p.dst.h * p.dst.w, {&args.src.view, &args.dst});
  return nullptr;
}

const char* run_many(const Call<SoftmaxProblem>& call) {
  const auto& [p, work] = call;
  const SoftmaxArgs args{work.source(p.src), work.view(p.dst), p.log};
  work.launch(softmax::softmax_many_channels, args, p.dst.n * p.dst.h * p.dst.w, {&args.src.view, &args.dst});
  return nullptr;
}

constexpr Implementation<Call<SoftmaxProblem>> kSoftmaxes[] = {
    {"cuda_softmax_few_channels", run_few},
    {"cuda_softmax_many_channels", run_many},
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

/// One thread or one block per pixel of the source, which one result reads.
const char* run_gradient(const Call<SoftmaxGradientProblem>& call, bool few) {
  const auto& [p, work] = call;
  if (few && p.diff_src.c >= kFew) return "many channels";
  const SoftmaxGradientArgs args = args_of(call);
  if (is_read_twice(args.rows) || is_read_twice(args.columns)) return "several results read a pixel";
  const i64 pixels = p.diff_src.n * p.diff_src.h * p.diff_src.w;
  const auto& kernel = few ? softmax::softmax_gradient_few_channels : softmax::softmax_gradient_many_channels;
  work.launch(kernel, args, pixels, {&args.diff_dst.view, &args.dst.view, &args.diff_src});
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
    {"cuda_softmax_gradient_few_channels",
     [](const Call<SoftmaxGradientProblem>& call) { return run_gradient(call, true); }},
    {"cuda_softmax_gradient_many_channels",
     [](const Call<SoftmaxGradientProblem>& call) { return run_gradient(call, false); }},
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
