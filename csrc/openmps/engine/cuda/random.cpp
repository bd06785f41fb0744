// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/kernels/random.hpp"

#include "engine/cuda/families.hpp"

namespace openmps::cuda {
namespace {

const char* run_random(const Call<RandomProblem>& call) {
  const auto& [p, work] = call;
  const random::RandomArgs args{.rows = p.rows,
                                .columns = p.columns,
                                .count = p.matrices * p.rows * p.columns,
                                .dst = {work.values_address(p.dst.memory, p.dst.offset)},
                                .matrix_stride = p.dst.matrix_stride,
                                .row_stride = p.dst.row_stride,
                                .values = p.values};
  const auto skipped = static_cast<i64>(p.values.first % kRandomBlock);
  work.launch(random::random_words, args, (skipped + args.count + kRandomBlock - 1) / kRandomBlock);
  return nullptr;
}
constexpr Implementation<Call<RandomProblem>> kRandoms[] = {{"cuda_random", run_random}};
const ImplementationNames kRandomNames(kRandoms);

}  // namespace

bool solve(const RandomProblem& problem, Work& work) {
  return try_first("random", kRandoms, Call<RandomProblem>{problem, work});
}

}  // namespace openmps::cuda
