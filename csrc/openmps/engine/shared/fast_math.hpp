// SPDX-License-Identifier: Apache-2.0
// exp, log and related functions for loops over float arrays: computed in double with short series, so that the only
// relevant error is rounding to float (the series are good to 1e-9, half an ulp of float is 6e-8). Branch-free: the
// compiler vectorizes loops that call them.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "engine/shared/neuron.hpp"

namespace openmps {

struct FastMath {
  using Real = double;

  /// e^x - 1. Arguments clamp to +-200: the result is outside of float's range either way.
  static MPSCNN_HOST_DEVICE double expm1(double x) {
    double scale;
    const double tail = exp_parts(x, scale);
    return scale * tail + (scale - 1.0);
  }
  static MPSCNN_HOST_DEVICE double exp(double x) {
    double scale;
    const double tail = exp_parts(x, scale);
    return scale * tail + scale;
  }

  /// e^(x - most) for x <= most, in float: relative error 1.2e-7, also where x and most are large and close, because
  /// the rounding error of their difference is compensated. 0 for differences below -104.
  static MPSCNN_HOST_DEVICE float exp_below(float x, float most) {
    const float rounded = x - most, back = rounded - x;
    const bool far = rounded < -104.0f;  // also for x = -inf, where `lost` would be NaN
    const float lost = far ? 0.0f : (x - (rounded - back)) - (most + back);
    return exp_negative(rounded, lost);
  }

  /// e^(x + rest) for x <= 0 and a small rest, |rest| < 0.1, in float: relative error 1.2e-7. 0 for x below -104.
  static MPSCNN_HOST_DEVICE float exp_negative(float x, float rest = 0.0f) {
    const float d = x < -104.0f ? -104.0f : x;
    constexpr float kShift = 12582912.0f;  // 1.5 * 2^23: the sum's low bits hold the rounded integer
    const float shifted = d * 1.44269504f + kShift, k = shifted - kShift;
    const float r = ((d - k * 0.693359375f) - k * -2.12194440e-4f) + rest;
    // (e^r - 1 - r) / r^2, |r| <= ln(2) / 2, fitted to 3e-9 of e^r.
    float p = 0.0013814467f;
    p = p * r + 0.0083687808f;
    p = p * r + 0.041668393f;
    p = p * r + 0.1666652f;
    p = p * r + 0.49999994f;
    const float value = 1.0f + (r + r * r * p);
    // 2^k as two factors, neither of which underflows.
    const std::int32_t whole = std::bit_cast<std::int32_t>(shifted) - 0x4b400000, half = whole >> 1;
    return value * std::bit_cast<float>((half + 127) << 23) * std::bit_cast<float>((whole - half + 127) << 23);
  }

  /// ln(1 + x) for x in [0, 1], in float; relatively accurate near 0.
  static MPSCNN_HOST_DEVICE float log1p_unit(float x) {
    const float s = x / (2.0f + x), z = s * s;  // z <= 1/9
    // (artanh(s) / s - 1) / z, fitted to 6e-9.
    float p = 0.11365943f;
    p = p * z + 0.10912764f;
    p = p * z + 0.14291488f;
    p = p * z + 0.19999984f;
    p = p * z + 0.33333333f;
    return 2.0f * s + 2.0f * s * z * p;
  }

  static MPSCNN_HOST_DEVICE double log(double x) {
    // x = 2^k * m with m in [sqrt(1/2), sqrt(2)); 0x3fe6a09e667f3bcd are the bits of sqrt(1/2).
    const std::uint64_t shifted = std::bit_cast<std::uint64_t>(x) + (0x3ff0000000000000u - 0x3fe6a09e667f3bcdu);
    const double k = std::bit_cast<double>((shifted >> 52) | 0x4330000000000000u) - (4503599627370496.0 + 1023.0);
    const double m = std::bit_cast<double>((shifted & 0x000fffffffffffffu) + 0x3fe6a09e667f3bcdu);
    const double f = m - 1.0, s = f / (2.0 + f), z = s * s;  // z <= 0.0295
    double p = 1.0 / 13;
    p = p * z + 1.0 / 11;
    p = p * z + 1.0 / 9;
    p = p * z + 1.0 / 7;
    p = p * z + 1.0 / 5;
    p = p * z + 1.0 / 3;
    double y = 2.0 * s + 2.0 * s * z * p + k * 0.693147180559945309;
    constexpr double inf = std::numeric_limits<double>::infinity();
    y = x == inf ? inf : y;
    y = x == 0 ? -inf : y;
    return x >= 0 ? y : std::numeric_limits<double>::quiet_NaN();
  }

  /// x * y and, in `lost`, its rounding error: the factors are split into halves whose products are exact.
  static MPSCNN_HOST_DEVICE float product(float x, float y, float& lost) {
    const float p = x * y;
    const float xh = upper_half(x), xl = x - xh, yh = upper_half(y), yl = y - yh;
    lost = ((xh * yh - p) + (xh * yl + xl * yh)) + xl * yl;
    return p;
  }

  /// Normal distribution function, 0.5 * (1 + erf(x / sqrt(2))), in float: relative error 4e-7, also in the lower tail.
  static MPSCNN_HOST_DEVICE float normal_cdf(float x) {
    float bell;
    return normal_cdf(x, bell);
  }
  /// Also return exp(-x * x / 2), an intermediate result.
  static MPSCNN_HOST_DEVICE float normal_cdf(float x, float& bell) {
    float a = x < 0 ? -x : x;
    a = a > 15.0f ? 15.0f : a;  // the result is 0 or 1 in float from there on
    // erfc(z) / 2 = exp(-z*z) * t * q(t) with z = a / sqrt(2), t = 2 / (2 + z); q fitted to 5e-8 on [2/13, 1].
    const float t = 2.0f / (2.0f + a * 0.707106781f), u = (t - 15.0f / 26) * (26.0f / 11);
    float q = -3.0423882e-5f;
    q = q * u + 1.4563496e-5f;
    q = q * u + 3.2002628e-4f;
    q = q * u + -3.6947882e-4f;
    q = q * u + -3.2423646e-3f;
    q = q * u + 3.3200257e-3f;
    q = q * u + 5.245007e-2f;
    q = q * u + 0.16402891f;
    q = q * u + 0.28350865f;
    const float high = upper_half(a);  // its square is exact
    bell = exp_negative(-0.5f * high * high, -0.5f * (a - high) * (a + high));
    const float tail = bell * t * q;
    return x < 0 ? tail : 1.0f - tail;
  }

  /// std::pow for bases > 0, or any base with an integer exponent.
  static MPSCNN_HOST_DEVICE double pow(double x, double y) {
    const double magnitude = exp(log(x < 0 ? -x : x) * y);
    const double half = y * 0.5;
    const bool whole = nearest(y) == y, odd = whole && nearest(half) != half;
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const bool below = x < 0 && x >= std::numeric_limits<double>::lowest();  // non-integer powers: -inf acts as inf
    return x < 0 ? (whole ? (odd ? -magnitude : magnitude) : below ? nan : magnitude) : x >= 0 ? magnitude : x;
  }

 private:
  /// x without the lower 12 bits of its significand.
  static MPSCNN_HOST_DEVICE float upper_half(float x) {
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0xfffff000u);
  }
  /// scale = 2^k, result = e^r - 1 with x = k ln 2 + r, |r| <= ln(2) / 2.
  static MPSCNN_HOST_DEVICE double exp_parts(double x, double& scale) {
    x = x < -200.0 ? -200.0 : x;
    x = x > 200.0 ? 200.0 : x;
    constexpr double kShift = 6755399441055744.0;  // 1.5 * 2^52: the sum's low bits hold the rounded integer
    const double shifted = x * 1.44269504088896341 + kShift;
    const double k = shifted - kShift;
    const double r = (x - k * 0.693147180369123816) - k * 1.90821492927058770e-10;
    scale = std::bit_cast<double>((std::bit_cast<std::uint64_t>(shifted) << 52) + 0x3ff0000000000000u);
    double p = 1.0 / 40320;
    p = p * r + 1.0 / 5040;
    p = p * r + 1.0 / 720;
    p = p * r + 1.0 / 120;
    p = p * r + 1.0 / 24;
    p = p * r + 1.0 / 6;
    p = p * r + 1.0 / 2;
    return r + r * r * p;
  }
  /// Nearest integer; |x| >= 2^51 is returned unchanged.
  static MPSCNN_HOST_DEVICE double nearest(double x) {
    const double ax = x < 0 ? -x : x;
    return ax < 2251799813685248.0 ? (x + 6755399441055744.0) - 6755399441055744.0 : x;
  }
};

}  // namespace openmps
