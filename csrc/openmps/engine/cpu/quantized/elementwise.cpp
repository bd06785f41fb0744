// SPDX-License-Identifier: Apache-2.0
// Functions, products and sums of 8-bit numbers.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "engine/cpu/quantized/byte_vectors.hpp"
#include "engine/cpu/quantized/quantized.hpp"
#include "engine/cpu/runtime.hpp"
#include "engine/shared/implementations.hpp"
#include "engine/shared/isa.hpp"
#include "engine/shared/parallel.hpp"

namespace openmps::cpu {
namespace {

using i64 = std::int64_t;
using Byte = std::uint8_t;

constexpr i64 kGrain = 64 * 1024;  // min numbers per thread
constexpr i64 kNumbers = 64;       // of a vector
constexpr float kMaxNumber = 255;
constexpr float kRounds = 12582912;  // 1.5 * 2^23: adding it to a small value rounds it to a whole number

const Byte* bytes_at(const Tensor& image, i64 n, i64 y) { return reinterpret_cast<const Byte*>(image.at(n, y)); }
Byte* bytes_of(std::byte* data) { return reinterpret_cast<Byte*>(data); }

/// Call body(n, y, x, count) for runs of pixels that lie side by side in all of the images: rows, or whole images.
template <class Body>
void for_runs(const Tensor& dst, std::initializer_list<const Tensor*> images, const Body& body) {
  const bool dense = std::ranges::all_of(images, [](const Tensor* image) { return image->is_dense(); });
  const i64 run = dense ? dst.h * dst.w : dst.w, runs = dst.size() / std::max<i64>(1, run * dst.c);
  const i64 part = std::max<i64>(1, kGrain / 4 / dst.c), parts = (run + part - 1) / part;
  parallel_ranges(runs * parts, threads_for(dst.size(), kGrain), [&](i64 begin, i64 end) {
    for (i64 task = begin; task < end; ++task) {
      const i64 at = task / parts, x = task % parts * part, count = std::min(part, run - x);
      dense ? body(at, 0, x, count) : body(at / dst.h, at % dst.h, x, count);
    }
  });
}

using Table = std::array<Byte, 256>;

Table table_of(const QuantizedMapProblem& problem) {
  Table table;
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<Byte>((*problem.numbers)[i]);
  return table;
}

void look_up(const Table& table, const Byte* from, Byte* to, i64 count) {
  for (i64 i = 0; i < count; ++i) to[i] = table[from[i]];
}

/// Map rows of `count` pixels, whose channels are side by side.
template <class LookUp>
void map_runs(const QuantizedMapProblem& problem, const LookUp& look_up) {
  const Tensor src = tensor_of(problem.src), dst = tensor_of(problem.dst);
  for_runs(dst, {&src, &dst}, [&](i64 n, i64 y, i64 x, i64 count) {
    const Byte* from = bytes_at(src, n, y) + x * src.w_stride;
    Byte* to = bytes_of(dst.at(n, y)) + x * dst.w_stride;
    if (src.w_stride == dst.c && dst.w_stride == dst.c) return look_up(from, to, count * dst.c);
    for (; count > 0; --count, from += src.w_stride, to += dst.w_stride) look_up(from, to, dst.c);
  });
}

#if defined(__x86_64__)
MPSCNN_AVX512_TABLES void look_up_in_vectors(const Table& table, const Byte* from, Byte* to, i64 count) {
  const __m512i low = _mm512_loadu_si512(table.data()), low2 = _mm512_loadu_si512(table.data() + 64);
  const __m512i high = _mm512_loadu_si512(table.data() + 128), high2 = _mm512_loadu_si512(table.data() + 192);
  for (i64 i = 0; i < count; i += 64) {
    const __mmask64 lanes = count - i >= 64 ? ~__mmask64{0} : (__mmask64{1} << (count - i)) - 1;
    const __m512i number = _mm512_maskz_loadu_epi8(lanes, from + i);
    const __m512i first = _mm512_permutex2var_epi8(low, number, low2);
    const __m512i second = _mm512_permutex2var_epi8(high, number, high2);
    _mm512_mask_storeu_epi8(to + i, lanes, _mm512_mask_blend_epi8(_mm512_movepi8_mask(number), first, second));
  }
}
#endif

const char* map_in_vectors(const QuantizedMapProblem& problem) {
#if defined(__x86_64__)
  if (!has_avx512_tables()) return "the processor has no AVX512_VBMI";
  if (tensor_of(problem.dst).size() < kNumbers) return "fewer numbers than in a vector";
  const Table table = table_of(problem);
  map_runs(problem, [&](const Byte* from, Byte* to, i64 count)
                        MPSCNN_AVX512_TABLES { look_up_in_vectors(table, from, to, count); });
  return nullptr;
#else
  static_cast<void>(problem);
  return "not for this processor";
#endif
}

const char* map_numbers(const QuantizedMapProblem& problem) {
  const Table table = table_of(problem);
  map_runs(problem, [&](const Byte* from, Byte* to, i64 count) { look_up(table, from, to, count); });
  return nullptr;
}

constexpr Implementation<QuantizedMapProblem> kMaps[] = {
    {"quantized_map_in_vectors", map_in_vectors},
    {"quantized_map", map_numbers},
};
const ImplementationNames kMapsNames(kMaps);

/// A product in steps of the result: (a - a_zero) * (b - b_zero) * factor, from -zero to 255 - zero; of a value b, the
/// zero is 0.
struct ProductOfNumbers {
  float a_zero, b_zero, factor, zero;

  explicit ProductOfNumbers(const QuantizedProductProblem& problem)
      : a_zero(static_cast<float>(problem.src0_steps.zero)),
        b_zero(static_cast<float>(problem.src1_steps.zero)),
        factor(static_cast<float>(double{problem.src0_steps.scale} *
                                  (problem.src1_steps.scale == 0 ? 1 : double{problem.src1_steps.scale}) /
                                  double{problem.dst_steps.scale})),
        zero(static_cast<float>(problem.dst_steps.zero)) {}
};

/// Products with numbers b, and with factors that are (b - b_zero) * factor.
MPSCNN_CLONES void row_of_products(const Byte* __restrict a, const Byte* __restrict b, Byte* __restrict numbers,
                                   i64 count, const ProductOfNumbers& f) {
  const auto [a_zero, b_zero, factor, zero] = f;
  const float low = -zero, high = kMaxNumber - zero, rounds = kRounds;
#pragma omp simd
  for (i64 i = 0; i < count; ++i) {
    const float first = static_cast<float>(static_cast<std::int32_t>(a[i])) - a_zero;
    const float second = static_cast<float>(static_cast<std::int32_t>(b[i])) - b_zero;
    float number = first * second * factor;
    number = number > low ? number : low;
    number = number < high ? number : high;
    numbers[i] = static_cast<Byte>(static_cast<std::int32_t>((number + rounds) - rounds + zero));
  }
}
MPSCNN_CLONES void row_of_scaled(const Byte* __restrict a, const float* __restrict factors, Byte* __restrict numbers,
                                 i64 count, const ProductOfNumbers& f) {
  const float a_zero = f.a_zero, zero = f.zero, low = -zero, high = kMaxNumber - zero, rounds = kRounds;
#pragma omp simd
  for (i64 i = 0; i < count; ++i) {
    float number = (static_cast<float>(static_cast<std::int32_t>(a[i])) - a_zero) * factors[i];
    number = number > low ? number : low;
    number = number < high ? number : high;
    numbers[i] = static_cast<Byte>(static_cast<std::int32_t>((number + rounds) - rounds + zero));
  }
}

#if defined(__x86_64__)
/// `count` pixels, whose channels are multiplied with factors.
MPSCNN_AVX512 void scale_in_vectors(const Byte* from, i64 from_step, const float* factors, Byte* to, i64 to_step,
                                    i64 count, i64 channels, const ProductOfNumbers& f) {
  const __m512i a_zero = _mm512_set1_epi32(static_cast<int>(f.a_zero));
  const __m512i zero = _mm512_set1_epi32(static_cast<int>(f.zero));
  const __m512 low = _mm512_set1_ps(-f.zero), high = _mm512_set1_ps(kMaxNumber - f.zero);
  for (i64 k = 0; k < channels; k += 16) {
    const auto lanes = static_cast<__mmask16>(channels - k >= 16 ? 0xffff : (1 << (channels - k)) - 1);
    const __m512 factor = _mm512_maskz_loadu_ps(lanes, factors + k);
    for (i64 x = 0; x < count; ++x) {
      const __m512i a = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(lanes, from + x * from_step + k));
      __m512 number = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(a, a_zero)), factor);
      number = _mm512_min_ps(_mm512_max_ps(number, low), high);
      const __m512i whole = _mm512_add_epi32(_mm512_cvtps_epi32(number), zero);
      _mm_mask_storeu_epi8(to + x * to_step + k, lanes, _mm512_cvtepi32_epi8(whole));
    }
  }
}
#endif

/// The products with one pixel per image.
template <class Scale>
void scale_pixels(const QuantizedProductProblem& problem, const Scale& scale) {
  const ProductOfNumbers f(problem);
  const Tensor src = tensor_of(problem.src0), pixel = tensor_of(problem.src1), dst = tensor_of(problem.dst);
  std::vector<float> factors(static_cast<std::size_t>(dst.n * dst.c));
  const bool has_floats = problem.src1_steps.scale == 0;
  for (i64 n = 0; n < dst.n; ++n)
    for (i64 k = 0; k < dst.c; ++k) {
      const float value = has_floats ? pixel.floats(n, 0)[k] : static_cast<float>(bytes_at(pixel, n, 0)[k]) - f.b_zero;
      factors[static_cast<std::size_t>(n * dst.c + k)] = value * f.factor;
    }
  for_runs(dst, {&src, &dst}, [&](i64 n, i64 y, i64 x, i64 count) {
    scale(bytes_at(src, n, y) + x * src.w_stride, src.w_stride, factors.data() + n * dst.c,
          bytes_of(dst.at(n, y)) + x * dst.w_stride, dst.w_stride, count, dst.c, f);
  });
}

bool has_pixel(const QuantizedProductProblem& problem) {
  return problem.src1_steps.scale == 0 ||
         (problem.src1.h == 1 && problem.src1.w == 1 && problem.dst.h * problem.dst.w > 1);
}

const char* product_in_vectors(const QuantizedProductProblem& problem) {
#if defined(__x86_64__)
  if (!has_avx512()) return "the processor has no AVX-512";
  if (!has_pixel(problem)) return "no image and one pixel";
  scale_pixels(problem, scale_in_vectors);
  return nullptr;
#else
  static_cast<void>(problem);
  return "not for this processor";
#endif
}

void scale_in_loops(const Byte* from, i64 from_step, const float* factors, Byte* to, i64 to_step, i64 count,
                    i64 channels, const ProductOfNumbers& f) {
  for (; count > 0; --count, from += from_step, to += to_step) row_of_scaled(from, factors, to, channels, f);
}

const char* product(const QuantizedProductProblem& problem) {
  if (has_pixel(problem)) {
    scale_pixels(problem, scale_in_loops);
    return nullptr;
  }
  const ProductOfNumbers f(problem);
  const Tensor a = tensor_of(problem.src0), b = tensor_of(problem.src1), dst = tensor_of(problem.dst);
  for_runs(dst, {&a, &b, &dst}, [&](i64 n, i64 y, i64 x, i64 count) {
    const Byte *first = bytes_at(a, n, y) + x * a.w_stride, *second = bytes_at(b, n, y) + x * b.w_stride;
    Byte* to = bytes_of(dst.at(n, y)) + x * dst.w_stride;
    if (a.w_stride == dst.c && b.w_stride == dst.c && dst.w_stride == dst.c)
      return row_of_products(first, second, to, count * dst.c, f);
    for (; count > 0; --count, first += a.w_stride, second += b.w_stride, to += dst.w_stride)
      row_of_products(first, second, to, dst.c, f);
  });
  return nullptr;
}

constexpr Implementation<QuantizedProductProblem> kProducts[] = {
    {"quantized_product_in_vectors", product_in_vectors},
    {"quantized_product", product},
};
const ImplementationNames kProductsNames(kProducts);

/// Add `count` pixels, each `step` after the one before, to sums of up to kSums channels.
constexpr i64 kSums = 64;
constexpr i64 kMinChannels = 8;  // for vectors of 32 channels
void add_pixels(const Byte* pixel, i64 step, i64 count, i64 channels, std::uint64_t* sums) {
  for (; count > 0; --count, pixel += step)
    for (i64 k = 0; k < channels; ++k) sums[k] += pixel[k];
}

#if defined(__x86_64__)
MPSCNN_AVX512 void add_pixels_in_vectors(const Byte* pixel, i64 step, i64 count, i64 channels, std::uint64_t* sums) {
  constexpr i64 kMost = 257;  // pixels, whose sums are at most 65535
  for (i64 k = 0; k < channels; k += 32) {
    const auto lanes = static_cast<__mmask32>(channels - k >= 32 ? 0xffffffff : (1u << (channels - k)) - 1);
    for (i64 first = 0; first < count; first += kMost) {
      __m512i sum = _mm512_setzero_si512();
      const Byte* from = pixel + first * step + k;
      for (i64 i = std::min(kMost, count - first); i > 0; --i, from += step)
        sum = _mm512_add_epi16(sum, _mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8(lanes, from)));
      alignas(64) std::array<std::uint16_t, 32> sums_of_lanes;
      _mm512_store_si512(sums_of_lanes.data(), sum);
      for (i64 lane = 0; lane < std::min<i64>(32, channels - k); ++lane)
        sums[k + lane] += sums_of_lanes[static_cast<std::size_t>(lane)];
    }
  }
}
#endif

template <class Add>
void sum_pixels(const QuantizedPixelSumProblem& problem, const Add& add) {
  const Tensor src = tensor_of(problem.src), dst = tensor_of(problem.dst);
  const Quantization &from = problem.src_steps, &to = problem.dst_steps;
  const double factor = problem.scale * double{from.scale};
  const auto nothing = static_cast<double>(src.h * src.w * from.zero);  // the sum of zeros
  const i64 blocks = (dst.c + kSums - 1) / kSums;
  parallel_ranges(dst.n * blocks, threads_for(src.size(), kGrain), [&](i64 begin, i64 end) {
    for (i64 task = begin; task < end; ++task) {
      const i64 n = task / blocks, k = task % blocks * kSums, channels = std::min(kSums, dst.c - k);
      std::array<std::uint64_t, kSums> sums{};
      if (src.h_stride == src.w * src.w_stride)
        add(bytes_at(src, n, 0) + k, src.w_stride, src.h * src.w, channels, sums.data());
      else
        for (i64 y = 0; y < src.h; ++y) add(bytes_at(src, n, y) + k, src.w_stride, src.w, channels, sums.data());
      std::byte* const result = dst.at(n, 0);
      for (i64 i = 0; i < channels; ++i) {
        const double value = (static_cast<double>(sums[static_cast<std::size_t>(i)]) - nothing) * factor;
        if (to.scale == 0) {
          reinterpret_cast<float*>(result)[k + i] = static_cast<float>(value);
          continue;
        }
        const double number = std::nearbyint(value / double{to.scale}) + to.zero;
        reinterpret_cast<Byte*>(result)[k + i] = static_cast<Byte>(std::clamp(number, 0.0, double{kMaxNumber}));
      }
    }
  });
}

const char* pixel_sum_in_vectors(const QuantizedPixelSumProblem& problem) {
#if defined(__x86_64__)
  if (!has_avx512()) return "the processor has no AVX-512";
  if (problem.src.c < kMinChannels) return "few channels";
  sum_pixels(problem, add_pixels_in_vectors);
  return nullptr;
#else
  static_cast<void>(problem);
  return "not for this processor";
#endif
}

const char* pixel_sum(const QuantizedPixelSumProblem& problem) {
  sum_pixels(problem, add_pixels);
  return nullptr;
}

constexpr Implementation<QuantizedPixelSumProblem> kPixelSums[] = {
    {"quantized_pixel_sum_in_vectors", pixel_sum_in_vectors},
    {"quantized_pixel_sum", pixel_sum},
};
const ImplementationNames kPixelSumsNames(kPixelSums);

}  // namespace

void run(const QuantizedMapProblem& problem) { run_first("quantized_map", kMaps, problem); }

void run(const QuantizedProductProblem& problem) { run_first("quantized_product", kProducts, problem); }

void run(const QuantizedPixelSumProblem& problem) { run_first("quantized_pixel_sum", kPixelSums, problem); }

}  // namespace openmps::cpu
