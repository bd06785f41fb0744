// SPDX-License-Identifier: Apache-2.0
#include "engine/onednn/pointwise.hpp"

#include "engine/shared/pixel_runs.hpp"

namespace openmps::onednn {
namespace {

constexpr std::int64_t kGrain = 32 * 1024;  // values that are worth a thread

}  // namespace

void binary(const BinaryProblem& problem) {
  for_pixel_runs<2>({problem.src0, problem.src1}, problem.dst, kGrain,
                    [&](std::int64_t, const auto& from, float* dst, std::int64_t count) {
                      row_arithmetic(problem.function, from[0], from[1], dst, count);
                    });
}

void neuron_gradient(const NeuronGradientProblem& problem) {
  for_pixel_runs<2>({problem.diff_dst, problem.src}, problem.diff_src, kGrain,
                    [&](std::int64_t, const auto& from, float* dst, std::int64_t count) {
                      row_neuron_gradient(problem.neuron, from[0], from[1], dst, count, problem.diff_src.c);
                    });
}

}  // namespace openmps::onednn
