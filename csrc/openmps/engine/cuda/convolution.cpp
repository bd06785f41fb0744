// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/convolution.hpp"

namespace openmps::cuda {
namespace {

/// In order: the first that does not decline runs. The loops at the end accept everything.
constexpr Implementation<Call<ConvProblem>> kConvolutions[] = {
    {"cuda_conv_depthwise", run_conv_depthwise}, {"cuda_conv_tuned", run_conv_tuned},
    {"cuda_conv_stem", run_conv_stem},           {"cuda_conv_few_inputs", run_conv_few_inputs},
    {"cuda_conv_product", run_conv_product},     {"cuda_conv_few_outputs", run_conv_few_outputs},
    {"cuda_conv_windows", run_conv_windows},     {"cuda_conv_loop", run_conv_loop},
};
const ImplementationNames kConvolutionNames(kConvolutions);
constexpr Implementation<Call<TransposeProblem>> kTransposes[] = {
    {"cuda_transpose_tuned", run_transpose_tuned},
    {"cuda_transpose_product", run_transpose_product},
    {"cuda_transpose_loop", run_transpose_loop},
};
const ImplementationNames kTransposeNames(kTransposes);

constexpr Implementation<DataCall<ConvGradientProblem>> kConvData[] = {
    {"cuda_conv_data_depthwise", run_conv_data_depthwise},
    {"cuda_conv_data_tuned", run_conv_data_tuned},
    {"cuda_conv_data_loop", run_conv_data_loop},
};
const ImplementationNames kConvDataNames(kConvData);
constexpr Implementation<WeightsCall<ConvGradientProblem>> kConvWeights[] = {
    {"cuda_conv_weights_depthwise", run_conv_weights_depthwise},
    {"cuda_conv_weights_3x3_wgmma", run_conv_weights_3x3_wgmma},
    {"cuda_conv_weights_3x3", run_conv_weights_3x3},
    {"cuda_conv_weights_stem", run_conv_weights_stem},
    {"cuda_conv_weights_patches", run_conv_weights_patches},
    {"cuda_conv_weights_tuned", run_conv_weights_tuned},
    {"cuda_conv_weights_loop", run_conv_weights_loop},
};
const ImplementationNames kConvWeightsNames(kConvWeights);

constexpr Implementation<DataCall<TransposeGradientProblem>> kTransposeData[] = {
    {"cuda_transpose_data_tuned", run_transpose_data_tuned},
    {"cuda_transpose_data_loop", run_transpose_data_loop},
};
const ImplementationNames kTransposeDataNames(kTransposeData);
constexpr Implementation<WeightsCall<TransposeGradientProblem>> kTransposeWeights[] = {
    {"cuda_transpose_weights_tuned", run_transpose_weights_tuned},
    {"cuda_transpose_weights_loop", run_transpose_weights_loop},
};
const ImplementationNames kTransposeWeightsNames(kTransposeWeights);

/// Without scaled inputs and beta, weights of +-scale are an ordinary convolution.
const char* run_binary_as_conv(const Call<BinaryConvProblem>& call) {
  const auto& [p, work] = call;
  const BinaryWeights& weights = *p.weights;
  if (weights.type != BinaryConvType::binary_weights) return "bits of the source count";
  if (weights.uses_beta) return "results are scaled by beta";
  if (weights.scales_inputs()) return "inputs are scaled";
  const ConvProblem problem{.src = p.src,
                            .dst = p.dst,
                            .weights = weights.signs,
                            .window = p.window,
                            .neuron = p.neuron,
                            .addend = {},
                            .after = {}};
  solve(problem, work);
  return nullptr;
}
constexpr Implementation<Call<BinaryConvProblem>> kBinaryConvolutions[] = {
    {"cuda_binary_as_conv", run_binary_as_conv},
    {"cuda_binary_conv_loop", run_binary_conv_loop},
};
const ImplementationNames kBinaryConvolutionNames(kBinaryConvolutions);

}  // namespace

bool solve(const ConvProblem& problem, Work& work) {
  return try_first("convolve", kConvolutions, Call<ConvProblem>{problem, work});
}
bool solve(const TransposeProblem& problem, Work& work) {
  return try_first("convolve_transpose", kTransposes, Call<TransposeProblem>{problem, work});
}
bool solve(const BinaryConvProblem& problem, Work& work) {
  return try_first("binary_convolve", kBinaryConvolutions, Call<BinaryConvProblem>{problem, work});
}
bool solve(const ConvGradientProblem& problem, Work& work) {
  bool solved = true;
  if (problem.diff_src.memory)
    solved = try_first("convolve_gradient, data", kConvData, DataCall<ConvGradientProblem>{problem, work});
  if (problem.diff_weights.memory || problem.diff_bias.memory)
    solved = try_first("convolve_gradient, weights", kConvWeights, WeightsCall<ConvGradientProblem>{problem, work}) &&
             solved;
  return solved;
}
bool solve(const TransposeGradientProblem& problem, Work& work) {
  bool solved = true;
  if (problem.diff_src.memory)
    solved = try_first("convolve_transpose_gradient, data", kTransposeData,
                       DataCall<TransposeGradientProblem>{problem, work});
  if (problem.diff_weights.memory || problem.diff_bias.memory)
    solved = try_first("convolve_transpose_gradient, weights", kTransposeWeights,
                       WeightsCall<TransposeGradientProblem>{problem, work}) &&
             solved;
  return solved;
}

}  // namespace openmps::cuda
