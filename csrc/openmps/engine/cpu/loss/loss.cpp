// SPDX-License-Identifier: Apache-2.0

#include "engine/cpu/loss/loss.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <vector>

#include "engine/shared/fast_math.hpp"
#include "engine/shared/implementations.hpp"
#include "engine/shared/isa.hpp"
#include "engine/shared/log_sum_exp.hpp"
#include "engine/shared/loss.hpp"
#include "engine/shared/operands.hpp"

namespace openmps::cpu {
namespace {

constexpr std::int64_t kGrain = 8 * 1024;  // min values per thread
constexpr std::int64_t kBlock = 128;       // values per float sum that is still exact enough
constexpr std::int64_t kFew = 32;          // with fewer channels, vectors hold several pixels
constexpr std::int64_t kPixels = 64;       // pixels per batch if they have few channels
constexpr std::int64_t kBuffers = 8;       // per thread

/// Losses of single values, each times its weight a. `slope` and `loss` may be null.
MPSCNN_CLONES void value_row(LossType type, const LossNumbers& numbers, bool by_labels, const float* y, const float* t,
                             const float* a, float* slope, float* loss, std::int64_t count) {
  const LossNumbers f = numbers;
#define MPSCNN_CASE(kind)                                                        \
  case LossType::kind:                                                           \
    if (loss) {                                                                  \
      _Pragma("omp simd") for (std::int64_t i = 0; i < count; ++i) loss[i] =     \
          a[i] * loss_of<LossType::kind, FastMath>(f, y[i], t[i]).loss;          \
    }                                                                            \
    if (slope && by_labels) {                                                    \
      _Pragma("omp simd") for (std::int64_t i = 0; i < count; ++i) slope[i] =    \
          a[i] * loss_of<LossType::kind, FastMath>(f, y[i], t[i]).by_label;      \
    } else if (slope) {                                                          \
      _Pragma("omp simd") for (std::int64_t i = 0; i < count; ++i) slope[i] =    \
          a[i] * loss_of<LossType::kind, FastMath>(f, y[i], t[i]).by_prediction; \
    }                                                                            \
    break
  switch (type) {
    MPSCNN_CASE(absolute);
    MPSCNN_CASE(square);
    MPSCNN_CASE(sigmoid);
    MPSCNN_CASE(categorical);
    MPSCNN_CASE(hinge);
    MPSCNN_CASE(huber);
    MPSCNN_CASE(cosine);
    MPSCNN_CASE(log);
    MPSCNN_CASE(kullback_leibler);
    case LossType::softmax: break;
  }
#undef MPSCNN_CASE
}

/// Softmax and cross entropy of pixels with many channels, vectorized along these. `slope` is not null; `losses` are
/// per value, or null; `pixel_loss` is per pixel.
MPSCNN_CLONES void softmax_pixels(const LossNumbers& numbers, bool by_labels, const float* y, const float* t,
                                  const float* a, float* slope, float* losses, double* pixel_loss, std::int64_t pixels,
                                  std::int64_t channels) {
  const float keep = numbers.keep, add = numbers.add;
  for (std::int64_t p = 0; p < pixels; ++p, y += channels, t += channels, a += channels, slope += channels) {
    float most = y[0];
#pragma omp simd reduction(max : most)
    for (std::int64_t i = 0; i < channels; ++i) most = y[i] > most ? y[i] : most;
    double sum = 0, mass = 0, loss = 0;
    for (std::int64_t begin = 0; begin < channels; begin += kBlock) {
      const std::int64_t end = std::min(begin + kBlock, channels);
      float part = 0, part_of_mass = 0;
#pragma omp simd reduction(+ : part, part_of_mass)
      for (std::int64_t i = begin; i < end; ++i) {
        part += slope[i] = FastMath::exp_below(y[i], most);
        part_of_mass += a[i] * (t[i] * keep + add);
      }
      sum += part, mass += part_of_mass;
    }
    const LogSumExp whole(most, sum);
    const float high = whole.high, low = whole.low, scale = static_cast<float>(mass / sum);
    for (std::int64_t begin = 0; begin < channels; begin += kBlock) {
      const std::int64_t end = std::min(begin + kBlock, channels);
      float part = 0;
      if (by_labels) {
#pragma omp simd reduction(+ : part)
        for (std::int64_t i = begin; i < end; ++i) {
          const float log = (y[i] - high) - low;
          part -= a[i] * product_or_0(t[i] * keep + add, log);
          slope[i] = -(a[i] * keep) * log;
        }
      } else {
#pragma omp simd reduction(+ : part)
        for (std::int64_t i = begin; i < end; ++i) {
          const float label = t[i] * keep + add, log = (y[i] - high) - low;
          part -= a[i] * product_or_0(label, log);
          slope[i] = slope[i] * scale - a[i] * label;
        }
      }
      loss += part;
    }
    if (losses) {
#pragma omp simd
      for (std::int64_t i = 0; i < channels; ++i)
        losses[i] = -(a[i] * product_or_0(t[i] * keep + add, (y[i] - high) - low));
      losses += channels;
    }
    pixel_loss[p] = loss;
  }
}

/// The same for pixels with few channels, vectorized along the pixels.
MPSCNN_CLONES void softmax_few(const LossNumbers& numbers, bool by_labels, const float* y, const float* t,
                               const float* a, float* slope, float* losses, double* pixel_loss, std::int64_t pixels,
                               std::int64_t channels) {
  const float keep = numbers.keep, add = numbers.add;
  float x[kFew][kPixels], e[kFew][kPixels], label[kFew][kPixels], weight[kFew][kPixels];
  float most[kPixels], sum[kPixels], mass[kPixels], loss[kPixels], low[kPixels];
  for (; pixels > 0; pixels -= kPixels, pixel_loss += kPixels) {
    const std::int64_t count = std::min(pixels, kPixels);
    std::fill_n(most, count, -INFINITY);
    std::fill_n(sum, count, 0.0f);
    std::fill_n(mass, count, 0.0f);
    std::fill_n(loss, count, 0.0f);
    for (std::int64_t i = 0; i < channels; ++i) {
#pragma omp simd
      for (std::int64_t p = 0; p < count; ++p) {
        const float v = y[p * channels + i];
        x[i][p] = v;
        most[p] = v > most[p] ? v : most[p];
        weight[i][p] = a[p * channels + i];
        label[i][p] = t[p * channels + i] * keep + add;
        mass[p] += weight[i][p] * label[i][p];
      }
    }
    for (std::int64_t i = 0; i < channels; ++i) {
#pragma omp simd
      for (std::int64_t p = 0; p < count; ++p) {
        e[i][p] = FastMath::exp_below(x[i][p], most[p]);
        sum[p] += e[i][p];
      }
    }
#pragma omp simd
    for (std::int64_t p = 0; p < count; ++p) {
      const LogSumExp whole(most[p], sum[p]);
      most[p] = whole.high, low[p] = whole.low;
      mass[p] /= sum[p];
    }
    for (std::int64_t i = 0; i < channels; ++i) {
#pragma omp simd
      for (std::int64_t p = 0; p < count; ++p) {
        const float log = (x[i][p] - most[p]) - low[p];
        const float l = -(weight[i][p] * product_or_0(label[i][p], log));
        loss[p] += l;
        e[i][p] = by_labels ? -(weight[i][p] * keep) * log : e[i][p] * mass[p] - weight[i][p] * label[i][p];
        x[i][p] = l;
      }
    }
    for (std::int64_t p = 0; p < count; ++p) {
      for (std::int64_t i = 0; i < channels; ++i) slope[p * channels + i] = e[i][p];
      pixel_loss[p] = loss[p];
    }
    if (losses) {
      for (std::int64_t p = 0; p < count; ++p)
        for (std::int64_t i = 0; i < channels; ++i) losses[p * channels + i] = x[i][p];
      losses += count * channels;
    }
    y += count * channels, t += count * channels, a += count * channels, slope += count * channels;
  }
}

MPSCNN_CLONES double sum_of(const float* values, std::int64_t count) {
  double sum = 0;
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t end = std::min(begin + kBlock, count);
    float part = 0;
#pragma omp simd reduction(+ : part)
    for (std::int64_t i = begin; i < end; ++i) part += values[i];
    sum += part;
  }
  return sum;
}

/// A run of pixels: predictions, labels, weights; room for slopes, for losses per value (or null) and, for functions
/// that have them, for losses per pixel.
struct Run {
  const float *y, *t, *a;
  float *slope, *losses;
  double* pixel_loss;
  std::int64_t pixels, channels;
};

/// `few`: softmax has fewer than kFew channels, and vectors hold several pixels.
void run_function(const LossFunction& f, bool by_labels, bool few, const Run& run) {
  const LossNumbers numbers(f);
  if (f.type == LossType::softmax)
    return (few ? softmax_few : softmax_pixels)(numbers, by_labels, run.y, run.t, run.a, run.slope, run.losses,
                                                run.pixel_loss, run.pixels, run.channels);
  value_row(f.type, numbers, by_labels, run.y, run.t, run.a, run.slope, run.losses, run.pixels * run.channels);
}

// ---------------------------------------------------------------------------------------------------------- boxes

/// Apply a function to `count` values of one box, times `factor` and the weights. A factor of 0 adds no loss, but NaN
/// stays NaN.
double box_term(const LossFunction& f, double factor, const float* y, const float* t, const float* a, float* slope,
                float* losses, std::int64_t count) {
  double pixel_loss;
  run_function(f, false, count < kFew, {y, t, a, slope, losses, &pixel_loss, 1, count});
  const auto scale = static_cast<float>(f.weight * factor);
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) slope[i] *= scale, sum += losses[i] *= scale;
  return sum;
}

void run_boxes(const BoxLoss& boxes, const Run& run) {
  const auto anchors = static_cast<std::int64_t>(boxes.anchors.size() / 2);
  const std::int64_t each = run.channels / anchors, classes = each - 5;
  const auto anchor = [&](std::int64_t k) {
    const float* const size = boxes.anchors.data() + 2 * k;
    return LossBox{0, 0, size[0], size[1]};
  };
  const auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  for (std::int64_t p = 0; p < run.pixels; ++p) {
    const std::int64_t pixel = p * run.channels;
    double whole = 0;
    const auto fit_of = [&](std::int64_t k) {
      const float* const t = run.t + pixel + k * each;
      return intersection_over_union(anchor(k), {0, 0, t[2], t[3]});
    };
    double best = 0;
    for (std::int64_t k = 0; k < anchors; ++k) best = std::max(best, fit_of(k));
    for (std::int64_t k = 0; k < anchors; ++k) {
      const std::int64_t base = pixel + k * each;
      const float *const y = run.y + base, *const t = run.t + base, *const a = run.a + base;
      float *const slope = run.slope + base, *const losses = run.losses + base;
      const double fit = fit_of(k);
      const bool object = t[4] > 0 && (fit >= best || fit > boxes.min_iou);
      const bool absent = !object && fit < boxes.max_iou;
      const double seen = object ? 1 : 0, sx = sigmoid(y[0]), sy = sigmoid(y[1]);

      const float place[] = {static_cast<float>(sx), static_cast<float>(sy)};
      whole += box_term(boxes.xy, seen, place, t, a, slope, losses, 2);
      slope[0] *= static_cast<float>(sx * (1 - sx)), slope[1] *= static_cast<float>(sy * (1 - sy));

      // Without a box there is no size to take a logarithm of.
      const LossBox own = anchor(k);
      const float size[] = {object ? static_cast<float>(std::log(t[2] / own.w + 1e-5)) : 0.0f,
                            object ? static_cast<float>(std::log(t[3] / own.h + 1e-5)) : 0.0f};
      whole += box_term(boxes.wh, seen, y + 2, size, a + 2, slope + 2, losses + 2, 2);

      float label = t[4] == t[4] ? 0.0f : t[4];
      if (object) {
        const LossBox predicted = {sx, sy, std::exp(y[2]) * own.w, std::exp(y[3]) * own.h};
        label = boxes.rescore ? static_cast<float>(intersection_over_union(predicted, {t[0], t[1], t[2], t[3]})) : 1.0f;
      }
      const double of_confidence = object ? boxes.scale_object : absent ? boxes.scale_no_object : 0.0f;
      whole += box_term(boxes.confidence, of_confidence, y + 4, &label, a + 4, slope + 4, losses + 4, 1);
      if (classes > 0) whole += box_term(boxes.classes, seen, y + 5, t + 5, a + 5, slope + 5, losses + 5, classes);
    }
    run.pixel_loss[p] = whole;
  }
}

// ----------------------------------------------------------------------------------------------------- all pixels

/// A part of the problem with its memory resolved.
struct Source {
  OperandSource y, t;
  std::optional<OperandSource> weights, incoming;
  Tensor gradient, loss;  // null data: not wanted
  Tensor pixels;          // extents
  std::int64_t per_image = 0;
  std::int64_t first_pixel = 0, first_image = 0;  // counted over all parts
  std::int64_t run = 0;                           // max pixels processed together

  Source(const LossProblem::Part& part, bool none) : y(part.src), t(part.labels) {
    if (part.weights.view.memory) weights.emplace(part.weights);
    if (part.incoming.view.memory) incoming.emplace(part.incoming);
    if (part.gradient.memory) gradient = tensor_of(part.gradient);
    if (part.loss.memory && none) loss = tensor_of(part.loss);
    pixels.n = part.n, pixels.h = part.h, pixels.w = part.w, pixels.c = part.c;
    per_image = part.h * part.w;
    // One line of pixels if there are no gaps between them, or one per image; otherwise the rows.
    const auto are_like = [&](bool (Tensor::*is_dense)() const) {
      const auto source = [&](const OperandSource& s) { return s.is_like(pixels) && (s.tensor.*is_dense)(); };
      return source(y) && source(t) && (!weights || source(*weights)) && (!incoming || source(*incoming)) &&
             (!gradient.data || (gradient.*is_dense)()) && (!loss.data || (loss.*is_dense)());
    };
    if (are_like(&Tensor::images_are_dense)) {
      const bool one_line = are_like(&Tensor::is_dense);
      y.tensor.flatten(one_line), t.tensor.flatten(one_line);
      if (weights) weights->tensor.flatten(one_line);
      if (incoming) incoming->tensor.flatten(one_line);
      if (gradient.data) gradient.flatten(one_line);
      if (loss.data) loss.flatten(one_line);
      pixels.flatten(one_line);
    }
    run = std::max<std::int64_t>(1, kOperandChunk / part.c);
  }

  /// Return whether a run of `count` pixels can be stored in place.
  static bool is_in_place(const Tensor& to, std::int64_t count) {
    return to.data && to.format == Format::float32 && (to.w_stride == to.c || count == 1);
  }
};

/// Sums and numbers of nonzero weights of the images that a thread has processed.
struct Sums {
  std::vector<double> losses, nonzero;
};

void find_losses(const LossProblem& problem, bool few, const std::vector<Source>& sources, std::int64_t begin,
                 std::int64_t end, float* buffers, std::int64_t room, Sums& sums) {
  float* const constant = buffers + 4 * room;
  std::fill_n(constant, room, problem.boxes ? 1.0f : problem.function.weight);
  double pixel_loss[kOperandChunk];
  const bool by_pixel = problem.boxes || problem.function.type == LossType::softmax;
  const bool sums_up = !sums.losses.empty(), needs_values = problem.boxes || (sums_up && !by_pixel);
  auto source = std::upper_bound(sources.begin(), sources.end(), begin,
                                 [](std::int64_t pixel, const Source& s) { return pixel < s.first_pixel; }) -
                1;
  for (std::int64_t pixel = begin; pixel < end; ++source) {
    const Source& s = *source;
    const std::int64_t c = s.pixels.c, last = std::min(end, s.first_pixel + s.pixels.n * s.pixels.h * s.pixels.w);
    OperandReader y(s.y, c, buffers), t(s.t, c, buffers + room);
    std::optional<OperandReader> weights, incoming;
    if (s.weights) weights.emplace(*s.weights, c, buffers + 2 * room);
    if (s.incoming) incoming.emplace(*s.incoming, c, buffers + 3 * room);
    std::int64_t line = (pixel - s.first_pixel) / s.pixels.w, x = (pixel - s.first_pixel) % s.pixels.w, count = 0;
    for (; pixel < last; pixel += count, x += count) {
      if (x == s.pixels.w) x = 0, ++line;
      count = std::min({s.run, s.pixels.w - x, last - pixel});
      const std::int64_t n = line / s.pixels.h, row = line % s.pixels.h;
      Run run;
      run.pixels = count, run.channels = c;
      run.y = y.read(n, row, x, count), run.t = t.read(n, row, x, count);
      const float* const own = weights ? weights->read(n, row, x, count) : constant;
      run.a = own;
      if (incoming) {
        const float* const up = incoming->read(n, row, x, count);
        float* const a = buffers + 5 * room;
        for (std::int64_t i = 0; i < count * c; ++i) a[i] = own[i] * up[i];
        run.a = a;
      }
      const bool slope_in_place = Source::is_in_place(s.gradient, count);
      const bool losses_in_place = Source::is_in_place(s.loss, count);
      run.slope = slope_in_place ? s.gradient.floats(n, row, x) : buffers + 6 * room;
      run.losses = losses_in_place               ? s.loss.floats(n, row, x)
                   : s.loss.data || needs_values ? buffers + 7 * room
                                                 : nullptr;
      run.pixel_loss = pixel_loss;
      if (problem.boxes)
        run_boxes(*problem.boxes, run);
      else
        run_function(problem.function, problem.by_labels, few, run);
      if (s.gradient.data && !slope_in_place) store_pixels(run.slope, s.gradient.at(n, row, x), s.gradient, count);
      if (s.loss.data && !losses_in_place) store_pixels(run.losses, s.loss.at(n, row, x), s.loss, count);
      if (!sums_up) continue;
      for (std::int64_t i = 0, of_image; i < count; i += of_image) {
        const std::int64_t at = pixel + i - s.first_pixel;
        of_image = std::min(count - i, s.per_image - at % s.per_image);
        const auto image = static_cast<std::size_t>(s.first_image + at / s.per_image);
        if (by_pixel) {
          for (std::int64_t p = i; p < i + of_image; ++p) sums.losses[image] += pixel_loss[p];
        } else {
          sums.losses[image] += sum_of(run.losses + i * c, of_image * c);
        }
        if (sums.nonzero.empty()) continue;
        std::int64_t nonzero = 0;
        for (std::int64_t k = i * c; k < (i + of_image) * c; ++k) nonzero += own[k] != 0 ? 1 : 0;
        sums.nonzero[image] += static_cast<double>(nonzero);
      }
    }
  }
}

/// Reduce the loss of each image and store it.
void store_losses(const LossProblem& problem, const std::vector<Source>& sources, const Sums& sums) {
  const LossFunction& f = problem.function;
  const bool is_softmax = !problem.boxes && f.type == LossType::softmax;
  double total = 0, divisor_of_all = 0;
  const auto for_each_image = [&](const auto& body) {
    for (std::size_t i = 0; i < sources.size(); ++i) {
      const ImageView& loss = problem.parts[i].loss;
      if (!loss.memory) continue;
      const Tensor to = tensor_of(loss);
      for (std::int64_t n = 0; n < to.n; ++n)
        body(sources[i], to, n, static_cast<std::size_t>(sources[i].first_image + n));
    }
  };
  const auto store = [](double loss, const Tensor& to, std::int64_t n) {
    const auto value = static_cast<float>(loss);
    row_from_float(&value, to.at(n, 0), to.format, 1);
  };
  for_each_image([&](const Source& s, const Tensor& to, std::int64_t n, std::size_t image) {
    double sum = sums.losses[image], divisor = 1;
    if (!problem.boxes && f.type == LossType::cosine) sum += s.weights ? 1.0 : static_cast<double>(f.weight);
    const auto pixels = static_cast<double>(s.per_image), values = pixels * static_cast<double>(s.pixels.c);
    if (problem.reduction == LossReduction::mean) divisor = is_softmax ? pixels : values;
    if (problem.reduction == LossReduction::mean_of_nonzero_weights) divisor = sums.nonzero[image];
    if (problem.across_images) {
      total += sum, divisor_of_all += divisor;
    } else {
      store(divisor > 0 ? sum / divisor : sum, to, n);
    }
  });
  if (!problem.across_images) return;
  if (problem.reduction == LossReduction::sum || !(divisor_of_all > 0)) divisor_of_all = 1;
  for_each_image([&](const Source&, const Tensor& to, std::int64_t n, std::size_t image) {
    store(image == 0 ? total / divisor_of_all : 0, to, n);
  });
}

void find_all_losses(const LossProblem& problem, bool few) {
  const bool none = problem.reduction == LossReduction::none;
  std::vector<Source> sources;
  sources.reserve(problem.parts.size());
  std::int64_t pixels = 0, images = 0, values = 0, channels = 0;
  bool wants_losses = false;
  for (const LossProblem::Part& part : problem.parts) {
    Source& s = sources.emplace_back(part, none);
    s.first_pixel = pixels, s.first_image = images;
    pixels += part.n * part.h * part.w, images += part.n, values += part.n * part.h * part.w * part.c;
    channels = std::max(channels, part.c);
    wants_losses = wants_losses || (part.loss.memory && !none);
  }
  const int threads = static_cast<int>(std::min<std::int64_t>(threads_for(values, kGrain), pixels));
  std::vector<Sums> sums(static_cast<std::size_t>(std::max(threads, 1)));
  if (wants_losses) {
    for (Sums& of_thread : sums) {
      of_thread.losses.resize(static_cast<std::size_t>(images));
      if (problem.reduction == LossReduction::mean_of_nonzero_weights)
        of_thread.nonzero.resize(static_cast<std::size_t>(images));
    }
  }
  const std::int64_t room = std::max(kOperandChunk, channels);
  const auto buffers = std::make_unique_for_overwrite<float[]>(sums.size() * static_cast<std::size_t>(kBuffers * room));
  parallel_ranges(pixels, threads, [&](std::int64_t begin, std::int64_t end) {
    const int thread = thread_number();
    find_losses(problem, few, sources, begin, end, buffers.get() + thread * kBuffers * room, room,
                sums[static_cast<std::size_t>(thread)]);
  });
  if (!wants_losses) return;
  for (std::size_t i = 1; i < sums.size(); ++i) {
    for (std::size_t k = 0; k < sums[0].losses.size(); ++k) sums[0].losses[k] += sums[i].losses[k];
    for (std::size_t k = 0; k < sums[0].nonzero.size(); ++k) sums[0].nonzero[k] += sums[i].nonzero[k];
  }
  store_losses(problem, sources, sums[0]);
}

const char* loss_few_channels(const LossProblem& problem) {
  if (problem.boxes || problem.function.type != LossType::softmax) return "no softmax";
  for (const LossProblem::Part& part : problem.parts)
    if (part.c >= kFew) return "many channels";
  find_all_losses(problem, true);
  return nullptr;
}

const char* loss_any_channels(const LossProblem& problem) {
  find_all_losses(problem, false);
  return nullptr;
}

constexpr Implementation<LossProblem> kLosses[] = {
    {"loss_few_channels", loss_few_channels},
    {"loss_any_channels", loss_any_channels},
};
const ImplementationNames kLossNames(kLosses);

}  // namespace

void run(const LossProblem& problem) { run_first("loss", kLosses, problem); }

}  // namespace openmps::cpu
