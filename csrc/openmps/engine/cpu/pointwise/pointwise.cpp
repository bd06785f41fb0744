// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/pointwise/pointwise.hpp"

#include <limits>

#include "engine/cpu/pointwise/gradients.hpp"
#include "engine/shared/operands.hpp"

namespace openmps::cpu {
namespace {

constexpr std::int64_t kGrain = 32 * 1024;  // values that are worth a thread

}  // namespace

void run(const BinaryProblem& problem) {
  const std::int64_t c = problem.dst.c;
  for_operands<2>({&problem.src0, &problem.src1}, problem.dst, kGrain, /*across_images=*/true,
                  [&](const auto& src, auto* dst, std::int64_t, std::int64_t pixels) {
                    row_arithmetic(problem.function, src[0], src[1], dst, pixels * c);
                  });
  if (!problem.mask.memory) return;
  Arithmetic unbounded = problem.function;
  unbounded.min = -std::numeric_limits<float>::infinity();
  unbounded.max = std::numeric_limits<float>::infinity();
  for_operands<2>({&problem.src0, &problem.src1}, problem.mask, kGrain, /*across_images=*/true,
                  [&](const std::array<const float*, 2>& src, float* dst, std::int64_t, std::int64_t pixels) {
                    row_arithmetic(unbounded, src[0], src[1], dst, pixels * c);
                    for (std::int64_t i = 0; i < pixels * c; ++i)
                      dst[i] = dst[i] > problem.function.min && dst[i] < problem.function.max ? 1.0f : 0.0f;
                  });
}

void run(const NeuronGradientProblem& problem) {
  const std::int64_t c = problem.diff_src.c;
  const auto body = [&](const std::array<const float*, 2>& src, float* dst, std::int64_t, std::int64_t pixels) {
    row_neuron_gradient(problem.neuron, src[0], src[1], dst, pixels * c, c);
  };
  if (problem.src.edge == Edge::clamp)
    for_gradients(problem.diff_dst, problem.src, problem.diff_src, kGrain, /*across_images=*/true, body);
  else
    for_operands<2>({&problem.diff_dst, &problem.src}, problem.diff_src, kGrain, /*across_images=*/true, body);
}

}  // namespace openmps::cpu
