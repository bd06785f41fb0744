// SPDX-License-Identifier: Apache-2.0
// Weights from memory of the program, at their place among the commands.
#include <cstring>

#include "engine/cpu/convolution/convolution.hpp"
#include "engine/shared/half.hpp"
#include "engine/shared/implementations.hpp"
#include "engine/shared/parallel.hpp"

namespace openmps::cpu {
namespace {

constexpr std::int64_t kGrain = 128 * 1024;  // min values per thread

const float* floats_of(const ChannelValues& values) {
  return reinterpret_cast<const float*>(values.memory->data() + values.offset);
}

const char* load_weights(const LoadWeightsProblem& problem) {
  const Floats &values = problem.weights->values, &bias = problem.weights->bias;
  const float* const from = floats_of(problem.values);
  const auto count = static_cast<std::int64_t>(values.size());
  float* const to = values.room();
  parallel_ranges(count, threads_for(count, kGrain), [&](std::int64_t begin, std::int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<std::size_t>(end - begin) * sizeof(float));
    if (problem.round_to_half)
      for (std::int64_t i = begin; i < end; ++i) to[i] = half_to_float(float_to_half(to[i]));
  });
  if (!bias.empty()) std::memcpy(bias.room(), floats_of(problem.bias), bias.size() * sizeof(float));
  return nullptr;
}

constexpr Implementation<LoadWeightsProblem> kLoads[] = {{"load_weights", load_weights}};
const ImplementationNames kLoadNames(kLoads);

}  // namespace

void run(const LoadWeightsProblem& problem) { run_first("load_weights", kLoads, problem); }

}  // namespace openmps::cpu
