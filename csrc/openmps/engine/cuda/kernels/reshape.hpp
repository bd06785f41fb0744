// SPDX-License-Identifier: Apache-2.0
// Reshape and padding.
#pragma once

#include "engine/cuda/kernels/device.hpp"
#include "engine/cuda/kernels/lanes.hpp"
#include "engine/problem/reshape.hpp"
#include "engine/shared/pad_place.hpp"

namespace openmps::cuda::reshaping {

inline constexpr const char* kFile = "engine/cuda/kernels/reshape.hpp";

struct ReshapeArgs {
  View src, dst;
};
MPSCNN_VALUE_KERNEL(reshape, ReshapeArgs) {
  const Place at = place_of(index, args.dst);
  Place from = place_of((at.y * args.dst.w + at.x) * args.dst.c + at.k, args.src);
  from.n = at.n;
  store(args.dst, at, load(args.src, from));
}

struct PadArgs {
  View src, dst;
  i64 start_h, start_w, start_c;
  PadEdge edge;
  float fill;
  Pointer<const float> fills;  ///< one per channel, or none
  Chunks chunks;               ///< of pad_lanes
};

MPSCNN_HOST_DEVICE float fill_of(const PadArgs& args, i64 channel) {
  return args.fills ? args.fills[channel] : args.fill;
}

MPSCNN_VALUE_KERNEL(pad, PadArgs) {
  const Place at = place_of(index, args.dst);
  const i64 y = pad_place(args.start_h + at.y, args.src.h, args.edge),
            x = pad_place(args.start_w + at.x, args.src.w, args.edge),
            k = pad_place(args.start_c + at.k, args.src.c, args.edge);
  const bool is_inside = y >= 0 && x >= 0 && k >= 0;
  store(args.dst, at, is_inside ? load(args.src, at.n, y, x, k) : fill_of(args, at.k));
}

// Channels are not padded.
MPSCNN_VALUE_KERNEL(pad_lanes, PadArgs) {
  const int lanes = lanes_of(args.chunks);
  const Chunk chunk = chunk_of(index, args.chunks, args.dst);
  const Place& at = chunk.at;
  const i64 y = pad_place(args.start_h + at.y, args.src.h, args.edge),
            x = pad_place(args.start_w + at.x, args.src.w, args.edge);
  Lanes values;
  if (y >= 0 && x >= 0) {
    values = load_lanes(args.src, {{at.n, y, x, at.k}, lanes}, lanes);
  } else {
    values = all_lanes(args.fill);
    if (args.fills)
      for (int i = 0; i < lanes; ++i) values.v[i] = args.fills[at.k + i];
  }
  store_lanes(args.dst, chunk, lanes, values);
}

/// The results along an axis that are copies of one position: two progressions with the same step.
struct Copies {
  i64 first = 0, count = 0, mirrored_first = 0, mirrored_count = 0, step = 1;

  MPSCNN_HOST_DEVICE Copies(i64 at, i64 start, i64 size, i64 results, PadEdge edge) {
    if (at < 0 || at >= size) return;
    const bool mirrors = (edge == PadEdge::mirror && size > 1) || edge == PadEdge::mirror_with_edge;
    if (!mirrors) {
      const bool clamps = edge != PadEdge::constant;
      i64 last = at - start;
      first = last < 0 || (clamps && at == 0) ? 0 : last;
      last = last >= results || (clamps && at == size - 1) ? results - 1 : last;
      count = last < first ? 0 : last - first + 1;
      return;
    }
    step = edge == PadEdge::mirror ? 2 * size - 2 : 2 * size;
    const i64 mirrored = edge == PadEdge::mirror ? step - at : step - 1 - at;
    first = ((at - start) % step + step) % step;
    count = count_from(first, results);
    if (mirrored % step == at) return;  // the position about which the source is mirrored
    mirrored_first = ((mirrored - start) % step + step) % step;
    mirrored_count = count_from(mirrored_first, results);
  }
  MPSCNN_HOST_DEVICE i64 size() const { return count + mirrored_count; }
  MPSCNN_HOST_DEVICE i64 operator[](i64 i) const {
    return i < count ? first + i * step : mirrored_first + (i - count) * step;
  }

 private:
  MPSCNN_HOST_DEVICE i64 count_from(i64 from, i64 results) const {
    return from < results ? (results - 1 - from) / step + 1 : 0;
  }
};

struct PadGradientArgs {
  View diff_dst, diff_src;
  i64 src_h, src_w, first_h, first_w;
  i64 start_h, start_w, start_c;
  PadEdge edge;
  Chunks chunks;  ///< of pad_gradient_lanes
};

/// The copies of a value.
struct CopiesOfValue {
  i64 n;
  Copies rows, columns, channels;

  MPSCNN_HOST_DEVICE CopiesOfValue(const PadGradientArgs& args, const Place& at)
      : n(at.n),
        rows(args.first_h + at.y, args.start_h, args.src_h, args.diff_dst.h, args.edge),
        columns(args.first_w + at.x, args.start_w, args.src_w, args.diff_dst.w, args.edge),
        channels(at.k, args.start_c, args.diff_src.c, args.diff_dst.c, args.edge) {}
};

MPSCNN_VALUE_KERNEL(pad_gradient, PadGradientArgs) {
  const Place at = place_of(index, args.diff_src);
  const CopiesOfValue copies(args, at);
  double sum = 0;
  for (i64 v = 0; v < copies.rows.size(); ++v)
    for (i64 u = 0; u < copies.columns.size(); ++u)
      for (i64 k = 0; k < copies.channels.size(); ++k)
        sum += load(args.diff_dst, at.n, copies.rows[v], copies.columns[u], copies.channels[k]);
  store(args.diff_src, at, static_cast<float>(sum));
}

// Channels are not padded.
MPSCNN_VALUE_KERNEL(pad_gradient_lanes, PadGradientArgs) {
  const int lanes = lanes_of(args.chunks);
  const Chunk chunk = chunk_of(index, args.chunks, args.diff_src);
  const Place& at = chunk.at;
  const Copies rows(args.first_h + at.y, args.start_h, args.src_h, args.diff_dst.h, args.edge),
      columns(args.first_w + at.x, args.start_w, args.src_w, args.diff_dst.w, args.edge);
  double sums[kMaxLanes] = {};
  for (i64 v = 0; v < rows.size(); ++v) {
    for (i64 u = 0; u < columns.size(); ++u) {
      const Lanes diff = load_lanes(args.diff_dst, {{at.n, rows[v], columns[u], at.k}, lanes}, lanes);
      for (int i = 0; i < lanes; ++i) sums[i] += diff.v[i];
    }
  }
  Lanes result = all_lanes(0);
  for (int i = 0; i < lanes; ++i) result.v[i] = static_cast<float>(sums[i]);
  store_lanes(args.diff_src, chunk, lanes, result);
}

// One block per value: for values with many copies.
MPSCNN_BLOCK_KERNEL(pad_gradient_blocks, PadGradientArgs) {
  const Place at = place_of(index, args.diff_src);
  const CopiesOfValue copies(args, at);
  const i64 columns = copies.columns.size(), channels = copies.channels.size();
  const double sum = block.reduce(
      copies.rows.size() * columns * channels, 0.0,
      [&](i64 i) -> double {
        const i64 pixel = i / channels;
        return load(args.diff_dst, at.n, copies.rows[pixel / columns], copies.columns[pixel % columns],
                    copies.channels[i % channels]);
      },
      [](double a, double b) { return a + b; });
  block.for_each(1, [&](i64) { store(args.diff_src, at, static_cast<float>(sum)); });
}

}  // namespace openmps::cuda::reshaping
