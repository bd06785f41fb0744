// SPDX-License-Identifier: Apache-2.0
// Activation functions, each formula once. Compiles for the host and for a GPU.
//
// `Math` supplies exp and related functions in the type of the formula. FastMath (fast_math.hpp) is for loops that the
// compiler vectorizes; LibraryMath calls the C library and is for GPUs and tests.
#pragma once

#include <cmath>

#include "engine/problem/common.hpp"

#if defined(__CUDACC__)
#define MPSCNN_HOST_DEVICE __host__ __device__ __forceinline__
#elif defined(__GNUC__)
#define MPSCNN_HOST_DEVICE inline __attribute__((always_inline))
#else
#define MPSCNN_HOST_DEVICE inline
#endif

namespace openmps {

struct LibraryMath {
  using Real = float;
  static MPSCNN_HOST_DEVICE float exp(float x) { return ::expf(x); }
  static MPSCNN_HOST_DEVICE float exp_negative(float x, float rest = 0) { return ::expf(x) * (1 + rest); }
  static MPSCNN_HOST_DEVICE float product(float x, float y, float& lost) {
    lost = ::fmaf(x, y, -(x * y));
    return x * y;
  }
  static MPSCNN_HOST_DEVICE float expm1(float x) { return ::expm1f(x); }
  static MPSCNN_HOST_DEVICE float log(float x) { return ::logf(x); }
  static MPSCNN_HOST_DEVICE float log1p_unit(float x) { return ::log1pf(x); }
  static MPSCNN_HOST_DEVICE float normal_cdf(float x) { return 0.5f * ::erfcf(x * -0.70710678f); }
  static MPSCNN_HOST_DEVICE float normal_cdf(float x, float& bell) {
    bell = ::expf(-0.5f * x * x);
    return normal_cdf(x);
  }
  static MPSCNN_HOST_DEVICE float pow(float x, float y) { return ::powf(x, y); }
};

/// Comparisons are written so that NaN stays NaN.
template <class Math>
struct NeuronFormulas {
  using Real = typename Math::Real;

  /// With a slope of 0 the result for -inf is 0, not 0 * -inf; for NaN it is NaN.
  static MPSCNN_HOST_DEVICE float relu(float x, float a) { return x >= 0 ? x : x < 0 && a == 0 ? 0.0f : a * x; }
  static MPSCNN_HOST_DEVICE float linear(float x, float a, float b) { return a * x + b; }
  static MPSCNN_HOST_DEVICE float sigmoid(float x) {
    // exp only of values <= 0, so nothing overflows; in float, because adding 1 makes its rounding error smaller.
    const float e = Math::exp_negative(x < 0 ? x : -x);
    return (x < 0 ? e : 1.0f) / (1.0f + e);
  }
  static MPSCNN_HOST_DEVICE float hard_sigmoid(float x, float a, float b) {
    const float t = linear(x, a, b);
    return t < 0 ? 0.0f : t > 1 ? 1.0f : t;
  }
  static MPSCNN_HOST_DEVICE float tanh(float x, float a, float b) {
    Real t = 2 * (Real(b) * x);
    t = t > 40 ? Real(40) : t < -40 ? Real(-40) : t;  // +-1 in either precision
    const Real e = Math::expm1(t);
    return static_cast<float>(a * (e / (e + 2)));
  }
  static MPSCNN_HOST_DEVICE float absolute(float x) { return x < 0 ? -x : x + 0.0f; }
  static MPSCNN_HOST_DEVICE float softplus(float x, float a, float b) {
    const float t = b * x;
    return a * ((t < 0 ? 0.0f : t) + Math::log1p_unit(exp_below_zero(x, b)));
  }
  static MPSCNN_HOST_DEVICE float softsign(float x) { return x / (1.0f + (x < 0 ? -x : x)); }
  static MPSCNN_HOST_DEVICE float elu(float x, float a) {
    const Real e = Math::expm1(x < 0 ? Real(x) : Real(0));
    return x >= 0 ? x : x < 0 ? static_cast<float>(a * e) : x;
  }
  static MPSCNN_HOST_DEVICE float relun(float x, float a, float b) {
    const float t = relu(x, a);
    return t > b ? b : t;
  }
  static MPSCNN_HOST_DEVICE float power(float x, float a, float b, float c) {
    return static_cast<float>(Math::pow(Real(a) * x + b, Real(c)));
  }
  /// `log_base` is ln(c), or 1 for base e.
  static MPSCNN_HOST_DEVICE float exponential(float x, float a, float b, Real log_base) {
    return static_cast<float>(Math::exp((Real(a) * x + b) * log_base));
  }
  static MPSCNN_HOST_DEVICE float logarithm(float x, float a, float b, Real log_base) {
    return static_cast<float>(Math::log(Real(a) * x + b) / log_base);
  }
  static MPSCNN_HOST_DEVICE float gelu(float x) { return x * Math::normal_cdf(x); }
  static MPSCNN_HOST_DEVICE float swish(float x) { return x * sigmoid(x); }
  static MPSCNN_HOST_DEVICE float hard_swish(float x, float a, float b) { return x * hard_sigmoid(x, a, b); }

  /// exp(-|b * x|), accurate to float although the product is rounded.
  static MPSCNN_HOST_DEVICE float exp_below_zero(float x, float b) {
    float lost;
    const float t = Math::product(b, x, lost);
    lost = t < -104 || t > 104 ? 0.0f : lost;  // the result is 0 there; for infinity, `lost` is NaN
    return Math::exp_negative(t < 0 ? t : -t, t < 0 ? lost : -lost);
  }

  // Gradients: e * f'(x), e the gradient of the result. At kinks of f they follow the order of cases in the header
  // [MPSCNNNeuron.h]: at 0 the rectifiers have the slope of x >= 0.
  static MPSCNN_HOST_DEVICE float relu_gradient(float e, float x, float a) { return x >= 0 ? e : a * e; }
  static MPSCNN_HOST_DEVICE float sigmoid_gradient(float e, float x) {
    const float t = Math::exp_negative(x < 0 ? x : -x);
    return e * (t / ((1.0f + t) * (1.0f + t)));
  }
  static MPSCNN_HOST_DEVICE float hard_sigmoid_gradient(float e, float x, float a, float b) {
    const Real t = Real(a) * x + b;
    return t >= 0 && t <= 1 ? a * e : 0.0f;
  }
  static MPSCNN_HOST_DEVICE float tanh_gradient(float e, float x, float a, float b) {
    const Real t = 2 * (Real(b) * x);
    const Real u = Math::exp(t < 0 ? t : -t);  // 1 - tanh^2 = 4u / (1 + u)^2, without the difference
    return static_cast<float>(e * (Real(a) * b * 4 * u / ((1 + u) * (1 + u))));
  }
  /// unverified: 0 at 0.
  static MPSCNN_HOST_DEVICE float absolute_gradient(float e, float x) { return x > 0 ? e : x < 0 ? -e : 0.0f; }
  static MPSCNN_HOST_DEVICE float softplus_gradient(float e, float x, float a, float b) {
    const float u = exp_below_zero(x, b);
    return e * (a * b * ((b * x < 0 ? u : 1.0f) / (1.0f + u)));
  }
  static MPSCNN_HOST_DEVICE float softsign_gradient(float e, float x) {
    const float t = 1.0f + (x < 0 ? -x : x);
    return e / (t * t);
  }
  static MPSCNN_HOST_DEVICE float elu_gradient(float e, float x, float a) {
    const Real t = Math::exp(x >= 0 ? Real(0) : Real(x));
    return x >= 0 ? e : static_cast<float>(e * (a * t));
  }
  /// unverified: 0 where the max is reached. The header gives the result itself, b, which is not a slope.
  static MPSCNN_HOST_DEVICE float relun_gradient(float e, float x, float a, float b) {
    return relu(x, a) >= b ? 0.0f : relu_gradient(e, x, a);
  }
  static MPSCNN_HOST_DEVICE float power_gradient(float e, float x, float a, float b, float c) {
    return static_cast<float>(e * (Real(a) * c * Math::pow(Real(a) * x + b, Real(c) - 1)));
  }
  static MPSCNN_HOST_DEVICE float exponential_gradient(float e, float x, float a, float b, Real log_base) {
    return static_cast<float>(e * (a * log_base * Math::exp((Real(a) * x + b) * log_base)));
  }
  static MPSCNN_HOST_DEVICE float logarithm_gradient(float e, float x, float a, float b, Real log_base) {
    return static_cast<float>(e * (a / ((Real(a) * x + b) * log_base)));
  }
  static MPSCNN_HOST_DEVICE float gelu_gradient(float e, float x) {
    float bell;  // exp(-x * x / 2)
    const float cdf = Math::normal_cdf(x, bell);
    const float t = x < -40 ? -40.0f : x > 40 ? 40.0f : x;  // the bell is 0 there; avoids infinity * 0
    return e * (cdf + t * bell * 0.398942280f);
  }
};

/// Return ln of the base of exponential and logarithm; c == -1 means base e.
inline double neuron_log_base(float c) { return c == -1.0f ? 1.0 : std::log(static_cast<double>(c)); }

/// Return whether the function has parameters per channel.
inline bool neuron_is_per_channel(const Neuron& neuron) {
  return neuron.type == NeuronType::prelu && neuron.a_per_channel && !neuron.a_per_channel->empty();
}

inline bool neuron_is_identity(const Neuron& neuron) {
  return neuron.type == NeuronType::none || (neuron.type == NeuronType::linear && neuron.a == 1.0f && neuron.b == 0.0f);
}

}  // namespace openmps
