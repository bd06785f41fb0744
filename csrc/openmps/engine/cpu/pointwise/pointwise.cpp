// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/pointwise/pointwise.hpp"

#include <algorithm>
#include <limits>
#include <vector>

#include "engine/cpu/pointwise/gradients.hpp"
#include "engine/cpu/pointwise/vectors.hpp"
#include "engine/shared/implementations.hpp"
#include "engine/shared/operands.hpp"

namespace openmps::cpu {
namespace {

constexpr std::int64_t kGrain = 32 * 1024;  // min values per thread

const char* arithmetic_of_halves(const BinaryProblem& problem) {
  if (problem.dst.format != Format::float16) return "the result is not float16";
  const OperandLines<2> lines({&problem.src0, &problem.src1}, problem.dst, /*across_images=*/true);
  if (!lines.are_direct(Format::float16)) return "halves do not lie side by side in all images";
  for_halves(
      lines, kGrain,
      [&](const std::array<const std::uint16_t*, 2>& src, std::uint16_t* dst, std::int64_t, std::int64_t pixels) {
        row_arithmetic(problem.function, src[0], src[1], dst, pixels * problem.dst.c);
      });
  return nullptr;
}

#if defined(__x86_64__)
#define MPSCNN_LOOPS "engine/cpu/pointwise/scale_channels.inc"
#include "engine/cpu/pointwise/vector_copies.inc"
#endif

const char* arithmetic_by_channel(const BinaryProblem& problem) {
#if defined(__x86_64__)
  if (!has_avx512() && !has_avx2()) return "the processor has no AVX2";
  if (problem.function.operation != BinaryOperation::multiply) return "no product";
  const auto is_pixel = [](const Operand& operand) {
    return operand.repeat_h && operand.repeat_w && !operand.repeat_c && operand.start_h >= 0 && operand.start_w >= 0 &&
           operand.start_h < operand.view.h && operand.start_w < operand.view.w;
  };
  const bool is_second = is_pixel(problem.src1);
  const Operand &image = is_second ? problem.src0 : problem.src1, &gates = is_second ? problem.src1 : problem.src0;
  if (!is_pixel(gates) || image.repeat_h || image.repeat_w || image.repeat_c) return "no image and one pixel";
  if (!OperandSource(image).covers(tensor_of(problem.dst))) return "pixels outside of the source";
  if (image.view.format != problem.dst.format) return "formats differ";
  if (problem.dst.format == Format::float32)
    has_avx512() ? with_avx512::scale_channels<float>(problem, image, gates)
                 : with_avx2::scale_channels<float>(problem, image, gates);
  else if (problem.dst.format == Format::bfloat16 && has_avx512_bfloat16())
    with_avx512::scale_channels<std::uint16_t>(problem, image, gates);
  else
    return "neither float32 nor, with AVX512_BF16, bfloat16";
  return nullptr;
#else
  static_cast<void>(problem);
  return "not for this processor";
#endif
}

const char* arithmetic_of_floats(const BinaryProblem& problem) {
  for_operands<2>(
      {&problem.src0, &problem.src1}, problem.dst, kGrain, /*across_images=*/true,
      [&, c = problem.dst.c](const std::array<const float*, 2>& src, float* dst, std::int64_t, std::int64_t pixels) {
        row_arithmetic(problem.function, src[0], src[1], dst, pixels * c);
      });
  return nullptr;
}

constexpr Implementation<BinaryProblem> kArithmetics[] = {
    {"arithmetic_by_channel", arithmetic_by_channel},
    {"arithmetic_of_halves", arithmetic_of_halves},
    {"arithmetic_of_floats", arithmetic_of_floats},
};
const ImplementationNames kArithmeticNames(kArithmetics);

void store_mask(const BinaryProblem& problem) {
  const std::int64_t c = problem.dst.c;
  Arithmetic unbounded = problem.function;
  unbounded.min = -std::numeric_limits<float>::infinity();
  unbounded.max = std::numeric_limits<float>::infinity();
  for_operands<2>({&problem.src0, &problem.src1}, problem.mask, kGrain, /*across_images=*/true,
                  [&](const std::array<const float*, 2>& src, float* dst, std::int64_t, std::int64_t pixels) {
                    row_arithmetic(unbounded, src[0], src[1], dst, pixels * c);
                    for (std::int64_t i = 0; i < pixels * c; ++i)
                      dst[i] = dst[i] > problem.function.min && dst[i] < problem.function.max ? 1.0f : 0.0f;
                  });
}

const char* neuron_gradient(const NeuronGradientProblem& problem) {
  const std::int64_t c = problem.diff_src.c;
  const auto body = [&](const std::array<const float*, 2>& src, float* dst, std::int64_t, std::int64_t pixels) {
    row_neuron_gradient(problem.neuron, src[0], src[1], dst, pixels * c, c);
  };
  if (problem.src.edge == Edge::clamp)
    for_gradients(problem.diff_dst, problem.src, problem.diff_src, kGrain, /*across_images=*/true, body);
  else
    for_operands<2>({&problem.diff_dst, &problem.src}, problem.diff_src, kGrain, /*across_images=*/true, body);
  return nullptr;
}

constexpr Implementation<NeuronGradientProblem> kNeuronGradients[] = {{"neuron_gradient", neuron_gradient}};
const ImplementationNames kNeuronGradientNames(kNeuronGradients);

}  // namespace

void run(const BinaryProblem& problem) {
  run_first("arithmetic", kArithmetics, problem);
  if (problem.mask.memory) store_mask(problem);
}

void run(const NeuronGradientProblem& problem) { run_first("neuron_gradient", kNeuronGradients, problem); }

}  // namespace openmps::cpu
