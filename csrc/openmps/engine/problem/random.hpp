// SPDX-License-Identifier: Apache-2.0
// Random matrices.
#pragma once

#include <cstdint>

#include "engine/problem/optimize.hpp"

namespace openmps {

enum class RandomDistribution : std::uint8_t { bits, uniform, normal };

/// A stream of random values, as computed in engine/shared/random.hpp.
///   bits:    random words of 32 bits
///   uniform: numbers in [min, max)
///   normal:  mean + deviation * z, z normally distributed between its quantiles `low` and `high`, clamped to
///            [min, max]
struct RandomStream {
  RandomDistribution distribution = RandomDistribution::bits;
  std::uint64_t seed = 0;
  std::uint64_t first = 0;   ///< number of the first value
  std::uint32_t stream = 0;  ///< one of several streams with this seed
  float min = 0, max = 1, mean = 0, deviation = 1;
  double low = 0, high = 1;

  static constexpr auto fields() {
    using P = RandomStream;
    using namespace roles;
    return std::tuple(shape("distribution", &P::distribution), value("seed", &P::seed), value("first", &P::first),
                      value("stream", &P::stream), value("min", &P::min), value("max", &P::max),
                      value("mean", &P::mean), value("deviation", &P::deviation), value("low", &P::low),
                      value("high", &P::high));
  }
};

/// Fill matrices with the values of a stream: matrix by matrix, row by row.
struct RandomProblem {
  std::int64_t matrices = 1, rows = 1, columns = 1;
  FloatMatrices dst;
  RandomStream values;

  static constexpr auto fields() {
    using P = RandomProblem;
    using namespace roles;
    return std::tuple(shape("matrices", &P::matrices), shape("rows", &P::rows), shape("columns", &P::columns),
                      out("dst", &P::dst), value("values", &P::values));
  }
};

}  // namespace openmps
