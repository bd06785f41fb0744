// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/kernels/optimizer.hpp"

#include <algorithm>

#include "engine/cuda/families.hpp"

namespace openmps::cuda {
namespace {

optimizer::OptimizeArgs arguments_of(const Call<OptimizeProblem>& call) {
  const auto& [p, work] = call;
  // Arrays that the type does not use have no address.
  const bool has_momentum = p.type != OptimizerType::descent && p.type != OptimizerType::rms;
  const bool has_second =
      p.type == OptimizerType::rms || p.type == OptimizerType::adam || p.type == OptimizerType::amsgrad;
  const auto matrices = [&](const FloatMatrices& from, bool is_used) -> optimizer::Matrices {
    if (!is_used) return {};
    return {{work.values_address(from.memory, from.offset)}, from.matrix_stride, from.row_stride};
  };
  optimizer::OptimizeArgs args{.matrices = p.matrices,
                               .rows = p.rows,
                               .columns = p.columns,
                               .gradient = matrices(p.gradient, true),
                               .values = matrices(p.values, true),
                               .result = matrices(p.result, true),
                               .momentum = matrices(p.momentum, has_momentum),
                               .second_moment = matrices(p.second_moment, has_second),
                               .max_second_moment = matrices(p.max_second_moment, p.type == OptimizerType::amsgrad),
                               .type = p.type,
                               .regularization = p.regularization,
                               .min = p.min,
                               .max = p.max,
                               .rescale = p.rescale,
                               .regularization_scale = p.regularization_scale,
                               .rate = static_cast<float>(p.rate),
                               .decay = static_cast<float>(p.decay),
                               .rest = static_cast<float>(1 - p.decay),  // before rounding
                               .beta2 = static_cast<float>(p.beta2),
                               .rest2 = static_cast<float>(1 - p.beta2),
                               .epsilon = static_cast<float>(p.epsilon)};
  // One row if there are no gaps between the values.
  const auto all = [&](const auto& condition) {
    const optimizer::Matrices* const arrays[] = {&args.gradient, &args.values,        &args.result,
                                                 &args.momentum, &args.second_moment, &args.max_second_moment};
    return std::all_of(std::begin(arrays), std::end(arrays),
                       [&](const optimizer::Matrices* each) { return !each->first || condition(*each); });
  };
  if (args.rows == 1 || all([&](const auto& each) { return each.row_stride == args.columns; })) {
    args.columns *= args.rows, args.rows = 1;
    if (args.matrices == 1 || all([&](const auto& each) { return each.matrix_stride == args.columns; }))
      args.columns *= args.matrices, args.matrices = 1;
  }
  return args;
}

/// Return the arguments for values from column `first` on.
optimizer::OptimizeArgs from_column(optimizer::OptimizeArgs args, i64 first) {
  for (optimizer::Matrices* const each :
       {&args.gradient, &args.values, &args.result, &args.momentum, &args.second_moment, &args.max_second_moment})
    if (each->first) each->first.address += static_cast<std::uint64_t>(first) * sizeof(float);
  args.columns -= first;
  return args;
}

const char* run_optimize_lanes(const Call<OptimizeProblem>& call) {
  const optimizer::OptimizeArgs args = arguments_of(call);
  if (args.matrices > 1 || args.rows > 1) return "gaps between the values";
  for (const optimizer::Matrices* const each :
       {&args.gradient, &args.values, &args.result, &args.momentum, &args.second_moment, &args.max_second_moment})
    if (each->first.address % 16) return "values are not aligned";
  const i64 threads = args.columns / optimizer::kLanes, done = threads * optimizer::kLanes;
  call.work.launch(optimizer::optimize_lanes, args, threads);
  if (done < args.columns) call.work.launch(optimizer::optimize, from_column(args, done), args.columns - done);
  return nullptr;
}
const char* run_optimize(const Call<OptimizeProblem>& call) {
  const optimizer::OptimizeArgs args = arguments_of(call);
  call.work.launch(optimizer::optimize, args, args.matrices * args.rows * args.columns);
  return nullptr;
}
constexpr Implementation<Call<OptimizeProblem>> kOptimizers[] = {{"cuda_optimize_lanes", run_optimize_lanes},
                                                                 {"cuda_optimize", run_optimize}};
const ImplementationNames kOptimizerNames(kOptimizers);

}  // namespace

bool solve(const OptimizeProblem& problem, Work& work) {
  return try_first("optimize", kOptimizers, Call<OptimizeProblem>{problem, work});
}

}  // namespace openmps::cuda
