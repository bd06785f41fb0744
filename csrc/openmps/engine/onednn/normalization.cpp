// SPDX-License-Identifier: Apache-2.0
#include "engine/onednn/normalization.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/shared/float_rows.hpp"
#include "engine/shared/isa.hpp"
#include "engine/shared/neuron.hpp"
#include "engine/shared/operands.hpp"
#include "engine/shared/parallel.hpp"

namespace openmps::onednn {
namespace {

constexpr std::int64_t kGrain = 32 * 1024;       // values that are worth a thread
constexpr std::int64_t kBlock = 32;              // channels whose sums stay in registers
constexpr std::int64_t kNeuronBlock = 2048;      // values that wait in the first-level cache for their neuron
constexpr std::int64_t kTogether = 1024 * 1024;  // bytes of images that are read twice before the next ones

/// Eight floats of a pixel, and as doubles.
typedef float Floats __attribute__((vector_size(32)));
typedef float FloatsAnywhere __attribute__((vector_size(32), aligned(4)));
typedef double Doubles __attribute__((vector_size(64)));
typedef double DoublesAnywhere __attribute__((vector_size(64), aligned(8)));

/// sums += x - pivot and squares += (x - pivot)^2 for each channel of `pixels` pixels, `step` floats apart.
MPSCNN_CLONES void add_pixels(const float* first, std::int64_t step, std::int64_t pixels, std::int64_t channels,
                              const float* pivot, double* sums, double* squares) {
  constexpr int kVectors = kBlock / 8;
  std::int64_t c = 0;
  for (; c + kBlock <= channels; c += kBlock) {
    Floats p[kVectors];
    Doubles s[kVectors] = {}, q[kVectors] = {};
    for (int i = 0; i < kVectors; ++i) p[i] = *reinterpret_cast<const FloatsAnywhere*>(pivot + c + 8 * i);
    const float* pixel = first + c;
    for (std::int64_t x = 0; x < pixels; ++x, pixel += step) {
#pragma GCC unroll 4
      for (int i = 0; i < kVectors; ++i) {
        const Floats distance = *reinterpret_cast<const FloatsAnywhere*>(pixel + 8 * i) - p[i];
        const Doubles d = __builtin_convertvector(distance, Doubles);
        s[i] += d;
        q[i] += d * d;
      }
    }
    for (int i = 0; i < kVectors; ++i) {
      *reinterpret_cast<DoublesAnywhere*>(sums + c + 8 * i) += s[i];
      *reinterpret_cast<DoublesAnywhere*>(squares + c + 8 * i) += q[i];
    }
  }
  if (c == channels) return;
  double s[kBlock] = {}, q[kBlock] = {};
  const std::int64_t rest = channels - c;
  const float* pixel = first + c;
  for (std::int64_t x = 0; x < pixels; ++x, pixel += step) {
#pragma omp simd
    for (std::int64_t k = 0; k < rest; ++k) {
      const double d = pixel[k] - pivot[c + k];
      s[k] += d;
      q[k] += d * d;
    }
  }
  for (std::int64_t k = 0; k < rest; ++k) sums[c + k] += s[k], squares[c + k] += q[k];
}

/// to = (from - mean) * scale + shift for each channel of `pixels` adjacent pixels.
MPSCNN_CLONES void scale_pixels(const float* from, float* to, std::int64_t pixels, std::int64_t channels,
                                const float* mean, const float* scale, const float* shift) {
  for (std::int64_t x = 0; x < pixels; ++x, from += channels, to += channels) {
#pragma omp simd
    for (std::int64_t k = 0; k < channels; ++k) to[k] = (from[k] - mean[k]) * scale[k] + shift[k];
  }
}

float* values_of(const ChannelValues& values) {
  return reinterpret_cast<float*>(values.memory->data() + values.offset);
}

/// Per channel, of one image or of several together.
struct Moments {
  std::vector<float> pivot;           ///< the first pixel
  std::vector<double> sums, squares;  ///< of the distances from it

  double mean(std::size_t channel, double pixels) const { return pivot[channel] + sums[channel] / pixels; }
  /// Sum of the squared distances from `other`.
  double around(std::size_t channel, double pixels, double other) const {
    const double own = mean(channel, pixels) - other, shift = sums[channel] / pixels;
    const double spread = squares[channel] - sums[channel] * shift;
    return (spread < 0 ? 0.0 : spread) + pixels * own * own;
  }
};

/// Moments of images [first, first + count): of each (as many as results has), or of all together (one).
void find_moments(Tensor src, std::int64_t first, std::int64_t count, std::vector<Moments>& results) {
  src.data = src.at(first, 0);
  src.n = count;
  if (src.images_are_dense() && src.format == Format::float32) src.flatten();
  const auto c = static_cast<std::size_t>(src.c);
  for (std::size_t i = 0; i < results.size(); ++i) {
    results[i].pivot.resize(c);
    row_to_float(src.at(static_cast<std::int64_t>(i), 0), src.format, results[i].pivot.data(), src.c);
    results[i].sums.assign(c, 0);
    results[i].squares.assign(c, 0);
  }

  const int threads = threads_for(src.size(), kGrain);
  const std::size_t per_thread = results.size() * 2 * c;
  std::vector<double> partial(per_thread * static_cast<std::size_t>(threads));
  std::vector<FloatRows> rows(static_cast<std::size_t>(threads), FloatRows(src, 1));
  parallel_ranges(src.n * src.h * src.w, threads, [&](std::int64_t begin, std::int64_t end) {
    const auto me = static_cast<std::size_t>(omp_get_thread_num());
    const std::int64_t step = rows[me].pixel_stride();
    std::int64_t pixels = 0;
    for (std::int64_t pixel = begin; pixel < end; pixel += pixels) {
      const std::int64_t row = pixel / src.w, x = pixel % src.w, n = row / src.h;
      pixels = std::min(src.w - x, end - pixel);
      const std::size_t target = results.size() == 1 ? 0 : static_cast<std::size_t>(n);
      double* const sums = partial.data() + me * per_thread + target * 2 * c;
      add_pixels(rows[me].row(n, row % src.h) + x * step, step, pixels, src.c, results[target].pivot.data(), sums,
                 sums + c);
    }
  });
  for (std::size_t thread = 0; thread < static_cast<std::size_t>(threads); ++thread) {
    for (std::size_t i = 0; i < results.size(); ++i) {
      const double* const part = partial.data() + thread * per_thread + i * 2 * c;
      for (std::size_t k = 0; k < c; ++k) results[i].sums[k] += part[k], results[i].squares[k] += part[c + k];
    }
  }
}

/// (x - mean) * scale + shift, one set for each image or one for all.
struct Coefficients {
  std::size_t channels;
  std::vector<float> mean, scale, shift;

  Coefficients(std::size_t images, std::int64_t c)
      : channels(static_cast<std::size_t>(c)),
        mean(images * channels),
        scale(images * channels),
        shift(images * channels) {}

  /// The rounding of the mean goes into the shift.
  void set(std::size_t image, std::size_t channel, double m, double variance, double epsilon, float gamma, float beta) {
    const std::size_t at = image * channels + channel;
    const double factor = gamma / std::sqrt(variance + epsilon);
    mean[at] = static_cast<float>(m);
    scale[at] = static_cast<float>(factor);
    shift[at] = static_cast<float>(beta + (mean[at] - m) * factor);
  }
};

/// Images [first, first + count) of the problem.
void apply(const NormalizeProblem& problem, std::int64_t first, std::int64_t count, const Coefficients& coefficients) {
  Operand src = problem.src;
  src.view = src.view.images(first, count);
  const std::int64_t c = problem.dst.c;
  const bool identity = neuron_is_identity(problem.neuron), one_set = coefficients.mean.size() == coefficients.channels;
  const std::int64_t most = c * std::max<std::int64_t>(1, kNeuronBlock / c);
  const std::int64_t image = problem.dst.h * problem.dst.w;
  for_operands<1>({&src}, problem.dst.images(first, count), kGrain, one_set,
                  [&](const std::array<const float*, 1>& from, float* to, std::int64_t pixel, std::int64_t pixels) {
                    const std::int64_t set = one_set ? 0 : pixel / image * c, values = pixels * c;
                    const std::int64_t block = identity ? values : most;
                    for (std::int64_t i = 0; i < values; i += block) {
                      const std::int64_t part = std::min(block, values - i);
                      scale_pixels(from[0] + i, to + i, part / c, c, coefficients.mean.data() + set,
                                   coefficients.scale.data() + set, coefficients.shift.data() + set);
                      if (!identity) row_neuron(problem.neuron, to + i, to + i, part, c, nullptr);
                    }
                  });
}

void normalize_with_given(const NormalizeProblem& problem) {
  Coefficients coefficients(1, problem.dst.c);
  const float *mean = values_of(problem.mean), *variance = values_of(problem.variance);
  const float *gamma = values_of(problem.gamma), *beta = values_of(problem.beta);
  for (std::size_t k = 0; k < coefficients.channels; ++k)
    coefficients.set(0, k, mean[k], variance[k], problem.epsilon, gamma[k], beta[k]);
  apply(problem, 0, problem.dst.n, coefficients);
}

void normalize_images(const NormalizeProblem& problem) {
  const Tensor src = tensor_of(problem.src.view);
  const auto groups = static_cast<std::size_t>(problem.groups), each = static_cast<std::size_t>(src.c) / groups;
  const double pixels = static_cast<double>(src.h * src.w), count = pixels * static_cast<double>(each);
  const float *gamma = values_of(problem.gamma), *beta = values_of(problem.beta);
  float* const stored_mean = problem.mean.memory ? values_of(problem.mean) : nullptr;
  float* const stored_variance = problem.variance.memory ? values_of(problem.variance) : nullptr;
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
        const std::size_t at = (static_cast<std::size_t>(first) + i) * groups + g;
        if (stored_mean) stored_mean[at] = static_cast<float>(mean);
        if (stored_variance) stored_variance[at] = static_cast<float>(variance);
      }
    }
    apply(problem, first, images, coefficients);
  }
}

}  // namespace

void normalize(const NormalizeProblem& problem) {
  if (problem.groups == 0) return normalize_with_given(problem);
  normalize_images(problem);
}

void find_statistics(const StatisticsProblem& problem) {
  const Tensor src = tensor_of(problem.src);
  std::vector<Moments> moments(1);
  find_moments(src, 0, src.n, moments);
  const double pixels = static_cast<double>(src.n * src.h * src.w), before = static_cast<double>(problem.count);
  float *mean = values_of(problem.mean), *variance = values_of(problem.variance);
  for (std::size_t k = 0; k < static_cast<std::size_t>(src.c); ++k) {
    double m = moments[0].mean(k, pixels), spread = moments[0].around(k, pixels, m);
    if (problem.count > 0) {
      const double distance = m - mean[k];
      m = mean[k] + distance * pixels / (before + pixels);
      spread += variance[k] * before + distance * distance * before * pixels / (before + pixels);
    }
    mean[k] = static_cast<float>(m);
    variance[k] = static_cast<float>(spread / (before + pixels));
  }
}

}  // namespace openmps::onednn
