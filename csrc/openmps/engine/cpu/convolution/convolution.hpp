// SPDX-License-Identifier: Apache-2.0
// Convolutions: each entry runs an ordered list of implementations, which check their conditions and may decline.
#pragma once

#include <string>
#include <string_view>

#include "engine/cpu/choices.hpp"
#include "engine/problem/conv.hpp"
#include "engine/shared/implementations.hpp"
#include "engine/shared/tensor.hpp"

namespace openmps::cpu {

/// "3.2"
const std::string& onednn_version();

/// Return whether the processor multiplies bfloat16 faster than float32; false if ONEDNN_MAX_CPU_ISA excludes it.
bool multiplies_bfloat16();

/// Return whether it multiplies tiles of them, with AMX; false if ONEDNN_MAX_CPU_ISA excludes it.
bool multiplies_tiles();

/// Return whether the processor multiplies 8-bit numbers, with VNNI or AMX; false if ONEDNN_MAX_CPU_ISA excludes it.
bool multiplies_bytes();

void run(const LoadWeightsProblem& problem);
void run(const ConvProblem& problem);
void run(const TransposeProblem& problem);

/// Return what the time of a convolution depends on, and the same in words: what it is timed as.
Digest digest_of(const ConvProblem& problem);
std::string description_of(const ConvProblem& problem);

/// A convolution whose destination has the convolution's own extents: subpixel is done by the caller.
struct ConvCall {
  Tensor src, dst;
  const ConvWeights* weights;
  Window window;
  const Neuron* neuron;
  bool reduced_precision;  ///< of bfloat16; only if multiplies_bfloat16()
  Tensor addend = {};      ///< if it has data: dst = after(neuron(...) + addend); same view as dst, or no overlap
  const Neuron* after = nullptr;
  const char* chosen = nullptr;  ///< the implementation that runs whatever its model of times says; null: none

  bool adds() const { return addend.data != nullptr; }
  /// Return whether the implementation of that name is to run wherever it can.
  bool wants(std::string_view name) const { return is_forced(name) || (chosen && name == chosen); }
};

/// Return the bias, null if there is none.
inline const float* bias_of(const ConvCall& call) {
  return call.weights->bias.empty() ? nullptr : call.weights->bias.data();
}

/// Return whether there is one pixel of result, whose window is the whole source.
inline bool is_fully_connected(const ConvCall& call) {
  const Window& w = call.window;
  return call.dst.h == 1 && call.dst.w == 1 && call.weights->groups == 1 && w.start_h == 0 && w.start_w == 0 &&
         w.kernel_h == call.src.h && w.kernel_w == call.src.w && (w.dilation_h == 1 || w.kernel_h == 1) &&
         (w.dilation_w == 1 || w.kernel_w == 1);
}

/// Run the first implementation that does not decline.
void run_convolution(const ConvCall& call);

// Each returns null when done, otherwise the reason for declining.
const char* conv_nothing_seen(const ConvCall& call);
const char* conv_multiplier(const ConvCall& call);
/// A fully connected layer of at most four images, with AVX-512 or AVX2.
const char* conv_matrix_vector(const ConvCall& call);
/// Windows of one pixel, with AVX-512 or AVX2, where that is faster than oneDNN.
const char* conv_pointwise(const ConvCall& call);
/// Windows without strides of bfloat16 images, with AMX.
const char* conv_tiles(const ConvCall& call);
const char* conv_inner_product(const ConvCall& call);
/// One matrix product per tap, over the pixels that it reads: for windows with many out-of-bounds taps.
const char* conv_by_taps(const ConvCall& call);
/// Depth-wise windows of 3 x 3 and 5 x 5, with AVX-512 or AVX2.
const char* conv_depthwise_vectors(const ConvCall& call);
/// At most four outputs of at least 16 inputs, with AVX-512.
const char* conv_few_outputs(const ConvCall& call);
/// Windows of 3 x 3 in tiles of 4 x 4 results, where products are saved.
const char* conv_winograd(const ConvCall& call);
const char* conv_primitive(const ConvCall& call);
const char* conv_materialized(const ConvCall& call);
const char* conv_apart(const ConvCall& call);
const char* conv_depthwise_loop(const ConvCall& call);
const char* conv_loop(const ConvCall& call);

/// The same for a TransposeProblem.
struct TransposeCall : ConvCall {};

/// Windows of the stride's extents: a convolution of one pixel with several pixels of results.
const char* transpose_subpixel(const TransposeCall& call);
const char* transpose_primitive(const TransposeCall& call);
/// Return why bias and activation are not fused into the oneDNN deconvolution of this name; null: they are.
const char* transpose_fusion_declines(std::string_view implementation);
const char* transpose_stuffed(const TransposeCall& call);
const char* transpose_loop(const TransposeCall& call);

/// Return whether pixels follow each other at one distance.
inline bool is_one_row(const Tensor& image) {
  return (image.h == 1 || image.h_stride == image.w * image.w_stride) &&
         (image.n == 1 || image.n_stride == image.h * image.w * image.w_stride);
}

/// Return the number of pixels from the first tap to the last, inclusive.
inline std::int64_t reach_h(const Window& w) { return (w.kernel_h - 1) * w.dilation_h + 1; }
inline std::int64_t reach_w(const Window& w) { return (w.kernel_w - 1) * w.dilation_w + 1; }

}  // namespace openmps::cpu
