// SPDX-License-Identifier: Apache-2.0
// Softmax and its gradient.
#pragma once

#include "engine/cuda/kernels/windows.hpp"
#include "engine/problem/normalize.hpp"
#include "engine/shared/fast_math.hpp"
#include "engine/shared/log_sum_exp.hpp"

namespace openmps::cuda::softmax {

inline constexpr const char* kFile = "engine/cuda/kernels/softmax.hpp";

struct SoftmaxArgs {
  Source src;
  View dst;
  bool log;
};

/// Results of a pixel, from its max and the sum of e^(x - max).
struct Result {
  float most, scale;
  LogSumExp whole;
  bool log;

  MPSCNN_HOST_DEVICE Result(float max, double sum, bool is_log)
      : most(max), scale(static_cast<float>(1 / sum)), whole(max, sum), log(is_log) {}
  MPSCNN_HOST_DEVICE float operator()(float x) const {
    return log ? (x - whole.high) - whole.low : FastMath::exp_below(x, most) * scale;
  }
};

/// Few channels: one thread per pixel.
MPSCNN_VALUE_KERNEL(softmax_few_channels, SoftmaxArgs) {
  const i64 c = args.dst.c;
  Place at = place_of(index, args.dst.h, args.dst.w, 1);
  float most = -std::numeric_limits<float>::infinity(), sum = 0;
  for (at.k = 0; at.k < c; ++at.k) {
    const float x = load(args.src, at);
    most = x > most ? x : most;
  }
  for (at.k = 0; at.k < c; ++at.k) sum += FastMath::exp_below(load(args.src, at), most);
  const Result result(most, sum, args.log);
  for (at.k = 0; at.k < c; ++at.k) store(args.dst, at, result(load(args.src, at)));
}

template <class Team>
MPSCNN_HOST_DEVICE void softmax_pixel(const SoftmaxArgs& args, i64 index, const Team& team) {
  const i64 c = args.dst.c;
  const Place pixel = place_of(index, args.dst.h, args.dst.w, 1);
  const auto value = [&](i64 k) { return load(args.src, {pixel.n, pixel.y, pixel.x, k}); };
  const float most =
      team.reduce(c, -std::numeric_limits<float>::infinity(), value, [](float a, float b) { return b > a ? b : a; });
  const double sum = team.reduce(
      c, 0.0, [&](i64 k) { return static_cast<double>(FastMath::exp_below(value(k), most)); },
      [](double a, double b) { return a + b; });
  const Result result(most, sum, args.log);
  team.for_each(c, [&](i64 k) { store(args.dst, pixel.n, pixel.y, pixel.x, k, result(value(k))); });
}
MPSCNN_WARP_KERNEL(softmax_by_warps, SoftmaxArgs) { softmax_pixel(args, index, warp); }
MPSCNN_BLOCK_KERNEL(softmax_by_blocks, SoftmaxArgs) { softmax_pixel(args, index, block); }

struct SoftmaxGradientArgs {
  Source diff_dst, dst;
  View diff_src;
  bool log;
  // If out-of-bounds pixels were clamped: the results that read each pixel of the source. Then pixel (v, u) of the
  // results is read from diff_dst and dst as element (v, u).
  i64 start_h, start_w;
  WindowAxis rows, columns;
  Pointer<float> sums;  ///< of each result pixel
};

MPSCNN_HOST_DEVICE float term_of(bool log, float diff, float result) { return log ? diff : diff * result; }
MPSCNN_HOST_DEVICE float gradient_of(bool log, float diff, float result, float sum) {
  return log ? diff - FastMath::exp_negative(result) * sum : result * (diff - sum);
}

MPSCNN_VALUE_KERNEL(softmax_gradient_few_channels, SoftmaxGradientArgs) {
  const i64 c = args.diff_src.c;
  Place at = place_of(index, args.diff_src.h, args.diff_src.w, 1);
  float sum = 0;
  for (at.k = 0; at.k < c; ++at.k) sum += term_of(args.log, load(args.diff_dst, at), load(args.dst, at));
  for (at.k = 0; at.k < c; ++at.k)
    store(args.diff_src, at, gradient_of(args.log, load(args.diff_dst, at), load(args.dst, at), sum));
}

/// Return the sum over the channels of a result pixel.
template <class Team>
MPSCNN_HOST_DEVICE float sum_of_pixel(const SoftmaxGradientArgs& args, const Place& pixel, const Team& team) {
  return static_cast<float>(team.reduce(
      args.diff_src.c, 0.0,
      [&](i64 k) {
        const Place at{pixel.n, pixel.y, pixel.x, k};
        return static_cast<double>(term_of(args.log, load(args.diff_dst, at), load(args.dst, at)));
      },
      [](double a, double b) { return a + b; }));
}

template <class Team>
MPSCNN_HOST_DEVICE void differentiate_pixel(const SoftmaxGradientArgs& args, i64 index, const Team& team) {
  const Place pixel = place_of(index, args.diff_src.h, args.diff_src.w, 1);
  const float sum = sum_of_pixel(args, pixel, team);
  team.for_each(args.diff_src.c, [&](i64 k) {
    const Place at{pixel.n, pixel.y, pixel.x, k};
    store(args.diff_src, at, gradient_of(args.log, load(args.diff_dst, at), load(args.dst, at), sum));
  });
}
MPSCNN_WARP_KERNEL(softmax_gradient_by_warps, SoftmaxGradientArgs) { differentiate_pixel(args, index, warp); }
MPSCNN_BLOCK_KERNEL(softmax_gradient_by_blocks, SoftmaxGradientArgs) { differentiate_pixel(args, index, block); }

/// Several results read the same pixel: first their sums, then each value's sum over the results.
MPSCNN_BLOCK_KERNEL(softmax_gradient_sums, SoftmaxGradientArgs) {
  const float sum = sum_of_pixel(args, place_of(index, args.rows.windows, args.columns.windows, 1), block);
  block.for_each(1, [&](i64) { args.sums[index] = sum; });
}
MPSCNN_VALUE_KERNEL(softmax_gradient_gather, SoftmaxGradientArgs) {
  const Place at = place_of(index, args.diff_src);
  i64 first_row, last_row, first_column, last_column;
  args.rows.find_readers(args.start_h + at.y, first_row, last_row);
  args.columns.find_readers(args.start_w + at.x, first_column, last_column);
  double gradient = 0;
  for (i64 v = first_row; v <= last_row; ++v) {
    for (i64 u = first_column; u <= last_column; ++u) {
      const Place result{at.n, v, u, at.k};
      gradient += gradient_of(args.log, load(args.diff_dst, result), load(args.dst, result),
                              args.sums[(at.n * args.rows.windows + v) * args.columns.windows + u]);
    }
  }
  store(args.diff_src, at, static_cast<float>(gradient));
}

}  // namespace openmps::cuda::softmax
