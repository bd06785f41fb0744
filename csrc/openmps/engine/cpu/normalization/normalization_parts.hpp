// SPDX-License-Identifier: Apache-2.0
// Shared by normalization by mean and variance and its gradient.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "engine/problem/normalize.hpp"

namespace openmps::cpu {

inline float* values_of(const ChannelValues& values) {
  return reinterpret_cast<float*>(values.memory->data() + values.offset);
}

/// Means and variances in memory.
class StoredStatistics {
 public:
  StoredStatistics(const ChannelValues& mean, const ChannelValues& variance, const ChannelValues& exact)
      : means_(mean.memory ? values_of(mean) : nullptr),
        variances_(variance.memory ? values_of(variance) : nullptr),
        pairs_(exact.memory ? reinterpret_cast<double*>(exact.memory->data() + exact.offset) : nullptr) {}

  double mean(std::size_t i) const { return is_exact(i) ? pairs_[2 * i] : means_[i]; }
  double variance(std::size_t i) const { return is_exact(i) ? pairs_[2 * i + 1] : variances_[i]; }
  /// Store each value that has memory.
  void set(std::size_t i, double mean, double variance) const {
    if (means_) means_[i] = static_cast<float>(mean);
    if (variances_) variances_[i] = static_cast<float>(variance);
    if (pairs_) pairs_[2 * i] = mean, pairs_[2 * i + 1] = variance;
  }

 private:
  bool is_exact(std::size_t i) const {
    return pairs_ && static_cast<float>(pairs_[2 * i]) == means_[i] &&
           static_cast<float>(pairs_[2 * i + 1]) == variances_[i];
  }

  float *means_, *variances_;
  double* pairs_;
};

/// to = (from - mean) * scale + shift for each channel of `pixels` adjacent pixels.
void scale_pixels(const float* from, float* to, std::int64_t pixels, std::int64_t channels, const float* mean,
                  const float* scale, const float* shift);

/// Return whether the neuron is max(y, 0), which needs no separate pass.
inline bool rectifies(const Neuron& neuron) { return neuron.type == NeuronType::relu && neuron.a == 0; }

/// (x - mean) * scale + shift, one set per image or one for all. Sets of few channels are repeated, so that several
/// pixels are scaled as one.
struct Coefficients {
  std::size_t channels, repeats;
  std::vector<float> mean, scale, shift;

  Coefficients(std::size_t images, std::int64_t c)
      : channels(static_cast<std::size_t>(c)),
        repeats((c % 8 == 0 && c >= 64) || c > 256 ? 1 : 8),
        mean(images * repeats * channels),
        scale(images * repeats * channels),
        shift(images * repeats * channels) {}

  /// The shift includes the rounding of the mean.
  void set(std::size_t image, std::size_t channel, double m, double variance, double epsilon, float gamma, float beta) {
    const double factor = gamma / std::sqrt(variance + epsilon);
    const auto rounded = static_cast<float>(m);
    for (std::size_t i = 0; i < repeats; ++i) {
      const std::size_t at = (image * repeats + i) * channels + channel;
      mean[at] = rounded;
      scale[at] = static_cast<float>(factor);
      shift[at] = static_cast<float>(beta + (rounded - m) * factor);
    }
  }

  /// Scale `pixels` adjacent pixels of one image.
  template <class T, class Scale>
  void apply(const T* from, T* to, std::int64_t pixels, std::int64_t image, const Scale& scale_with) const {
    const auto many = static_cast<std::int64_t>(repeats), c = static_cast<std::int64_t>(channels);
    const std::int64_t set = image * many * c, whole = pixels / many, done = whole * many * c;
    scale_with(from, to, whole, many * c, mean.data() + set, scale.data() + set, shift.data() + set);
    scale_with(from + done, to + done, pixels % many, c, mean.data() + set, scale.data() + set, shift.data() + set);
  }
};

}  // namespace openmps::cpu
