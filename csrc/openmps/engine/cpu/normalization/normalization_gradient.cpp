// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/normalization/normalization_gradient.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "engine/cpu/normalization/normalization_parts.hpp"
#include "engine/cpu/pointwise/gradients.hpp"
#include "engine/cpu/pointwise/vectors.hpp"
#include "engine/shared/implementations.hpp"
#include "engine/shared/isa.hpp"
#include "engine/shared/neuron.hpp"
#include "engine/shared/operands.hpp"
#include "engine/shared/parallel.hpp"

namespace openmps::cpu {
namespace {

constexpr std::int64_t kGrain = 32 * 1024;       // min values per thread
constexpr std::int64_t kNeuronBlock = 2048;      // values that stay in the first-level cache for their activation
constexpr std::int64_t kAsFloats = 8;            // pixels summed in float, which loses no more than a rounding
constexpr std::int64_t kTogether = 1024 * 1024;  // bytes of images per batch; each batch is read twice

#define MPSCNN_LOOPS "engine/cpu/normalization/moments_gradient.inc"
#define MPSCNN_ANY_PROCESSOR
#include "engine/cpu/pointwise/vector_copies.inc"

/// to = own * g + slope * (x - mean) + constant for each channel of `pixels` adjacent pixels; `to` may be g.
MPSCNN_CLONES void combine_plain(const float* g, const float* x, float* to, std::int64_t pixels, std::int64_t channels,
                                 const ChannelTerms& terms, const float* own, const float* slope,
                                 const float* constant) {
  for (std::int64_t pixel = 0; pixel < pixels; ++pixel, g += channels, x += channels, to += channels) {
#pragma omp simd
    for (std::int64_t k = 0; k < channels; ++k)
      to[k] = own[k] * g[k] + (slope[k] * (x[k] - terms.mean[k]) + constant[k]);
  }
}

/// The same, with g only where add_gradients() adds it.
MPSCNN_CLONES void combine_rectified(const float* g, const float* x, float* to, std::int64_t pixels,
                                     std::int64_t channels, const ChannelTerms& terms, const float* own,
                                     const float* slope, const float* constant) {
  for (std::int64_t pixel = 0; pixel < pixels; ++pixel, g += channels, x += channels, to += channels) {
#pragma omp simd
    for (std::int64_t k = 0; k < channels; ++k) {
      const float distance = x[k] - terms.mean[k];
      const float gradient = distance * terms.scale[k] + terms.shift[k] >= 0 ? own[k] * g[k] : 0.0f;
      to[k] = gradient + (slope[k] * distance + constant[k]);
    }
  }
}

/// Coefficients of some images: floats for the loops, one set per image or one for all.
struct GradientCoefficients {
  Coefficients forward;
  std::vector<float> own, slope, constant;

  GradientCoefficients(std::size_t images, std::int64_t c)
      : forward(images, c), own(forward.mean.size()), slope(own.size()), constant(own.size()) {}

  /// diff_src = (gamma * G - mean_gradient - z * mean_product) / sqrt(variance + epsilon).
  void set(std::size_t image, std::size_t channel, double m, double variance, double epsilon, float gamma,
           double mean_gradient, double mean_product) {
    const double inverse = 1 / std::sqrt(variance + epsilon);
    const double by_distance = -inverse * inverse * mean_product;
    for (std::size_t i = 0; i < forward.repeats; ++i) {
      const std::size_t at = (image * forward.repeats + i) * forward.channels + channel;
      own[at] = static_cast<float>(gamma * inverse);
      slope[at] = static_cast<float>(by_distance);
      // The constant includes the rounding of the mean.
      constant[at] = static_cast<float>(by_distance * (forward.mean[at] - m) - inverse * mean_gradient);
    }
  }

  ChannelTerms terms(std::int64_t image) const {
    const std::size_t at = static_cast<std::size_t>(image) * forward.repeats * forward.channels;
    return {forward.mean.data() + at, forward.scale.data() + at, forward.shift.data() + at};
  }
  std::int64_t wide() const { return static_cast<std::int64_t>(forward.repeats * forward.channels); }
};

/// Sums per channel, of one image or of all images together.
struct Sums {
  std::vector<double> gradients, products;  ///< sum G, sum G * (x - the mean rounded to float)

  /// sum G * (x - mean)
  double around(std::size_t channel, double mean) const {
    return products[channel] + (static_cast<float>(mean) - mean) * gradients[channel];
  }
};

/// Call body(g, x, first, pixels) for runs of pixels of diff_dst, threaded; g and x are adjacent floats, of one image
/// or of several if `across_images`; `first` counts from the first pixel. The body must not throw.
template <class Body>
void for_pairs(const ImageView& diff_dst, const Operand& src, bool across_images, int threads, const Body& body) {
  Operand own;
  own.view = diff_dst;
  OperandSource g(own), x(src);
  const auto both = [&](bool (Tensor::*is_dense)() const) { return (g.tensor.*is_dense)() && (x.tensor.*is_dense)(); };
  if (x.is_like(g.tensor) && both(&Tensor::images_are_dense)) {
    const bool one_line = across_images && both(&Tensor::is_dense);
    g.tensor.flatten(one_line), x.tensor.flatten(one_line);
  }
  const Tensor shape = g.tensor;
  const std::int64_t c = shape.c, buffer = std::max(kOperandChunk, c);
  const bool direct = g.is_direct() && x.is_direct() && x.covers(shape);
  const std::int64_t run = direct ? shape.w : std::max<std::int64_t>(1, kOperandChunk / c);
  std::vector<float> buffers(direct ? 0 : static_cast<std::size_t>(2 * buffer * threads));
  parallel_ranges(shape.n * shape.h * shape.w, threads, [&](std::int64_t begin, std::int64_t end) {
    float* const mine = buffers.data() + (direct ? 0 : 2 * buffer * thread_number());
    OperandReader gradients(g, c, mine), sources(x, c, mine + (direct ? 0 : buffer));
    std::int64_t line = begin / shape.w, column = begin % shape.w, pixels = 0;
    for (std::int64_t pixel = begin; pixel < end; pixel += pixels, column += pixels) {
      if (column == shape.w) column = 0, ++line;
      pixels = std::min({run, shape.w - column, end - pixel});
      const std::int64_t n = line / shape.h, y = line % shape.h;
      body(gradients.read(n, y, column, pixels), sources.read(n, y, column, pixels), pixel, pixels);
    }
  });
}

/// Partial sums of each thread.
class PartialSums {
 public:
  PartialSums(std::size_t results, std::int64_t c, const GradientCoefficients& coefficients, bool rectified,
              int threads)
      : coefficients_(coefficients),
        results_(results),
        threads_(static_cast<std::size_t>(threads)),
        c_(c),
        wide_(coefficients.wide()),
        rectified_(rectified),
        values_(threads_ * results * static_cast<std::size_t>(2 * wide_)) {}

  /// Return the calling thread's sums of a result.
  GradientSums of(std::int64_t result) {
    const std::size_t at = static_cast<std::size_t>(thread_number()) * results_ + static_cast<std::size_t>(result);
    return {coefficients_.terms(result), c_, wide_, rectified_,
            values_.data() + at * static_cast<std::size_t>(2 * wide_)};
  }

  Sums total(std::size_t result) const {
    Sums total{std::vector<double>(static_cast<std::size_t>(c_)), std::vector<double>(static_cast<std::size_t>(c_))};
    for (std::size_t thread = 0; thread < threads_; ++thread) {
      const double* const part = values_.data() + (thread * results_ + result) * static_cast<std::size_t>(2 * wide_);
      for (std::int64_t k = 0; k < wide_; ++k) {
        total.gradients[static_cast<std::size_t>(k % c_)] += part[k];
        total.products[static_cast<std::size_t>(k % c_)] += part[wide_ + k];
      }
    }
    return total;
  }

 private:
  const GradientCoefficients& coefficients_;
  std::size_t results_, threads_;
  std::int64_t c_, wide_;
  bool rectified_;
  std::vector<double> values_;
};

/// Find the sums of each image (one result per image), or of all together (one result).
void find_sums(const ImageView& diff_dst, const Operand& src, const GradientCoefficients& coefficients,
               const Neuron& neuron, bool by_slopes, std::vector<Sums>& results) {
  const std::int64_t c = diff_dst.c, image = diff_dst.h * diff_dst.w;
  const bool one_set = results.size() == 1;
  const std::int64_t block = std::max<std::int64_t>(1, kNeuronBlock / c);
  const int threads = threads_for(diff_dst.size(), kGrain);
  PartialSums partial(results.size(), c, coefficients, !by_slopes && rectifies(neuron), threads);
  std::vector<float> buffers(by_slopes ? static_cast<std::size_t>(block * c * threads) : 0);
  for_pairs(diff_dst, src, one_set, threads,
            [&](const float* g, const float* x, std::int64_t first, std::int64_t pixels) {
              const std::int64_t target = one_set ? 0 : first / image;
              const GradientSums sums = partial.of(target);
              if (!by_slopes) return sums.add(g, x, pixels);
              float* const buffer = buffers.data() + thread_number() * block * c;
              for (std::int64_t i = 0; i < pixels; i += block) {
                const std::int64_t part = std::min(block, pixels - i);
                coefficients.forward.apply(x + i * c, buffer, part, target, scale_pixels);
                row_neuron_gradient(neuron, g + i * c, buffer, buffer, part * c, c);
                sums.add(buffer, x + i * c, part);
              }
            });
  for (std::size_t i = 0; i < results.size(); ++i) results[i] = partial.total(i);
}

/// Compute images [first, first + count) of diff_src.
void combine(const NormalizeGradientProblem& problem, std::int64_t first, std::int64_t count, bool one_set,
             const GradientCoefficients& coefficients, bool by_slopes) {
  Operand g = problem.diff_dst, x = problem.src;
  g.view = g.view.images(first, count), x.view = x.view.images(first, count);
  const ImageView diff_src = problem.diff_src.images(first, count);
  const std::int64_t c = diff_src.c, wide = coefficients.wide(), repeats = wide / c, image = diff_src.h * diff_src.w;
  const bool rectified = !by_slopes && rectifies(problem.neuron);
  const std::int64_t block = std::max<std::int64_t>(1, kNeuronBlock / c);
  for_gradients(g, x, diff_src, kGrain, one_set,
                [&](const std::array<const float*, 2>& from, float* to, std::int64_t pixel, std::int64_t pixels) {
                  const std::int64_t set = one_set ? 0 : pixel / image;
                  const ChannelTerms terms = coefficients.terms(set);
                  const float* const own = coefficients.own.data() + set * wide;
                  const float* const slope = coefficients.slope.data() + set * wide;
                  const float* const constant = coefficients.constant.data() + set * wide;
                  const auto store = [&](const float* gradient, const float* source, float* result, std::int64_t many) {
                    const std::int64_t whole = many / repeats, done = whole * wide;
                    const auto store_some = rectified ? combine_rectified : combine_plain;
                    store_some(gradient, source, result, whole, wide, terms, own, slope, constant);
                    store_some(gradient + done, source + done, result + done, many % repeats, c, terms, own, slope,
                               constant);
                  };
                  if (!by_slopes) return store(from[0], from[1], to, pixels);
                  for (std::int64_t i = 0; i < pixels; i += block) {
                    const std::int64_t part = std::min(block, pixels - i);
                    coefficients.forward.apply(from[1] + i * c, to + i * c, part, set, scale_pixels);
                    row_neuron_gradient(problem.neuron, from[0] + i * c, to + i * c, to + i * c, part * c, c);
                    store(to + i * c, from[1] + i * c, to + i * c, part);
                  }
                });
}

void combine_with_given(const NormalizeGradientProblem& problem, bool by_slopes) {
  const std::int64_t c = problem.diff_src.c;
  const StoredStatistics stored(problem.mean, problem.variance, problem.exact);
  const float *gamma = values_of(problem.gamma), *beta = values_of(problem.beta);
  const bool varies = problem.count > 0;
  const float* const products = varies ? values_of(problem.diff_gamma) : nullptr;
  const float* const gradients = varies ? values_of(problem.diff_beta) : nullptr;
  GradientCoefficients coefficients(1, c);
  const double count = varies ? static_cast<double>(problem.count) : 1;
  for (std::size_t k = 0; k < static_cast<std::size_t>(c); ++k) {
    const double mean = stored.mean(k), variance = stored.variance(k);
    coefficients.forward.set(0, k, mean, variance, problem.epsilon, gamma[k], beta[k]);
    coefficients.set(0, k, mean, variance, problem.epsilon, gamma[k], varies ? gamma[k] * (gradients[k] / count) : 0,
                     varies ? gamma[k] * (products[k] / count) : 0);
  }
  combine(problem, 0, problem.diff_src.n, true, coefficients, by_slopes);
}

void combine_images(const NormalizeGradientProblem& problem, bool by_slopes) {
  const ImageView& src = problem.src.view;
  const auto groups = static_cast<std::size_t>(problem.groups), channels = static_cast<std::size_t>(src.c);
  const std::size_t each = channels / groups;
  const double count = static_cast<double>(src.h * src.w) * static_cast<double>(each);
  const StoredStatistics stored(problem.mean, problem.variance, problem.exact);
  const float *gamma = values_of(problem.gamma), *beta = values_of(problem.beta);
  std::vector<double> gammas(channels), betas(channels);
  const auto image_bytes = 2 * src.h * src.w * src.c * static_cast<std::int64_t>(size_of(src.format));
  const std::int64_t together = std::max<std::int64_t>(1, kTogether / image_bytes);
  for (std::int64_t first = 0; first < src.n; first += together) {
    const std::int64_t images = std::min(together, src.n - first);
    GradientCoefficients coefficients(static_cast<std::size_t>(images), src.c);
    const auto index = [&](std::size_t i, std::size_t k) {
      return (static_cast<std::size_t>(first) + i) * groups + k / each;
    };
    std::vector<Sums> sums(static_cast<std::size_t>(images));
    for (std::size_t i = 0; i < sums.size(); ++i)
      for (std::size_t k = 0; k < channels; ++k)
        coefficients.forward.set(i, k, stored.mean(index(i, k)), stored.variance(index(i, k)), problem.epsilon,
                                 gamma[k], beta[k]);
    Operand part = problem.src;
    part.view = part.view.images(first, images);
    part.start_h -= problem.diff_dst.start_h, part.start_w -= problem.diff_dst.start_w;
    find_sums(problem.diff_dst.view.images(first, images), part, coefficients, problem.neuron, by_slopes, sums);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      for (std::size_t g = 0; g < groups; ++g) {
        const double mean = stored.mean(index(i, g * each)), variance = stored.variance(index(i, g * each));
        const double inverse = 1 / std::sqrt(variance + problem.epsilon);
        double gradient = 0, product = 0;
        for (std::size_t k = g * each; k < (g + 1) * each; ++k) {
          const double own = sums[i].around(k, mean) * inverse;
          gammas[k] += own, betas[k] += sums[i].gradients[k];
          gradient += gamma[k] * sums[i].gradients[k], product += gamma[k] * own;
        }
        for (std::size_t k = g * each; k < (g + 1) * each; ++k)
          coefficients.set(i, k, mean, variance, problem.epsilon, gamma[k], gradient / count, product / count);
      }
    }
    combine(problem, first, images, false, coefficients, by_slopes);
  }
  float *diff_gamma = values_of(problem.diff_gamma), *diff_beta = values_of(problem.diff_beta);
  for (std::size_t k = 0; k < channels; ++k) {
    diff_gamma[k] = static_cast<float>(gammas[k]);
    diff_beta[k] = static_cast<float>(betas[k]);
  }
}

GradientCoefficients coefficients_of(const BatchMomentsGradientProblem& problem, const StoredStatistics& stored) {
  const float *gamma = values_of(problem.gamma), *beta = values_of(problem.beta);
  GradientCoefficients coefficients(1, problem.diff_dst.c);
  for (std::size_t k = 0; k < coefficients.forward.channels; ++k)
    coefficients.forward.set(0, k, stored.mean(k), stored.variance(k), problem.epsilon, gamma[k], beta[k]);
  return coefficients;
}

void store(const BatchMomentsGradientProblem& problem, const StoredStatistics& stored, const Sums& sums) {
  float *diff_gamma = values_of(problem.diff_gamma), *diff_beta = values_of(problem.diff_beta);
  for (std::size_t k = 0; k < static_cast<std::size_t>(problem.diff_dst.c); ++k) {
    const double product = sums.around(k, stored.mean(k)) / std::sqrt(stored.variance(k) + problem.epsilon);
    diff_gamma[k] = static_cast<float>(product + (problem.adds ? diff_gamma[k] : 0.0));
    diff_beta[k] = static_cast<float>(sums.gradients[k] + (problem.adds ? diff_beta[k] : 0.0));
  }
}

void moments_gradient(const BatchMomentsGradientProblem& problem, bool by_slopes) {
  const StoredStatistics stored(problem.mean, problem.variance, problem.exact);
  const GradientCoefficients coefficients = coefficients_of(problem, stored);
  std::vector<Sums> sums(1);
  find_sums(problem.diff_dst, problem.src, coefficients, problem.neuron, by_slopes, sums);
  store(problem, stored, sums[0]);
}

bool needs_slopes(const Neuron& neuron) { return !neuron_is_identity(neuron) && !rectifies(neuron); }
constexpr const char* kNeedsSlopes = "a neuron whose slopes are to be found";

/// Without a neuron, or with a rectifier, which is a condition in the loops.
const char* batch_moments_gradient_at_once(const BatchMomentsGradientProblem& problem) {
  if (needs_slopes(problem.neuron)) return kNeedsSlopes;
  moments_gradient(problem, false);
  return nullptr;
}

const char* batch_moments_gradient_by_slopes(const BatchMomentsGradientProblem& problem) {
  moments_gradient(problem, true);
  return nullptr;
}

constexpr Implementation<BatchMomentsGradientProblem> kBatchMomentsGradients[] = {
    {"batch_moments_gradient_at_once", batch_moments_gradient_at_once},
    {"batch_moments_gradient_by_slopes", batch_moments_gradient_by_slopes},
};
const ImplementationNames kBatchMomentsGradientNames(kBatchMomentsGradients);

void normalize_gradient(const NormalizeGradientProblem& problem, bool by_slopes) {
  problem.groups == 0 ? combine_with_given(problem, by_slopes) : combine_images(problem, by_slopes);
}

const char* normalize_gradient_at_once(const NormalizeGradientProblem& problem) {
  if (needs_slopes(problem.neuron)) return kNeedsSlopes;
  normalize_gradient(problem, false);
  return nullptr;
}

const char* normalize_gradient_by_slopes(const NormalizeGradientProblem& problem) {
  normalize_gradient(problem, true);
  return nullptr;
}

constexpr Implementation<NormalizeGradientProblem> kNormalizeGradients[] = {
    {"normalize_gradient_at_once", normalize_gradient_at_once},
    {"normalize_gradient_by_slopes", normalize_gradient_by_slopes},
};
const ImplementationNames kNormalizeGradientNames(kNormalizeGradients);

}  // namespace

void GradientSums::add(const float* g, const float* x, std::int64_t pixels) const {
  const std::int64_t repeats = wide / channels, whole = pixels / repeats, done = whole * wide, rest = pixels % repeats;
  const auto add_some = rectified ? MPSCNN_COPY(add_gradients<true>) : MPSCNN_COPY(add_gradients<false>);
  if (whole > 0) add_some(g, x, whole, wide, terms, sums, sums + wide);
  if (rest > 0) add_some(g + done, x + done, rest, channels, terms, sums, sums + wide);
}

void store_sums_of_gradients(const BatchMomentsGradientProblem& problem, int threads, const AddGradients& add) {
  const StoredStatistics stored(problem.mean, problem.variance, problem.exact);
  const GradientCoefficients coefficients = coefficients_of(problem, stored);
  PartialSums partial(1, problem.diff_dst.c, coefficients, false, threads);
  add([&] { return partial.of(0); });
  store(problem, stored, partial.total(0));
}

void run(const BatchMomentsGradientProblem& problem) {
  run_first("batch_moments_gradient", kBatchMomentsGradients, problem);
}
void run(const NormalizeGradientProblem& problem) { run_first("normalize_gradient", kNormalizeGradients, problem); }

}  // namespace openmps::cpu
