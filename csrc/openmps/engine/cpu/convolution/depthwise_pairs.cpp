// SPDX-License-Identifier: Apache-2.0
// The instruction adds the products of two pairs of bfloat16 numbers to a float32 sum. A pair is a pixel and the one
// below it, so one instruction multiplies two taps of a filter, and images need no conversion. Two rows of results are
// computed together: both use the pairs of the rows that their windows share.
#include "engine/cpu/convolution/depthwise.hpp"

#if defined(__x86_64__)

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/cpu/convolution/bfloat16.hpp"
#include "engine/shared/parallel.hpp"

namespace openmps::cpu {
namespace {

using i64 = std::int64_t;

constexpr i64 kLanes = 16;             // of sums
constexpr i64 kBlock = 32;             // channels of a vector of pixels
constexpr i64 kGrain = 64 * 1024;      // min multiplications per thread
constexpr int kWide = 7, kNarrow = 3;  // results side by side: widths of networks are often multiples of 7
constexpr int kRows = 2;               // of results
constexpr int kHalves = 2;             // of a block: sums of the lower and the upper pairs

/// Which rows of the source are read for kRows rows of results.
template <int kernel, int stride>
struct Reach {
  static constexpr int rows = (kRows - 1) * stride + kernel;
  static constexpr int pairs = (rows + 1) / 2;

  /// Return whether a row of results uses a pair.
  static constexpr bool uses(int row, int pair) {
    return 2 * pair + 1 >= row * stride && 2 * pair < row * stride + kernel;
  }
};

/// Return the channel of a lane of a half: pairs of pixels are interleaved by 128 bits.
constexpr i64 channel_of(i64 half, i64 lane) { return lane / 4 * 8 + half * 4 + lane % 4; }

/// Return the first channel of a block. The last one overlaps the block before it, so that it has kBlock channels too.
constexpr i64 first_channel(i64 block, i64 channels) {
  return std::min(block * kBlock, std::max<i64>(0, channels - kBlock));
}

/// Filters by blocks of kBlock channels, zeros after the last channel: [block][half][pair][row][column][lane][2].
struct PairedFilters {
  std::vector<std::uint16_t> taps;
  std::vector<float> bias;  ///< [block][half][lane]

  PairedFilters(const ConvWeights& weights, int stride) {
    const i64 c = weights.out_channels, kernel = weights.kernel_h, blocks = (c + kBlock - 1) / kBlock;
    const i64 pairs = ((kRows - 1) * stride + kernel + 1) / 2;
    for (i64 block = 0; block < blocks; ++block)
      for (i64 half = 0; half < kHalves; ++half) {
        const auto channel = [&](i64 lane) { return first_channel(block, c) + channel_of(half, lane); };
        for (i64 lane = 0; lane < kLanes; ++lane) {
          const bool has_bias = channel(lane) < c && !weights.bias.empty();
          bias.push_back(has_bias ? weights.bias[static_cast<std::size_t>(channel(lane))] : 0);
        }
        for (i64 pair = 0; pair < pairs; ++pair)
          for (i64 row = 0; row < kRows; ++row)
            for (i64 q = 0; q < kernel; ++q)
              for (i64 lane = 0; lane < kLanes; ++lane)
                for (i64 p = 2 * pair - row * stride; p < 2 * pair - row * stride + 2; ++p) {
                  const bool is_tap = channel(lane) < c && p >= 0 && p < kernel;
                  taps.push_back(is_tap ? bfloat16_of(weights.values.data()[(channel(lane) * kernel + p) * kernel + q])
                                        : 0);
                }
      }
  }

  static std::shared_ptr<const PairedFilters> of(const ConvWeights& weights, int stride) {
    return weights.derived<const PairedFilters>(stride == 1 ? "depthwise pairs" : "depthwise pairs, strided",
                                                [&] { return std::make_shared<const PairedFilters>(weights, stride); });
  }
};

alignas(64) constexpr std::uint16_t kZeros[kBlock] = {};

/// A row of the source, at column 0 and the block's channels. Outside of the source: zeros, with a step of 0.
struct SourceRow {
  const std::uint16_t* at;
  i64 step;
};

/// Arguments of all results of kRows rows and one block of channels. Steps count values.
template <int kernel, int stride>
struct RowsCall {
  std::array<SourceRow, 2 * Reach<kernel, stride>::pairs> rows;
  i64 columns, channels;                  ///< of the source
  std::array<std::uint16_t*, kRows> dst;  ///< at column 0; null: no such row
  i64 dst_step;
  const std::uint16_t* taps;
  const float* bias;
  const Activation* activation;
  __mmask32 lanes;  ///< of results
};

/// Compute sums of half of the channels of `count` results from column `first` of the source on. `is_inside`: the
/// source has all columns; `is_whole`: it has kBlock channels.
template <int kernel, int stride, int count, int half, bool is_inside, bool is_whole>
MPSCNN_AVX512_BF16 inline void add_half(const RowsCall<kernel, stride>& call, i64 first,
                                        __m512 (&result)[kRows][count]) {
  using Rows = Reach<kernel, stride>;
  constexpr i64 kTap = 2 * kLanes, kTaps = kRows * kernel * kTap;  // numbers of a tap; of all taps of a pair of rows
  __m512 sums[kRows][count];
  const __m512 bias = _mm512_loadu_ps(call.bias + half * kLanes);
#pragma GCC unroll 16
  for (int i = 0; i < count; ++i) sums[0][i] = sums[1][i] = bias;
#pragma GCC unroll 8
  for (int pair = 0; pair < Rows::pairs; ++pair) {
    const std::uint16_t* const taps = call.taps + (half * Rows::pairs + pair) * kTaps;
    const SourceRow &upper = call.rows[2 * pair], &lower = call.rows[2 * pair + 1];
    const std::uint16_t *a = upper.at + first * upper.step, *b = lower.at + first * lower.step;
#pragma GCC unroll 32
    for (int j = 0; j < (count - 1) * stride + kernel; ++j, a += upper.step, b += lower.step) {
      // A choice of addresses: branches would take as long as the sums.
      const bool is_pixel = is_inside || (first + j >= 0 && first + j < call.columns);
      const std::uint16_t *const from = is_pixel ? a : kZeros, *const from_below = is_pixel ? b : kZeros;
      asm("" : "+r"(a), "+r"(b));  // not many addresses at once
      // Masked loads take twice as long.
      const __m512i above = is_whole ? _mm512_loadu_si512(from) : _mm512_maskz_loadu_epi16(call.lanes, from);
      const __m512i below =
          is_whole ? _mm512_loadu_si512(from_below) : _mm512_maskz_loadu_epi16(call.lanes, from_below);
      const __m512i pixels = half ? _mm512_unpackhi_epi16(above, below) : _mm512_unpacklo_epi16(above, below);
#pragma GCC unroll 8
      for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 8
        for (int q = 0; q < kernel; ++q) {
          const int i = (j - q) / stride;
          if (!Rows::uses(row, pair) || j < q || (j - q) % stride != 0 || i >= count) continue;
          const __m512i tap = _mm512_loadu_si512(taps + (row * kernel + q) * kTap);
          sums[row][i] = _mm512_dpbf16_ps(sums[row][i], (__m512bh)pixels, (__m512bh)tap);
        }
    }
  }
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 16
    for (int i = 0; i < count; ++i) result[row][i] = sums[row][i];
}

/// The place of each channel behind the lower half and the upper half.
alignas(64) constexpr std::uint16_t kPlaces[kBlock] = {0, 1, 2,  3,  16, 17, 18, 19, 4,  5,  6,  7,  20, 21, 22, 23,
                                                       8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31};

template <int kernel, int stride, int count, bool is_inside, bool is_whole>
MPSCNN_AVX512_BF16 void results(const RowsCall<kernel, stride>& call, i64 x, i64 first) {
  const Activation activation = *call.activation;
  __m512 low[kRows][count], high[kRows][count];
  add_half<kernel, stride, count, 0, is_inside, is_whole>(call, first, low);
  add_half<kernel, stride, count, 1, is_inside, is_whole>(call, first, high);
  const __m512i places = _mm512_load_si512(kPlaces);
  for (int row = 0; row < kRows; ++row) {
    std::uint16_t* to = call.dst[static_cast<std::size_t>(row)];
    if (!to) break;
    to += x * call.dst_step;
#pragma GCC unroll 16
    for (int i = 0; i < count; ++i, to += call.dst_step) {
      const __m512bh both =
          _mm512_cvtne2ps_pbh(activate_roughly(activation, high[row][i]), activate_roughly(activation, low[row][i]));
      const __m512i pixel = _mm512_permutexvar_epi16(places, (__m512i)both);
      is_whole && !~call.lanes ? _mm512_storeu_si512(to, pixel) : _mm512_mask_storeu_epi16(to, call.lanes, pixel);
    }
  }
}

template <int kernel, int stride, int count>
i64 results_from(const RowsCall<kernel, stride>& call, i64 x, i64 first) {
  constexpr int reach = (count - 1) * stride + kernel;
  const bool is_inside = first >= 0 && first + reach <= call.columns, is_whole = call.channels >= kBlock;
  if (is_inside)
    is_whole ? results<kernel, stride, count, true, true>(call, x, first)
             : results<kernel, stride, count, true, false>(call, x, first);
  else
    is_whole ? results<kernel, stride, count, false, true>(call, x, first)
             : results<kernel, stride, count, false, false>(call, x, first);
  return x + count;
}

template <int kernel, int stride>
void convolve(const ConvCall& call, const Activation& activation) {
  using Rows = Reach<kernel, stride>;
  const Tensor &src = call.src, &dst = call.dst;
  const Window& w = call.window;
  const auto filters = PairedFilters::of(*call.weights, stride);
  const i64 blocks = (dst.c + kBlock - 1) / kBlock, row_pairs = (dst.h + kRows - 1) / kRows;
  const int threads = threads_for(dst.size() * kernel * kernel, kGrain);
  const i64 parts = std::min(depthwise_parts(call, blocks, threads), row_pairs);
  parallel_ranges(dst.n * parts * blocks, threads, [&](i64 begin, i64 end) {
    for (i64 task = begin; task < end; ++task) {
      const i64 block = task % blocks, part = task / blocks % parts, n = task / blocks / parts;
      const i64 channel = first_channel(block, dst.c), old = block * kBlock - channel;
      RowsCall<kernel, stride> rows;
      rows.columns = src.w, rows.channels = src.c, rows.dst_step = dst.w_stride;
      rows.taps = filters->taps.data() + block * Rows::pairs * kRows * kernel * 2 * kBlock;
      rows.bias = filters->bias.data() + block * kBlock;
      rows.activation = &activation;
      rows.lanes = ~__mmask32{0} << old;
      if (dst.c < kBlock) rows.lanes = (__mmask32{1} << dst.c) - 1;
      for (i64 y = row_pairs * part / parts * kRows; y < std::min(dst.h, row_pairs * (part + 1) / parts * kRows);
           y += kRows) {
        for (i64 p = 0; p < 2 * Rows::pairs; ++p) {
          const i64 at = w.start_h + y * stride + p;
          const bool is_inside = p < Rows::rows && at >= 0 && at < src.h;
          rows.rows[static_cast<std::size_t>(p)] =
              is_inside ? SourceRow{reinterpret_cast<const std::uint16_t*>(src.at(n, at)) + channel, src.w_stride}
                        : SourceRow{kZeros, 0};
        }
        for (i64 row = 0; row < kRows; ++row)
          rows.dst[static_cast<std::size_t>(row)] =
              y + row < dst.h ? reinterpret_cast<std::uint16_t*>(dst.at(n, y + row)) + channel : nullptr;
        for (i64 x = 0; x < dst.w;) {
          const i64 first = w.start_w + x * stride;
          if (x + kWide <= dst.w)
            x = results_from<kernel, stride, kWide>(rows, x, first);
          else if (x + kNarrow <= dst.w)
            x = results_from<kernel, stride, kNarrow>(rows, x, first);
          else
            x = results_from<kernel, stride, 1>(rows, x, first);
        }
      }
    }
  });
}

}  // namespace

void convolve_depthwise_pairs(const ConvCall& call, const Activation& activation) {
  const bool is_strided = call.window.stride_h == 2;
  if (call.window.kernel_h == 3)
    is_strided ? convolve<3, 2>(call, activation) : convolve<3, 1>(call, activation);
  else
    is_strided ? convolve<5, 2>(call, activation) : convolve<5, 1>(call, activation);
}

}  // namespace openmps::cpu

#endif
