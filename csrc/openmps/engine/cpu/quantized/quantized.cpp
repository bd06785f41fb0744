// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/quantized/quantized.hpp"

#include <algorithm>
#include <cmath>

#include "engine/cpu/convolution/convolution.hpp"
#include "engine/cpu/pointwise/elementwise.hpp"
#include "engine/cpu/quantized/byte_vectors.hpp"
#include "engine/cpu/runtime.hpp"
#include "engine/shared/implementations.hpp"
#include "engine/shared/isa.hpp"
#include "engine/shared/parallel.hpp"

namespace openmps::cpu {
namespace {

constexpr std::int64_t kGrain = 64 * 1024;  // min values per thread
constexpr float kMaxNumber = 255;
constexpr float kRounds = 12582912;  // 1.5 * 2^23: adding it to a small value rounds it to a whole number

/// Convert between numbers and their values.
MPSCNN_CLONES void row_of_values(const std::uint8_t* numbers, float* values, std::int64_t count, float scale,
                                 float zero) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) values[i] = scale * (static_cast<float>(numbers[i]) - zero);
}
MPSCNN_CLONES void row_of_numbers(const float* values, std::uint8_t* numbers, std::int64_t count, float scale,
                                  float zero) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    // Clamped first, so that the sum rounds to a whole number.
    float number = values[i] / scale;
    number = number > -zero ? number : -zero;
    number = number < kMaxNumber - zero ? number : kMaxNumber - zero;
    numbers[i] = static_cast<std::uint8_t>(static_cast<std::int32_t>((number + kRounds) - kRounds + zero));
  }
}
/// The sum of two images in steps of the result: a * a_factor + b * b_factor + shift, within bounds.
struct SumOfNumbers {
  float a_factor, b_factor, shift, low, high, zero;

  explicit SumOfNumbers(const QuantizedSumProblem& problem) {
    const Quantization &a = problem.src0_steps, &b = problem.src1_steps, &dst = problem.dst_steps;
    zero = static_cast<float>(dst.zero);
    a_factor = a.scale / dst.scale, b_factor = b.scale / dst.scale;
    shift = -(a_factor * static_cast<float>(a.zero) + b_factor * static_cast<float>(b.zero));
    low = std::clamp(problem.min / dst.scale, -zero, kMaxNumber - zero);
    high = std::clamp(problem.max / dst.scale, low, kMaxNumber - zero);
  }
};
MPSCNN_CLONES void row_of_sums(const std::uint8_t* __restrict a, const std::uint8_t* __restrict b,
                               std::uint8_t* __restrict numbers, std::int64_t count, const SumOfNumbers& sum) {
  const auto [a_factor, b_factor, shift, low, high, zero] = sum;
  const float rounds = kRounds;
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const auto first = static_cast<float>(static_cast<std::int32_t>(a[i]));
    const auto second = static_cast<float>(static_cast<std::int32_t>(b[i]));
    float number = first * a_factor + second * b_factor + shift;
    number = number > low ? number : low;
    number = number < high ? number : high;
    numbers[i] = static_cast<std::uint8_t>(static_cast<std::int32_t>((number + rounds) - rounds + zero));
  }
}

std::uint8_t* bytes_of(const Tensor& image) { return reinterpret_cast<std::uint8_t*>(image.data); }

/// The image, or a dense one that is copied to it in the end.
struct DenseResult {
  explicit DenseResult(const Tensor& given) : wanted(given), image(given) {
    if (given.is_dense()) return;
    ScratchTensor dense(given.n, given.h, given.w, given.c, given.format);
    image = dense.tensor, memory = std::move(dense.memory);
  }
  void store() const {
    if (image.data != wanted.data) copy(image, wanted);
  }
  const Tensor wanted;
  Tensor image;
  Scratch memory;
};

#if defined(__x86_64__)
/// Activate values, in place or as numbers.
MPSCNN_AVX512 void activate_values(const Activation& f, float* values, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += 16) {
    const auto lanes = static_cast<__mmask16>(count - i >= 16 ? 0xffff : (1 << (count - i)) - 1);
    store(lanes, values + i, activate(f, load(lanes, values + i)));
  }
}
MPSCNN_AVX512 void activate_to_numbers(const Activation& f, const float* values, std::uint8_t* numbers,
                                       std::int64_t count, const Quantization& steps) {
  const __m512 factor = _mm512_set1_ps(1 / steps.scale);
  const __m512 low = _mm512_set1_ps(static_cast<float>(-steps.zero));
  const __m512 high = _mm512_set1_ps(kMaxNumber - static_cast<float>(steps.zero));
  const __m512i zero = _mm512_set1_epi32(steps.zero);
  for (std::int64_t i = 0; i < count; i += 16) {
    const auto lanes = static_cast<__mmask16>(count - i >= 16 ? 0xffff : (1 << (count - i)) - 1);
    __m512 number = _mm512_mul_ps(activate(f, load(lanes, values + i)), factor);
    number = _mm512_min_ps(_mm512_max_ps(number, low), high);
    const __m512i whole = _mm512_add_epi32(_mm512_cvtps_epi32(number), zero);
    _mm_mask_storeu_epi8(numbers + i, lanes, _mm512_cvtepi32_epi8(whole));
  }
}
#endif

/// Convolve numbers, and activate the values in a pass of their own, which costs less than oneDNN's swish.
const char* quantized_conv_activated(const QuantizedConvCall& call) {
#if defined(__x86_64__)
  const QuantizedConvProblem& problem = call.problem;
  const Tensor& dst = call.dst;
  if (!has_avx512()) return "the processor has no AVX-512";
  if (problem.neuron.type != NeuronType::swish) return "no swish";
  const Activation activation = *activation_of(problem.neuron);
  const bool stores_numbers = problem.dst_steps.scale != 0;
  QuantizedConvProblem sums = problem;
  sums.neuron = {}, sums.dst_steps = {};
  Scratch memory;
  Tensor values = dst;
  if (stores_numbers) {
    ScratchTensor made(dst.n, dst.h, dst.w, dst.c);
    values = made.tensor, memory = std::move(made.memory);
  }
  const QuantizedConvCall conv{call.src, values, sums};
  if (quantized_conv_depthwise(conv) && quantized_conv_products(conv) && quantized_conv_primitive(conv))
    if (const char* const why_not = quantized_conv_materialized(conv)) return why_not;
  parallel_ranges(dst.size(), threads_for(dst.size(), kGrain), [&](std::int64_t begin, std::int64_t end) {
    if (stores_numbers)
      activate_to_numbers(activation, values.floats() + begin, bytes_of(dst) + begin, end - begin, problem.dst_steps);
    else
      activate_values(activation, values.floats() + begin, end - begin);
  });
  return nullptr;
#else
  static_cast<void>(call);
  return "not for this processor";
#endif
}

/// Convert to values, convolve these and convert the result.
const char* quantized_conv_floats(const QuantizedConvCall& call) {
  const QuantizedConvProblem& problem = call.problem;
  const Tensor &src = call.src, &dst = call.dst;
  const ScratchTensor values(src.n, src.h, src.w, src.c);
  parallel_ranges(src.size(), threads_for(src.size(), kGrain), [&](std::int64_t begin, std::int64_t end) {
    row_of_values(bytes_of(src) + begin, values.tensor.floats() + begin, end - begin, problem.src_steps.scale,
                  static_cast<float>(problem.src_steps.zero));
  });
  ConvCall conv = {values.tensor, dst, problem.weights.get(), problem.window, &problem.neuron, false};
  if (problem.dst_steps.scale == 0) {
    run_convolution(conv);
    return nullptr;
  }
  const ScratchTensor result(dst.n, dst.h, dst.w, dst.c);
  conv.dst = result.tensor;
  run_convolution(conv);
  parallel_ranges(dst.size(), threads_for(dst.size(), kGrain), [&](std::int64_t begin, std::int64_t end) {
    row_of_numbers(result.tensor.floats() + begin, bytes_of(dst) + begin, end - begin, problem.dst_steps.scale,
                   static_cast<float>(problem.dst_steps.zero));
  });
  return nullptr;
}

constexpr Implementation<QuantizedConvCall> kConvolutions[] = {
    {"quantized_depthwise", quantized_conv_depthwise}, {"quantized_products", quantized_conv_products},
    {"quantized_primitive", quantized_conv_primitive}, {"quantized_materialized", quantized_conv_materialized},
    {"quantized_activated", quantized_conv_activated}, {"quantized_floats", quantized_conv_floats},
};
const ImplementationNames kConvolutionsNames(kConvolutions);

const char* quantized_sum(const QuantizedSumProblem& problem) {
  Scratch a_memory, b_memory;
  const Tensor a = dense(tensor_of(problem.src0), problem.src0.format, a_memory);
  const Tensor b = dense(tensor_of(problem.src1), problem.src1.format, b_memory);
  const Tensor dst = tensor_of(problem.dst);
  const DenseResult result(dst);
  const SumOfNumbers sum(problem);
  parallel_ranges(dst.size(), threads_for(dst.size(), kGrain), [&](std::int64_t begin, std::int64_t end) {
    row_of_sums(bytes_of(a) + begin, bytes_of(b) + begin, bytes_of(result.image) + begin, end - begin, sum);
  });
  result.store();
  return nullptr;
}

constexpr Implementation<QuantizedSumProblem> kSums[] = {{"quantized_sum", quantized_sum}};
const ImplementationNames kSumsNames(kSums);

}  // namespace

void run(const QuantizedConvProblem& problem) {
  Scratch memory;
  const Tensor src = dense(tensor_of(problem.src), problem.src.format, memory);
  const DenseResult result(tensor_of(problem.dst));
  run_first("quantized_convolve", kConvolutions, QuantizedConvCall{src, result.image, problem});
  result.store();
}

void run(const QuantizedSumProblem& problem) { run_first("quantized_sum", kSums, problem); }

}  // namespace openmps::cpu
