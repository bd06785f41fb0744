// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "engine/cpu/resampling/resample.hpp"
#include "engine/shared/implementations.hpp"
#include "engine/shared/operands.hpp"
#include "engine/shared/sample_taps.hpp"

namespace openmps::cpu {
namespace {

constexpr std::int64_t kGrain = 16 * 1024;  // min values per thread

/// Reads single pixels as floats.
class Pixels {
 public:
  explicit Pixels(const Tensor& src) : src_(src), values_(static_cast<std::size_t>(4 * src.c)) {}

  /// Return the pixel, in place or in buffer `slot` of four; null for -1, a zero.
  const float* at(std::int64_t n, std::int64_t y, std::int64_t x, int slot) {
    if (y < 0 || x < 0) return nullptr;
    if (src_.format == Format::float32) return src_.floats(n, y, x);
    float* const values = values_.data() + slot * src_.c;
    row_to_float(src_.at(n, y, x), src_.format, values, src_.c);
    return values;
  }

 private:
  const Tensor src_;
  std::vector<float> values_;
};

constexpr std::int64_t kRun = kOperandChunk / 2;  ///< positions per buffer

/// dst = the sample, `c` values.
void sample(Pixels& pixels, std::int64_t n, const SampleTaps& down, const SampleTaps& across, float* dst,
            std::int64_t c) {
  std::fill_n(dst, c, 0.0f);
  const auto add = [&](std::int64_t y, std::int64_t x, float weight, int slot) {
    if (weight == 0) return;  // the pixel may be infinite
    const float* const pixel = pixels.at(n, y, x, slot);
    for (std::int64_t k = 0; pixel && k < c; ++k) dst[k] += weight * pixel[k];
  };
  add(down.first, across.first, (1 - down.weight) * (1 - across.weight), 0);
  add(down.first, across.second, (1 - down.weight) * across.weight, 1);
  add(down.second, across.first, down.weight * (1 - across.weight), 2);
  add(down.second, across.second, down.weight * across.weight, 3);
}

const char* grid_sample(const GridSampleProblem& p) {
  const Tensor src = tensor_of(p.src), dst = tensor_of(p.dst);
  const OperandSource grid(p.grid);
  const std::int64_t c = dst.c;
  const int threads = threads_for(dst.size(), kGrain);
  struct Scratch {
    Pixels pixels;
    std::vector<float> positions, row;
  };
  std::vector<Scratch> scratch(static_cast<std::size_t>(threads),
                               {Pixels(src), std::vector<float>(static_cast<std::size_t>(2 * kOperandChunk)),
                                std::vector<float>(static_cast<std::size_t>(dst.w * c))});
  parallel_ranges(dst.n * dst.h, threads, [&](std::int64_t begin, std::int64_t end) {
    Scratch& my = scratch[static_cast<std::size_t>(thread_number())];
    OperandReader reader(grid, 2, my.positions.data());
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t n = task / dst.h, y = task % dst.h;
      const float* at = nullptr;
      for (std::int64_t x = 0; x < dst.w; ++x, at += 2) {
        if (x % kRun == 0) at = reader.read(n, y, x, std::min(kRun, dst.w - x));
        const double row = static_cast<double>(p.start_h + (p.adds_position ? y : 0)) + at[1];
        const double column = static_cast<double>(p.start_w + (p.adds_position ? x : 0)) + at[0];
        const SampleTaps down = sample_taps_at(row, src.h, ResampleType::bilinear, p.edge);
        const SampleTaps across = sample_taps_at(column, src.w, ResampleType::bilinear, p.edge);
        sample(my.pixels, n, down, across, my.row.data() + x * c, c);
      }
      store_pixels(my.row.data(), dst.at(n, y), dst, dst.w);
    }
  });
  return nullptr;
}

constexpr Implementation<GridSampleProblem> kGridSamples[] = {{"grid_sample", grid_sample}};
const ImplementationNames kGridSampleNames(kGridSamples);

}  // namespace

void run(const GridSampleProblem& problem) { run_first("grid_sample", kGridSamples, problem); }

}  // namespace openmps::cpu
