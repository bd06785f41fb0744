// SPDX-License-Identifier: Apache-2.0
// Statistics of channels, and coefficients of normalizations and their gradients, for several files.
#pragma once

#include "engine/cuda/kernels/vectors.hpp"

namespace openmps::cuda::normalization {

struct Pair {
  double a, b;
};
MPSCNN_HOST_DEVICE Pair added(const Pair& x, const Pair& y) { return {x.a + y.a, x.b + y.b}; }

/// Means and variances in memory: float32, pairs of doubles, or both. If both, a pair counts only if it rounds to the
/// floats: they may have been written since.
struct Statistics {
  Pointer<float> mean, variance;
  Pointer<Pair> exact;

  MPSCNN_HOST_DEVICE Pair get(i64 i) const {
    if (exact) {
      const Pair pair = exact[i];
      if (!mean || (static_cast<float>(pair.a) == mean[i] && static_cast<float>(pair.b) == variance[i])) return pair;
    }
    return {mean[i], variance[i]};
  }
  /// Store each value that has memory.
  MPSCNN_HOST_DEVICE void set(i64 i, const Pair& pair) const {
    if (mean) mean[i] = static_cast<float>(pair.a);
    if (variance) variance[i] = static_cast<float>(pair.b);
    if (exact) exact[i] = pair;
  }
};

/// Which of the statistics each channel of each image has.
struct Groups {
  i64 channels;
  i64 count;  ///< per image; 0: one set for all images, one of each channel

  MPSCNN_HOST_DEVICE i64 index(i64 image, i64 k) const {
    return count == 0 ? k : image * count + k / (channels / count);
  }
  MPSCNN_HOST_DEVICE i64 channels_of_each() const { return channels / count; }
};

/// y = (x - mean) * scale + shift for a channel. The shift includes the rounding of the mean.
struct Coefficients {
  float mean, scale, shift;
};

/// The coefficients of each channel, of each image or of all images together.
struct Forward {
  Statistics statistics;
  Groups groups;
  Pointer<const float> gamma, beta;
  double epsilon;

  MPSCNN_HOST_DEVICE Coefficients find(i64 image, i64 k) const { return of(statistics.get(groups.index(image, k)), k); }
  /// Return those of channel k with a mean and a variance.
  MPSCNN_HOST_DEVICE Coefficients of(const Pair& pair, i64 k) const {
    const double factor = gamma[k] / ::sqrt(pair.b + epsilon);
    const auto rounded = static_cast<float>(pair.a);
    return {rounded, static_cast<float>(factor), static_cast<float>(beta[k] + (rounded - pair.a) * factor)};
  }
};

/// Coefficients in memory, for kernels whose threads compute too few values to find them on their own.
struct StoredCoefficients {
  Pointer<float> mean, scale, shift;

  template <bool by_vectors>
  MPSCNN_HOST_DEVICE void load(i64 from, int lanes, Coefficients (&to)[kMostLanes]) const {
    float values[3][kMostLanes];
    load_words<by_vectors>(mean, from, lanes, values[0]);
    load_words<by_vectors>(scale, from, lanes, values[1]);
    load_words<by_vectors>(shift, from, lanes, values[2]);
    for (int i = 0; i < lanes; ++i) to[i] = {values[0][i], values[1][i], values[2][i]};
  }
  MPSCNN_HOST_DEVICE void store(i64 i, const Coefficients& found) const {
    mean[i] = found.mean;
    scale[i] = found.scale;
    shift[i] = found.shift;
  }
};

// ---------------------------------------------------------------------------------------------------------- gradients

/// Return gradient * f'(y). A rectifier gives 0 below 0, also for a gradient that is infinite.
template <bool by_vectors>
MPSCNN_HOST_DEVICE float slope_times(const Activation& f, float gradient, float y, i64 k) {
  if (f.type == NeuronType::none) return gradient;
  if (f.type == NeuronType::relu) return y >= 0 ? gradient : f.a == 0 ? 0.0f : f.a * gradient;
  return by_vectors ? gradient : activate_gradient(f, gradient, y, k);
}

/// diff_src = own * G + slope * (x - the mean rounded to float) + constant for a channel.
struct GradientCoefficients {
  float own, slope, constant;
};

struct GradientSumsArgs {
  Forward forward;
  i64 images, count;  ///< of pixels; 0: mean and variance are constants

  // Batches.
  Pointer<float> diff_gamma, diff_beta;
  bool adds;

  // Images.
  Pointer<Pair> of_channels;  ///< sum G and sum G * z of each image and channel
  Pointer<Pair> of_groups;    ///< the same times gamma, of each image and group

  // Coefficients in memory.
  Pointer<float> own, slope, constant;

  /// Return sum G and sum G * z of channel k, z = (x - mean) / deviation, from the sums of the parts.
  MPSCNN_HOST_DEVICE Pair scaled(i64 image, i64 k, const Pair& sums) const {
    const Pair known = forward.statistics.get(forward.groups.index(image, k));
    const double product = sums.b + (static_cast<float>(known.a) - known.a) * sums.a;
    return {sums.a, product / ::sqrt(known.b + forward.epsilon)};
  }
  /// Store the sums of channel k over all images.
  MPSCNN_HOST_DEVICE void store(i64 k, const Pair& sums) const {
    const Pair found = scaled(0, k, sums);
    diff_gamma[k] = static_cast<float>(found.b + (adds ? diff_gamma[k] : 0.0));
    diff_beta[k] = static_cast<float>(found.a + (adds ? diff_beta[k] : 0.0));
  }

  MPSCNN_HOST_DEVICE GradientCoefficients find(i64 image, i64 k) const {
    const i64 group = forward.groups.index(image, k);
    const double gamma = forward.gamma[k];
    Pair sums{0, 0};
    if (forward.groups.count > 0) {
      sums = of_groups[group];
    } else if (count > 0) {
      sums = {gamma * diff_beta[k], gamma * diff_gamma[k]};
    }
    const double pixels = count > 0 ? static_cast<double>(count) : 1.0;
    const Pair known = forward.statistics.get(group);
    const double inverse = 1 / ::sqrt(known.b + forward.epsilon), slope = -inverse * inverse * (sums.b / pixels);
    // Includes the rounding of the mean.
    const double constant = slope * (static_cast<float>(known.a) - known.a) - inverse * (sums.a / pixels);
    return {static_cast<float>(gamma * inverse), static_cast<float>(slope), static_cast<float>(constant)};
  }
};

/// Return the gradient of a value of the source from that of its result.
template <bool by_vectors>
MPSCNN_HOST_DEVICE float gradient_of(const Activation& neuron, i64 k, const Coefficients& forward,
                                     const GradientCoefficients& own, float value, float gradient) {
  const float distance = value - forward.mean, y = distance * forward.scale + forward.shift;
  return own.own * slope_times<by_vectors>(neuron, gradient, y, k) + (own.slope * distance + own.constant);
}

}  // namespace openmps::cuda::normalization
