// SPDX-License-Identifier: Apache-2.0
// Resizing and its adjoint. Taps along rows and columns are computed first: they take divisions of doubles.
#pragma once

#include "engine/cuda/kernels/device.hpp"
#include "engine/cuda/kernels/lanes.hpp"
#include "engine/problem/resample.hpp"
#include "engine/shared/lanczos.hpp"
#include "engine/shared/sample_taps.hpp"

namespace openmps::cuda::resampling {

inline constexpr const char* kFile = "engine/cuda/kernels/resampling.hpp";

constexpr int kRegions = 64;  ///< per launch of sample_taps_table; arguments are limited to 4 KB

/// Taps of each region: first the rows of its result, then the columns.
struct TapsArgs {
  ResampleProblem::Region regions[kRegions];
  i64 result_h, result_w, src_h, src_w;
  ResampleType type;
  ResampleEdge edge;
  Pointer<SampleTaps> taps;  ///< of regions[0]
};
MPSCNN_VALUE_KERNEL(sample_taps_table, TapsArgs) {
  const i64 length = args.result_h + args.result_w, region = index / length, i = index % length;
  const bool is_row = i < args.result_h;
  const ResampleProblem::Region& of = args.regions[region];
  args.taps[index] = is_row ? sample_taps(of.h, i, args.src_h, args.type, args.edge)
                            : sample_taps(of.w, i - args.result_h, args.src_w, args.type, args.edge);
}

struct ResampleArgs {
  View src, dst;
  i64 regions;
  Pointer<SampleTaps> taps;
  Chunks chunks;  ///< of resample_lanes
};

/// Where a pixel of the result is sampled.
struct Sample {
  i64 n;
  SampleTaps down, across;

  MPSCNN_HOST_DEVICE Sample(const ResampleArgs& args, const Place& at) {
    n = at.n / args.regions;
    const SampleTaps* const taps = args.taps.get() + (at.n - n * args.regions) * (args.dst.h + args.dst.w);
    down = taps[at.y], across = taps[args.dst.h + at.x];
  }
};

MPSCNN_HOST_DEVICE float blend(float a, float b, float weight) { return a * (1.0f - weight) + b * weight; }

MPSCNN_VALUE_KERNEL(resample, ResampleArgs) {
  const Place at = place_of(index, args.dst);
  const Sample sample(args, at);
  const auto pixel = [&](i64 y, i64 x) { return y < 0 || x < 0 ? 0.0f : load(args.src, sample.n, y, x, at.k); };
  const auto column = [&](i64 x) {
    const float upper = pixel(sample.down.first, x);
    return sample.down.weight == 0 ? upper : blend(upper, pixel(sample.down.second, x), sample.down.weight);
  };
  const float left = column(sample.across.first), weight = sample.across.weight;
  store(args.dst, at, weight == 0 ? left : blend(left, column(sample.across.second), weight));
}

MPSCNN_HOST_DEVICE Lanes blend(const Lanes& a, const Lanes& b, float weight) {
  Lanes result;
  for (int i = 0; i < kMaxLanes; ++i) result.v[i] = blend(a.v[i], b.v[i], weight);
  return result;
}

MPSCNN_VALUE_KERNEL(resample_lanes, ResampleArgs) {
  const int lanes = lanes_of(args.chunks);
  const Chunk chunk = chunk_of(index, args.chunks, args.dst);
  const Sample sample(args, chunk.at);
  const auto pixel = [&](i64 y, i64 x) {
    return y < 0 || x < 0 ? all_lanes(0) : load_lanes(args.src, {{sample.n, y, x, chunk.at.k}, lanes}, lanes);
  };
  const auto column = [&](i64 x) {
    const Lanes upper = pixel(sample.down.first, x);
    return sample.down.weight == 0 ? upper : blend(upper, pixel(sample.down.second, x), sample.down.weight);
  };
  const Lanes left = column(sample.across.first);
  const float weight = sample.across.weight;
  store_lanes(args.dst, chunk, lanes, weight == 0 ? left : blend(left, column(sample.across.second), weight));
}

/// Results [first, last] along an axis: those between the first and the last one that read a position.
struct Readers {
  i64 first, last;
};

struct ReadersArgs {
  Pointer<SampleTaps> taps;  ///< result_h of rows, then result_w of columns
  Pointer<Readers> readers;  ///< of the rows of diff_src, then of its columns
  i64 result_h, result_w, first_h, first_w, h;
};

MPSCNN_HOST_DEVICE bool reads(const SampleTaps& taps, i64 position) {
  return taps.first == position || (taps.second == position && taps.weight != 0);
}

// One block per row or column of diff_src.
MPSCNN_BLOCK_KERNEL(sample_readers, ReadersArgs) {
  const bool is_row = index < args.h;
  const i64 position = is_row ? args.first_h + index : args.first_w + index - args.h;
  const i64 results = is_row ? args.result_h : args.result_w;
  const SampleTaps* const taps = args.taps.get() + (is_row ? 0 : args.result_h);
  const Readers none{results, -1};
  const Readers readers = block.reduce(
      results, none, [&](i64 i) { return position >= 0 && reads(taps[i], position) ? Readers{i, i} : none; },
      [](const Readers& a, const Readers& b) {
        return Readers{a.first < b.first ? a.first : b.first, a.last > b.last ? a.last : b.last};
      });
  block.for_each(1, [&](i64) { args.readers[index] = readers; });
}

struct ResampleGradientArgs {
  View diff_dst, diff_src;
  i64 first_h, first_w;
  Pointer<SampleTaps> taps;
  Pointer<Readers> readers;
  Chunks chunks;  ///< of resample_gradient_lanes
};

/// The readers of a pixel of diff_src, and its weight in their results.
struct ReadersOfPixel {
  i64 y, x;  ///< of the pixel in the source
  Readers rows, columns;
  const SampleTaps *down, *across;

  MPSCNN_HOST_DEVICE ReadersOfPixel(const ResampleGradientArgs& args, const Place& at)
      : y(args.first_h + at.y),
        x(args.first_w + at.x),
        rows(args.readers[at.y]),
        columns(args.readers[args.diff_src.h + at.x]),
        down(args.taps.get()),
        across(args.taps.get() + args.diff_dst.h) {}
  /// 0: does not read the pixel.
  MPSCNN_HOST_DEVICE float weight_down(i64 v) const { return weight(down[v], y); }
  MPSCNN_HOST_DEVICE float weight_across(i64 u) const { return weight(across[u], x); }

 private:
  static MPSCNN_HOST_DEVICE float weight(const SampleTaps& taps, i64 position) {
    return taps.first == position ? 1.0f - taps.weight : taps.second == position ? taps.weight : 0.0f;
  }
};

MPSCNN_VALUE_KERNEL(resample_gradient, ResampleGradientArgs) {
  const Place at = place_of(index, args.diff_src);
  const ReadersOfPixel readers(args, at);
  double sum = 0;
  for (i64 v = readers.rows.first; v <= readers.rows.last; ++v) {
    float row = 0;
    const float down = readers.weight_down(v);
    if (down == 0) continue;
    for (i64 u = readers.columns.first; u <= readers.columns.last; ++u)
      if (const float across = readers.weight_across(u); across != 0)
        row += across * load(args.diff_dst, at.n, v, u, at.k);
    sum += down * row;
  }
  store(args.diff_src, at, static_cast<float>(sum));
}

MPSCNN_VALUE_KERNEL(resample_gradient_lanes, ResampleGradientArgs) {
  const int lanes = lanes_of(args.chunks);
  const Chunk chunk = chunk_of(index, args.chunks, args.diff_src);
  const Place& at = chunk.at;
  const ReadersOfPixel readers(args, at);
  double sums[kMaxLanes] = {};
  for (i64 v = readers.rows.first; v <= readers.rows.last; ++v) {
    Lanes row = all_lanes(0);
    const float down = readers.weight_down(v);
    if (down == 0) continue;
    for (i64 u = readers.columns.first; u <= readers.columns.last; ++u) {
      const float across = readers.weight_across(u);
      if (across == 0) continue;
      const Lanes diff = load_lanes(args.diff_dst, {{at.n, v, u, at.k}, lanes}, lanes);
      for (int i = 0; i < lanes; ++i) row.v[i] += across * diff.v[i];
    }
    for (int i = 0; i < lanes; ++i) sums[i] += down * row.v[i];
  }
  Lanes result = all_lanes(0);
  for (int i = 0; i < lanes; ++i) result.v[i] = static_cast<float>(sums[i]);
  store_lanes(args.diff_src, chunk, lanes, result);
}

// One block per value: for values with many readers.
MPSCNN_BLOCK_KERNEL(resample_gradient_blocks, ResampleGradientArgs) {
  const Place at = place_of(index, args.diff_src);
  const ReadersOfPixel readers(args, at);
  const i64 rows = readers.rows.last - readers.rows.first + 1,
            columns = readers.columns.last - readers.columns.first + 1;
  const double sum = block.reduce(
      rows > 0 && columns > 0 ? rows * columns : 0, 0.0,
      [&](i64 i) -> double {
        const i64 v = readers.rows.first + i / columns, u = readers.columns.first + i % columns;
        const float weight = readers.weight_down(v) * readers.weight_across(u);
        return weight == 0 ? 0.0f : weight * load(args.diff_dst, at.n, v, u, at.k);
      },
      [](double a, double b) { return a + b; });
  block.for_each(1, [&](i64) { store(args.diff_src, at, static_cast<float>(sum)); });
}

/// Taps of a result along an axis; its weights are adjacent.
struct LanczosRange {
  i64 first, count;
};

struct LanczosTableArgs {
  Positions h, w;
  i64 result_h, src_h, src_w, most;  ///< most: places for weights per result
  Pointer<LanczosRange> ranges;      ///< of the rows of the result, then of its columns
  Pointer<float> weights;
};
MPSCNN_VALUE_KERNEL(lanczos_table, LanczosTableArgs) {
  const bool is_row = index < args.result_h;
  const LanczosTaps taps =
      is_row ? LanczosTaps(args.h, index, args.src_h) : LanczosTaps(args.w, index - args.result_h, args.src_w);
  const double sum = taps.sum();
  args.ranges[index] = {taps.first, taps.count};
  for (i64 i = 0; i < taps.count; ++i) args.weights[index * args.most + i] = static_cast<float>(taps.window(i) / sum);
}

struct LanczosArgs {
  View src, dst;
  ResampleEdge edge;
  i64 most;
  Pointer<LanczosRange> ranges;
  Pointer<float> weights;
};

/// Return the pixel that position `at` reads along an axis, -1 for a zero.
MPSCNN_HOST_DEVICE i64 edge_place(i64 at, i64 size, ResampleEdge edge) {
  if (edge == ResampleEdge::clamp) return std::clamp<i64>(at, 0, size - 1);
  return at < 0 || at >= size ? -1 : at;
}

MPSCNN_VALUE_KERNEL(lanczos, LanczosArgs) {
  const Place at = place_of(index, args.dst);
  const i64 column = args.dst.h + at.x;
  const LanczosRange rows = args.ranges[at.y], columns = args.ranges[column];
  float sum = 0;
  for (i64 j = 0; j < rows.count; ++j) {
    const i64 y = edge_place(rows.first + j, args.src.h, args.edge);
    if (y < 0) continue;
    float line = 0;
    for (i64 i = 0; i < columns.count; ++i) {
      const i64 x = edge_place(columns.first + i, args.src.w, args.edge);
      if (x >= 0) line += args.weights[column * args.most + i] * load(args.src, at.n, y, x, at.k);
    }
    sum += args.weights[at.y * args.most + j] * line;
  }
  store(args.dst, at, sum);
}

struct GridSampleArgs {
  View src;
  Source grid;
  View dst;
  ResampleEdge edge;
  bool adds_position;
  i64 start_h, start_w;
};
MPSCNN_VALUE_KERNEL(grid_sample, GridSampleArgs) {
  const Place at = place_of(index, args.dst);
  const double row =
      static_cast<double>(args.start_h + (args.adds_position ? at.y : 0)) + load(args.grid, {at.n, at.y, at.x, 1});
  const double column =
      static_cast<double>(args.start_w + (args.adds_position ? at.x : 0)) + load(args.grid, {at.n, at.y, at.x, 0});
  const SampleTaps down = sample_taps_at(row, args.src.h, ResampleType::bilinear, args.edge);
  const SampleTaps across = sample_taps_at(column, args.src.w, ResampleType::bilinear, args.edge);
  const auto product = [&](i64 y, i64 x, float weight) {
    return weight == 0 || y < 0 || x < 0 ? 0.0f : weight * load(args.src, at.n, y, x, at.k);
  };
  store(args.dst, at,
        product(down.first, across.first, (1 - down.weight) * (1 - across.weight)) +
            product(down.first, across.second, (1 - down.weight) * across.weight) +
            product(down.second, across.first, down.weight * (1 - across.weight)) +
            product(down.second, across.second, down.weight * across.weight));
}

}  // namespace openmps::cuda::resampling
