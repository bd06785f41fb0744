// SPDX-License-Identifier: Apache-2.0
// Gradients of depth-wise convolutions: vectorized along the channels, any window.
#include <algorithm>
#include <vector>

#include "engine/cpu/convolution/conv_gradient.hpp"
#include "engine/cpu/pointwise/vectors.hpp"
#include "engine/shared/parallel.hpp"

namespace openmps::cpu {
namespace {

using i64 = std::int64_t;

constexpr i64 kGrain = 64 * 1024;

/// One product of a sum: a pixel and the weights of a tap, `channels` values each.
struct Product {
  const float *a, *b;
};

#define MPSCNN_LOOPS "engine/cpu/convolution/depthwise_gradient.inc"
#define MPSCNN_ANY_PROCESSOR
#include "engine/cpu/pointwise/vector_copies.inc"

/// Tap k of result j.
struct Pair {
  i64 tap, result;
};

/// Return, for each source pixel of an axis, the results that read it, and with which taps.
std::vector<std::vector<Pair>> seen_by(i64 results, i64 extent, i64 kernel, i64 stride, i64 dilation, i64 start,
                                       bool clamp, i64 src_first, i64 src_extent) {
  std::vector<std::vector<Pair>> pairs(static_cast<std::size_t>(extent));
  for (i64 j = 0; j < results; ++j) {
    for (i64 k = 0; k < kernel; ++k) {
      i64 at = start + j * stride + k * dilation;
      if (clamp) at = std::clamp<i64>(at, src_first, src_first + src_extent - 1);
      if (at >= 0 && at < extent) pairs[static_cast<std::size_t>(at)].push_back({k, j});
    }
  }
  return pairs;
}

}  // namespace

const char* data_gradient_depthwise(const DataGradientCall& call) {
  const ConvWeights& weights = *call.weights;
  if (weights.in_channels_per_group != 1 || weights.groups != weights.out_channels) return "not depth-wise";
  const Tensor &e = call.diff_dst, &to = call.diff_src;
  const Window& w = call.window;
  const i64 c = to.c, taps = w.kernel_h * w.kernel_w;
  std::vector<float> by_tap(weights.values.size());  // [kH][kW][C]
  for (i64 o = 0; o < c; ++o) {
    for (i64 t = 0; t < taps; ++t)
      by_tap[static_cast<std::size_t>(t * c + o)] = weights.values[static_cast<std::size_t>(o * taps + t)];
  }
  const bool clamp = w.edge == Edge::clamp;
  const auto rows =
      seen_by(e.h, to.h, w.kernel_h, w.stride_h, w.dilation_h, w.start_h, clamp, call.src_first_h, call.src_h);
  const auto columns =
      seen_by(e.w, to.w, w.kernel_w, w.stride_w, w.dilation_w, w.start_w, clamp, call.src_first_w, call.src_w);
  std::size_t most_rows = 0, most_columns = 0;
  for (const auto& pairs : rows) most_rows = std::max(most_rows, pairs.size());
  for (const auto& pairs : columns) most_columns = std::max(most_columns, pairs.size());
  const int threads = threads_for(to.size() * taps, kGrain);
  const std::size_t room = most_rows * most_columns;
  std::vector<Product> products_of_threads(room * static_cast<std::size_t>(threads));
  parallel_ranges(to.n * to.h, threads, [&](i64 begin, i64 end) {
    Product* const products = products_of_threads.data() + room * static_cast<std::size_t>(thread_number());
    for (i64 k = begin; k < end; ++k) {
      const i64 n = k / to.h, y = k % to.h;
      for (i64 x = 0; x < to.w; ++x) {
        i64 count = 0;
        for (const Pair& row : rows[static_cast<std::size_t>(y)])
          for (const Pair& column : columns[static_cast<std::size_t>(x)])
            products[count++] = {e.floats(n, row.result, column.result),
                                 by_tap.data() + (row.tap * w.kernel_w + column.tap) * c};
        MPSCNN_COPY(sum_products)(products, count, to.floats(n, y, x), c);
      }
    }
  });
  return nullptr;
}

const char* weights_gradient_depthwise(const WeightsGradientCall& call) {
  const Tensor &e = call.diff_dst, &src = call.src;
  if (src.c != call.groups || e.c != call.groups || call.groups == 1) return "not depth-wise";
  const Window& w = call.window;
  const bool clamp = w.edge == Edge::clamp;
  const i64 c = e.c, taps = w.kernel_h * w.kernel_w, values = taps * c;
  const int threads = threads_for(e.size() * taps, kGrain);
  // Sum in float for a row of pixels at a time, then add these sums in double.
  std::vector<double> totals(static_cast<std::size_t>(values * threads));
  std::vector<float> parts(static_cast<std::size_t>(values * threads));
  constexpr i64 kRows = 16;
  parallel_ranges(e.n * e.h, threads, [&](i64 begin, i64 end) {
    float* const part = parts.data() + values * thread_number();
    double* const total = totals.data() + values * thread_number();
    for (i64 k = begin; k < end; ++k) {
      const i64 n = k / e.h, j = k % e.h;
      const float* const results = e.floats(n, j);
      for (i64 p = 0; p < w.kernel_h; ++p) {
        i64 y = w.start_h + j * w.stride_h + p * w.dilation_h;
        if (clamp) y = std::clamp<i64>(y, 0, src.h - 1);
        if (y < 0 || y >= src.h) continue;
        const float* const row = src.floats(n, y);
        for (i64 q = 0; q < w.kernel_w; ++q) {
          float* const sums = part + (p * w.kernel_w + q) * c;
          const i64 place = w.start_w + q * w.dilation_w;
          // Results [first, last) read in-bounds pixels.
          const i64 first = place >= 0 ? 0 : std::min((-place + w.stride_w - 1) / w.stride_w, e.w);
          const i64 reach = src.w - 1 - place;
          const i64 last = std::clamp<i64>(reach < 0 ? 0 : reach / w.stride_w + 1, first, e.w);
          if (first < last)
            MPSCNN_COPY(add_products)(results + first * c, c, row + (place + first * w.stride_w) * c, w.stride_w * c,
                                      last - first, sums, c);
          if (!clamp) continue;
          if (first > 0) MPSCNN_COPY(add_products)(results, c, row, 0, first, sums, c);
          if (last < e.w)
            MPSCNN_COPY(add_products)(results + last * c, c, row + (src.w - 1) * c, 0, e.w - last, sums, c);
        }
      }
      if ((k + 1 - begin) % kRows != 0 && k + 1 != end) continue;
      for (i64 i = 0; i < values; ++i) total[i] += part[i], part[i] = 0;
    }
  });
  for (i64 o = 0; o < c; ++o) {
    for (i64 t = 0; t < taps; ++t) {
      float& result = call.diff_weights[o * taps + t];
      double sum = call.accumulates ? result : 0.0;
      for (i64 i = t * c + o; i < values * threads; i += values) sum += totals[static_cast<std::size_t>(i)];
      result = static_cast<float>(sum);
    }
  }
  return nullptr;
}

}  // namespace openmps::cpu
