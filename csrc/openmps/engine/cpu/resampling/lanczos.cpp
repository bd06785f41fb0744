// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "engine/cpu/resampling/resample.hpp"
#include "engine/shared/float_rows.hpp"
#include "engine/shared/implementations.hpp"
#include "engine/shared/isa.hpp"
#include "engine/shared/lanczos.hpp"
#include "engine/shared/operands.hpp"

namespace openmps::cpu {
namespace {

constexpr std::int64_t kGrain = 16 * 1024;  // min multiplications per thread

/// In-bounds pixels that each result reads along an axis, with their weights. The weights of taps that clamp to the
/// edge belong to the edge's pixel.
struct Weights {
  struct Range {
    std::int64_t first, count;
    std::size_t start;  ///< of its weights
  };
  std::vector<Range> ranges;
  std::vector<float> values;
  std::int64_t most = 1;  ///< max count

  Weights(const Positions& positions, std::int64_t size, std::int64_t results, ResampleEdge edge) {
    std::vector<double> weights;
    for (std::int64_t i = 0; i < results; ++i) {
      const LanczosTaps taps(positions, i, size);
      const double sum = taps.sum();
      const std::int64_t first = std::clamp<std::int64_t>(taps.first, 0, size - 1);
      const std::int64_t last = std::clamp<std::int64_t>(taps.first + taps.count - 1, first, size - 1);
      weights.assign(static_cast<std::size_t>(last - first + 1), 0.0);
      for (std::int64_t k = 0; k < taps.count; ++k) {
        const std::int64_t at = taps.first + k, nearest = std::clamp<std::int64_t>(at, first, last);
        if (at == nearest || edge == ResampleEdge::clamp)
          weights[static_cast<std::size_t>(nearest - first)] += taps.window(k) / sum;
      }
      ranges.push_back({first, last - first + 1, values.size()});
      for (const double weight : weights) values.push_back(static_cast<float>(weight));
      most = std::max(most, last - first + 1);
    }
  }
};

/// dst += weight * src, `count` values.
MPSCNN_CLONES void accumulate(const float* src, float weight, float* dst, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) dst[i] += weight * src[i];
}

const char* lanczos(const LanczosProblem& p) {
  const Tensor src = tensor_of(p.src), dst = tensor_of(p.dst);
  const std::int64_t c = dst.c, line_size = src.w * c;
  const Weights down(p.h, src.h, dst.h, p.edge), across(p.w, src.w, dst.w, p.edge);
  const std::int64_t work = dst.n * dst.h * (down.most * line_size + across.most * dst.w * c);
  const int threads = threads_for(work, kGrain);
  struct Scratch {
    FloatRows source;
    std::vector<float> line, result;
  };
  std::vector<Scratch> scratch(static_cast<std::size_t>(threads),
                               {FloatRows(src, down.most), std::vector<float>(static_cast<std::size_t>(line_size)),
                                std::vector<float>(static_cast<std::size_t>(dst.w * c))});
  parallel_ranges(dst.n * dst.h, threads, [&](std::int64_t begin, std::int64_t end) {
    Scratch& my = scratch[static_cast<std::size_t>(thread_number())];
    const std::int64_t step = my.source.pixel_stride();
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t n = task / dst.h, y = task % dst.h;
      std::fill(my.line.begin(), my.line.end(), 0.0f);
      const Weights::Range& rows = down.ranges[static_cast<std::size_t>(y)];
      for (std::int64_t j = 0; j < rows.count; ++j) {
        const float* const row = my.source.row(n, rows.first + j);
        const float weight = down.values[rows.start + static_cast<std::size_t>(j)];
        if (step == c) {
          accumulate(row, weight, my.line.data(), line_size);
        } else {
          for (std::int64_t x = 0; x < src.w; ++x) accumulate(row + x * step, weight, my.line.data() + x * c, c);
        }
      }
      std::fill(my.result.begin(), my.result.end(), 0.0f);
      for (std::int64_t x = 0; x < dst.w; ++x) {
        const Weights::Range& columns = across.ranges[static_cast<std::size_t>(x)];
        for (std::int64_t i = 0; i < columns.count; ++i)
          accumulate(my.line.data() + (columns.first + i) * c,
                     across.values[columns.start + static_cast<std::size_t>(i)], my.result.data() + x * c, c);
      }
      store_pixels(my.result.data(), dst.at(n, y), dst, dst.w);
    }
  });
  return nullptr;
}

constexpr Implementation<LanczosProblem> kLanczos[] = {{"lanczos", lanczos}};
const ImplementationNames kLanczosNames(kLanczos);

}  // namespace

void run(const LanczosProblem& problem) { run_first("lanczos", kLanczos, problem); }

}  // namespace openmps::cpu
