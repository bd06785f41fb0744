// SPDX-License-Identifier: Apache-2.0
// Gradients of normalization by mean and variance, in two passes over gradient and source. Sums are in double, of
// distances from the mean.
#pragma once

#include <cstdint>
#include <functional>

#include "engine/problem/normalize.hpp"

namespace openmps::cpu {

/// Coefficients per channel.
struct ChannelTerms {
  const float *mean, *scale, *shift;
};

/// One thread's sums of the gradients G and of G * (x - mean), for each channel.
struct GradientSums {
  ChannelTerms terms;
  std::int64_t channels, wide;  ///< `wide` channels are summed apart: a multiple of `channels`
  bool rectified;
  double* sums;  ///< 2 * wide

  /// Add `pixels` adjacent pixels; if `rectified`, only where (x - mean) * scale + shift >= 0.
  void add(const float* g, const float* x, std::int64_t pixels) const;
};

/// Store diff_gamma and diff_beta of the problem, which has no neuron. add(sums) adds all pixels, with at most
/// `threads` threads; sums() are the calling thread's.
using AddGradients = std::function<void(const std::function<GradientSums()>& sums)>;
void store_sums_of_gradients(const BatchMomentsGradientProblem& problem, int threads, const AddGradients& add);

void run(const BatchMomentsGradientProblem& problem);
void run(const NormalizeGradientProblem& problem);

}  // namespace openmps::cpu
