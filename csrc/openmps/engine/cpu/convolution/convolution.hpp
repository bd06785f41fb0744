// SPDX-License-Identifier: Apache-2.0
// Convolutions: each entry walks an ordered list of implementations; each states its condition and may decline.
#pragma once

#include <string>
#include <string_view>

#include "engine/problem/conv.hpp"
#include "engine/shared/tensor.hpp"

namespace openmps::cpu {

/// "3.2"
const std::string& onednn_version();

void run(const ConvProblem& problem);
void run(const TransposeProblem& problem);

/// A convolution whose destination has the convolution's own extents: subpixel is done elsewhere.
struct ConvCall {
  Tensor src, dst;
  const ConvWeights* weights;
  Window window;
  const Neuron* neuron;
  bool reduced_precision;
  Tensor addend = {};  ///< with data: dst = after(neuron(...) + addend); the very pixels of dst, or none of them
  const Neuron* after = nullptr;

  bool adds() const { return addend.data != nullptr; }
};

/// Null without a bias.
inline const float* bias_of(const ConvCall& call) {
  return call.weights->bias.empty() ? nullptr : call.weights->bias.data();
}

/// The list of implementations.
void run_convolution(const ConvCall& call);

// Each returns null when the work is done, otherwise why it was not.
const char* conv_nothing_seen(const ConvCall& call);
const char* conv_multiplier(const ConvCall& call);
const char* conv_inner_product(const ConvCall& call);
/// One product of matrices per tap, over the pixels that it sees: where many taps lie outside.
const char* conv_by_taps(const ConvCall& call);
const char* conv_primitive(const ConvCall& call);
const char* conv_materialized(const ConvCall& call);
const char* conv_apart(const ConvCall& call);
const char* conv_depthwise_loop(const ConvCall& call);
const char* conv_loop(const ConvCall& call);

/// The same with the meaning of TransposeProblem.
struct TransposeCall : ConvCall {};

const char* transpose_primitive(const TransposeCall& call);
/// Why bias and activation are not left to the oneDNN deconvolution of this name; null: they are.
const char* transpose_fusion_declines(std::string_view implementation);
const char* transpose_stuffed(const TransposeCall& call);
const char* transpose_loop(const TransposeCall& call);

/// Pixels from the first tap to the last, inclusive.
inline std::int64_t reach_h(const Window& w) { return (w.kernel_h - 1) * w.dilation_h + 1; }
inline std::int64_t reach_w(const Window& w) { return (w.kernel_w - 1) * w.dilation_w + 1; }

}  // namespace openmps::cpu
