// SPDX-License-Identifier: Apache-2.0
// From what a data source answers to the weights a kernel keeps. Plain C++: it allocates, and allocation throws.
#pragma once

#include <cstdint>
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

/// Pointers as a data source gives them; read during build_weights() only, but for lent weights.
struct WeightSource {
  WeightShape shape;
  WeightType type = WeightType::float32;
  const void *weights = nullptr;  ///< OHWI without gaps
  const float *bias = nullptr;    ///< out_channels values or nothing
  /// While it is held, the weights stay where and what they are: they are used in place where the kernel's are the same
  /// values. None: they are copied.
  std::shared_ptr<const void> owner;
  const float *ranges = nullptr;  ///< uint8_linear: (min, max) per output channel
  const float *table = nullptr;   ///< uint8_table: 256 values
  const BatchNorm *norm = nullptr;
  bool round_to_half = true;  ///< the kernel keeps its weights in half precision, as Apple's do
};

/// Decodes, folds the batch normalization, rounds (in this order [MPSCNNConvolution.h]; unverified: that folding comes
/// before rounding). Returns an empty string, or why it could not be done (memory).
std::string build_weights(const WeightSource &source, std::shared_ptr<const ConvWeights> &result) noexcept;

/// Float weights (OHWI) and biases in buffers. No bias memory: no biases.
struct WeightBuffers {
  std::shared_ptr<Memory> weights, biases;
  std::size_t weights_offset = 0, biases_offset = 0;
};

/// Weights of `like`'s shape whose values are there only when `buffers` have been read, which fill_weights() does at
/// its place in the command buffer, before any command that uses them. Nothing when there is no memory.
std::shared_ptr<ConvWeights> weights_to_fill(const ConvWeights &like, bool has_bias) noexcept;
void fill_weights(ConvWeights &weights, const WeightBuffers &buffers, bool round_to_half);
void store_weights(const ConvWeights &weights, const WeightBuffers &buffers);

}  // namespace openmps
