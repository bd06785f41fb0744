// SPDX-License-Identifier: Apache-2.0

#include "engine/cpu/optimizer/optimize.hpp"

#include <algorithm>
#include <cmath>

#include "engine/shared/implementations.hpp"
#include "engine/shared/isa.hpp"
#include "engine/shared/neuron.hpp"
#include "engine/shared/parallel.hpp"

namespace openmps::cpu {
namespace {

constexpr std::int64_t kGrain = 16 * 1024;  // min values per thread

/// A run of values of each array; null for arrays that the type does not use.
struct Lines {
  const float *gradient, *values;
  float *result, *momentum, *second_moment, *max_second_moment;
};

/// The problem's numbers in the precision of the loops. Complements are computed before rounding.
struct Numbers {
  float min, max, rescale, absolute, square;
  float rate, decay, rest, beta2, rest2, epsilon;

  explicit Numbers(const OptimizeProblem& p)
      : min(p.min),
        max(p.max),
        rescale(p.rescale),
        absolute(p.regularization == Regularization::absolute ? p.regularization_scale : 0),
        square(p.regularization == Regularization::square ? p.regularization_scale : 0),
        rate(static_cast<float>(p.rate)),
        decay(static_cast<float>(p.decay)),
        rest(static_cast<float>(1 - p.decay)),
        beta2(static_cast<float>(p.beta2)),
        rest2(static_cast<float>(1 - p.beta2)),
        epsilon(static_cast<float>(p.epsilon)) {}

  /// The bounds are written so that NaN stays NaN. A regularization of 0 must not turn an infinite value into NaN.
  template <Regularization kind>
  MPSCNN_HOST_DEVICE float gradient(float g, float v) const {
    g = g < min ? min : g;
    g = g > max ? max : g;
    g *= rescale;
    if constexpr (kind == Regularization::absolute) g += v > 0 ? absolute : v < 0 ? -absolute : 0.0f;
    if constexpr (kind == Regularization::square) g += square * v;
    return g;
  }
};

#define MPSCNN_LOOP(kind, statements)                                   \
  case Regularization::kind:                                            \
    _Pragma("omp simd") for (std::int64_t i = 0; i < count; ++i) {      \
      const float v = values[i];                                        \
      const float g = n.gradient<Regularization::kind>(gradient[i], v); \
      statements                                                        \
    }                                                                   \
    break;
#define MPSCNN_LOOPS(statements)      \
  switch (regularization) {           \
    MPSCNN_LOOP(none, statements)     \
    MPSCNN_LOOP(absolute, statements) \
    MPSCNN_LOOP(square, statements)   \
  }                                   \
  break

MPSCNN_CLONES void optimize_line(OptimizerType type, Regularization regularization, const Numbers& numbers,
                                 const Lines& lines, std::int64_t count) {
  const Numbers n = numbers;  // the arrays may alias the members, which are floats too: copy them
  const float *const gradient = lines.gradient, *const values = lines.values;
  float *const result = lines.result, *const momentum = lines.momentum, *const second_moment = lines.second_moment,
               *const max_second_moment = lines.max_second_moment;
  switch (type) {
    case OptimizerType::descent: MPSCNN_LOOPS(result[i] = v - n.rate * g;);
    case OptimizerType::momentum:
      MPSCNN_LOOPS(const float m = n.decay * momentum[i] + n.rate * g; momentum[i] = m; result[i] = v - m;);
    case OptimizerType::nesterov:
      MPSCNN_LOOPS(const float m = n.decay * momentum[i] + g; momentum[i] = m;
                   result[i] = v - n.rate * (g + n.decay * m););
    case OptimizerType::rms:
      MPSCNN_LOOPS(const float s = n.beta2 * second_moment[i] + n.rest2 * g * g; second_moment[i] = s;
                   result[i] = v - n.rate * g / (std::sqrt(s) + n.epsilon););
    case OptimizerType::adam:
      MPSCNN_LOOPS(const float m = n.decay * momentum[i] + n.rest * g; momentum[i] = m;
                   const float s = n.beta2 * second_moment[i] + n.rest2 * g * g; second_moment[i] = s;
                   result[i] = v - n.rate * m / (std::sqrt(s) + n.epsilon););
    case OptimizerType::amsgrad:
      MPSCNN_LOOPS(const float m = n.decay * momentum[i] + n.rest * g; momentum[i] = m;
                   const float s = n.beta2 * second_moment[i] + n.rest2 * g * g; second_moment[i] = s;
                   const float most = max_second_moment[i] >= s ? max_second_moment[i] : s; max_second_moment[i] = most;
                   result[i] = v - n.rate * m / (std::sqrt(most) + n.epsilon););
  }
}

#undef MPSCNN_LOOPS
#undef MPSCNN_LOOP

float* floats_of(const FloatMatrices& values) {
  return values.memory ? reinterpret_cast<float*>(values.memory->data() + values.offset) : nullptr;
}

const char* optimize(const OptimizeProblem& p) {
  const FloatMatrices* const arrays[] = {&p.gradient, &p.values,        &p.result,
                                         &p.momentum, &p.second_moment, &p.max_second_moment};
  float* first[6];
  for (int i = 0; i < 6; ++i) first[i] = floats_of(*arrays[i]);
  // One line if there are no gaps between the values.
  std::int64_t matrices = p.matrices, rows = p.rows, columns = p.columns;
  const auto all = [&](const auto& condition) {
    return std::all_of(std::begin(arrays), std::end(arrays),
                       [&](const FloatMatrices* values) { return !values->memory || condition(*values); });
  };
  if (rows == 1 || all([&](const FloatMatrices& values) { return values.row_stride == columns; })) {
    columns *= rows, rows = 1;
    if (matrices == 1 || all([&](const FloatMatrices& values) { return values.matrix_stride == columns; }))
      columns *= matrices, matrices = 1;
  }
  const Numbers numbers(p);
  const std::int64_t size = matrices * rows * columns;
  parallel_ranges(size, threads_for(size, kGrain), [&](std::int64_t begin, std::int64_t end) {
    std::int64_t count = 0;
    for (std::int64_t value = begin; value < end; value += count) {
      const std::int64_t line = value / columns, column = value % columns;
      count = std::min(columns - column, end - value);
      const auto at = [&](int i) {
        return first[i]
                   ? first[i] + line / rows * arrays[i]->matrix_stride + line % rows * arrays[i]->row_stride + column
                   : nullptr;
      };
      optimize_line(p.type, p.regularization, numbers, {at(0), at(1), at(2), at(3), at(4), at(5)}, count);
    }
  });
  return nullptr;
}

constexpr Implementation<OptimizeProblem> kOptimizers[] = {{"optimize", optimize}};
const ImplementationNames kOptimizerNames(kOptimizers);

}  // namespace

void run(const OptimizeProblem& problem) { run_first("optimize", kOptimizers, problem); }

}  // namespace openmps::cpu
