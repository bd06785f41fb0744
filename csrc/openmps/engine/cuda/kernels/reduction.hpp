// SPDX-License-Identifier: Apache-2.0
// Reductions along an axis.
#pragma once

#include "engine/cuda/kernels/device.hpp"
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
    return axis == ReduceAxis::row ? src.w : axis == ReduceAxis::column ? src.h : src.c;
  }
  /// Return value `i` of those that are reduced to the one at `at`.
  MPSCNN_HOST_DEVICE float value(const View& from, const Place& at, i64 i) const {
    switch (axis) {
      case ReduceAxis::row: return load(from, at.n, at.y, i, at.k);
      case ReduceAxis::column: return load(from, at.n, i, at.x, at.k);
      default: return load(from, at.n, at.y, at.x, i);
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

}  // namespace openmps::cuda::reduction
