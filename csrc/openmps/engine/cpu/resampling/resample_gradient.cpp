// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/resampling/resample_gradient.hpp"

#include "engine/cpu/resampling/adjoint.hpp"
#include "engine/shared/implementations.hpp"
#include "engine/shared/sample_taps.hpp"

namespace openmps::cpu {
namespace {

const char* resample_gradient(const ResampleGradientProblem& problem) {
  const Tensor diff = tensor_of(problem.diff_dst), dst = tensor_of(problem.diff_src);
  const auto shares = [&](const Positions& positions, std::int64_t size, std::int64_t results, std::int64_t first,
                          std::int64_t count) {
    return Shares(first, count, results, [&](std::int64_t i, const auto& add) {
      const SampleTaps taps = sample_taps(positions, i, size, problem.type, problem.edge);
      if (taps.first >= 0) add(taps.first, 1.0f - taps.weight);
      if (taps.second >= 0 && taps.weight != 0) add(taps.second, taps.weight);
    });
  };
  const Shares rows = shares(problem.region.h, problem.src_h, diff.h, problem.first_h, dst.h),
               columns = shares(problem.region.w, problem.src_w, diff.w, problem.first_w, dst.w);
  const Partition work = partition(dst, rows.reach(), false);
  DiffRows diff_rows(diff, work.threads);
  gather_separable(dst, diff.h, rows, columns, work, std::ref(diff_rows), no_factor);
  return nullptr;
}

constexpr Implementation<ResampleGradientProblem> kResampleGradients[] = {{"resample_gradient", resample_gradient}};
const ImplementationNames kResampleGradientNames(kResampleGradients);

}  // namespace

void run(const ResampleGradientProblem& problem) { run_first("resample_gradient", kResampleGradients, problem); }

}  // namespace openmps::cpu
