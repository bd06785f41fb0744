// SPDX-License-Identifier: Apache-2.0

#include "engine/shared/rows.hpp"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "engine/shared/arithmetic.hpp"
#include "engine/shared/elements.hpp"
#include "engine/shared/fast_math.hpp"
#include "engine/shared/half.hpp"
#include "engine/shared/isa.hpp"
#include "engine/shared/neuron.hpp"

namespace openmps {
namespace {

using F = NeuronFormulas<FastMath>;

#if defined(__x86_64__)
bool has_f16c() {
  static const bool has = __builtin_cpu_supports("avx") && __builtin_cpu_supports("f16c");
  return has;
}
/// Convert the first count / 8 * 8 values.
__attribute__((target("avx,f16c"))) void half_to_float_f16c(const std::uint16_t* src, float* dst, std::int64_t count) {
  for (std::int64_t i = 0; i + 8 <= count; i += 8) {
    _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(src + i))));
  }
}
__attribute__((target("avx,f16c"))) void float_to_half_f16c(const float* src, std::uint16_t* dst, std::int64_t count) {
  for (std::int64_t i = 0; i + 8 <= count; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(dst + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT));
  }
}
#endif

MPSCNN_CLONES void half_to_float_row(const std::uint16_t* src, float* dst, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) dst[i] = half_to_float(src[i]);
}
MPSCNN_CLONES void float_to_half_row(const float* src, std::uint16_t* dst, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) dst[i] = float_to_half(src[i]);
}
MPSCNN_CLONES void bfloat_to_float_row(const std::uint16_t* src, float* dst, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) dst[i] = bfloat_to_float(src[i]);
}
MPSCNN_CLONES void float_to_bfloat_row(const float* src, std::uint16_t* dst, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) dst[i] = float_to_bfloat(src[i]);
}
MPSCNN_CLONES void unorm8_to_float_row(const std::uint8_t* src, float* dst, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) dst[i] = unorm_to_float(src[i], 255.0f);
}
MPSCNN_CLONES void unorm16_to_float_row(const std::uint16_t* src, float* dst, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) dst[i] = unorm_to_float(src[i], 65535.0f);
}
MPSCNN_CLONES void float_to_unorm8_row(const float* src, std::uint8_t* dst, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) dst[i] = static_cast<std::uint8_t>(float_to_unorm(src[i], 255.0f));
}
MPSCNN_CLONES void float_to_unorm16_row(const float* src, std::uint16_t* dst, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) dst[i] = static_cast<std::uint16_t>(float_to_unorm(src[i], 65535.0f));
}

/// Functions without parameters per channel. The switch is outside of the loops.
MPSCNN_CLONES void neuron_row(NeuronType type, float a, float b, float c, double log_base, const float* src, float* dst,
                              std::int64_t count) {
#define MPSCNN_LOOP(expression)                                  \
  _Pragma("omp simd") for (std::int64_t i = 0; i < count; ++i) { \
    const float x = src[i];                                      \
    dst[i] = (expression);                                       \
  }                                                              \
  break
  switch (type) {
    case NeuronType::none: MPSCNN_LOOP(x);
    case NeuronType::prelu:
    case NeuronType::relu: MPSCNN_LOOP(F::relu(x, a));
    case NeuronType::linear: MPSCNN_LOOP(F::linear(x, a, b));
    case NeuronType::sigmoid: MPSCNN_LOOP(F::sigmoid(x));
    case NeuronType::hard_sigmoid: MPSCNN_LOOP(F::hard_sigmoid(x, a, b));
    case NeuronType::tanh: MPSCNN_LOOP(F::tanh(x, a, b));
    case NeuronType::absolute: MPSCNN_LOOP(F::absolute(x));
    case NeuronType::softplus: MPSCNN_LOOP(F::softplus(x, a, b));
    case NeuronType::softsign: MPSCNN_LOOP(F::softsign(x));
    case NeuronType::elu: MPSCNN_LOOP(F::elu(x, a));
    case NeuronType::relun: MPSCNN_LOOP(F::relun(x, a, b));
    case NeuronType::power: MPSCNN_LOOP(F::power(x, a, b, c));
    case NeuronType::exponential: MPSCNN_LOOP(F::exponential(x, a, b, log_base));
    case NeuronType::logarithm: MPSCNN_LOOP(F::logarithm(x, a, b, log_base));
    case NeuronType::gelu: MPSCNN_LOOP(F::gelu(x));
    case NeuronType::swish: MPSCNN_LOOP(F::swish(x));
    case NeuronType::hard_swish: MPSCNN_LOOP(F::hard_swish(x, a, b));
  }
#undef MPSCNN_LOOP
}

MPSCNN_CLONES void neuron_gradient_row(NeuronType type, float a, float b, float c, double log_base, const float* diff,
                                       const float* src, float* dst, std::int64_t count) {
#define MPSCNN_LOOP(expression)                                  \
  _Pragma("omp simd") for (std::int64_t i = 0; i < count; ++i) { \
    const float e = diff[i], x = src[i];                         \
    dst[i] = (expression);                                       \
  }                                                              \
  break
  switch (type) {
    case NeuronType::none: std::memcpy(dst, diff, static_cast<std::size_t>(count) * 4); break;
    case NeuronType::prelu:
    case NeuronType::relu: MPSCNN_LOOP(F::relu_gradient(e, x, a));
    case NeuronType::linear: _Pragma("omp simd") for (std::int64_t i = 0; i < count; ++i) dst[i] = a * diff[i]; break;
    case NeuronType::sigmoid: MPSCNN_LOOP(F::sigmoid_gradient(e, x));
    case NeuronType::hard_sigmoid: MPSCNN_LOOP(F::hard_sigmoid_gradient(e, x, a, b));
    case NeuronType::tanh: MPSCNN_LOOP(F::tanh_gradient(e, x, a, b));
    case NeuronType::absolute: MPSCNN_LOOP(F::absolute_gradient(e, x));
    case NeuronType::softplus: MPSCNN_LOOP(F::softplus_gradient(e, x, a, b));
    case NeuronType::softsign: MPSCNN_LOOP(F::softsign_gradient(e, x));
    case NeuronType::elu: MPSCNN_LOOP(F::elu_gradient(e, x, a));
    case NeuronType::relun: MPSCNN_LOOP(F::relun_gradient(e, x, a, b));
    case NeuronType::power: MPSCNN_LOOP(F::power_gradient(e, x, a, b, c));
    case NeuronType::exponential: MPSCNN_LOOP(F::exponential_gradient(e, x, a, b, log_base));
    case NeuronType::logarithm: MPSCNN_LOOP(F::logarithm_gradient(e, x, a, b, log_base));
    case NeuronType::gelu: MPSCNN_LOOP(F::gelu_gradient(e, x));
    case NeuronType::swish:
    case NeuronType::hard_swish: break;  // not in gradients
  }
#undef MPSCNN_LOOP
}

MPSCNN_CLONES void prelu_gradient_rows(const float* slopes, const float* diff, const float* src, float* dst,
                                       std::int64_t pixels, std::int64_t channels) {
  for (std::int64_t p = 0; p < pixels; ++p, diff += channels, src += channels, dst += channels) {
#pragma omp simd
    for (std::int64_t i = 0; i < channels; ++i) dst[i] = F::relu_gradient(diff[i], src[i], slopes[i]);
  }
}

MPSCNN_CLONES void arithmetic_row(const Arithmetic& function, const float* a, const float* b, float* dst,
                                  std::int64_t count) {
  const Arithmetic f = function;  // dst may alias the members, which are floats too: copy them
#define MPSCNN_LOOP(operation)                                     \
  _Pragma("omp simd") for (std::int64_t i = 0; i < count; ++i) {   \
    float result;                                                  \
    arithmetic<BinaryOperation::operation>(f, a[i], b[i], result); \
    dst[i] = result;                                               \
  }                                                                \
  break
  switch (f.operation) {
    case BinaryOperation::add: MPSCNN_LOOP(add);
    case BinaryOperation::subtract: MPSCNN_LOOP(subtract);
    case BinaryOperation::multiply: MPSCNN_LOOP(multiply);
    case BinaryOperation::divide: MPSCNN_LOOP(divide);
    case BinaryOperation::equal: MPSCNN_LOOP(equal);
    case BinaryOperation::not_equal: MPSCNN_LOOP(not_equal);
    case BinaryOperation::less: MPSCNN_LOOP(less);
    case BinaryOperation::less_or_equal: MPSCNN_LOOP(less_or_equal);
    case BinaryOperation::greater: MPSCNN_LOOP(greater);
    case BinaryOperation::greater_or_equal: MPSCNN_LOOP(greater_or_equal);
  }
#undef MPSCNN_LOOP
}

#if defined(__x86_64__)
/// Compute the first count / 8 * 8 values without storing floats in between.
template <BinaryOperation operation>
__attribute__((target("avx,f16c"))) void half_arithmetic_f16c(const Arithmetic& function, const std::uint16_t* a,
                                                              const std::uint16_t* b, std::uint16_t* dst,
                                                              std::int64_t count) {
  const Arithmetic f = function;
  for (std::int64_t i = 0; i + 8 <= count; i += 8) {
    const __m256 x = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(a + i)));
    const __m256 y = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(b + i)));
    __m256 result;
    arithmetic<operation>(f, x, y, result);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(dst + i), _mm256_cvtps_ph(result, _MM_FROUND_TO_NEAREST_INT));
  }
}
#endif

/// x >= 0 ? x : a[channel] * x, for each pixel.
MPSCNN_CLONES void prelu_rows(const float* slopes, const float* src, float* dst, std::int64_t pixels,
                              std::int64_t channels) {
  for (std::int64_t p = 0; p < pixels; ++p, src += channels, dst += channels) {
#pragma omp simd
    for (std::int64_t i = 0; i < channels; ++i) dst[i] = F::relu(src[i], slopes[i]);
  }
}

MPSCNN_CLONES void bias_rows(const float* bias, const float* src, float* dst, std::int64_t pixels,
                             std::int64_t channels) {
  for (std::int64_t p = 0; p < pixels; ++p, src += channels, dst += channels) {
#pragma omp simd
    for (std::int64_t i = 0; i < channels; ++i) dst[i] = src[i] + bias[i];
  }
}

MPSCNN_CLONES void repeat_row(const float* src, float* dst, std::int64_t count, std::int64_t copies) {
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t k = 0; k < copies; ++k) dst[i * copies + k] = src[i];
  }
}

/// Bases that the fast path does not support: powers of 0 and of negative numbers.
void exponential_by_library(const Neuron& neuron, const float* src, float* dst, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    dst[i] =
        static_cast<float>(std::pow(static_cast<double>(neuron.c), static_cast<double>(neuron.a) * src[i] + neuron.b));
  }
}

void activate(const Neuron& neuron, const float* src, float* dst, std::int64_t count, std::int64_t channels) {
  if (neuron_is_per_channel(neuron)) {
    prelu_rows(neuron.a_per_channel->data(), src, dst, count / channels, channels);
  } else if (neuron.type == NeuronType::exponential && neuron.c <= 0 && neuron.c != -1.0f) {
    exponential_by_library(neuron, src, dst, count);
  } else if (neuron.type == NeuronType::power && neuron.c == 0) {
    for (std::int64_t i = 0; i < count; ++i) dst[i] = 1.0f;
  } else {
    const bool has_base = neuron.type == NeuronType::exponential || neuron.type == NeuronType::logarithm;
    neuron_row(neuron.type, neuron.a, neuron.b, neuron.c, has_base ? neuron_log_base(neuron.c) : 1.0, src, dst, count);
  }
}

}  // namespace

void row_to_float(const void* src, Format format, float* dst, std::int64_t count) {
  switch (format) {
    case Format::float32: std::memcpy(dst, src, static_cast<std::size_t>(count) * 4); break;
    case Format::float16: {
      const auto* half = static_cast<const std::uint16_t*>(src);
      std::int64_t done = 0;
#if defined(__x86_64__)
      if (has_f16c()) half_to_float_f16c(half, dst, count), done = count / 8 * 8;
#endif
      half_to_float_row(half + done, dst + done, count - done);
      break;
    }
    case Format::bfloat16: bfloat_to_float_row(static_cast<const std::uint16_t*>(src), dst, count); break;
    case Format::unorm8: unorm8_to_float_row(static_cast<const std::uint8_t*>(src), dst, count); break;
    case Format::unorm16: unorm16_to_float_row(static_cast<const std::uint16_t*>(src), dst, count); break;
  }
}

void row_from_float(const float* src, void* dst, Format format, std::int64_t count) {
  switch (format) {
    case Format::float32: std::memcpy(dst, src, static_cast<std::size_t>(count) * 4); break;
    case Format::float16: {
      auto* half = static_cast<std::uint16_t*>(dst);
      std::int64_t done = 0;
#if defined(__x86_64__)
      if (has_f16c()) float_to_half_f16c(src, half, count), done = count / 8 * 8;
#endif
      float_to_half_row(src + done, half + done, count - done);
      break;
    }
    case Format::bfloat16: float_to_bfloat_row(src, static_cast<std::uint16_t*>(dst), count); break;
    case Format::unorm8: float_to_unorm8_row(src, static_cast<std::uint8_t*>(dst), count); break;
    case Format::unorm16: float_to_unorm16_row(src, static_cast<std::uint16_t*>(dst), count); break;
  }
}

void row_neuron(const Neuron& neuron, const float* src, float* dst, std::int64_t count, std::int64_t channels,
                const float* bias) {
  if (!bias) return activate(neuron, src, dst, count, channels);
  if (neuron_is_identity(neuron)) return bias_rows(bias, src, dst, count / channels, channels);
  // In blocks, so that the second pass finds the results of the first one in the cache.
  const std::int64_t block = channels * (channels >= 2048 ? 1 : 2048 / channels);
  for (std::int64_t i = 0; i < count; i += block) {
    const std::int64_t part = count - i < block ? count - i : block;
    bias_rows(bias, src + i, dst + i, part / channels, channels);
    activate(neuron, dst + i, dst + i, part, channels);
  }
}

void row_neuron_gradient(const Neuron& neuron, const float* diff, const float* src, float* dst, std::int64_t count,
                         std::int64_t channels) {
  const float a = neuron.a, c = neuron.c;
  if (neuron_is_per_channel(neuron)) {
    prelu_gradient_rows(neuron.a_per_channel->data(), diff, src, dst, count / channels, channels);
  } else if (neuron.type == NeuronType::exponential && c <= 0 && c != -1.0f) {
    const double base = c, factor = static_cast<double>(a) * std::log(base);
    for (std::int64_t i = 0; i < count; ++i) {
      dst[i] = static_cast<float>(diff[i] * (factor * std::pow(base, static_cast<double>(a) * src[i] + neuron.b)));
    }
  } else if (neuron.type == NeuronType::power && (c == 0 || c == 1)) {  // avoids 0 ** 0 and 0 ** -1
    neuron_gradient_row(NeuronType::linear, c * a, 0, 0, 1, diff, src, dst, count);
  } else {
    const bool has_base = neuron.type == NeuronType::exponential || neuron.type == NeuronType::logarithm;
    neuron_gradient_row(neuron.type, a, neuron.b, c, has_base ? neuron_log_base(c) : 1.0, diff, src, dst, count);
  }
}

void row_arithmetic(const Arithmetic& f, const float* a, const float* b, float* dst, std::int64_t count) {
  arithmetic_row(f, a, b, dst, count);
}

void row_arithmetic(const Arithmetic& f, const std::uint16_t* a, const std::uint16_t* b, std::uint16_t* dst,
                    std::int64_t count) {
  std::int64_t done = 0;
#if defined(__x86_64__)
  if (has_f16c()) {
    done = count / 8 * 8;
    switch (f.operation) {
      case BinaryOperation::add: half_arithmetic_f16c<BinaryOperation::add>(f, a, b, dst, count); break;
      case BinaryOperation::subtract: half_arithmetic_f16c<BinaryOperation::subtract>(f, a, b, dst, count); break;
      case BinaryOperation::multiply: half_arithmetic_f16c<BinaryOperation::multiply>(f, a, b, dst, count); break;
      case BinaryOperation::divide: half_arithmetic_f16c<BinaryOperation::divide>(f, a, b, dst, count); break;
      default: done = 0;  // comparisons
    }
  }
#endif
  constexpr std::int64_t kBlock = 256;
  float x[kBlock], y[kBlock];
  for (; done < count; done += kBlock) {
    const std::int64_t part = count - done < kBlock ? count - done : kBlock;
    row_to_float(a + done, Format::float16, x, part);
    row_to_float(b + done, Format::float16, y, part);
    arithmetic_row(f, x, y, x, part);
    row_from_float(x, dst + done, Format::float16, part);
  }
}

void row_repeat(const float* src, float* dst, std::int64_t count, std::int64_t copies) {
  repeat_row(src, dst, count, copies);
}

}  // namespace openmps
