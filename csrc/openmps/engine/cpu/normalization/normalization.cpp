// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/normalization/normalization.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "engine/cpu/normalization/normalization_parts.hpp"
#include "engine/cpu/pointwise/vectors.hpp"
#include "engine/shared/implementations.hpp"
#include "engine/shared/isa.hpp"
#include "engine/shared/neuron.hpp"
#include "engine/shared/operands.hpp"
#include "engine/shared/parallel.hpp"

namespace openmps::cpu {

MPSCNN_CLONES void scale_pixels(const float* from, float* to, std::int64_t pixels, std::int64_t channels,
                                const float* mean, const float* scale, const float* shift) {
  for (std::int64_t x = 0; x < pixels; ++x, from += channels, to += channels) {
#pragma omp simd
    for (std::int64_t k = 0; k < channels; ++k) to[k] = (from[k] - mean[k]) * scale[k] + shift[k];
  }
}

namespace {

constexpr std::int64_t kGrain = 32 * 1024;       // min values per thread
constexpr std::int64_t kAsFloats = 8;            // pixels summed in float
constexpr std::int64_t kNeuronBlock = 2048;      // values that stay in the first-level cache for their activation
constexpr std::int64_t kAdded = 6 * 1024;        // values that stay in the first-level cache while they are summed
constexpr std::int64_t kTogether = 1024 * 1024;  // bytes of images per batch; each batch is read twice

#define MPSCNN_LOOPS "engine/cpu/normalization/moments.inc"
#define MPSCNN_ANY_PROCESSOR
#include "engine/cpu/pointwise/vector_copies.inc"

#if defined(__x86_64__)
/// scale_pixels() for halves; `channels` is a multiple of 8.
template <bool is_rectified>
__attribute__((target("avx2,fma,f16c"))) void scale_halves_f16c(const std::uint16_t* from, std::uint16_t* to,
                                                                std::int64_t pixels, std::int64_t channels,
                                                                const float* mean, const float* scale,
                                                                const float* shift) {
  for (std::int64_t x = 0; x < pixels; ++x, from += channels, to += channels) {
    for (std::int64_t k = 0; k < channels; k += 8) {
      const __m256 value = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + k)));
      const __m256 distance = _mm256_sub_ps(value, _mm256_loadu_ps(mean + k));
      __m256 result = _mm256_fmadd_ps(distance, _mm256_loadu_ps(scale + k), _mm256_loadu_ps(shift + k));
      if constexpr (is_rectified) result = _mm256_max_ps(_mm256_setzero_ps(), result);  // NaN: the second one
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + k), _mm256_cvtps_ph(result, _MM_FROUND_TO_NEAREST_INT));
    }
  }
}
/// add_pixels() for halves of pixels without gaps; only the first channels / 8 * 8 channels.
__attribute__((target("avx2,fma,f16c"))) void add_halves_f16c(const std::uint16_t* first, std::int64_t pixels,
                                                              std::int64_t channels, const float* pivot, double* sums,
                                                              double* squares) {
  for (std::int64_t k = 0; k + 8 <= channels; k += 8) {
    const __m256 p = _mm256_loadu_ps(pivot + k);
    __m256d totals[4] = {_mm256_loadu_pd(sums + k), _mm256_loadu_pd(sums + k + 4), _mm256_loadu_pd(squares + k),
                         _mm256_loadu_pd(squares + k + 4)};
    const std::uint16_t* pixel = first + k;
    for (std::int64_t x = 0; x < pixels;) {
      __m256 a = _mm256_setzero_ps(), b = a;
      for (const std::int64_t end = std::min(pixels, x + kAsFloats); x < end; ++x, pixel += channels) {
        const __m256 value = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(pixel)));
        const __m256 distance = _mm256_sub_ps(value, p);
        a = _mm256_add_ps(a, distance);
        b = _mm256_fmadd_ps(distance, distance, b);
      }
      totals[0] = _mm256_add_pd(totals[0], _mm256_cvtps_pd(_mm256_castps256_ps128(a)));
      totals[1] = _mm256_add_pd(totals[1], _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1)));
      totals[2] = _mm256_add_pd(totals[2], _mm256_cvtps_pd(_mm256_castps256_ps128(b)));
      totals[3] = _mm256_add_pd(totals[3], _mm256_cvtps_pd(_mm256_extractf128_ps(b, 1)));
    }
    _mm256_storeu_pd(sums + k, totals[0]), _mm256_storeu_pd(sums + k + 4, totals[1]);
    _mm256_storeu_pd(squares + k, totals[2]), _mm256_storeu_pd(squares + k + 4, totals[3]);
  }
}
/// Without clones, scale_pixels() has no multiply-add, and results in half must equal rounded floats.
bool has_f16c() {
  static const bool has = MPSCNN_HAS_CLONES && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                          __builtin_cpu_supports("f16c");
  return has;
}
#endif

#if defined(__x86_64__)
/// scale_pixels() for bfloat16, and the activation.
MPSCNN_AVX512 void scale_bfloats(const std::uint16_t* from, std::int64_t from_step, std::uint16_t* to,
                                 std::int64_t to_step, std::int64_t pixels, std::int64_t channels, const float* mean,
                                 const float* scale, const float* shift, const Activation& activation) {
  const Activation f = activation;
  for (std::int64_t x = 0; x < pixels; ++x, from += from_step, to += to_step) {
    for (std::int64_t k = 0; k < channels; k += 16) {
      const auto lanes = static_cast<__mmask16>(channels - k >= 16 ? 0xffff : (1 << (channels - k)) - 1);
      const __m512 distance = _mm512_sub_ps(load(lanes, from + k), _mm512_maskz_loadu_ps(lanes, mean + k));
      const __m512 value =
          _mm512_fmadd_ps(distance, _mm512_maskz_loadu_ps(lanes, scale + k), _mm512_maskz_loadu_ps(lanes, shift + k));
      store(lanes, to + k, activate(f, value));
    }
  }
}
/// add_pixels() for bfloat16 of pixels without gaps.
MPSCNN_AVX512 void add_bfloats(const std::uint16_t* first, std::int64_t pixels, std::int64_t channels,
                               const float* pivot, double* sums, double* squares) {
  for (std::int64_t k = 0; k < channels; k += 16) {
    const auto lanes = static_cast<__mmask16>(channels - k >= 16 ? 0xffff : (1 << (channels - k)) - 1);
    const auto low = static_cast<__mmask8>(lanes), high = static_cast<__mmask8>(lanes >> 8);
    const __m512 p = _mm512_maskz_loadu_ps(lanes, pivot + k);
    __m512d totals[4] = {_mm512_maskz_loadu_pd(low, sums + k), _mm512_maskz_loadu_pd(high, sums + k + 8),
                         _mm512_maskz_loadu_pd(low, squares + k), _mm512_maskz_loadu_pd(high, squares + k + 8)};
    const std::uint16_t* pixel = first + k;
    for (std::int64_t x = 0; x < pixels;) {
      __m512 a = _mm512_setzero_ps(), b = a;
      for (const std::int64_t end = std::min(pixels, x + kAsFloats); x < end; ++x, pixel += channels) {
        const __m512 distance = _mm512_sub_ps(load(lanes, pixel), p);
        a = _mm512_add_ps(a, distance);
        b = _mm512_fmadd_ps(distance, distance, b);
      }
      totals[0] = _mm512_add_pd(totals[0], _mm512_cvtps_pd(_mm512_castps512_ps256(a)));
      totals[1] = _mm512_add_pd(totals[1], _mm512_cvtps_pd(_mm512_extractf32x8_ps(a, 1)));
      totals[2] = _mm512_add_pd(totals[2], _mm512_cvtps_pd(_mm512_castps512_ps256(b)));
      totals[3] = _mm512_add_pd(totals[3], _mm512_cvtps_pd(_mm512_extractf32x8_ps(b, 1)));
    }
    _mm512_mask_storeu_pd(sums + k, low, totals[0]), _mm512_mask_storeu_pd(sums + k + 8, high, totals[1]);
    _mm512_mask_storeu_pd(squares + k, low, totals[2]), _mm512_mask_storeu_pd(squares + k + 8, high, totals[3]);
  }
}
#endif

/// scale_pixels() for halves; negative results become 0 if `is_rectified`.
template <bool is_rectified>
void scale_halves(const std::uint16_t* from, std::uint16_t* to, std::int64_t pixels, std::int64_t channels,
                  const float* mean, const float* scale, const float* shift) {
#if defined(__x86_64__)
  if (channels % 8 == 0 && has_f16c())
    return scale_halves_f16c<is_rectified>(from, to, pixels, channels, mean, scale, shift);
#endif
  constexpr std::int64_t kPart = 1024;
  float values[kPart];
  for (std::int64_t x = 0; x < pixels; ++x, from += channels, to += channels) {
    for (std::int64_t k = 0; k < channels; k += kPart) {
      const std::int64_t part = std::min(kPart, channels - k);
      row_to_float(from + k, Format::float16, values, part);
      scale_pixels(values, values, 1, part, mean + k, scale + k, shift + k);
      if constexpr (is_rectified)
        for (std::int64_t i = 0; i < part; ++i) values[i] = values[i] < 0 ? 0.0f : values[i];
      row_from_float(values, to + k, Format::float16, part);
    }
  }
}

/// Moments per channel, of one image or of several together.
struct Moments {
  std::vector<float> pivot;           ///< mean of the first pixels
  std::vector<double> sums, squares;  ///< of distances from the pivot

  double mean(std::size_t channel, double pixels) const { return pivot[channel] + sums[channel] / pixels; }
  /// Return the sum of the squared distances from `other`.
  double around(std::size_t channel, double pixels, double other) const {
    const double own = mean(channel, pixels) - other, shift = sums[channel] / pixels;
    const double spread = squares[channel] - sums[channel] * shift;
    return (spread < 0 ? 0.0 : spread) + pixels * own * own;
  }
};

/// Pixels of some images; adds their moments to those of each image (one result per image) or of all together (one
/// result).
struct MomentsCall {
  Tensor src;
  std::vector<Moments>& results;
};

/// add(from, step, pixels, pivot, sums, squares) adds `pixels` pixels, `step` values apart, with all of their channels.
/// Batches of pixels are the same for any memory layout, since distances within a batch are summed as floats. Pixels
/// that are `in_place` are read where they are; pixels of several rows with gaps are gathered as floats.
template <class Value, class Add>
void for_pixels(const MomentsCall& call, bool in_place, const Add& add) {
  const Tensor& src = call.src;
  std::vector<Moments>& results = call.results;
  const auto c = static_cast<std::size_t>(src.c);
  const int threads = threads_for(src.size(), kGrain);
  const std::size_t per_thread = results.size() * 2 * c;
  std::vector<double> partial(per_thread * static_cast<std::size_t>(threads));
  const bool one_set = results.size() == 1, adjacent = src.w == 1 || src.w_stride == src.c,
             one_line = one_set ? src.is_dense() : src.images_are_dense();
  const std::int64_t image = src.h * src.w;
  const std::int64_t most = std::max<std::int64_t>(8, kAdded / src.c / 8 * 8);
  std::vector<float> buffers(in_place && one_line ? 0 : static_cast<std::size_t>(threads * most * src.c));
  parallel_ranges(src.n * image, threads, [&](std::int64_t begin, std::int64_t end) {
    const auto me = static_cast<std::size_t>(thread_number());
    float* const buffer = buffers.data() + (buffers.empty() ? 0 : static_cast<std::int64_t>(me) * most * src.c);
    std::int64_t pixels = 0;
    for (std::int64_t pixel = begin; pixel < end; pixel += pixels) {
      const std::int64_t n = pixel / image, row = pixel / src.w, x = pixel % src.w;
      pixels = std::min({most, (one_set ? end : std::min(end, (n + 1) * image)) - pixel});
      const std::size_t target = one_set ? 0 : static_cast<std::size_t>(n);
      double* const sums = partial.data() + me * per_thread + target * 2 * c;
      const float* const pivot = results[target].pivot.data();
      if (in_place && (one_line || x + pixels <= src.w)) {
        add(reinterpret_cast<const Value*>(src.at(n, row % src.h, x)), one_line ? src.c : src.w_stride, pixels, pivot,
            sums, sums + c);
        continue;
      }
      for (std::int64_t done = 0; done < pixels;) {
        const std::int64_t line = (pixel + done) / src.w, column = (pixel + done) % src.w;
        // As many as are adjacent.
        const std::int64_t part = one_line ? pixels : adjacent ? std::min(pixels - done, src.w - column) : 1;
        row_to_float(src.at(line / src.h, line % src.h, column), src.format, buffer + done * src.c, part * src.c);
        done += part;
      }
      MPSCNN_COPY(add_pixels)(buffer, src.c, pixels, src.c, pivot, sums, sums + c);
    }
  });
  for (std::size_t thread = 0; thread < static_cast<std::size_t>(threads); ++thread) {
    for (std::size_t i = 0; i < results.size(); ++i) {
      const double* const part = partial.data() + thread * per_thread + i * 2 * c;
      for (std::size_t k = 0; k < c; ++k) results[i].sums[k] += part[k], results[i].squares[k] += part[c + k];
    }
  }
}

const char* moments_of_floats(const MomentsCall& call) {
  if (call.src.format != Format::float32) return "the source is not float32";
  for_pixels<float>(
      call, true,
      [c = call.src.c](const float* from, std::int64_t step, std::int64_t pixels, const float* pivot, double* sums,
                       double* squares) { MPSCNN_COPY(add_pixels)(from, step, pixels, c, pivot, sums, squares); });
  return nullptr;
}

const char* moments_of_halves(const MomentsCall& call) {
#if defined(__x86_64__)
  const Tensor& src = call.src;
  if (src.format != Format::float16) return "the source is not float16";
  if (src.c % 32 != 0) return "channels are no multiple of 32";
  if (src.w != 1 && src.w_stride != src.c) return "pixels are not adjacent";
  if (!has_f16c()) return "the processor does not convert halves";
  for_pixels<std::uint16_t>(
      call, true,
      [c = src.c](const std::uint16_t* from, std::int64_t, std::int64_t pixels, const float* pivot, double* sums,
                  double* squares) { add_halves_f16c(from, pixels, c, pivot, sums, squares); });
  return nullptr;
#else
  static_cast<void>(call);
  return "not for this processor";
#endif
}

const char* moments_of_bfloats(const MomentsCall& call) {
#if defined(__x86_64__)
  const Tensor& src = call.src;
  if (src.format != Format::bfloat16) return "the source is not bfloat16";
  if (src.w != 1 && src.w_stride != src.c) return "pixels are not adjacent";
  if (!has_avx512()) return "the processor has no AVX-512";
  for_pixels<std::uint16_t>(
      call, true,
      [c = src.c](const std::uint16_t* from, std::int64_t, std::int64_t pixels, const float* pivot, double* sums,
                  double* squares) { add_bfloats(from, pixels, c, pivot, sums, squares); });
  return nullptr;
#else
  static_cast<void>(call);
  return "not for this processor";
#endif
}

const char* moments_through_floats(const MomentsCall& call) {
  for_pixels<float>(call, false, [](const float*, std::int64_t, std::int64_t, const float*, double*, double*) {});
  return nullptr;
}

constexpr Implementation<MomentsCall> kMoments[] = {
    {"moments_of_floats", moments_of_floats},
    {"moments_of_halves", moments_of_halves},
    {"moments_of_bfloats", moments_of_bfloats},
    {"moments_through_floats", moments_through_floats},
};
const ImplementationNames kMomentsNames(kMoments);

/// Find the moments of images [first, first + count): of each (one result per image) or of all together (one result).
void find_moments(Tensor src, std::int64_t first, std::int64_t count, std::vector<Moments>& results) {
  src.data = src.at(first, 0);
  src.n = count;
  const auto c = static_cast<std::size_t>(src.c);
  for (std::size_t i = 0; i < results.size(); ++i) {
    // The closer the pivot is to the mean, the less is lost when the square of their distance is subtracted.
    results[i].pivot.assign(c, 0);
    std::vector<float> pixel(c);
    const std::int64_t first_pixels = std::min<std::int64_t>(src.h * src.w, 8);
    for (std::int64_t x = 0; x < first_pixels; ++x) {
      row_to_float(src.at(static_cast<std::int64_t>(i), x / src.w, x % src.w), src.format, pixel.data(), src.c);
      for (std::size_t k = 0; k < c; ++k) results[i].pivot[k] += pixel[k] / static_cast<float>(first_pixels);
    }
    results[i].sums.assign(c, 0);
    results[i].squares.assign(c, 0);
  }
  run_first("moments", kMoments, MomentsCall{src, results});
}

/// Normalize images [first, first + count) of the problem.
using Apply = void (*)(const NormalizeProblem& problem, std::int64_t first, std::int64_t count,
                       const Coefficients& coefficients);

bool are_one_set(const Coefficients& coefficients) {
  return coefficients.mean.size() == coefficients.repeats * coefficients.channels;
}

void apply_to_floats(const NormalizeProblem& problem, std::int64_t first, std::int64_t count,
                     const Coefficients& coefficients) {
  Operand src = problem.src;
  src.view = src.view.images(first, count);
  const ImageView dst = problem.dst.images(first, count);
  const std::int64_t c = dst.c, image = dst.h * dst.w, block = std::max<std::int64_t>(1, kNeuronBlock / c);
  const bool one_set = are_one_set(coefficients), identity = neuron_is_identity(problem.neuron);
  for_operands<1>({&src}, dst, kGrain, one_set,
                  [&](const std::array<const float*, 1>& from, float* to, std::int64_t pixel, std::int64_t pixels) {
                    const std::int64_t set = one_set ? 0 : pixel / image;
                    if (identity) return coefficients.apply(from[0], to, pixels, set, scale_pixels);
                    for (std::int64_t i = 0; i < pixels; i += block) {
                      const std::int64_t part = std::min(block, pixels - i);
                      coefficients.apply(from[0] + i * c, to + i * c, part, set, scale_pixels);
                      row_neuron(problem.neuron, to + i * c, to + i * c, part * c, c, nullptr);
                    }
                  });
}

void apply_to_halves(const NormalizeProblem& problem, std::int64_t first, std::int64_t count,
                     const Coefficients& coefficients) {
  Operand src = problem.src;
  src.view = src.view.images(first, count);
  const ImageView dst = problem.dst.images(first, count);
  const std::int64_t image = dst.h * dst.w;
  const bool one_set = are_one_set(coefficients);
  const auto scale = rectifies(problem.neuron) ? scale_halves<true> : scale_halves<false>;
  for_halves(OperandLines<1>({&src}, dst, one_set), kGrain,
             [&](const std::array<const std::uint16_t*, 1>& from, std::uint16_t* to, std::int64_t pixel,
                 std::int64_t pixels) { coefficients.apply(from[0], to, pixels, one_set ? 0 : pixel / image, scale); });
}

#if defined(__x86_64__)
void apply_to_bfloats(const NormalizeProblem& problem, std::int64_t first, std::int64_t count,
                      const Coefficients& coefficients) {
  const Operand& operand = problem.src;
  const Tensor src = tensor_of(operand.view.images(first, count)), dst = tensor_of(problem.dst.images(first, count));
  const bool one_set = are_one_set(coefficients);
  const std::int64_t of_image = static_cast<std::int64_t>(coefficients.repeats) * dst.c;
  const Activation activation = *activation_of(problem.neuron);
  parallel_ranges(dst.n * dst.h, threads_for(dst.size(), kGrain), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t n = row / dst.h, y = row % dst.h, set = one_set ? 0 : n * of_image;
      const std::byte* const from = src.at(n, operand.start_h + y, operand.start_w);
      scale_bfloats(reinterpret_cast<const std::uint16_t*>(from), src.w_stride,
                    reinterpret_cast<std::uint16_t*>(dst.at(n, y)), dst.w_stride, dst.w, dst.c,
                    coefficients.mean.data() + set, coefficients.scale.data() + set, coefficients.shift.data() + set,
                    activation);
    }
  });
}
#endif

void normalize_with_given(const NormalizeProblem& problem, Apply apply) {
  Coefficients coefficients(1, problem.dst.c);
  const StoredStatistics stored(problem.mean, problem.variance, problem.exact);
  const float *gamma = values_of(problem.gamma), *beta = values_of(problem.beta);
  for (std::size_t k = 0; k < coefficients.channels; ++k)
    coefficients.set(0, k, stored.mean(k), stored.variance(k), problem.epsilon, gamma[k], beta[k]);
  apply(problem, 0, problem.dst.n, coefficients);
}

void normalize_images(const NormalizeProblem& problem, Apply apply) {
  const Tensor src = tensor_of(problem.src.view);
  const auto groups = static_cast<std::size_t>(problem.groups), each = static_cast<std::size_t>(src.c) / groups;
  const double pixels = static_cast<double>(src.h * src.w), count = pixels * static_cast<double>(each);
  const float *gamma = values_of(problem.gamma), *beta = values_of(problem.beta);
  const StoredStatistics stored(problem.mean, problem.variance, problem.exact);
  const auto image_bytes = src.h * src.w * src.c * static_cast<std::int64_t>(size_of(src.format));
  const std::int64_t together = std::max<std::int64_t>(1, kTogether / image_bytes);
  for (std::int64_t first = 0; first < src.n; first += together) {
    const std::int64_t images = std::min(together, src.n - first);
    std::vector<Moments> moments(static_cast<std::size_t>(images));
    find_moments(src, first, images, moments);
    Coefficients coefficients(moments.size(), src.c);
    for (std::size_t i = 0; i < moments.size(); ++i) {
      for (std::size_t g = 0; g < groups; ++g) {
        double mean = 0, variance = 0;
        for (std::size_t k = g * each; k < (g + 1) * each; ++k) mean += moments[i].mean(k, pixels);
        mean /= static_cast<double>(each);
        for (std::size_t k = g * each; k < (g + 1) * each; ++k) variance += moments[i].around(k, pixels, mean);
        variance /= count;
        for (std::size_t k = g * each; k < (g + 1) * each; ++k)
          coefficients.set(i, k, mean, variance, problem.epsilon, gamma[k], beta[k]);
        stored.set((static_cast<std::size_t>(first) + i) * groups + g, mean, variance);
      }
    }
    apply(problem, first, images, coefficients);
  }
}

void normalize(const NormalizeProblem& problem, Apply apply) {
  problem.groups == 0 ? normalize_with_given(problem, apply) : normalize_images(problem, apply);
}

const char* normalize_halves(const NormalizeProblem& problem) {
  if (problem.dst.format != Format::float16) return "the result is not float16";
  if (!neuron_is_identity(problem.neuron) && !rectifies(problem.neuron)) return "a neuron that takes floats";
  if (!OperandLines<1>({&problem.src}, problem.dst, false).are_direct(Format::float16))
    return "halves do not lie side by side in both images";
  normalize(problem, apply_to_halves);
  return nullptr;
}

const char* normalize_bfloats(const NormalizeProblem& problem) {
#if defined(__x86_64__)
  if (problem.dst.format != Format::bfloat16) return "the result is not bfloat16";
  if (!has_avx512_bfloat16()) return "the processor does not convert bfloat16";
  if (!activation_of(problem.neuron)) return "a neuron without vectors";
  const OperandSource source(problem.src);
  if (source.tensor.format != Format::bfloat16) return "the source is not bfloat16";
  if (!source.covers(tensor_of(problem.dst))) return "pixels outside of the source";
  normalize(problem, apply_to_bfloats);
  return nullptr;
#else
  static_cast<void>(problem);
  return "not for this processor";
#endif
}

const char* normalize_floats(const NormalizeProblem& problem) {
  normalize(problem, apply_to_floats);
  return nullptr;
}

constexpr Implementation<NormalizeProblem> kNormalizations[] = {
    {"normalize_halves", normalize_halves},
    {"normalize_bfloats", normalize_bfloats},
    {"normalize_floats", normalize_floats},
};
const ImplementationNames kNormalizationNames(kNormalizations);

const char* batch_moments(const BatchMomentsProblem& problem) {
  const Tensor src = tensor_of(problem.src);
  std::vector<Moments> moments(1);
  find_moments(src, 0, src.n, moments);
  const double pixels = static_cast<double>(src.n * src.h * src.w), before = static_cast<double>(problem.count);
  const StoredStatistics stored(problem.mean, problem.variance, problem.exact);
  for (std::size_t k = 0; k < static_cast<std::size_t>(src.c); ++k) {
    double m = moments[0].mean(k, pixels), spread = moments[0].around(k, pixels, m);
    if (problem.count > 0) {
      const double distance = m - stored.mean(k);
      spread += stored.variance(k) * before + distance * distance * before * pixels / (before + pixels);
      m = stored.mean(k) + distance * pixels / (before + pixels);
    }
    stored.set(k, m, spread / (before + pixels));
  }
  return nullptr;
}

constexpr Implementation<BatchMomentsProblem> kBatchMoments[] = {{"batch_moments", batch_moments}};
const ImplementationNames kBatchMomentsNames(kBatchMoments);

}  // namespace

void run(const NormalizeProblem& problem) { run_first("normalize", kNormalizations, problem); }
void run(const BatchMomentsProblem& problem) { run_first("batch_moments", kBatchMoments, problem); }

}  // namespace openmps::cpu
