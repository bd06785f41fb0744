// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/kernels/optimizer.hpp"

#include <algorithm>
#include <memory>
#include <tuple>
#include <utility>

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

/// Updates with the same numbers.
class ManyUpdates final : public Gathered {
 public:
  explicit ManyUpdates(const optimizer::OptimizeArgs& numbers) : args_{.numbers = numbers, .count = 0, .arrays = {}} {
    for (optimizer::Matrices* const each :
         {&args_.numbers.gradient, &args_.numbers.values, &args_.numbers.result, &args_.numbers.momentum,
          &args_.numbers.second_moment, &args_.numbers.max_second_moment})
      *each = {};
    args_.numbers.matrices = args_.numbers.rows = args_.numbers.columns = 0;
  }
  /// Return whether the update can be one of these: it reads none of their results, and changes none of their arrays.
  bool can_add(const ManyUpdates& one) const {
    if (args_.count == optimizer::OptimizeManyArgs::kMost) return false;
    const auto numbers_of = [](const optimizer::OptimizeArgs& a) {
      return std::tuple(a.type, a.regularization, a.min, a.max, a.rescale, a.regularization_scale, a.rate, a.decay,
                        a.rest, a.beta2, a.rest2, a.epsilon);
    };
    if (numbers_of(args_.numbers) != numbers_of(one.args_.numbers)) return false;
    const optimizer::Arrays& added = one.args_.arrays[0];
    return std::none_of(args_.arrays, args_.arrays + args_.count, [&](const optimizer::Arrays& known) {
      return meet(known.result, known.count, added) || meet(added.result, added.count, known) ||
             meet(known.momentum, known.count, added) || meet(known.second_moment, known.count, added) ||
             meet(known.max_second_moment, known.count, added);
    });
  }
  void add(const optimizer::OptimizeArgs& args) {
    const i64 blocks = (args.columns + optimizer::OptimizeManyArgs::kValues - 1) / optimizer::OptimizeManyArgs::kValues;
    const i64 before = args_.count > 0 ? args_.arrays[args_.count - 1].end : 0;
    args_.arrays[args_.count++] = {args.gradient.first, args.values.first,        args.result.first,
                                   args.momentum.first, args.second_moment.first, args.max_second_moment.first,
                                   args.columns,        before + blocks};
  }
  void launch(Work& work) override {
    work.launch_varying(optimizer::optimize_many, args_, args_.arrays[args_.count - 1].end);
  }

 private:
  static bool meet(const Pointer<float>& first, i64 count, const optimizer::Arrays& other) {
    const auto bytes = [](i64 values) { return static_cast<std::uint64_t>(values) * sizeof(float); };
    const auto overlaps = [&](const Pointer<float>& array) {
      return array && array.address < first.address + bytes(count) &&
             first.address < array.address + bytes(other.count);
    };
    return first && (overlaps(other.gradient) || overlaps(other.values) || overlaps(other.result) ||
                     overlaps(other.momentum) || overlaps(other.second_moment) || overlaps(other.max_second_moment));
  }

  optimizer::OptimizeManyArgs args_;
};

const char* run_optimize_many(const Call<OptimizeProblem>& call) {
  const optimizer::OptimizeArgs args = arguments_of(call);
  Work& work = call.work;
  if (args.matrices > 1 || args.rows > 1) return "gaps between the values";
  for (const optimizer::Matrices* const each :
       {&args.gradient, &args.values, &args.result, &args.momentum, &args.second_moment, &args.max_second_moment})
    if (each->first.address % 16) return "values are not aligned";
  auto update = std::make_unique<ManyUpdates>(args);
  update->add(args);
  if (auto* const many = dynamic_cast<ManyUpdates*>(work.gathered().get()); many && many->can_add(*update)) {
    many->add(args);
    return nullptr;
  }
  work.launch_gathered();
  if (work.gathers())
    work.gathered() = std::move(update);
  else
    update->launch(work);
  return nullptr;
}
const char* run_optimize(const Call<OptimizeProblem>& call) {
  call.work.launch_gathered();
  const optimizer::OptimizeArgs args = arguments_of(call);
  call.work.launch_varying(optimizer::optimize, args, args.matrices * args.rows * args.columns);
  return nullptr;
}
constexpr Implementation<Call<OptimizeProblem>> kOptimizers[] = {{"cuda_optimize_many", run_optimize_many},
                                                                 {"cuda_optimize", run_optimize}};
const ImplementationNames kOptimizerNames(kOptimizers);

}  // namespace

bool may_gather(const Problem& problem) {
  return std::holds_alternative<OptimizeProblem>(problem) || std::holds_alternative<BufferCopyProblem>(problem) ||
         std::holds_alternative<LoadWeightsProblem>(problem);
}

bool solve(const OptimizeProblem& problem, Work& work) {
  return try_first("optimize", kOptimizers, Call<OptimizeProblem>{problem, work});
}

}  // namespace openmps::cuda
