// SPDX-License-Identifier: Apache-2.0
// Gradients of convolutions by the source and by the weights, each by an ordered list of implementations that may
// decline. All of them take dense float images, and those named so bfloat16; the entries convert.
#pragma once

#include "engine/problem/conv.hpp"
#include "engine/shared/tensor.hpp"

namespace openmps::cpu {

void run(const ConvGradientProblem& problem);
void run(const TransposeGradientProblem& problem);

/// Gradient by the source. The window's start counts from pixel (0, 0) of diff_src.
struct DataGradientCall {
  Tensor diff_dst, diff_src;
  const ConvWeights* weights;
  Window window;
  // Edge::clamp: the source's first pixel, counted from diff_src's, and its extents.
  std::int64_t src_first_h = 0, src_first_w = 0, src_h = 0, src_w = 0;
};

/// Gradient by the weights, [O][kH][kW][I / groups].
struct WeightsGradientCall {
  Tensor diff_dst, src;
  std::int64_t groups;
  Window window;
  float* diff_weights;
  bool accumulates;

  std::int64_t outputs_per_group() const { return diff_dst.c / groups; }
  std::int64_t inputs_per_group() const { return src.c / groups; }
};

// Each returns null when done, otherwise the reason for declining.
const char* data_gradient_depthwise(const DataGradientCall& call);
/// One matrix product per tap, over the pixels that it reads: for windows with many out-of-bounds taps.
const char* data_gradient_by_taps(const DataGradientCall& call);
/// One matrix product for all taps, whose results are then summed: if that beats the primitive.
const char* data_gradient_narrow(const DataGradientCall& call);
/// Windows of 3 x 3 in tiles of 4 x 4 pixels, where products are saved.
const char* data_gradient_winograd(const DataGradientCall& call);
const char* data_gradient_primitive(const DataGradientCall& call);
const char* data_gradient_by_patches(const DataGradientCall& call);

const char* weights_gradient_depthwise(const WeightsGradientCall& call);
const char* weights_gradient_by_taps(const WeightsGradientCall& call);
/// The patches are the source itself: 1 x 1 kernels, and windows that are the whole source.
const char* weights_gradient_in_place(const WeightsGradientCall& call);
/// One matrix product of bfloat16, over the source or over patches.
const char* weights_gradient_of_bfloats(const WeightsGradientCall& call);
/// Windows of 3 x 3 in tiles of 4 x 4 results, where products are saved.
const char* weights_gradient_winograd(const WeightsGradientCall& call);
const char* weights_gradient_primitive(const WeightsGradientCall& call);
const char* weights_gradient_by_patches(const WeightsGradientCall& call);

/// sums[c] = sum over all pixels, or += if `accumulates`. diff_dst is dense float.
void bias_gradient(const Tensor& diff_dst, float* sums, bool accumulates);

}  // namespace openmps::cpu
