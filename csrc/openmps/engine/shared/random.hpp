// SPDX-License-Identifier: Apache-2.0
// Random values as a pure function of seed, stream and number. Compiles for the host and for a GPU.
#pragma once

#include <cmath>
#include <cstdint>

#include "engine/problem/random.hpp"
#include "engine/shared/philox.hpp"

namespace openmps {

constexpr std::int64_t kRandomBlock = 4;  ///< values of one Philox block

/// Return the number below which a standard normal value lies with probability p, 0 < p < 1; relative error 1.2e-9
/// [P. J. Acklam, An algorithm for computing the inverse normal cumulative distribution function].
MPSCNN_HOST_DEVICE double normal_quantile(double p) {
  const bool is_tail = p < 0.02425 || p > 1 - 0.02425;
  if (is_tail) {
    const double tail = p < 0.5 ? p : 1 - p, q = std::sqrt(-2 * std::log(tail));
    const double x = (((((-7.784894002430293e-03 * q - 3.223964580411365e-01) * q - 2.400758277161838e+00) * q -
                        2.549732539343734e+00) *
                           q +
                       4.374664141464968e+00) *
                          q +
                      2.938163982698783e+00) /
                     ((((7.784695709041462e-03 * q + 3.224671290700398e-01) * q + 2.445134137142996e+00) * q +
                       3.754408661907416e+00) *
                          q +
                      1);
    return p < 0.5 ? x : -x;
  }
  const double q = p - 0.5, r = q * q;
  return (((((-3.969683028665376e+01 * r + 2.209460984245205e+02) * r - 2.759285104469687e+02) * r +
            1.383577518672690e+02) *
               r -
           3.066479806614716e+01) *
              r +
          2.506628277459239e+00) *
         q /
         (((((-5.447609879822406e+01 * r + 1.615858368580409e+02) * r - 1.556989798598866e+02) * r +
            6.680131188771972e+01) *
               r -
           1.328068155288572e+01) *
              r +
          1);
}

/// Return the value of a word, for distributions other than bits.
MPSCNN_HOST_DEVICE float random_value(const RandomStream& p, std::uint32_t word) {
  if (p.distribution == RandomDistribution::uniform) {
    const double share = static_cast<double>(word >> 8) * 0x1p-24;
    const auto value = static_cast<float>(p.min + (static_cast<double>(p.max) - p.min) * share);
    return value < p.max ? value : p.min;  // rounded up to max
  }
  const double share = (static_cast<double>(word) + 0.5) * 0x1p-32;
  const auto value = static_cast<float>(p.mean + p.deviation * normal_quantile(p.low + (p.high - p.low) * share));
  return value < p.min ? p.min : value > p.max ? p.max : value;
}

/// Return block `index` of the stream: words of values 4 * index to 4 * index + 3.
MPSCNN_HOST_DEVICE Philox random_block(const RandomStream& p, std::uint64_t index) {
  return Philox(p.seed, index, p.stream);
}

}  // namespace openmps
