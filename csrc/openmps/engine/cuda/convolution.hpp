// SPDX-License-Identifier: Apache-2.0
// Implementations of convolutions and their gradients. Each returns null when the work is enqueued, otherwise the
// reason for declining.
#pragma once

#include "engine/cuda/families.hpp"

namespace openmps::cuda {

/// The gradient by the source, or those by weights and bias, of a gradient problem. The other results are not computed.
template <class P>
struct DataCall {
  const P& problem;
  Work& work;
};
template <class P>
struct WeightsCall {
  const P& problem;
  Work& work;
};

/// Convolutions of at most that many products are left to loops, whose weights are float32: they take some
/// microseconds.
constexpr i64 kFewProducts = 1 << 20;

// conv_product.cpp: float16 on tensor cores, weights rounded to float16.
const char* run_conv_product(const Call<ConvProblem>& call);
const char* run_conv_windows(const Call<ConvProblem>& call);
const char* run_conv_stem(const Call<ConvProblem>& call);
const char* run_conv_few_inputs(const Call<ConvProblem>& call);
const char* run_conv_few_outputs(const Call<ConvProblem>& call);
const char* run_transpose_product(const Call<TransposeProblem>& call);
/// Return those of their kernels that may be the fastest; valid as long as the call is.
std::vector<struct OwnKernel> own_kernels(const Call<ConvProblem>& call);
std::vector<struct OwnKernel> own_kernels(const Call<TransposeProblem>& call);

// conv_tuned.cpp: the fastest of cuDNN, cuBLASLt and our own kernels for tensor cores, float16 and float32.
const char* run_conv_tuned(const Call<ConvProblem>& call);
const char* run_conv_data_tuned(const DataCall<ConvGradientProblem>& call);
const char* run_conv_weights_tuned(const WeightsCall<ConvGradientProblem>& call);

// conv_patches.cpp: few channels, as products of cuBLASLt or cuDNN.
const char* run_conv_weights_patches(const WeightsCall<ConvGradientProblem>& call);

// conv_weights_own.cpp: 3 x 3 without strides, and first layers, float16 on tensor cores.
const char* run_conv_weights_3x3_wgmma(const WeightsCall<ConvGradientProblem>& call);
const char* run_conv_weights_3x3(const WeightsCall<ConvGradientProblem>& call);
const char* run_conv_weights_stem(const WeightsCall<ConvGradientProblem>& call);

// transpose_tuned.cpp: the fastest of cuDNN and our own kernels for tensor cores; one format, float16 or float32.
const char* run_transpose_tuned(const Call<TransposeProblem>& call);
const char* run_transpose_data_tuned(const DataCall<TransposeGradientProblem>& call);
const char* run_transpose_weights_tuned(const WeightsCall<TransposeGradientProblem>& call);

// conv_general.cpp: any window, any format. They accept everything.
const char* run_conv_loop(const Call<ConvProblem>& call);
const char* run_transpose_loop(const Call<TransposeProblem>& call);
const char* run_conv_data_loop(const DataCall<ConvGradientProblem>& call);
const char* run_transpose_data_loop(const DataCall<TransposeGradientProblem>& call);
const char* run_conv_weights_loop(const WeightsCall<ConvGradientProblem>& call);
const char* run_transpose_weights_loop(const WeightsCall<TransposeGradientProblem>& call);
const char* run_binary_conv_loop(const Call<BinaryConvProblem>& call);

// conv_depthwise.cpp: one channel per group, square kernels of 3 or 5, strides of 1 or 2, float16 or float32.
const char* run_conv_depthwise(const Call<ConvProblem>& call);
const char* run_conv_data_depthwise(const DataCall<ConvGradientProblem>& call);
const char* run_conv_weights_depthwise(const WeightsCall<ConvGradientProblem>& call);

/// Partial sums of gradients by weights and bias in scratch memory, over runs of rows of diff_dst.
struct Splits {
  i64 weights = 0, weights_rows = 1;  ///< how many, and the rows of each
  i64 bias = 0, bias_rows = 1;
  Pointer<float> weights_partials, bias_partials;
};
/// Lay out the scratch memory. `threads`: threads that compute one split of the weights; `least`: min rows of a split.
Splits split_rows(const ConvGradientProblem& problem, Work& work, i64 threads, i64 least = 1);
/// Sum the partial sums of the weights, and compute the gradient by the bias. `taps_first`: partial sums are
/// [kH][kW][C].
void finish_weights(const ConvGradientProblem& problem, Work& work, const Splits& splits, bool taps_first = false);

}  // namespace openmps::cuda
