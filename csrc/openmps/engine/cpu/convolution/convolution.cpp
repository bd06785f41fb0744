// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/convolution/convolution.hpp"

#include "engine/cpu/pointwise/elementwise.hpp"
#include "engine/cpu/runtime.hpp"
#include "engine/shared/implementations.hpp"

namespace openmps::cpu {
namespace {

/// In order: the first that does not decline runs. The loops at the end accept everything.
constexpr Implementation<ConvCall> kConvolutions[] = {
    {"nothing_seen", conv_nothing_seen},
    {"multiplier", conv_multiplier},
    {"matrix_vector", conv_matrix_vector},
    {"inner_product", conv_inner_product},
    {"taps", conv_by_taps},
    {"depthwise_vectors", conv_depthwise_vectors},
    {"pointwise", conv_pointwise},
    {"few_outputs", conv_few_outputs},
    {"winograd", conv_winograd},
    {"primitive", conv_primitive},
    {"materialized", conv_materialized},
    {"apart", conv_apart},
    {"depthwise_loop", conv_depthwise_loop},
    {"loop", conv_loop},
};
const ImplementationNames kConvolutionsNames(kConvolutions);
constexpr Implementation<TransposeCall> kTransposes[] = {
    {"primitive", transpose_primitive},
    {"stuffed", transpose_stuffed},
    {"loop", transpose_loop},
};
const ImplementationNames kTransposesNames(kTransposes);

/// Return whether products may be of bfloat16. Depth-wise windows gain nothing by it, unless the source is stored so.
bool reduces_precision(const ConvProblem& problem) {
  const bool is_depthwise = problem.weights->in_channels_per_group == 1 && problem.weights->groups > 1;
  return problem.reduced_precision && multiplies_bfloat16() &&
         (!is_depthwise || problem.src.format == Format::bfloat16);
}

}  // namespace

void run_convolution(const ConvCall& call) { run_first("convolve", kConvolutions, call); }

void run(const ConvProblem& problem) {
  const std::int64_t r = problem.subpixel;
  ConvCall call = {tensor_of(problem.src), tensor_of(problem.dst), problem.weights.get(),
                   problem.window,         &problem.neuron,        reduces_precision(problem)};
  if (problem.addend.memory) {
    call.addend = tensor_of(problem.addend);
    call.after = &problem.after;
  }
  if (r <= 1) return run_convolution(call);
  const Tensor dst = call.dst;
  const ScratchTensor result(dst.n, (dst.h + r - 1) / r, (dst.w + r - 1) / r, r * r * dst.c);
  call.dst = result.tensor;
  run_convolution(call);
  depth_to_space(result.tensor, dst, r);
}

void run(const TransposeProblem& problem) {
  const TransposeCall call = {{tensor_of(problem.src), tensor_of(problem.dst), problem.weights.get(), problem.window,
                               &problem.neuron, problem.reduced_precision && multiplies_bfloat16()}};
  run_first("convolve_transpose", kTransposes, call);
}

}  // namespace openmps::cpu
