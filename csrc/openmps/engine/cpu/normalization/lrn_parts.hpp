// SPDX-License-Identifier: Apache-2.0
// Shared by local response normalization and its gradient. Compiled into functions for several instruction sets.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "engine/shared/fast_math.hpp"

namespace openmps::cpu {

constexpr std::int64_t kBlock = 16;  ///< channels whose sums stay in registers

/// values[i] ^ exponent. Multiples of 1/4, which networks use, take roots and products, an order of magnitude faster
/// than a power. A run should fit the first-level cache.
inline __attribute__((always_inline)) void raise_to(double* values, std::int64_t count, double exponent) {
  constexpr double kMost = 32;
  const double quarters = 4 * std::abs(exponent);
  if (quarters != std::floor(quarters) || quarters > 4 * kMost) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) values[i] = FastMath::pow(values[i], exponent);
    return;
  }
  const auto bits = static_cast<unsigned>(quarters);
  constexpr std::int64_t kRun = 256;
  // Usual exponents start from the root of a float, if no value is too large or too small for it, and improve it by one
  // Newton step in double, which squares its error of 1e-7.
  const auto by_floats = [&](double* v, std::int64_t run) __attribute__((always_inline)) {
    if (exponent >= 0 || bits > 4) return false;
    double misfits = 0;  // a sum vectorizes, unlike a conjunction
#pragma omp simd reduction(+ : misfits)
    for (std::int64_t i = 0; i < run; ++i) misfits += v[i] > 1e-30 && v[i] < 1e30 ? 0.0 : 1.0;
    if (misfits > 0) return false;
    float x[kRun];
#pragma omp simd
    for (std::int64_t i = 0; i < run; ++i) x[i] = static_cast<float>(v[i]);
    if (bits == 4) {
#pragma omp simd
      for (std::int64_t i = 0; i < run; ++i) {
        const double inverse = static_cast<double>(1.0f / x[i]);
        v[i] = inverse * (2 - v[i] * inverse);
      }
    } else if (bits == 2) {
#pragma omp simd
      for (std::int64_t i = 0; i < run; ++i) {
        const double root = static_cast<double>(1.0f / std::sqrt(x[i]));
        v[i] = root * (1.5 - 0.5 * v[i] * root * root);
      }
    } else {
#pragma omp simd
      for (std::int64_t i = 0; i < run; ++i) {
        double root = static_cast<double>(1.0f / std::sqrt(std::sqrt(x[i])));
        const double square = root * root;
        root *= 1.25 - 0.25 * v[i] * square * square;
        v[i] = bits == 1 ? root : root * root * root;
      }
    }
    return true;
  };
  for (std::int64_t begin = 0; begin < count; begin += kRun) {
    double power[kRun];
    double* const v = values + begin;
    const std::int64_t run = std::min(kRun, count - begin);
    if (bits > 0 && by_floats(v, run)) continue;
#pragma omp simd
    for (std::int64_t i = 0; i < run; ++i) power[i] = 1;
    // From the fourth root on, each factor is the square of the previous one.
    const auto take = [&](auto&& factor) __attribute__((always_inline)) {
#pragma omp simd
      for (std::int64_t i = 0; i < run; ++i) power[i] *= factor(v[i]);
    };
    if (bits & 1) take([](double x) { return std::sqrt(std::sqrt(x)); });
    if (bits & 2) take([](double x) { return std::sqrt(x); });
    for (unsigned rest = bits >> 2; rest > 0; rest >>= 1) {
      if (rest & 1) take([](double x) { return x; });
      if (rest > 1) {
#pragma omp simd
        for (std::int64_t i = 0; i < run; ++i) v[i] *= v[i];
      }
    }
    if (exponent < 0) {
#pragma omp simd
      for (std::int64_t i = 0; i < run; ++i) v[i] = 1 / power[i];
    } else {
#pragma omp simd
      for (std::int64_t i = 0; i < run; ++i) v[i] = power[i];
    }
  }
}

/// Neighbouring channels that are summed: `before` + 1 + `after`, no more than exist.
struct Neighbours {
  std::int64_t before, after;

  Neighbours(std::int64_t size, std::int64_t channels)
      : before(std::min(size / 2, channels - 1)), after(std::min((size - 1) / 2, channels - 1)) {}
  std::int64_t count() const { return before + 1 + after; }
};

/// sums[k] = values[k] + ... + values[k + terms - 1] for k < count. Overwrites the count + terms - 1 values.
inline __attribute__((always_inline)) void sum_neighbours(double* values, std::int64_t count, std::int64_t terms,
                                                          double* sums) {
  std::int64_t valid = count + terms - 1;  // values[k] holds the sum of `width` values
  std::int64_t taken = 0;
  for (std::int64_t width = 1;; width *= 2) {
    if (terms & width) {
      const double* const more = values + taken;
      if (taken == 0) {
#pragma omp simd
        for (std::int64_t k = 0; k < count; ++k) sums[k] = more[k];
      } else {
#pragma omp simd
        for (std::int64_t k = 0; k < count; ++k) sums[k] += more[k];
      }
      taken += width;
    }
    if (taken == terms) return;
    valid -= width;
#pragma omp simd
    for (std::int64_t k = 0; k < valid; ++k) values[k] += values[k + width];
  }
}

/// Copy at most kBlock channels. kBlock, the usual number, needs no call.
inline __attribute__((always_inline)) void copy_channels(const float* from, float* to, std::int64_t channels) {
  if (channels == kBlock) {
    std::memcpy(to, from, kBlock * sizeof(float));
  } else {
    std::memcpy(to, from, static_cast<std::size_t>(channels) * sizeof(float));
  }
}

}  // namespace openmps::cpu
