// SPDX-License-Identifier: Apache-2.0
// Weights of convolutions on a GPU: copies made on first use.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/cuda/gpu.hpp"
#include "engine/cuda/kernels/device.hpp"
#include "engine/cuda/kernels/layout.hpp"
#include "engine/cuda/work.hpp"
#include "engine/problem/conv.hpp"

namespace openmps::cuda {

/// Copies of one set of weights on one GPU, kept in ConvWeights::cache. Safe from any thread; pointers are valid as
/// long as the weights live. Kernels make the copies, on the calling thread's stream.
class GpuWeights {
 public:
  static GpuWeights& of(Gpu& gpu, const ConvWeights& weights);

  explicit GpuWeights(Gpu& gpu);

  /// Prepare for load(), whose work is about to be enqueued. Use the blocks of the weights that these replace if
  /// `may_take`: nothing will use those but the list under way, before load(). Return whether they are used.
  static bool prepare(Work& work, const ConvWeights& weights, bool may_take);
  /// Take the weights from memory of the GPU, in all forms for which someone has asked since the last load. They are
  /// copied to the host only if it reads them.
  void load(const ConvWeights& weights, Pointer<const float> values, Pointer<const float> bias, bool round_to_half);

  /// The copies. Those of weights that replace others may be the same blocks.
  struct Forms;
  std::shared_ptr<Forms> forms();
  /// Append all that launches depend on: the copies that have been freed, and `with_addresses` those that there are.
  static void describe(Forms& forms, bool with_addresses, std::string& text);

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
  /// The same with the columns of the kernel as outputs [kernels/conv_few_outputs.hpp].
  Address packed_columns(const ConvWeights& weights, std::int64_t row_terms);
  /// The same with all taps as outputs, the last one first: those of a transposed convolution's squares of pixels.
  Address packed_squares(const ConvWeights& weights);
  /// float16, or float32 rounded to tf32, in the order of the first layer's kernel [kernels/conv_stem_pool.hpp].
  Address stem(const ConvWeights& weights, Format format);
  /// [I][kH][kW][O / groups] in a format, taps in reverse order: the weights of the convolution whose gradient by its
  /// source is the transposed convolution of these.
  Address transposed(const ConvWeights& weights, Format format);
  /// O values; null if there are none.
  Pointer<const float> bias(const ConvWeights& weights);
  Pointer<const std::uint16_t> half_bias(const ConvWeights& weights);

 private:
  enum class Form : std::uint8_t {
    weights,
    outputs_last,
    transposed,
    packed,
    packed_shifted,
    packed_columns,
    packed_squares,
    stem,
    bias
  };
  struct Key {
    Form form;
    std::int64_t channels;  ///< of a pixel of Form::weights; terms of a row of packed ones; otherwise 0
    Format format;
    auto operator<=>(const Key&) const = default;
    bool is_packed() const {
      return form == Form::packed || form == Form::packed_shifted || form == Form::packed_columns ||
             form == Form::packed_squares;
    }
    bool is_stem() const { return form == Form::stem; }
  };
  struct Copy;
  struct Packing;

  Address copy(const ConvWeights& weights, const Key& key);
  /// Enqueue the work that makes a form of the values, or of the bias.
  void fill(Work& work, const ConvWeights& weights, const Key& key, Address from, Address to);
  static std::size_t bytes(const ConvWeights& weights, const Key& key);
  /// How a form, neither packed nor of a stem, is made of the values or the bias; without addresses.
  static layout::ArrangeWeightsArgs arrangement(const ConvWeights& weights, const Key& key);
  static Key key_of_values(const ConvWeights& weights);
  static Key key_of_bias();
  /// Let the host copy the weights when it reads them.
  void leave(const ConvWeights& weights, const std::shared_ptr<Forms>& forms);

  Gpu& gpu_;
  std::mutex mutex_;  ///< guards the following
  std::shared_ptr<Forms> forms_;
  bool are_taken_ = false;  ///< by weights that replace these
};

/// Return a copy on the GPU of words that never change; it lives until they do not.
Pointer<const std::uint32_t> constant_words(Gpu& gpu, const std::shared_ptr<const std::vector<std::uint32_t>>& words);

}  // namespace openmps::cuda
