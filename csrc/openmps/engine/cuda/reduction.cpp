// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/kernels/reduction.hpp"

#include <algorithm>

#include "engine/cuda/families.hpp"
#include "engine/cuda/vectors.hpp"

namespace openmps::cuda {
namespace {

using reduction::ReduceArgs;

constexpr i64 kFew = 32;                       // values that one thread reduces faster than a warp does
constexpr i64 kManyResults = 128 * 1024;       // threads that keep a large GPU busy
constexpr i64 kMany = 256, kManyWarps = 1024;  // values that a warp reduces, if there are few results

ReduceArgs args_of(const Call<ReduceProblem>& call) {
  const auto& [p, work] = call;
  return {.src = work.view(p.src),
          .weights = work.view(p.weights),
          .dst = work.view(p.dst),
          .axis = p.axis,
          .type = p.type,
          .scale = p.scale,
          .by_nonzero_weights = p.weights.memory && p.by_nonzero_weights};
}

const char* run_by_warps(const Call<ReduceProblem>& call) {
  const auto& [p, work] = call;
  const ReduceArgs args = args_of(call);
  // Along the other axes, threads for adjacent channels read adjacent values.
  if (p.axis != ReduceAxis::channels) return "not along the channels";
  if (args.length() < kFew) return "few values";
  if (args.length() > kMany && p.dst.size() < kManyWarps) return "many values, few results";
  work.launch(reduction::reduce_by_warps, args, p.dst.size(), {&args.src, &args.weights, &args.dst});
  return nullptr;
}

const char* run_sums_of_vectors(const Call<ReduceProblem>& call) {
  const auto& [p, work] = call;
  const ReduceArgs args = args_of(call);
  if ((p.axis != ReduceAxis::row && p.axis != ReduceAxis::column) || p.type != ReduceType::sum)
    return "not a sum along rows or columns";
  if (const char* const why_not = why_no_vectors({&args.src, &args.dst})) return why_not;
  const i64 threads = p.dst.size() / lanes_in_vector(args.dst);
  if (args.length() > kMany && threads < kManyWarps) return "many values, few results";
  work.launch(reduction::reduce_sums_of_vectors, args, threads, {&args.src, &args.dst});
  return nullptr;
}

const char* run_sums_of_pixels(const Call<ReduceProblem>& call) {
  const auto& [p, work] = call;
  const ReduceArgs args = args_of(call);
  if (p.axis != ReduceAxis::pixels) return "not along rows and columns";
  if (const char* const why_not = why_no_vectors({&args.src, &args.dst})) return why_not;
  const i64 teams = p.dst.size() / lanes_in_vector(args.dst);
  const bool by_warps = args.length() <= kMany || teams >= kManyWarps;
  work.launch(by_warps ? reduction::sum_pixels_by_warps : reduction::sum_pixels_by_blocks, args, teams,
              {&args.src, &args.dst});
  return nullptr;
}

const char* run_by_blocks(const Call<ReduceProblem>& call) {
  const auto& [p, work] = call;
  const ReduceArgs args = args_of(call);
  if (args.length() < kFew) return "few values";
  if (p.dst.size() >= kManyResults) return "many results";
  work.launch(reduction::reduce_by_blocks, args, p.dst.size(), {&args.src, &args.weights, &args.dst});
  return nullptr;
}

const char* run_by_threads(const Call<ReduceProblem>& call) {
  const auto& [p, work] = call;
  const ReduceArgs args = args_of(call);
  work.launch(reduction::reduce, args, p.dst.size(), {&args.src, &args.weights, &args.dst});
  return nullptr;
}

constexpr Implementation<Call<ReduceProblem>> kReductions[] = {
    {"cuda_reduce_by_warps", run_by_warps},
    {"cuda_reduce_sums_of_vectors", run_sums_of_vectors},
    {"cuda_reduce_sums_of_pixels", run_sums_of_pixels},
    {"cuda_reduce_by_blocks", run_by_blocks},
    {"cuda_reduce", run_by_threads},
};
const ImplementationNames kReductionNames(kReductions);

const char* run_correlation(const Call<CorrelationProblem>& call) {
  const auto& [p, work] = call;
  const reduction::CorrelationArgs args{.a = work.view(p.a),
                                        .b = work.view(p.b),
                                        .dst = work.view(p.dst),
                                        .reach_h = p.reach_h,
                                        .reach_w = p.reach_w,
                                        .step_h = p.step_h,
                                        .step_w = p.step_w,
                                        .edge = p.edge};
  work.launch(reduction::correlation, args, p.dst.size(), {&args.a, &args.b, &args.dst});
  return nullptr;
}
constexpr Implementation<Call<CorrelationProblem>> kCorrelations[] = {{"cuda_correlation", run_correlation}};
const ImplementationNames kCorrelationNames(kCorrelations);

}  // namespace

bool solve(const ReduceProblem& problem, Work& work) {
  return try_first("reduce", kReductions, Call<ReduceProblem>{problem, work});
}
bool solve(const CorrelationProblem& problem, Work& work) {
  return try_first("correlation", kCorrelations, Call<CorrelationProblem>{problem, work});
}

}  // namespace openmps::cuda
