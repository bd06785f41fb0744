// SPDX-License-Identifier: Apache-2.0
// From a data source's values to the weights of a kernel. Plain C++: it allocates, and allocation throws.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/problem/conv.hpp"

namespace openmps {

/// Batch normalization for inference, one value per output channel; empty lists are the identity
/// (mean 0, variance 1, gamma 1, beta 0).
struct BatchNorm {
  std::vector<float> mean, variance, gamma, beta;
  float epsilon = 0;
};

struct WeightShape {
  std::int64_t out_channels = 0, kernel_h = 0, kernel_w = 0, in_channels_per_group = 0, groups = 1;
};

enum class WeightType { float32, float16, uint8_linear, uint8_table };

/// Pointers from a data source; read only during build_weights(), except for borrowed weights.
struct WeightSource {
  WeightShape shape;
  WeightType type = WeightType::float32;
  const void *weights = nullptr;  ///< OHWI, dense
  const float *bias = nullptr;    ///< out_channels values, or null
  /// Keeps the weights valid and unchanged while it is held: the kernel borrows them if they need no conversion. Null:
  /// they are copied.
  std::shared_ptr<const void> owner;
  std::function<void()> release_pages;  ///< of the weights: see Floats::release_pages(); null: none
  const float *ranges = nullptr;        ///< uint8_linear: (min, max) per output channel
  const float *table = nullptr;         ///< uint8_table: 256 values
  const BatchNorm *norm = nullptr;
  bool round_to_half = true;  ///< weights are rounded to half precision, as Apple's are
};

/// Decode, fold the batch normalization, round (in this order [MPSCNNConvolution.h]; unverified: that folding comes
/// before rounding). Return an empty string, or the error (memory).
std::string build_weights(const WeightSource &source, std::shared_ptr<const ConvWeights> &result) noexcept;

/// Float weights (OHWI) and biases in buffers. Null `biases`: no biases.
struct WeightBuffers {
  std::shared_ptr<Memory> weights, biases;
  std::size_t weights_offset = 0, biases_offset = 0;
};

/// Return weights of `like`'s shape, which they replace and a LoadWeightsProblem has to fill; null if there is no
/// memory.
std::shared_ptr<const ConvWeights> weights_to_fill(const std::shared_ptr<const ConvWeights> &like,
                                                   bool has_bias) noexcept;
/// Return weights of `like`'s shape over the buffers, which the host can read; null if there is no memory.
std::shared_ptr<const ConvWeights> weights_in_place(const ConvWeights &like, const WeightBuffers &buffers) noexcept;
void store_weights(const ConvWeights &weights, const WeightBuffers &buffers);

}  // namespace openmps
