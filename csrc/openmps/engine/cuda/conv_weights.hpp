// SPDX-License-Identifier: Apache-2.0
// Weights of convolutions on a GPU: copies made on first use.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/cuda/gpu.hpp"
#include "engine/cuda/kernels/device.hpp"
#include "engine/problem/conv.hpp"

namespace openmps::cuda {

/// Copies of one set of weights on one GPU, kept in ConvWeights::cache. Safe from any thread; pointers are valid as
/// long as the weights live.
class GpuWeights {
 public:
  static GpuWeights& of(Gpu& gpu, const ConvWeights& weights);

  explicit GpuWeights(Gpu& gpu) : gpu_(gpu) {}

  /// [O][kH][kW][I / groups], as in ConvWeights::values.
  Pointer<const float> values(const ConvWeights& weights);
  Pointer<const std::uint16_t> halves(const ConvWeights& weights);
  /// [kH][kW][I / groups][O]; of depth-wise weights [kH][kW][C].
  Pointer<const float> outputs_last(const ConvWeights& weights);
  /// [O][kH][kW][channels] in a format, float16 or float32, 0 beyond I / groups.
  Address padded(const ConvWeights& weights, std::int64_t channels, Format format);
  /// O values; null if there are none.
  Pointer<const float> bias(const ConvWeights& weights);
  Pointer<const std::uint16_t> half_bias(const ConvWeights& weights);

 private:
  Gpu& gpu_;
  std::mutex mutex_;  ///< guards the members below
  std::unique_ptr<GpuBlock> values_, halves_, outputs_last_, bias_, half_bias_;
  std::map<std::pair<std::int64_t, Format>, std::unique_ptr<GpuBlock>> padded_;
};

/// Return a copy on the GPU of words that never change; it lives until they do not.
Pointer<const std::uint32_t> constant_words(Gpu& gpu, const std::shared_ptr<const std::vector<std::uint32_t>>& words);

}  // namespace openmps::cuda
