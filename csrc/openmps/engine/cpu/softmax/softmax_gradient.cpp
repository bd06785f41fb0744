// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "engine/cpu/pointwise/gradients.hpp"
#include "engine/cpu/softmax/softmax.hpp"
#include "engine/shared/fast_math.hpp"
#include "engine/shared/implementations.hpp"
#include "engine/shared/isa.hpp"
#include "engine/shared/operands.hpp"

namespace openmps::cpu {
namespace {

constexpr std::int64_t kGrain = 16 * 1024;  // min values per thread
constexpr std::int64_t kBlock = 128;        // values per float sum that is still exact enough
constexpr std::int64_t kFew = 32;           // with fewer channels, vectors hold several pixels
constexpr std::int64_t kRun = 512;          // values per batch of such pixels

/// Vectorized along the channels.
MPSCNN_CLONES void pixels_gradient(const float* diff, const float* result, float* dst, std::int64_t pixels,
                                   std::int64_t channels, bool log) {
  for (std::int64_t p = 0; p < pixels; ++p, diff += channels, result += channels, dst += channels) {
    double sum = 0;
    for (std::int64_t begin = 0; begin < channels; begin += kBlock) {
      const std::int64_t end = std::min(begin + kBlock, channels);
      float part = 0;
      if (log) {
#pragma omp simd reduction(+ : part)
        for (std::int64_t i = begin; i < end; ++i) part += diff[i];
      } else {
#pragma omp simd reduction(+ : part)
        for (std::int64_t i = begin; i < end; ++i) part += diff[i] * result[i];
      }
      sum += part;
    }
    const auto whole = static_cast<float>(sum);
    if (log) {
#pragma omp simd
      for (std::int64_t i = 0; i < channels; ++i) dst[i] = diff[i] - FastMath::exp_negative(result[i]) * whole;
    } else {
#pragma omp simd
      for (std::int64_t i = 0; i < channels; ++i) dst[i] = result[i] * (diff[i] - whole);
    }
  }
}

/// Few channels: all steps but the sums run over the values of several pixels.
MPSCNN_CLONES void few_gradient(const float* diff, const float* result, float* dst, std::int64_t pixels,
                                std::int64_t channels, bool log) {
  float terms[kRun], sums[kRun];  // per value: the term it adds, or the factor; its pixel's sum
  const std::int64_t most = kRun / channels;
  while (pixels > 0) {
    const std::int64_t some = std::min(pixels, most), count = some * channels;
    if (log) {
#pragma omp simd
      for (std::int64_t i = 0; i < count; ++i) terms[i] = FastMath::exp_negative(result[i]);
    } else {
#pragma omp simd
      for (std::int64_t i = 0; i < count; ++i) terms[i] = diff[i] * result[i];
    }
    const float* const summed = log ? diff : terms;
    for (std::int64_t p = 0; p < count; p += channels) {
      float sum = 0;
      for (std::int64_t i = p; i < p + channels; ++i) sum += summed[i];
      for (std::int64_t i = p; i < p + channels; ++i) sums[i] = sum;
    }
    if (log) {
#pragma omp simd
      for (std::int64_t i = 0; i < count; ++i) dst[i] = diff[i] - terms[i] * sums[i];
    } else {
#pragma omp simd
      for (std::int64_t i = 0; i < count; ++i) dst[i] = result[i] * (diff[i] - sums[i]);
    }
    pixels -= some, diff += count, result += count, dst += count;
  }
}

using GradientRun = void (*)(const float* diff, const float* result, float* dst, std::int64_t pixels,
                             std::int64_t channels, bool log);

void gradient_with(const SoftmaxGradientProblem& problem, GradientRun run_of_pixels) {
  const std::int64_t c = problem.diff_src.c;
  const auto body = [&](const std::array<const float*, 2>& src, float* dst, std::int64_t, std::int64_t pixels) {
    run_of_pixels(src[0], src[1], dst, pixels, c, problem.log);
  };
  const Operand &diff = problem.diff_dst, &result = problem.dst;
  const ResultsAxis rows = result_rows(problem.source, diff), columns = result_columns(problem.source, diff);
  if (rows.is_seen_twice() || columns.is_seen_twice())
    return for_results<2>({moved(diff, -diff.start_h, -diff.start_w), moved(result, -diff.start_h, -diff.start_w)},
                          rows, columns, c, problem.diff_src, kGrain, body);
  for_operands<2>({&diff, &result}, problem.diff_src, kGrain, /*across_images=*/true, body);
}

const char* softmax_gradient_few_channels(const SoftmaxGradientProblem& problem) {
  if (problem.diff_src.c >= kFew) return "many channels";
  gradient_with(problem, few_gradient);
  return nullptr;
}

const char* softmax_gradient_many_channels(const SoftmaxGradientProblem& problem) {
  gradient_with(problem, pixels_gradient);
  return nullptr;
}

constexpr Implementation<SoftmaxGradientProblem> kSoftmaxGradients[] = {
    {"softmax_gradient_few_channels", softmax_gradient_few_channels},
    {"softmax_gradient_many_channels", softmax_gradient_many_channels},
};
const ImplementationNames kSoftmaxGradientNames(kSoftmaxGradients);

}  // namespace

void run(const SoftmaxGradientProblem& problem) { run_first("softmax_gradient", kSoftmaxGradients, problem); }

}  // namespace openmps::cpu
