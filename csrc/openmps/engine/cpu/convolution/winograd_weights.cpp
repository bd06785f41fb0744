// SPDX-License-Identifier: Apache-2.0
// Winograd's convolution F(3 x 3, 4 x 4): the gradient of a window of 3 x 3 by its weights. Tiles of 4 x 4 pixels of
// the result's gradient and of 6 x 6 pixels of the source are transformed to 36 values per channel. Their products are
// summed over all tiles, and these sums are transformed to 3 x 3 gradients of weights.
#include "engine/cpu/convolution/winograd.hpp"

#include "engine/cpu/convolution/conv_gradient.hpp"
#include "engine/cpu/runtime.hpp"
#include "engine/shared/parallel.hpp"

namespace openmps::cpu {

#if defined(__x86_64__)

using namespace winograd;

namespace {

constexpr i64 kMinTiles = 60, kMaxTiles = 240;  // transformed at a time
constexpr i64 kTransformed = 1024 * 1024;       // floats of both images
// Tiles that are summed one after the other before the sum is added to the others. Fewer tiles in all than kFewTiles
// are left to others: their errors are up to 5 times those of the direct sum, and more tiles' at most 4 times.
constexpr i64 kSumTiles = 20, kFewTiles = 64;

/// Transform four gradients of a row or column. finish() has the factors that do not depend on them.
MPSCNN_AVX512 inline Six transform_gradients(const Four& d) {
  const __m512 even_a = _mm512_fmadd_ps(constant(kA2), d.at[2], d.at[0]);
  const __m512 odd_a = _mm512_fmadd_ps(constant(kA3), d.at[3], _mm512_mul_ps(constant(kA), d.at[1]));
  const __m512 even_b = _mm512_fmadd_ps(constant(kB2), d.at[2], d.at[0]);
  const __m512 odd_b = _mm512_fmadd_ps(constant(kB3), d.at[3], _mm512_mul_ps(constant(kB), d.at[1]));
  return {{d.at[0], _mm512_add_ps(even_a, odd_a), _mm512_sub_ps(even_a, odd_a), _mm512_add_ps(even_b, odd_b),
           _mm512_sub_ps(even_b, odd_b), d.at[3]}};
}

struct Three {
  __m512 at[3];
};

/// Transform six sums of a row or column to the gradients of three weights.
MPSCNN_AVX512 inline Three finish(const Six& m) {
  const __m512 by_0 = constant(1 / (kA2 * kB2));
  const __m512 by_a = constant(1 / (2 * kA2 * (kA2 - kB2))), by_b = constant(1 / (2 * kB2 * (kB2 - kA2)));
  const __m512 sum_a = _mm512_mul_ps(by_a, _mm512_add_ps(m.at[1], m.at[2]));
  const __m512 difference_a = _mm512_mul_ps(by_a, _mm512_sub_ps(m.at[1], m.at[2]));
  const __m512 sum_b = _mm512_mul_ps(by_b, _mm512_add_ps(m.at[3], m.at[4]));
  const __m512 difference_b = _mm512_mul_ps(by_b, _mm512_sub_ps(m.at[3], m.at[4]));
  return {{_mm512_fmadd_ps(by_0, m.at[0], _mm512_add_ps(sum_a, sum_b)),
           _mm512_fmadd_ps(constant(kA), difference_a, _mm512_mul_ps(constant(kB), difference_b)),
           _mm512_fmadd_ps(constant(kA2), sum_a, _mm512_fmadd_ps(constant(kB2), sum_b, m.at[5]))}};
}

/// Transform the tile of 4 x 4 pixels at (y, x), with zeros beyond the last ones.
MPSCNN_AVX512 void transform_gradient(const Tensor& gradient, const Tiles::Place& at, float* to, i64 product) {
  for (i64 c = 0; c < gradient.c; c += kLanes) {
    const __mmask16 lanes = lanes_from(c, gradient.c);
    Six rows[kTile];
#pragma GCC unroll 4
    for (int i = 0; i < kTile; ++i) {
      Four row;
#pragma GCC unroll 4
      for (int j = 0; j < kTile; ++j) {
        const bool is_inside = at.y + i < gradient.h && at.x + j < gradient.w;
        row.at[j] = is_inside ? _mm512_maskz_loadu_ps(lanes, gradient.floats(at.n, at.y + i, at.x + j) + c)
                              : _mm512_setzero_ps();
      }
      rows[i] = transform_gradients(row);
    }
#pragma GCC unroll 6
    for (int j = 0; j < kReach; ++j) {
      const Six column = transform_gradients({{rows[0].at[j], rows[1].at[j], rows[2].at[j], rows[3].at[j]}});
#pragma GCC unroll 6
      for (int i = 0; i < kReach; ++i) _mm512_storeu_ps(to + (i * kReach + j) * product + c, column.at[i]);
    }
  }
}

/// Sums of products over all tiles: [panel of inputs][product][output][input of the panel].
struct Sums {
  float* data;
  i64 inputs, outputs;

  float* panel(i64 index) const { return data + index * kPanel * kProducts * outputs; }
};

/// Store the gradients of the weights of one output, for the inputs of a panel.
MPSCNN_AVX512 void store_weights(const WeightsGradientCall& call, const Sums& sums, i64 panel, i64 output) {
  const i64 lanes = panel_lanes(sums.inputs, panel), product = sums.outputs * lanes;
  const float* const from = sums.panel(panel) + output * lanes;
  for (i64 v = 0; v < lanes; v += kLanes) {
    const i64 input = panel * kPanel + v;
    const __mmask16 mask = lanes_from(input, sums.inputs);
    Three columns[kReach];
#pragma GCC unroll 6
    for (int j = 0; j < kReach; ++j) {
      Six column;
#pragma GCC unroll 6
      for (int i = 0; i < kReach; ++i) column.at[i] = _mm512_loadu_ps(from + (i * kReach + j) * product + v);
      columns[j] = finish(column);
    }
#pragma GCC unroll 3
    for (int p = 0; p < 3; ++p) {
      const Three row = finish({{columns[0].at[p], columns[1].at[p], columns[2].at[p], columns[3].at[p],
                                 columns[4].at[p], columns[5].at[p]}});
#pragma GCC unroll 3
      for (int q = 0; q < 3; ++q) {
        float* const to = call.diff_weights + (output * 9 + p * 3 + q) * sums.inputs + input;
        const __m512 before = call.accumulates ? _mm512_maskz_loadu_ps(mask, to) : _mm512_setzero_ps();
        _mm512_mask_storeu_ps(to, mask, _mm512_add_ps(before, row.at[q]));
      }
    }
  }
}

/// As pays() of the convolution. To transform the sums costs as much as 8 tiles.
bool pays(const WeightsGradientCall& call, i64 tiles) {
  const i64 inputs = round_up(call.src.c, kLanes), outputs = round_up(call.diff_dst.c, kLanes);
  const i64 direct = call.diff_dst.n * call.diff_dst.h * call.diff_dst.w * 9 * inputs * outputs;
  const i64 own = kProducts * (tiles * (inputs * outputs + 24 * inputs + 20 * outputs) + 8 * inputs * outputs);
  return own + own / 10 < direct;
}

}  // namespace

const char* weights_gradient_winograd(const WeightsGradientCall& call) {
  if (const char* why_not = declines(call.window, call.groups)) return why_not;
  const Tiles tiles(call.diff_dst);
  const i64 inputs = call.src.c, outputs = call.diff_dst.c;
  const i64 most = std::clamp(kTransformed / (kProducts * (inputs + outputs)), kMinTiles, kMaxTiles);
  const i64 blocks = (tiles.count + most - 1) / most, capacity = (tiles.count + blocks - 1) / blocks;
  if (!is_forced() && tiles.count < kFewTiles) return "few tiles";
  if (!is_forced() && !pays(call, tiles.count)) return "the transforms cost more than they save";
  const int threads = threads_for(tiles.count * kProducts * inputs * outputs, kThreadGrain);
  Transformed source(capacity, inputs), gradient(capacity, outputs);
  const i64 sums_floats = kProducts * round_up(inputs, kLanes) * outputs;
  const Scratch scratch(static_cast<std::uint64_t>(source.floats() + gradient.floats() + sums_floats) * sizeof(float));
  source.data = reinterpret_cast<float*>(scratch.data());
  gradient.data = source.data + source.floats();
  const Sums sums = {gradient.data + gradient.floats(), inputs, outputs};
  const i64 panels = panels_of(inputs);
  for (i64 block = 0; block < blocks; ++block) {
    const i64 first = tiles.count * block / blocks, count = tiles.count * (block + 1) / blocks - first;
    parallel_ranges(count, threads, [&](i64 begin, i64 end) {
      transform_sources(call.src, call.window, tiles, first + begin, first + end, source, begin);
      for (i64 t = begin; t < end; ++t)
        transform_gradient(call.diff_dst, tiles.at(first + t), gradient.data + t * gradient.row, gradient.product);
    });
    parallel_ranges(panels * kProducts, threads, [&](i64 begin, i64 end) {
      for (i64 task = begin; task < end; ++task) {
        const i64 panel = task / kProducts, p = task % kProducts, lanes = panel_lanes(inputs, panel);
        for (i64 t = 0; t < count; t += kSumTiles)
          multiply_rows({.a = gradient.data + p * gradient.product + t * gradient.row,
                         .a_row = 1,
                         .a_step = gradient.row,
                         .b = source.data + p * source.product + t * source.row + panel * kPanel,
                         .b_step = source.row,
                         .count = std::min(kSumTiles, count - t),
                         .sums = sums.panel(panel) + p * outputs * lanes,
                         .sums_row = lanes,
                         .adds = block > 0 || t > 0},
                        outputs, lanes);
      }
    });
  }
  parallel_ranges(panels * outputs, threads, [&](i64 begin, i64 end) {
    for (i64 task = begin; task < end; ++task) store_weights(call, sums, task / outputs, task % outputs);
  });
  return nullptr;
}

#else

const char* weights_gradient_winograd(const WeightsGradientCall&) { return "not for this processor"; }

#endif

}  // namespace openmps::cpu
