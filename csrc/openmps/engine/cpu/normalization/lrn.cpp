// SPDX-License-Identifier: Apache-2.0

#include "engine/cpu/normalization/lrn.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/cpu/normalization/lrn_parts.hpp"
#include "engine/cpu/pointwise/vectors.hpp"
#include "engine/shared/float_rows.hpp"
#include "engine/shared/implementations.hpp"
#include "engine/shared/isa.hpp"
#include "engine/shared/operands.hpp"
#include "engine/shared/parallel.hpp"
#include "engine/shared/taps.hpp"

namespace openmps::cpu {

namespace {

constexpr std::int64_t kGrain = 8 * 1024;  // min values per thread

/// x * (delta + scale * sum of the squared neighbours)^exponent. `work`: 2 * channels + before + after doubles.
MPSCNN_CLONES void respond(const float* from, float* to, std::int64_t pixels, std::int64_t channels,
                           std::int64_t before, std::int64_t after, double scale, double delta, double exponent,
                           double* work) {
  double* const sums = work;
  double* const squares = work + channels;
  for (std::int64_t p = 0; p < pixels; ++p, from += channels, to += channels) {
    std::fill(squares, squares + before, 0.0);
    double* const own = squares + before;
#pragma omp simd
    for (std::int64_t k = 0; k < channels; ++k) own[k] = static_cast<double>(from[k]) * from[k];
    std::fill(own + channels, own + channels + after, 0.0);
    sum_neighbours(squares, channels, before + 1 + after, sums);
#pragma omp simd
    for (std::int64_t k = 0; k < channels; ++k) sums[k] = delta + scale * sums[k];
    raise_to(sums, channels, exponent);
#pragma omp simd
    for (std::int64_t k = 0; k < channels; ++k) to[k] = static_cast<float>(from[k] * sums[k]);
  }
}

void normalize_by_channels(const LRNProblem& problem) {
  const std::int64_t c = problem.dst.c;
  Operand src;
  src.view = problem.src;
  src.start_h = problem.window.start_h;
  src.start_w = problem.window.start_w;
  src.edge = problem.window.edge;
  const Neighbours neighbours(problem.size, c);
  const std::int64_t work_size = 2 * c + neighbours.count() - 1;
  std::vector<double> work(static_cast<std::size_t>(work_size * threads_for(problem.dst.size(), kGrain)));
  const double scale = static_cast<double>(problem.alpha) / static_cast<double>(problem.size);
  for_operands<1>({&src}, problem.dst, kGrain, /*across_images=*/true,
                  [&](const std::array<const float*, 1>& from, float* to, std::int64_t, std::int64_t pixels) {
                    respond(from[0], to, pixels, c, neighbours.before, neighbours.after, scale, problem.delta,
                            -static_cast<double>(problem.beta), work.data() + work_size * thread_number());
                  });
}

/// Columns in a destination pixel's window.
struct Columns {
  Span span;
  std::int64_t centre;  ///< column of the value itself, -1: a zero
};

struct Formula {
  double per_n, alpha, negative_beta, delta, p0, pm, ps;
};

#define MPSCNN_LOOPS "engine/cpu/normalization/lrn_windows.inc"
#define MPSCNN_ANY_PROCESSOR
#include "engine/cpu/pointwise/vector_copies.inc"

/// Buffers of one thread.
struct Scratch {
  FloatRows source;
  Taps rows;
  std::vector<const float*> row_pointers;
  std::vector<double> sums, squares;
  std::vector<float> result;
};

void normalize_by_windows(const LRNProblem& problem) {
  const Tensor src = tensor_of(problem.src), dst = tensor_of(problem.dst);
  const Window& w = problem.window;
  const bool clamp = w.edge == Edge::clamp, contrast = problem.type == LRNType::contrast;
  const std::int64_t c = dst.c, most_h = std::min(w.kernel_h, src.h);
  const Formula formula = {1 / (static_cast<double>(w.kernel_h) * static_cast<double>(w.kernel_w)),
                           problem.alpha,
                           -static_cast<double>(problem.beta),
                           problem.delta,
                           contrast ? problem.p0 : 0,
                           contrast ? problem.pm : 0,
                           contrast ? problem.ps : 1};

  /// Return the tap's position in the source, -1 for a zero.
  const auto place = [&](std::int64_t at, std::int64_t size) {
    return at >= 0 && at < size ? at : clamp ? std::clamp<std::int64_t>(at, 0, size - 1) : -1;
  };
  std::vector<Columns> columns(static_cast<std::size_t>(dst.w));
  // All channels of a tile of pixels, so that the tile stays in the first-level cache.
  const std::int64_t tile_width = std::max<std::int64_t>(32, 2 * w.kernel_w);
  struct Tile {
    std::int64_t begin, end;   // pixels of the result
    std::int64_t first, last;  // columns that are read
  };
  std::vector<Tile> tiles;
  for (std::int64_t x = 0; x < dst.w; ++x) {
    const std::int64_t left = w.start_w + x;
    const Span span = span_of(left, w.kernel_w, 1, src.w);
    columns[static_cast<std::size_t>(x)] = {span, place(left + w.kernel_w / 2, src.w)};
    if (x % tile_width == 0) tiles.push_back({x, std::min(x + tile_width, dst.w), src.w, 0});
    Tile& tile = tiles.back();
    if (span.count > 0) {
      tile.first = std::min(tile.first, span.first);
      tile.last = std::max(tile.last, span.first + span.count);
    }
    if (clamp && span.before > 0) tile.first = 0, tile.last = std::max<std::int64_t>(tile.last, 1);
    if (clamp && span.after > 0) tile.last = src.w, tile.first = std::min(tile.first, src.w - 1);
  }

  const bool direct = dst.format == Format::float32;
  const int threads = threads_for(dst.size(), kGrain);
  const auto row_sums = static_cast<std::size_t>(src.w * kBlock);
  std::vector<Scratch> scratch(
      static_cast<std::size_t>(threads),
      {FloatRows(src, most_h), Taps(most_h), std::vector<const float*>(static_cast<std::size_t>(most_h) + 2),
       std::vector<double>(contrast ? row_sums : 0), std::vector<double>(row_sums),
       std::vector<float>(direct ? 0 : static_cast<std::size_t>(dst.w * c))});

  parallel_ranges(dst.n * dst.h, threads, [&](std::int64_t begin, std::int64_t end) {
    Scratch& my = scratch[static_cast<std::size_t>(thread_number())];
    const std::int64_t step = my.source.pixel_stride();
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t n = row / dst.h, y = row % dst.h, top = w.start_h + y;
      my.rows.fill(span_of(top, w.kernel_h, 1, src.h), 1, src.h, clamp);
      const auto row_count = static_cast<std::int64_t>(my.rows.at.size());
      for (std::int64_t j = 0; j < row_count; ++j)
        my.row_pointers[static_cast<std::size_t>(j)] = my.source.row(n, my.rows.at[static_cast<std::size_t>(j)]);
      const std::int64_t centre_row = place(top + w.kernel_h / 2, src.h);
      const float* const centre = centre_row < 0 ? nullptr : my.source.row(n, centre_row);
      float* const result = direct ? dst.floats(n, y) : my.result.data();
      const std::int64_t result_step = direct ? dst.w_stride : c;
      for (const Tile& tile : tiles) {
        for (std::int64_t c0 = 0; c0 < c; c0 += kBlock) {
          const std::int64_t channels = std::min(kBlock, c - c0);
          MPSCNN_COPY(sum_columns)
          (my.row_pointers.data(), c0, my.rows.times.data(), row_count, tile.first, tile.last, step,
           contrast ? my.sums.data() : nullptr, my.squares.data(), channels);
          MPSCNN_COPY(divide)
          (columns.data() + tile.begin, tile.end - tile.begin, src.w, clamp, contrast ? my.sums.data() : nullptr,
           my.squares.data(), centre ? centre + c0 : nullptr, step, formula, result + tile.begin * result_step + c0,
           result_step, channels);
        }
      }
      if (direct) continue;
      for (std::int64_t x = 0; x < dst.w; ++x) row_from_float(result + x * c, dst.at(n, y, x), dst.format, c);
    }
  });
}

const char* lrn(const LRNProblem& problem) {
  problem.type == LRNType::channels ? normalize_by_channels(problem) : normalize_by_windows(problem);
  return nullptr;
}

constexpr Implementation<LRNProblem> kLRNs[] = {{"lrn", lrn}};
const ImplementationNames kLRNNames(kLRNs);

}  // namespace

void run(const LRNProblem& problem) { run_first("lrn", kLRNs, problem); }

}  // namespace openmps::cpu
