// SPDX-License-Identifier: Apache-2.0
// Formulas of losses (engine/problem/loss.hpp), each once. Compiles for the host and for a GPU. `Math` is as in
// engine/shared/neuron.hpp.
#pragma once

#include <algorithm>
#include <limits>

#include "engine/problem/loss.hpp"
#include "engine/shared/neuron.hpp"

namespace openmps {

/// Constants of a function in the precision of the loops. t' = t * keep + add.
struct LossNumbers {
  float keep = 1, add = 0, epsilon = 0, delta = 0;

  LossNumbers() = default;
  explicit LossNumbers(const LossFunction& f) : epsilon(f.epsilon), delta(f.delta) {
    if (!(f.smoothing > 0)) return;
    if (f.type == LossType::softmax) keep = 1 - f.smoothing, add = f.smoothing / static_cast<float>(f.classes);
    if (f.type == LossType::sigmoid) keep = 1 - f.smoothing, add = f.smoothing / 2;
  }
};

/// Loss and derivatives of one value; NaN in y or t gives NaN.
struct LossValue {
  float loss, by_prediction, by_label;
};

/// x * y, but 0 for 0 * infinity.
MPSCNN_HOST_DEVICE float product_or_0(float x, float y) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  return x == 0 && (y == inf || y == -inf) ? 0.0f : x * y;
}

template <LossType type, class Math>
MPSCNN_HOST_DEVICE LossValue loss_of(const LossNumbers& f, float y, float t) {
  const float d = y - t;
  if constexpr (type == LossType::absolute) {
    const float sign = d > 0 ? 1.0f : d < 0 ? -1.0f : d;  // 0 stays 0 and NaN stays NaN
    return {d < 0 ? -d : d, sign, -sign};
  }
  if constexpr (type == LossType::square) return {d * d, 2 * d, -2 * d};
  if constexpr (type == LossType::sigmoid) {
    t = t * f.keep + f.add;
    const float e = Math::exp_negative(y < 0 ? y : -y), rectified = y > 0 ? y : 0.0f;
    const float upper = 1 / (1 + e), sigmoid = y < 0 ? e * upper : upper;
    return {(rectified - y * t) + Math::log1p_unit(e), sigmoid - t, -y * f.keep};
  }
  if constexpr (type == LossType::categorical) {
    const float log = static_cast<float>(Math::log(y));
    return {-product_or_0(t, log), y == 0 && t == 0 ? 0.0f : -t / y, -log};
  }
  if constexpr (type == LossType::hinge) {
    const float sign = 2 * t - 1, l = 1 - sign * y;
    const bool counts = !(l <= 0);
    return {counts ? l : 0.0f, counts ? (l == l ? -sign : l) : 0.0f, counts ? (l == l ? -2 * y : l) : 0.0f};
  }
  if constexpr (type == LossType::huber) {
    const float a = d < 0 ? -d : d, slope = d > f.delta ? f.delta : d < -f.delta ? -f.delta : d;
    return {a > f.delta ? f.delta * (a - 0.5f * f.delta) : 0.5f * d * d, slope, -slope};
  }
  if constexpr (type == LossType::cosine) return {-y * t, -t, -y};
  if constexpr (type == LossType::log) {
    const float p = y + f.epsilon, q = (1 - y) + f.epsilon;
    const float log_p = static_cast<float>(Math::log(p)), log_q = static_cast<float>(Math::log(q));
    return {-product_or_0(t, log_p) - product_or_0(1 - t, log_q), (1 - t) / q - t / p, log_q - log_p};
  }
  if constexpr (type == LossType::kullback_leibler) {
    const float log = static_cast<float>(Math::log(t));
    return {product_or_0(t, log) - product_or_0(t, y), -t, (log + 1) - y};
  }
  return {};
}

/// A box by its centre and size.
struct LossBox {
  double x, y, w, h;
};

MPSCNN_HOST_DEVICE double shared_length(double p, double q, double length_p, double length_q) {
  const double end_p = p + length_p / 2, end_q = q + length_q / 2;
  const double first_p = p - length_p / 2, first_q = q - length_q / 2;
  const double length = std::min(end_p, end_q) - std::max(first_p, first_q);
  return std::max(0.0, length);
}

MPSCNN_HOST_DEVICE double intersection_over_union(const LossBox& a, const LossBox& b) {
  const double both = shared_length(a.x, b.x, a.w, b.w) * shared_length(a.y, b.y, a.h, b.h);
  const double either = a.w * a.h + b.w * b.h - both;
  return either > 0 ? both / either : 0;
}

}  // namespace openmps
