// SPDX-License-Identifier: Apache-2.0
// Steps of optimizers.
#pragma once

#include "engine/cuda/kernels/device.hpp"
#include "engine/cuda/kernels/lanes.hpp"
#include "engine/problem/optimize.hpp"

namespace openmps::cuda::optimizer {

inline constexpr const char* kFile = "engine/cuda/kernels/optimizer.hpp";

/// FloatMatrices on the device.
struct Matrices {
  Pointer<float> first;
  i64 matrix_stride = 0, row_stride = 0;
};

struct OptimizeArgs {
  i64 matrices, rows, columns;
  Matrices gradient, values, result, momentum, second_moment, max_second_moment;
  OptimizerType type;
  Regularization regularization;
  float min, max, rescale, regularization_scale;
  float rate, decay, rest, beta2, rest2, epsilon;  ///< rest: 1 - decay; rest2: 1 - beta2
};

/// Moments of a value.
struct State {
  float momentum = 0, second_moment = 0, max_second_moment = 0;
};

/// Return the updated value.
MPSCNN_HOST_DEVICE float optimized(const OptimizeArgs& args, float g, float v, State& state) {
  // The bounds are written so that NaN stays NaN. Without regularization, an infinite value must not become NaN.
  g = g < args.min ? args.min : g;
  g = g > args.max ? args.max : g;
  g *= args.rescale;
  const float scale = args.regularization_scale;
  if (args.regularization == Regularization::absolute) g += v > 0 ? scale : v < 0 ? -scale : 0.0f;
  if (args.regularization == Regularization::square) g += scale * v;
  float &m = state.momentum, &s = state.second_moment, &most = state.max_second_moment;
  switch (args.type) {
    case OptimizerType::descent: return v - args.rate * g;
    case OptimizerType::momentum: m = args.decay * m + args.rate * g; return v - m;
    case OptimizerType::nesterov: m = args.decay * m + g; return v - args.rate * (g + args.decay * m);
    case OptimizerType::rms:
      s = args.beta2 * s + args.rest2 * g * g;
      return v - args.rate * g / (::sqrtf(s) + args.epsilon);
    case OptimizerType::adam:
      m = args.decay * m + args.rest * g;
      s = args.beta2 * s + args.rest2 * g * g;
      return v - args.rate * m / (::sqrtf(s) + args.epsilon);
    case OptimizerType::amsgrad:
      m = args.decay * m + args.rest * g;
      s = args.beta2 * s + args.rest2 * g * g;
      most = most >= s ? most : s;
      return v - args.rate * m / (::sqrtf(most) + args.epsilon);
  }
  return v;
}

MPSCNN_VALUE_KERNEL(optimize, OptimizeArgs) {
  const Place at = place_of(index, 1, args.rows, args.columns);
  const auto of = [&](const Matrices& m) {
    return m.first ? m.first.get() + at.n * m.matrix_stride + at.x * m.row_stride + at.k : nullptr;
  };
  float *const momentum = of(args.momentum), *const second_moment = of(args.second_moment),
               *const max_second_moment = of(args.max_second_moment);
  State state;
  if (momentum) state.momentum = *momentum;
  if (second_moment) state.second_moment = *second_moment;
  if (max_second_moment) state.max_second_moment = *max_second_moment;
  const float result = optimized(args, *of(args.gradient), *of(args.values), state);
  if (momentum) *momentum = state.momentum;
  if (second_moment) *second_moment = state.second_moment;
  if (max_second_moment) *max_second_moment = state.max_second_moment;
  *of(args.result) = result;
}

constexpr int kLanes = 4;  ///< values per thread

struct Four {
  float v[kLanes] = {};
};
MPSCNN_HOST_DEVICE Four load_four(const Pointer<float>& array, i64 first) {
  Four result;
  if (!array) return result;
  const auto words = load_words<16>(reinterpret_cast<const unsigned char*>(array.get() + first));
  for (int i = 0; i < kLanes; ++i) result.v[i] = std::bit_cast<float>(words.word[i]);
  return result;
}
MPSCNN_HOST_DEVICE void store_four(const Pointer<float>& array, i64 first, const Four& values) {
  if (!array) return;
  Words<16> words;
  for (int i = 0; i < kLanes; ++i) words.word[i] = std::bit_cast<std::uint32_t>(values.v[i]);
  store_words(reinterpret_cast<unsigned char*>(array.get() + first), words);
}

/// Arrays of one of several updates with the same numbers. Those that the type does not use have no address.
struct Arrays {
  Pointer<float> gradient, values, result, momentum, second_moment, max_second_moment;
  i64 count;  ///< of values
  i64 end;    ///< blocks of this one and of those before it
};

/// Update kLanes values, aligned to 16 bytes.
MPSCNN_HOST_DEVICE void update_four(const OptimizeArgs& numbers, const Arrays& arrays, i64 first) {
  const Four gradient = load_four(arrays.gradient, first);
  Four values = load_four(arrays.values, first), momentum = load_four(arrays.momentum, first),
       second_moment = load_four(arrays.second_moment, first),
       max_second_moment = load_four(arrays.max_second_moment, first);
  for (int i = 0; i < kLanes; ++i) {
    State state{momentum.v[i], second_moment.v[i], max_second_moment.v[i]};
    values.v[i] = optimized(numbers, gradient.v[i], values.v[i], state);
    momentum.v[i] = state.momentum, second_moment.v[i] = state.second_moment,
    max_second_moment.v[i] = state.max_second_moment;
  }
  store_four(arrays.momentum, first, momentum);
  store_four(arrays.second_moment, first, second_moment);
  store_four(arrays.max_second_moment, first, max_second_moment);
  store_four(arrays.result, first, values);
}

struct OptimizeManyArgs {
  static constexpr int kMost = 48;                   ///< arguments of a kernel have at most 4 KB
  static constexpr i64 kValues = kThreads * kLanes;  ///< of a block
  OptimizeArgs numbers;                              ///< without arrays
  int count;
  Arrays arrays[kMost];
};
static_assert(sizeof(OptimizeManyArgs) <= 4096 - sizeof(i64));

/// Rows of values that are aligned to 16 bytes.
MPSCNN_BLOCK_KERNEL(optimize_many, OptimizeManyArgs) {
  int which = 0;
  while (index >= args.arrays[which].end) ++which;
  const Arrays& mine = args.arrays[which];
  const i64 block_of = index - (which > 0 ? args.arrays[which - 1].end : 0);
  block.for_each(kThreads, [&](i64 thread) {
    const i64 first = block_of * OptimizeManyArgs::kValues + thread * kLanes;
    if (first + kLanes <= mine.count) return update_four(args.numbers, mine, first);
    for (i64 i = first; i < mine.count; ++i) {
      const auto of = [&](const Pointer<float>& array) { return array ? array.get() + i : nullptr; };
      float *const momentum = of(mine.momentum), *const second_moment = of(mine.second_moment),
                   *const max_second_moment = of(mine.max_second_moment);
      State state;
      if (momentum) state.momentum = *momentum;
      if (second_moment) state.second_moment = *second_moment;
      if (max_second_moment) state.max_second_moment = *max_second_moment;
      const float result = optimized(args.numbers, mine.gradient[i], mine.values[i], state);
      if (momentum) *momentum = state.momentum;
      if (second_moment) *second_moment = state.second_moment;
      if (max_second_moment) *max_second_moment = state.max_second_moment;
      mine.result[i] = result;
    }
  });
}

}  // namespace openmps::cuda::optimizer
