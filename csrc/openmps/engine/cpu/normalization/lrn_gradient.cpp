// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "engine/cpu/normalization/lrn.hpp"
#include "engine/cpu/normalization/lrn_parts.hpp"
#include "engine/cpu/pointwise/gradients.hpp"
#include "engine/cpu/pointwise/vectors.hpp"
#include "engine/shared/float_rows.hpp"
#include "engine/shared/implementations.hpp"
#include "engine/shared/isa.hpp"
#include "engine/shared/operands.hpp"
#include "engine/shared/parallel.hpp"
#include "engine/shared/taps.hpp"

namespace openmps::cpu {
namespace {

constexpr std::int64_t kGrain = 8 * 1024;     // min values per thread
constexpr std::int64_t kPixelsTogether = 16;  // pixels whose powers are computed together

// ------------------------------------------------------------------------------------------------ across channels

/// With L = delta + scale * sum of the squares of channels k - before ... k + after:
/// to[k] = g[k] * L[k]^exponent + factor * x[k] * sum of g * x * L^(exponent - 1) over channels k - after ... k +
/// before. `work`: 4 * channels + before + after doubles.
MPSCNN_CLONES void respond_gradient(const float* g, const float* x, float* to, std::int64_t pixels,
                                    std::int64_t channels, std::int64_t before, std::int64_t after, double scale,
                                    double delta, double exponent, double factor, double* work) {
  double *const sums = work, *const bases = sums + channels, *const powers = bases + channels;
  double* const row = powers + channels;
  for (std::int64_t p = 0; p < pixels; ++p, g += channels, x += channels, to += channels) {
    std::fill(row, row + before, 0.0);
    double* const squares = row + before;
#pragma omp simd
    for (std::int64_t k = 0; k < channels; ++k) squares[k] = static_cast<double>(x[k]) * x[k];
    std::fill(squares + channels, squares + channels + after, 0.0);
    sum_neighbours(row, channels, before + 1 + after, sums);
#pragma omp simd
    for (std::int64_t k = 0; k < channels; ++k) bases[k] = powers[k] = delta + scale * sums[k];
    raise_to(powers, channels, exponent);
    if (factor == 0) {
#pragma omp simd
      for (std::int64_t k = 0; k < channels; ++k) to[k] = static_cast<float>(g[k] * powers[k]);
      continue;
    }
    std::fill(row, row + after, 0.0);
    double* const given = row + after;
#pragma omp simd
    for (std::int64_t k = 0; k < channels; ++k) given[k] = static_cast<double>(g[k]) * x[k] * powers[k] / bases[k];
    std::fill(given + channels, given + channels + before, 0.0);
    sum_neighbours(row, channels, before + 1 + after, sums);
#pragma omp simd
    for (std::int64_t k = 0; k < channels; ++k) to[k] = static_cast<float>(g[k] * powers[k] + factor * x[k] * sums[k]);
  }
}

void differentiate_channels(const LRNGradientProblem& problem) {
  const LRNProblem& forward = problem.forward;
  const std::int64_t c = problem.diff_src.c;
  Operand g, x;
  g.view = forward.dst, x.view = forward.src;
  x.start_h = problem.start_h, x.start_w = problem.start_w;
  x.edge = forward.window.edge;
  g.start_h = problem.start_h - forward.window.start_h, g.start_w = problem.start_w - forward.window.start_w;
  const Neighbours neighbours(forward.size, c);
  const std::int64_t work_size = 4 * c + neighbours.count() - 1;
  std::vector<double> work(static_cast<std::size_t>(work_size * threads_for(problem.diff_src.size(), kGrain)));
  const double scale = static_cast<double>(forward.alpha) / static_cast<double>(forward.size);
  for_gradients(g, x, problem.diff_src, kGrain, /*across_images=*/true,
                [&](const std::array<const float*, 2>& from, float* to, std::int64_t, std::int64_t pixels) {
                  respond_gradient(from[0], from[1], to, pixels, c, neighbours.before, neighbours.after, scale,
                                   forward.delta, -static_cast<double>(forward.beta),
                                   -2 * scale * static_cast<double>(forward.beta),
                                   work.data() + work_size * thread_number());
                });
}

// ---------------------------------------------------------------------------------------------------- in windows

/// Windows that read a position of the source along one axis, and how often each does.
struct Axis {
  std::int64_t start, kernel, size, windows;
  bool clamp;

  /// f(window, times)
  template <class F>
  inline __attribute__((always_inline)) void each_seer(std::int64_t at, const F& f) const {
    const std::int64_t last = std::min(windows - 1, at - start);
    for (std::int64_t v = std::max<std::int64_t>(0, at - start - kernel + 1); v <= last; ++v) f(v, 1.0);
    if (!clamp) return;
    if (at == 0)
      for (std::int64_t v = 0; v < std::min(windows, -start); ++v)
        f(v, static_cast<double>(std::min(kernel, -(start + v))));
    if (at == size - 1)
      for (std::int64_t v = std::max<std::int64_t>(0, size - kernel - start + 1); v < windows; ++v)
        f(v, static_cast<double>(std::min(kernel, start + v + kernel - size)));
  }
  /// First and last of these windows.
  std::int64_t first_seer(std::int64_t at) const {
    return clamp && at == 0 ? 0 : std::max<std::int64_t>(0, at - start - kernel + 1);
  }
  std::int64_t last_seer(std::int64_t at) const {
    return clamp && at == size - 1 ? windows - 1 : std::min(windows - 1, at - start);
  }
  /// Windows whose centre is at the position.
  Seers centres(std::int64_t at) const { return Seers(at, start + kernel / 2, size, windows, clamp); }
  /// Return the position of the window's centre, -1 for a zero beyond the source.
  std::int64_t centre(std::int64_t window) const {
    const std::int64_t at = start + window + kernel / 2;
    return at >= 0 && at < size ? at : clamp ? std::clamp<std::int64_t>(at, 0, size - 1) : -1;
  }
};

struct Formula {
  double per_n, alpha, negative_beta, delta, p0, ps;
  bool has_mean;
};

/// Terms that a row of windows adds to the source, kBlock doubles per window or column: with x the source, diff_src =
/// ps * (own + shared + x * slope); `own` applies to a window's centre, the others to all of its taps.
struct Given {
  double *own, *shared, *slope;  ///< shared: null without a mean
};

/// Ring of `slots` rows of such terms.
struct Rows {
  double* data;
  std::int64_t length, fields, slots;  ///< doubles per field, fields per row
  Given operator()(std::int64_t v) const {
    double* const row = data + v % slots * length * fields;
    return {row, fields > 2 ? row + 2 * length : nullptr, row + length};
  }
};

/// Terms of the rows of windows that read a row of the source, at its first column.
struct Seen {
  std::vector<const double*> own;
  struct Shared {
    const double *slope, *shared;  ///< shared: null without a mean
    double times;
  };
  std::vector<Shared> all;

  void fill(const Axis& axis, std::int64_t row, const Rows& rows) {
    own.clear(), all.clear();
    const Seers seers = axis.centres(row);
    for (std::int64_t v = seers.first; v <= seers.last; ++v) own.push_back(rows(v).own);
    axis.each_seer(row, [&](std::int64_t v, double times) {
      const Given given = rows(v);
      all.push_back({given.slope, given.shared, times});
    });
  }
};

#define MPSCNN_LOOPS "engine/cpu/normalization/lrn_windows_gradient.inc"
#define MPSCNN_ANY_PROCESSOR
#include "engine/cpu/pointwise/vector_copies.inc"

/// A block of channels of a row is one cache line per pixel, too far apart for the hardware prefetcher.
template <int kWrite = 0>
void prefetch_row(const Tensor& image, std::int64_t n, std::int64_t y, std::int64_t c0) {
  if (image.format != Format::float32 || y < 0 || y >= image.h) return;
  const float* const row = image.floats(n, y) + c0;
  for (std::int64_t x = 0; x < image.w; ++x) __builtin_prefetch(row + x * image.w_stride, kWrite);
}

/// Buffers of one thread.
struct Scratch {
  FloatRows source, gradient;
  Taps taps;
  Seen seen;
  std::vector<const float*> rows;
  std::vector<double> sums, squares, windows, columns;
  std::vector<float> result;
};

void differentiate_windows(const LRNGradientProblem& problem) {
  const LRNProblem& forward = problem.forward;
  const Tensor src = tensor_of(forward.src), g = tensor_of(forward.dst), result = tensor_of(problem.diff_src);
  const Window& w = forward.window;
  const bool clamp = w.edge == Edge::clamp, contrast = forward.type == LRNType::contrast;
  const Formula formula = {1 / (static_cast<double>(w.kernel_h) * static_cast<double>(w.kernel_w)),
                           forward.alpha,
                           -static_cast<double>(forward.beta),
                           forward.delta,
                           contrast ? forward.p0 : 0,
                           contrast ? forward.ps : 1,
                           contrast};
  const Axis down = {w.start_h, w.kernel_h, src.h, g.h, clamp}, along = {w.start_w, w.kernel_w, src.w, g.w, clamp};
  std::vector<Span> spans;
  for (std::int64_t x = 0; x < g.w; ++x) spans.push_back(span_of(w.start_w + x, w.kernel_w, 1, src.w));
  const std::int64_t first = std::clamp<std::int64_t>(-problem.start_w, 0, result.w);
  const std::int64_t last = std::clamp<std::int64_t>(src.w - problem.start_w, first, result.w);

  // A thread visits the rows of the result, kBlock channels of an image at a time, and keeps the terms of the rows of
  // windows that read a row, each computed once.
  std::int64_t slots = 1;
  for (const std::int64_t y : {std::int64_t{0}, src.h / 2, src.h - 1})
    slots = std::max(slots, down.last_seer(y) - down.first_seer(y) + 1);
  slots = std::max(slots, std::min(w.kernel_h, g.h));
  const std::int64_t c = src.c, blocks = (c + kBlock - 1) / kBlock, fields = contrast ? 3 : 2;
  const std::int64_t length = src.w * kBlock;
  const int threads = threads_for(std::max(g.size(), result.size()), kGrain);
  const std::int64_t most_h = std::min(w.kernel_h, src.h);
  const auto doubles = [](std::int64_t count) { return std::vector<double>(static_cast<std::size_t>(count)); };
  std::vector<Scratch> scratch(
      static_cast<std::size_t>(threads),
      {FloatRows(src, most_h), FloatRows(g, 1), Taps(most_h), Seen{},
       std::vector<const float*>(static_cast<std::size_t>(most_h) + 2), doubles(contrast ? length : 0), doubles(length),
       doubles(fields * g.w * kBlock), doubles(slots * fields * length),
       std::vector<float>(static_cast<std::size_t>(result.w * kBlock))});

  parallel_ranges(src.n * blocks * result.h, threads, [&](std::int64_t begin, std::int64_t end) {
    Scratch& my = scratch[static_cast<std::size_t>(thread_number())];
    const Given windows = Rows{my.windows.data(), g.w * kBlock, fields, 1}(0);
    const Rows columns = {my.columns.data(), length, fields, slots};
    double* const sums = contrast ? my.sums.data() : nullptr;
    const std::int64_t step = my.source.pixel_stride();
    std::int64_t known = 0;  // rows of windows before this one are done
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t y = i % result.h, plane = i / result.h, n = plane / blocks, c0 = plane % blocks * kBlock;
      const std::int64_t channels = std::min(kBlock, c - c0), row = problem.start_h + y;
      if (i == begin || y == 0) known = 0;
      prefetch_row<1>(result, n, y, c0);
      float* const values = my.result.data();
      if (row >= 0 && row < src.h && first < last) {
        const std::int64_t last_seer = down.last_seer(row);
        for (std::int64_t v = std::max(known, down.first_seer(row)); v <= last_seer; ++v) {
          const std::int64_t middle = down.centre(v);
          prefetch_row(src, n, w.start_h + v + w.kernel_h, c0);
          prefetch_row(g, n, v + 1, c0);
          my.taps.fill(span_of(w.start_h + v, w.kernel_h, 1, src.h), 1, src.h, clamp);
          for (std::size_t j = 0; j < my.taps.at.size(); ++j) my.rows[j] = my.source.row(n, my.taps.at[j]);
          MPSCNN_COPY(sum_columns)(my.rows.data(), c0, my.taps.times.data(),
                                   static_cast<std::int64_t>(my.taps.at.size()), 0, src.w, step, sums,
                                   my.squares.data(), channels);
          const float* const centre = middle < 0 ? nullptr : my.source.row(n, middle) + c0;
          MPSCNN_COPY(differentiate)(along, spans.data(), sums, my.squares.data(), centre, step,
                                     my.gradient.row(n, v) + c0, my.gradient.pixel_stride(), formula, windows,
                                     channels);
          MPSCNN_COPY(give_to_columns)(along, windows, columns(v));
        }
        known = std::max(known, last_seer + 1);
        std::fill_n(values, first * kBlock, 0.0f);
        std::fill_n(values + last * kBlock, (result.w - last) * kBlock, 0.0f);
        my.seen.fill(down, row, columns);
        MPSCNN_COPY(give_to_rows)(my.seen, problem.start_w + first, problem.start_w + last, my.source.row(n, row) + c0,
                                  step, formula.ps, values + first * kBlock, kBlock, channels);
      } else {
        std::fill_n(values, result.w * kBlock, 0.0f);
      }
      for (std::int64_t x = 0; x < result.w; ++x) {
        if (result.format == Format::float32) {
          copy_channels(values + x * kBlock, result.floats(n, y, x) + c0, channels);
        } else {
          row_from_float(values + x * kBlock,
                         result.at(n, y, x) + c0 * static_cast<std::int64_t>(size_of(result.format)), result.format,
                         channels);
        }
      }
    }
  });
}

const char* lrn_gradient(const LRNGradientProblem& problem) {
  problem.forward.type == LRNType::channels ? differentiate_channels(problem) : differentiate_windows(problem);
  return nullptr;
}

constexpr Implementation<LRNGradientProblem> kLRNGradients[] = {{"lrn_gradient", lrn_gradient}};
const ImplementationNames kLRNGradientNames(kLRNGradients);

}  // namespace

void run(const LRNGradientProblem& problem) { run_first("lrn_gradient", kLRNGradients, problem); }

}  // namespace openmps::cpu
