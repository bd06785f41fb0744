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
/// dst = min(max(a * factors + bias, low), high) for `count` pixels.
template <class Value>
MPSCNN_AVX512 void scale_pixels(const Value* from, std::int64_t from_step, const float* factors, float bias, float low,
                                float high, Value* to, std::int64_t to_step, std::int64_t count,
                                std::int64_t channels) {
  Activation bounds;
  bounds.low = low, bounds.high = high;
  const __m512 shift = _mm512_set1_ps(bias);
  for (std::int64_t k = 0; k < channels; k += 16) {
    const auto lanes = static_cast<__mmask16>(channels - k >= 16 ? 0xffff : (1 << (channels - k)) - 1);
    const __m512 factor = _mm512_maskz_loadu_ps(lanes, factors + k);
    for (std::int64_t x = 0; x < count; ++x) {
      const __m512 value = _mm512_fmadd_ps(load(lanes, from + x * from_step + k), factor, shift);
      store(lanes, to + x * to_step + k, activate(bounds, value));
    }
  }
}

/// The products of an image and one pixel per image: channels times their gates.
template <class Value>
void scale_channels(const BinaryProblem& problem, const Operand& image, const Operand& gates) {
  constexpr std::int64_t kBlock = 64;  // pixels: their lines stay in the first-level cache
  const Tensor src = tensor_of(image.view), pixel = tensor_of(gates.view), dst = tensor_of(problem.dst);
  const Arithmetic& f = problem.function;
  std::vector<float> factors(static_cast<std::size_t>(dst.n * dst.c));
  for (std::int64_t n = 0; n < dst.n; ++n) {
    float* const own = factors.data() + n * dst.c;
    row_to_float(pixel.at(n, gates.start_h, gates.start_w), pixel.format, own, dst.c);
    for (std::int64_t k = 0; k < dst.c; ++k) own[k] *= f.scale0 * f.scale1;
  }
  const std::int64_t block = std::max<std::int64_t>(1, kBlock * 16 / dst.c), parts = (dst.w + block - 1) / block;
  parallel_ranges(dst.n * dst.h * parts, threads_for(dst.size(), kGrain), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t x = task % parts * block, y = task / parts % dst.h, n = task / parts / dst.h;
      scale_pixels(reinterpret_cast<const Value*>(src.at(n, image.start_h + y, image.start_w + x)), src.w_stride,
                   factors.data() + n * dst.c, f.bias, f.min, f.max, reinterpret_cast<Value*>(dst.at(n, y, x)),
                   dst.w_stride, std::min(block, dst.w - x), dst.c);
    }
  });
}
#endif

const char* arithmetic_by_channel(const BinaryProblem& problem) {
#if defined(__x86_64__)
  if (!has_avx512()) return "the processor has no AVX-512";
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
    scale_channels<float>(problem, image, gates);
  else if (problem.dst.format == Format::bfloat16 && has_avx512_bfloat16())
    scale_channels<std::uint16_t>(problem, image, gates);
  else
    return "neither float32 nor bfloat16";
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
