// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/resampling/resample.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/shared/float_rows.hpp"
#include "engine/shared/implementations.hpp"
#include "engine/shared/isa.hpp"
#include "engine/shared/operands.hpp"
#include "engine/shared/sample_taps.hpp"

namespace openmps::cpu {
namespace {

constexpr std::int64_t kGrain = 32 * 1024;  // min values per thread
constexpr std::int64_t kFew = 16;           // with fewer channels, vectors hold several pixels

/// a * (1 - weight) + b * weight, `count` values; a null pointer means zeros. dst may be a.
MPSCNN_CLONES void blend(const float* a, const float* b, float weight, float* dst, std::int64_t count) {
  const float rest = 1.0f - weight;
  if (a && b) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) dst[i] = a[i] * rest + b[i] * weight;
  } else if (const float* const one = a ? a : b) {
    const float scale = a ? rest : weight;
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) dst[i] = one[i] * scale;
  } else {
    std::fill_n(dst, count, 0.0f);
  }
}

/// Sixteen floats, in as many registers as the instruction set needs.
typedef float Floats __attribute__((vector_size(64)));
typedef float FloatsAnywhere __attribute__((vector_size(64), aligned(4)));

#define MPSCNN_LOAD(pointer) (*reinterpret_cast<const FloatsAnywhere*>(pointer))
#define MPSCNN_STORE(pointer, value) (*reinterpret_cast<FloatsAnywhere*>(pointer) = (value))

/// Sample a row of the result from a row of pixels `step` floats apart; `zeros` is a zero pixel, a null row all zeros.
MPSCNN_CLONES void sample_pixels(const float* row, std::int64_t step, const float* zeros, const SampleTaps* taps,
                                 std::int64_t count, std::int64_t channels, float* dst) {
  for (std::int64_t x = 0; x < count; ++x, dst += channels) {
    const SampleTaps& t = taps[x];
    const float* const a = !row || t.first < 0 ? zeros : row + t.first * step;
    if (t.weight == 0) {
#pragma omp simd
      for (std::int64_t k = 0; k < channels; ++k) dst[k] = a[k];
      continue;
    }
    const float* const b = !row || t.second < 0 ? zeros : row + t.second * step;
    const float weight = t.weight, rest = 1.0f - weight;
    std::int64_t k = 0;
    for (; k + 16 <= channels; k += 16)
      MPSCNN_STORE(dst + k, Floats(MPSCNN_LOAD(a + k)) * rest + Floats(MPSCNN_LOAD(b + k)) * weight);
    for (; k < channels; ++k) dst[k] = a[k] * rest + b[k] * weight;
  }
}

/// The same by a table of the row values that each result value reads.
MPSCNN_CLONES void sample_values(const float* row, const std::int32_t* first, const std::int32_t* second,
                                 const float* weights, std::int64_t count, float* dst) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float a = row[first[i]], b = row[second[i]], weight = weights[i];
    dst[i] = weight == 0 ? a : a * (1.0f - weight) + b * weight;
  }
}

/// Columns of a region, the same for all rows of its result.
struct Columns {
  std::vector<SampleTaps> taps;     ///< pixels are counted from `begin`
  std::int64_t begin = 0, end = 0;  ///< source pixels that are read
  // If `by_value`: positions of each value in a row of these pixels and a zero pixel.
  std::vector<std::int32_t> first, second;
  std::vector<float> weights;

  Columns(const Positions& positions, const ResampleProblem& problem, bool by_value) {
    const std::int64_t size = problem.src.w, count = problem.dst.w, channels = problem.dst.c;
    begin = size;
    for (std::int64_t x = 0; x < count; ++x) {
      taps.push_back(sample_taps(positions, x, size, problem.type, problem.edge));
      for (const std::int64_t pixel : {taps.back().first, taps.back().second})
        if (pixel >= 0) begin = std::min(begin, pixel), end = std::max(end, pixel + 1);
    }
    begin = std::min(begin, end);
    for (SampleTaps& t : taps) {
      if (t.first >= 0) t.first -= begin;
      if (t.second >= 0) t.second -= begin;
      for (std::int64_t k = 0; by_value && k < channels; ++k) {
        const auto place = [&](std::int64_t pixel) {
          return static_cast<std::int32_t>((pixel < 0 ? end - begin : pixel) * channels + k);
        };
        first.push_back(place(t.first));
        second.push_back(place(t.second));
        weights.push_back(t.weight);
      }
    }
  }
};

/// Buffers of one thread.
struct Scratch {
  FloatRows source;
  std::vector<float> line, result;
};

/// `by_value`: vectors hold several pixels, whose values are looked up in a table; else they are along the channels.
void resample(const ResampleProblem& problem, bool by_value) {
  const Tensor src = tensor_of(problem.src), dst = tensor_of(problem.dst);
  const std::int64_t c = dst.c, regions = static_cast<std::int64_t>(problem.regions.size());
  std::vector<Columns> columns;
  columns.reserve(problem.regions.size());
  std::int64_t widest = 0;
  for (const ResampleProblem::Region& region : problem.regions) {
    columns.emplace_back(region.w, problem, by_value);
    widest = std::max(widest, columns.back().end - columns.back().begin);
  }
  const std::vector<float> zeros(static_cast<std::size_t>(c), 0.0f);
  const bool direct = dst.format == Format::float32 && (dst.w == 1 || dst.w_stride == c);

  const int threads = threads_for(dst.size(), kGrain);
  std::vector<Scratch> scratch(
      static_cast<std::size_t>(threads),
      {FloatRows(src, 2), std::vector<float>(static_cast<std::size_t>(std::max(widest, dst.w) * c + c)),
       std::vector<float>(static_cast<std::size_t>(direct ? 0 : dst.w * c))});

  parallel_ranges(dst.n * dst.h, threads, [&](std::int64_t begin, std::int64_t end) {
    Scratch& my = scratch[static_cast<std::size_t>(thread_number())];
    const std::int64_t step = my.source.pixel_stride();
    float* const line = my.line.data();
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t n = task / dst.h, y = task % dst.h, region = n % regions;
      const Columns& across = columns[static_cast<std::size_t>(region)];
      const SampleTaps* const taps = across.taps.data();
      const SampleTaps down =
          sample_taps(problem.regions[static_cast<std::size_t>(region)].h, y, src.h, problem.type, problem.edge);
      const auto row_at = [&](std::int64_t row) {
        return row < 0 ? nullptr : my.source.row(n / regions, row) + across.begin * step;
      };
      const float *const upper = row_at(down.first), *const lower = down.weight == 0 ? nullptr : row_at(down.second);
      const std::int64_t span = across.end - across.begin;
      const auto blend_pixels = [&] {
        if (step == c) return blend(upper, lower, down.weight, line, span * c);
        for (std::int64_t x = 0; x < span; ++x)
          blend(upper ? upper + x * step : nullptr, lower ? lower + x * step : nullptr, down.weight, line + x * c, c);
      };

      float* const result = direct ? dst.floats(n, y) : my.result.data();
      if (by_value) {
        blend_pixels();
        std::fill_n(line + span * c, c, 0.0f);
        sample_values(line, across.first.data(), across.second.data(), across.weights.data(), dst.w * c, result);
      } else if (down.weight == 0) {
        sample_pixels(upper, step, zeros.data(), taps, dst.w, c, result);
      } else if (span <= 2 * dst.w) {
        blend_pixels();
        sample_pixels(line, c, zeros.data(), taps, dst.w, c, result);
      } else {
        sample_pixels(upper, step, zeros.data(), taps, dst.w, c, result);
        sample_pixels(lower, step, zeros.data(), taps, dst.w, c, line);
        blend(result, line, down.weight, result, dst.w * c);
      }
      if (!direct) store_pixels(result, dst.at(n, y), dst, dst.w);
    }
  });
}

/// Copy `count` pixels of `bytes` bytes, one after the other, from their places in a row.
template <std::int64_t bytes>
void copy_pixels(const std::byte* row, const std::int64_t* places, std::int64_t count, std::byte* dst) {
  for (std::int64_t x = 0; x < count; ++x, dst += bytes) std::memcpy(dst, row + places[x], bytes);
}
void copy_pixels(const std::byte* row, const std::int64_t* places, std::int64_t count, std::int64_t bytes,
                 std::byte* dst) {
  switch (bytes) {
    case 32: return copy_pixels<32>(row, places, count, dst);
    case 64: return copy_pixels<64>(row, places, count, dst);
    case 128: return copy_pixels<128>(row, places, count, dst);
    case 256: return copy_pixels<256>(row, places, count, dst);
    default:
      for (std::int64_t x = 0; x < count; ++x, dst += bytes)
        std::memcpy(dst, row + places[x], static_cast<std::size_t>(bytes));
  }
}

const char* resample_copies(const ResampleProblem& problem) {
  if (problem.type != ResampleType::nearest) return "pixels are interpolated";
  if (problem.src.format != problem.dst.format) return "formats differ";
  const Tensor src = tensor_of(problem.src), dst = tensor_of(problem.dst);
  if (dst.w > 1 && dst.w_stride != dst.c) return "pixels of the result are not adjacent";
  const auto size = static_cast<std::int64_t>(size_of(src.format));
  const std::int64_t regions = static_cast<std::int64_t>(problem.regions.size()), bytes = dst.c * size;
  std::vector<std::vector<std::int64_t>> places(problem.regions.size());  // of the columns, in bytes
  for (std::size_t i = 0; i < places.size(); ++i) {
    for (std::int64_t x = 0; x < dst.w; ++x) {
      const SampleTaps taps = sample_taps(problem.regions[i].w, x, src.w, problem.type, problem.edge);
      if (taps.first < 0) return "pixels outside of the source are zero";
      places[i].push_back(taps.first * src.w_stride * size);
    }
  }
  const auto row_of = [&](std::int64_t region, std::int64_t y) {
    return sample_taps(problem.regions[static_cast<std::size_t>(region)].h, y, src.h, problem.type, problem.edge).first;
  };
  for (std::int64_t region = 0; region < regions; ++region)
    for (std::int64_t y = 0; y < dst.h; ++y)
      if (row_of(region, y) < 0) return "pixels outside of the source are zero";
  parallel_ranges(dst.n * dst.h, threads_for(dst.size(), kGrain), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t n = task / dst.h, y = task % dst.h, region = n % regions, row = row_of(region, y);
      std::byte* const to = dst.at(n, y);
      if (task > begin && y > 0 && row == row_of(region, y - 1))
        std::memcpy(to, dst.at(n, y - 1), static_cast<std::size_t>(dst.w * bytes));
      else
        copy_pixels(src.at(n / regions, row), places[static_cast<std::size_t>(region)].data(), dst.w, bytes, to);
    }
  });
  return nullptr;
}

const char* resample_few_channels(const ResampleProblem& problem) {
  if (problem.dst.c >= kFew) return "many channels";
  resample(problem, true);
  return nullptr;
}

const char* resample_many_channels(const ResampleProblem& problem) {
  resample(problem, false);
  return nullptr;
}

constexpr Implementation<ResampleProblem> kResamplings[] = {
    {"resample_copies", resample_copies},
    {"resample_few_channels", resample_few_channels},
    {"resample_many_channels", resample_many_channels},
};
const ImplementationNames kResamplingNames(kResamplings);

}  // namespace

void run(const ResampleProblem& problem) { run_first("resample", kResamplings, problem); }

}  // namespace openmps::cpu
