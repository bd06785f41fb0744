// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/kernels/reduction.hpp"

#include <algorithm>

#include "engine/cuda/families.hpp"

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
    {"cuda_reduce_by_blocks", run_by_blocks},
    {"cuda_reduce", run_by_threads},
};
const ImplementationNames kReductionNames(kReductions);

}  // namespace

bool solve(const ReduceProblem& problem, Work& work) {
  return try_first("reduce", kReductions, Call<ReduceProblem>{problem, work});
}

}  // namespace openmps::cuda
