// SPDX-License-Identifier: Apache-2.0

#include "engine/cpu/softmax/softmax.hpp"

#include <algorithm>
#include <cmath>

#include "engine/shared/fast_math.hpp"
#include "engine/shared/implementations.hpp"
#include "engine/shared/isa.hpp"
#include "engine/shared/log_sum_exp.hpp"
#include "engine/shared/operands.hpp"

namespace openmps::cpu {
namespace {

constexpr std::int64_t kGrain = 16 * 1024;  // min values per thread
constexpr std::int64_t kFew = 32;           // with fewer channels, vectors hold several pixels
constexpr std::int64_t kGroup = 16;         // pixels whose logarithms are computed together
constexpr std::int64_t kPixels = 64;        // pixels per batch if they have few channels

/// Return the sum of e^(x - most) over one pixel; store the terms to dst unless it is null. In double: a float rounds
/// each of the small terms that come after the largest one.
MPSCNN_HOST_DEVICE double exponentials(const float* src, float most, float* dst, std::int64_t channels) {
  double sum = 0;
  if (dst) {
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = 0; i < channels; ++i) sum += dst[i] = FastMath::exp_below(src[i], most);
  } else {
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = 0; i < channels; ++i) sum += FastMath::exp_below(src[i], most);
  }
  return sum;
}

/// Vectorized along the channels.
MPSCNN_CLONES void softmax_pixels(const float* src, float* dst, std::int64_t pixels, std::int64_t channels, bool log) {
  float most[kGroup], low[kGroup];
  double sum[kGroup];
  for (; pixels > 0; pixels -= kGroup, src += kGroup * channels, dst += kGroup * channels) {
    const std::int64_t count = std::min(pixels, kGroup);
    for (std::int64_t p = 0; p < count; ++p) {
      const float* const pixel = src + p * channels;
      float max = pixel[0];
#pragma omp simd reduction(max : max)
      for (std::int64_t i = 0; i < channels; ++i) max = pixel[i] > max ? pixel[i] : max;
      most[p] = max;
      sum[p] = exponentials(pixel, max, log ? nullptr : dst + p * channels, channels);
      if (log) continue;
      const auto scale = static_cast<float>(1 / sum[p]);
#pragma omp simd
      for (std::int64_t i = 0; i < channels; ++i) dst[p * channels + i] *= scale;
    }
    if (!log) continue;
#pragma omp simd
    for (std::int64_t p = 0; p < count; ++p) {
      const LogSumExp whole(most[p], sum[p]);
      most[p] = whole.high, low[p] = whole.low;
    }
    for (std::int64_t p = 0; p < count; ++p) {
      const float high = most[p], rest = low[p];
#pragma omp simd
      for (std::int64_t i = p * channels; i < (p + 1) * channels; ++i) dst[i] = (src[i] - high) - rest;
    }
  }
}

/// Vectorized along the pixels.
MPSCNN_CLONES void softmax_few(const float* src, float* dst, std::int64_t pixels, std::int64_t channels, bool log) {
  float values[kFew][kPixels], most[kPixels], sum[kPixels], low[kPixels];
  for (; pixels > 0; pixels -= kPixels, src += kPixels * channels, dst += kPixels * channels) {
    const std::int64_t count = std::min(pixels, kPixels);
    std::fill_n(most, count, -INFINITY);
    std::fill_n(sum, count, 0.0f);
    for (std::int64_t i = 0; i < channels; ++i) {
#pragma omp simd
      for (std::int64_t p = 0; p < count; ++p) {
        const float x = src[p * channels + i];
        values[i][p] = x;
        most[p] = x > most[p] ? x : most[p];
      }
    }
    for (std::int64_t i = 0; i < channels; ++i) {
#pragma omp simd
      for (std::int64_t p = 0; p < count; ++p) {
        const float e = FastMath::exp_below(values[i][p], most[p]);
        if (!log) values[i][p] = e;
        sum[p] += e;
      }
    }
    if (log) {
#pragma omp simd
      for (std::int64_t p = 0; p < count; ++p) {
        const LogSumExp whole(most[p], sum[p]);
        most[p] = whole.high, low[p] = whole.low;
      }
      for (std::int64_t i = 0; i < channels; ++i) {
#pragma omp simd
        for (std::int64_t p = 0; p < count; ++p) dst[p * channels + i] = (values[i][p] - most[p]) - low[p];
      }
    } else {
#pragma omp simd
      for (std::int64_t p = 0; p < count; ++p) sum[p] = 1.0f / sum[p];
      for (std::int64_t i = 0; i < channels; ++i) {
#pragma omp simd
        for (std::int64_t p = 0; p < count; ++p) dst[p * channels + i] = values[i][p] * sum[p];
      }
    }
  }
}

using SoftmaxRun = void (*)(const float* src, float* dst, std::int64_t pixels, std::int64_t channels, bool log);

void softmax_with(const SoftmaxProblem& problem, SoftmaxRun run_of_pixels) {
  const std::int64_t c = problem.dst.c;
  const bool log = problem.log;
  for_operands<1>({&problem.src}, problem.dst, kGrain, /*across_images=*/true,
                  [&](const std::array<const float*, 1>& src, float* dst, std::int64_t, std::int64_t pixels) {
                    run_of_pixels(src[0], dst, pixels, c, log);
                  });
}

const char* softmax_few_channels(const SoftmaxProblem& problem) {
  if (problem.dst.c >= kFew) return "many channels";
  softmax_with(problem, softmax_few);
  return nullptr;
}

const char* softmax_many_channels(const SoftmaxProblem& problem) {
  softmax_with(problem, softmax_pixels);
  return nullptr;
}

constexpr Implementation<SoftmaxProblem> kSoftmaxes[] = {
    {"softmax_few_channels", softmax_few_channels},
    {"softmax_many_channels", softmax_many_channels},
};
const ImplementationNames kSoftmaxNames(kSoftmaxes);

}  // namespace

void run(const SoftmaxProblem& problem) { run_first("softmax", kSoftmaxes, problem); }

}  // namespace openmps::cpu
