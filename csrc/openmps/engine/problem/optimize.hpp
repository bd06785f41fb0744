// SPDX-License-Identifier: Apache-2.0
// Steps of optimizers.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>

#include "engine/problem/fields.hpp"

namespace openmps {

/// Matrices of float32 values in a buffer, row by row.
struct FloatMatrices {
  std::shared_ptr<Memory> memory;
  std::size_t offset = 0;                          ///< of the first value, in bytes; a multiple of 4
  std::int64_t matrix_stride = 0, row_stride = 0;  ///< in values

  static constexpr auto fields() {
    using P = FloatMatrices;
    using namespace roles;
    return std::tuple(inout("memory", &P::memory), shape("offset", &P::offset),
                      shape("matrix_stride", &P::matrix_stride), shape("row_stride", &P::row_stride));
  }
};

enum class OptimizerType : std::uint8_t { descent, momentum, nesterov, rms, adam, amsgrad };

enum class Regularization : std::uint8_t { none, absolute, square };

/// Update each value v by its gradient, element by element. First g = min(max(gradient, min), max) * rescale +
/// regularization_scale * (absolute: the sign of v; square: v); NaN stays NaN. Then with m = momentum, s =
/// second_moment:
///   descent:  result = v - rate * g
///   momentum: m = decay * m + rate * g; result = v - m
///   nesterov: m = decay * m + g; result = v - rate * (g + decay * m)
///   rms:      s = beta2 * s + (1 - beta2) * g^2; result = v - rate * g / (sqrt(s) + epsilon)
///   adam:     m = decay * m + (1 - decay) * g; s as rms; result = v - rate * m / (sqrt(s) + epsilon)
///   amsgrad: the same with max_second_moment = max(max_second_moment, s) under the root
struct OptimizeProblem {
  std::int64_t matrices = 1, rows = 1, columns = 1;
  FloatMatrices gradient, values;
  FloatMatrices result;                                      ///< may be values or gradient; else shares no memory
  FloatMatrices momentum, second_moment, max_second_moment;  ///< those that the type needs; share no memory
  OptimizerType type = OptimizerType::descent;
  Regularization regularization = Regularization::none;
  double rate = 0.001, decay = 0, beta2 = 0, epsilon = 0;
  float rescale = 1, regularization_scale = 0;
  float min = -std::numeric_limits<float>::infinity(), max = std::numeric_limits<float>::infinity();

  static constexpr auto fields() {
    using P = OptimizeProblem;
    using namespace roles;
    return std::tuple(shape("matrices", &P::matrices), shape("rows", &P::rows), shape("columns", &P::columns),
                      in("gradient", &P::gradient), in("values", &P::values), out("result", &P::result),
                      inout("momentum", &P::momentum), inout("second_moment", &P::second_moment),
                      inout("max_second_moment", &P::max_second_moment), shape("type", &P::type),
                      shape("regularization", &P::regularization), value("rate", &P::rate), value("decay", &P::decay),
                      value("beta2", &P::beta2), value("epsilon", &P::epsilon), value("rescale", &P::rescale),
                      value("regularization_scale", &P::regularization_scale), value("min", &P::min),
                      value("max", &P::max));
  }
};

}  // namespace openmps
