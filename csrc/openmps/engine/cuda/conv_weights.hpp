// SPDX-License-Identifier: Apache-2.0
// Weights of convolutions on a GPU: copies made on first use.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "engine/cuda/gpu.hpp"
#include "engine/cuda/kernels/device.hpp"
#include "engine/cuda/kernels/layout.hpp"
#include "engine/problem/conv.hpp"

namespace openmps::cuda {

/// Copies of one set of weights on one GPU, kept in ConvWeights::cache. Safe from any thread; pointers are valid as
/// long as the weights live. Kernels make the copies, on the calling thread's stream.
class GpuWeights {
 public:
  static GpuWeights& of(Gpu& gpu, const ConvWeights& weights);

  explicit GpuWeights(Gpu& gpu) : gpu_(gpu) {}

  /// Take the weights from memory of the GPU, in all forms for which someone has asked of those that they replace. They
  /// are copied to the host only if it reads them.
  void load(const ConvWeights& weights, Pointer<const float> values, Pointer<const float> bias, bool round_to_half);

  /// [O][kH][kW][I / groups], as in ConvWeights::values.
  Pointer<const float> values(const ConvWeights& weights);
  Pointer<const std::uint16_t> halves(const ConvWeights& weights);
  /// [kH][kW][I / groups][O]; of depth-wise weights [kH][kW][C].
  Pointer<const float> outputs_last(const ConvWeights& weights);
  /// [O][kH][kW][channels] in a format, float16 or float32, 0 beyond I / groups.
  Address padded(const ConvWeights& weights, std::int64_t channels, Format format);
  /// float16 in the order of tensor cores [kernels/conv_product.hpp]. Each row of the kernel has `row_terms` terms: its
  /// own ones, with a zero before them if they are `shifted`, and zeros after them.
  Address packed(const ConvWeights& weights, std::int64_t row_terms, bool shifted);
  /// [I][kH][kW][O / groups] in a format, taps in reverse order: the weights of the convolution whose gradient by its
  /// source is the transposed convolution of these.
  Address transposed(const ConvWeights& weights, Format format);
  /// O values; null if there are none.
  Pointer<const float> bias(const ConvWeights& weights);
  Pointer<const std::uint16_t> half_bias(const ConvWeights& weights);

 private:
  enum class Form : std::uint8_t { weights, outputs_last, transposed, packed, packed_shifted, bias };
  struct Key {
    Form form;
    std::int64_t channels;  ///< of a pixel of Form::weights; terms of a row of packed ones; otherwise 0
    Format format;
    auto operator<=>(const Key&) const = default;
    bool is_packed() const { return form == Form::packed || form == Form::packed_shifted; }
  };
  class Copy;

  Address copy(const ConvWeights& weights, const Key& key);
  std::shared_ptr<Copy> made(Work& work, const ConvWeights& weights, const Key& key, Address from);
  /// How a form that is not packed is made of the values or the bias; without addresses.
  static layout::ArrangeWeightsArgs arrangement(const ConvWeights& weights, const Key& key);
  static Key key_of_values(const ConvWeights& weights);

  Gpu& gpu_;
  std::mutex mutex_;  ///< guards the following
  std::map<Key, std::shared_ptr<Copy>> copies_;
  std::set<Key> asked_;  ///< for which someone asked
};

/// Return a copy on the GPU of words that never change; it lives until they do not.
Pointer<const std::uint32_t> constant_words(Gpu& gpu, const std::shared_ptr<const std::vector<std::uint32_t>>& words);

}  // namespace openmps::cuda
