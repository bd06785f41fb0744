// SPDX-License-Identifier: Apache-2.0
// Reductions along an axis.
#pragma once

#include "engine/cuda/kernels/vectors.hpp"
#include "engine/problem/reduce.hpp"

namespace openmps::cuda::reduction {

inline constexpr const char* kFile = "engine/cuda/kernels/reduction.hpp";

struct ReduceArgs {
  View src, weights, dst;
  ReduceAxis axis;
  ReduceType type;
  double scale;
  bool by_nonzero_weights;

  MPSCNN_HOST_DEVICE i64 length() const {
    switch (axis) {
      case ReduceAxis::row: return src.w;
      case ReduceAxis::column: return src.h;
      case ReduceAxis::channels: return src.c;
      default: return src.h * src.w;
    }
  }
  /// Return value `i` of those that are reduced to the one at `at`.
  MPSCNN_HOST_DEVICE float value(const View& from, const Place& at, i64 i) const {
    switch (axis) {
      case ReduceAxis::row: return load(from, at.n, at.y, i, at.k);
      case ReduceAxis::column: return load(from, at.n, i, at.x, at.k);
      case ReduceAxis::channels: return load(from, at.n, at.y, at.x, i);
      default: return load(from, at.n, i / from.w, i % from.w, at.k);
    }
  }
};

/// The first extreme so far and its index. Min is the max of the negated values.
struct Extreme {
  float value;
  std::int32_t index;
};
constexpr Extreme kNothing{-std::numeric_limits<float>::infinity(), 0x7fffffff};

/// NaN goes before any number, and the lower index before a higher one.
MPSCNN_HOST_DEVICE Extreme first_extreme(const Extreme& a, const Extreme& b) {
  const bool a_is_nan = a.value != a.value, b_is_nan = b.value != b.value;
  if (a_is_nan != b_is_nan) return a_is_nan ? a : b;
  if (a.value != b.value && !a_is_nan) return a.value > b.value ? a : b;
  return a.index < b.index ? a : b;
}
MPSCNN_HOST_DEVICE bool is_min(ReduceType type) { return type == ReduceType::min || type == ReduceType::argument_min; }
MPSCNN_HOST_DEVICE Extreme extreme_of(const ReduceArgs& args, const Place& at, i64 i) {
  const float x = args.value(args.src, at, i);
  return {is_min(args.type) ? -x : x, static_cast<std::int32_t>(i)};
}
MPSCNN_HOST_DEVICE void store_extreme(const ReduceArgs& args, const Place& at, const Extreme& found) {
  const bool is_argument = args.type == ReduceType::argument_max || args.type == ReduceType::argument_min;
  store(args.dst, at, is_argument ? static_cast<float>(found.index) : is_min(args.type) ? -found.value : found.value);
}

struct Sum {
  double sum, nonzero;  ///< nonzero weights
};
MPSCNN_HOST_DEVICE Sum added(const Sum& a, const Sum& b) { return {a.sum + b.sum, a.nonzero + b.nonzero}; }
MPSCNN_HOST_DEVICE Sum term_of(const ReduceArgs& args, const Place& at, i64 i) {
  const float x = args.value(args.src, at, i);
  if (!args.weights) return {x, 0};
  const float weight = args.value(args.weights, at, i);
  return {x * weight, weight != 0 ? 1.0 : 0.0};
}
MPSCNN_HOST_DEVICE void store_sum(const ReduceArgs& args, const Place& at, const Sum& found) {
  double sum = args.scale * found.sum;
  if (args.by_nonzero_weights && found.nonzero > 0) sum /= found.nonzero;
  store(args.dst, at, static_cast<float>(sum));
}

MPSCNN_VALUE_KERNEL(reduce, ReduceArgs) {
  const Place at = place_of(index, args.dst);
  const i64 length = args.length();
  if (args.type == ReduceType::sum) {
    Sum found{0, 0};
    for (i64 i = 0; i < length; ++i) found = added(found, term_of(args, at, i));
    store_sum(args, at, found);
  } else {
    Extreme found = kNothing;
    for (i64 i = 0; i < length; ++i) found = first_extreme(found, extreme_of(args, at, i));
    store_extreme(args, at, found);
  }
}

/// Sums along rows or columns; one thread for 16 bytes of channels.
MPSCNN_VALUE_KERNEL(reduce_sums_of_vectors, ReduceArgs) {
  const View& src = args.src;
  const int lanes = lanes_of<true>(src);
  const Place at = first_place_of(index, args.dst, lanes);
  const bool is_row = args.axis == ReduceAxis::row;
  const i64 length = args.length(), stride = is_row ? src.w_stride : src.h_stride;
  const i64 first = src.offset(at.n, is_row ? at.y : 0, is_row ? 0 : at.x, at.k);
  double sums[kMostLanes] = {};
  float values[kMostLanes];
  for (i64 i = 0; i < length; ++i) {
    load_lanes<true>(src, first + i * stride, values);
    for (int l = 0; l < lanes; ++l) sums[l] += double{values[l]};
  }
  for (int l = 0; l < lanes; ++l) values[l] = static_cast<float>(args.scale * sums[l]);
  store_lanes<true>(args.dst, at, values);
}

struct VectorSum {
  double v[kMostLanes];
};
/// Sums of all pixels of an image; all threads for 16 bytes of channels.
template <class Team>
MPSCNN_HOST_DEVICE void sum_pixels_together(const ReduceArgs& args, i64 index, const Team& team) {
  const View& src = args.src;
  const int lanes = lanes_of<true>(src);
  const Place at = first_place_of(index, args.dst, lanes);
  const VectorSum found = team.reduce(
      args.length(), VectorSum{},
      [&](i64 i) {
        Place pixel = place_of(i, src.h, src.w, 1);
        pixel.n = at.n, pixel.k = at.k;
        float values[kMostLanes];
        load_lanes<true>(src, pixel, values);
        VectorSum sum{};
        for (int l = 0; l < lanes; ++l) sum.v[l] = double{values[l]};
        return sum;
      },
      [](const VectorSum& a, const VectorSum& b) {
        VectorSum sum;
        for (int l = 0; l < kMostLanes; ++l) sum.v[l] = a.v[l] + b.v[l];
        return sum;
      });
  team.for_each(1, [&](i64) {
    float values[kMostLanes];
    for (int l = 0; l < lanes; ++l) values[l] = static_cast<float>(args.scale * found.v[l]);
    store_lanes<true>(args.dst, at, values);
  });
}
MPSCNN_WARP_KERNEL(sum_pixels_by_warps, ReduceArgs) { sum_pixels_together(args, index, warp); }
MPSCNN_BLOCK_KERNEL(sum_pixels_by_blocks, ReduceArgs) { sum_pixels_together(args, index, block); }

template <class Team>
MPSCNN_HOST_DEVICE void reduce_together(const ReduceArgs& args, i64 index, const Team& team) {
  const Place at = place_of(index, args.dst);
  const i64 length = args.length();
  if (args.type == ReduceType::sum) {
    const Sum found = team.reduce(
        length, Sum{0, 0}, [&](i64 i) { return term_of(args, at, i); },
        [](const Sum& a, const Sum& b) { return added(a, b); });
    team.for_each(1, [&](i64) { store_sum(args, at, found); });
  } else {
    const Extreme found = team.reduce(
        length, kNothing, [&](i64 i) { return extreme_of(args, at, i); },
        [](const Extreme& a, const Extreme& b) { return first_extreme(a, b); });
    team.for_each(1, [&](i64) { store_extreme(args, at, found); });
  }
}
MPSCNN_WARP_KERNEL(reduce_by_warps, ReduceArgs) { reduce_together(args, index, warp); }
MPSCNN_BLOCK_KERNEL(reduce_by_blocks, ReduceArgs) { reduce_together(args, index, block); }

struct CorrelationArgs {
  View a, b, dst;
  i64 reach_h, reach_w, step_h, step_w;
  Edge edge;
};
MPSCNN_VALUE_KERNEL(correlation, CorrelationArgs) {
  const Place at = place_of(index, args.dst);
  const i64 wide = 2 * args.reach_w + 1, j = at.k / wide, i = at.k - j * wide;
  const Source other{.view = args.b,
                     .start_h = (j - args.reach_h) * args.step_h,
                     .start_w = (i - args.reach_w) * args.step_w,
                     .edge = args.edge};
  double sum = 0;
  for (i64 k = 0; k < args.a.c; ++k)
    sum += double{load(args.a, at.n, at.y, at.x, k)} * load(other, {at.n, at.y, at.x, k});
  store(args.dst, at, static_cast<float>(sum));
}

}  // namespace openmps::cuda::reduction
