// SPDX-License-Identifier: Apache-2.0
// Depth-wise convolutions of 8-bit numbers, with AVX-512 VNNI: four rows of the source are interleaved, so that an
// instruction adds four products of a column in each of its channels. The rows that start at multiples of four are
// interleaved once; a window that starts between these has zeros among its weights.
#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/cpu/quantized/byte_sums.hpp"
#include "engine/cpu/quantized/quantized.hpp"
#include "engine/cpu/runtime.hpp"
#include "engine/shared/parallel.hpp"

namespace openmps::cpu {

#if defined(__x86_64__)

namespace {

using i64 = std::int64_t;
using Byte = std::uint8_t;

constexpr i64 kGrain = 256 * 1024;  // min multiplications per thread
constexpr i64 kRows = 4;            // interleaved
constexpr int kWide = 7;            // results side by side: widths of networks are often multiples of 7

/// Filters of blocks of channels. A block has, for each row within four at which a window may start, for each group of
/// four rows, column and register of sums, four weights per channel.
struct PackedFilters {
  std::vector<std::int8_t> taps;
  std::vector<std::int32_t> sums;  ///< of a channel's weights

  static constexpr i64 kGroups = 2;  ///< of four rows, in which a window lies
  static i64 place(i64 kernel, i64 channels, i64 start, i64 group, i64 column, i64 part) {
    return (((start * kGroups + group) * kernel + column) * 4 + part) * channels;
  }
  static i64 block_bytes(i64 kernel, i64 channels) { return place(kernel, channels, kRows, 0, 0, 0); }

  PackedFilters(const ByteWeights& bytes, i64 kernel, i64 count) {
    const ChannelBlocks blocks(count);
    taps.resize(
        static_cast<std::size_t>(blocks.wide * block_bytes(kernel, 64) + blocks.narrow * block_bytes(kernel, 32)));
    for (i64 block = 0; block < blocks.size(); ++block)
      pack(bytes, kernel, count, 64 * block, blocks.channels(block), taps.data() + block * block_bytes(kernel, 64));
    for (i64 k = 0; k < count; ++k) {
      const auto* const own = bytes.values.data() + k * kernel * kernel;
      std::int32_t sum = 0;
      for (i64 t = 0; t < kernel * kernel; ++t) sum += own[t];
      sums.push_back(sum);
    }
  }

  static std::shared_ptr<const PackedFilters> of(const ConvWeights& weights, const ByteWeights& bytes) {
    return weights.derived<const PackedFilters>("depthwise bytes", [&] {
      return std::make_shared<const PackedFilters>(bytes, weights.kernel_h, weights.out_channels);
    });
  }

 private:
  static void pack(const ByteWeights& bytes, i64 kernel, i64 count, i64 first, i64 channels, std::int8_t* to) {
    for (i64 start = 0; start < kRows; ++start)
      for (i64 p = 0; p < kernel; ++p)
        for (i64 q = 0; q < kernel; ++q)
          for (i64 part = 0; part < 4; ++part)
            for (i64 lane = 0; lane < channels / 4; ++lane) {
              const i64 k = first + channel_of(part, lane), row = start + p;
              if (k < count)
                to[place(kernel, channels, start, row / kRows, q, part) + lane * 4 + row % kRows] =
                    bytes.values[static_cast<std::size_t>((k * kernel + p) * kernel + q)];
            }
  }
};

template <class Vector>
struct RowCall {
  std::array<const Byte*, PackedFilters::kGroups> groups;  ///< interleaved source rows
  const std::int8_t* taps;                                 ///< of the block and the row within four
  i64 used;                                                ///< groups that the window reaches
  Byte* dst;                                               ///< numbers, or null
  float* values;
  i64 dst_step;
};

/// Compute `count` results from x on.
template <class Vector, int kernel, int stride, int count>
MPSCNN_AVX512_BYTES void results(const RowCall<Vector>& call, const BlockResult<Vector>& result, i64 x) {
  constexpr i64 kBytes = Vector::kChannels;
  Vector whole[count][4];
#pragma GCC unroll 4
  for (int part = 0; part < 4; ++part) {
    Vector sums[count];
#pragma GCC unroll 8
    for (int i = 0; i < count; ++i) sums[i] = result.start(part);
    for (i64 group = 0; group < call.used; ++group) {
      const Byte* from = call.groups[static_cast<std::size_t>(group)] + (x * stride * 4 + part) * kBytes;
      Vector taps[kernel];
#pragma GCC unroll 8
      for (int q = 0; q < kernel; ++q)
        taps[q] = Vector::load(call.taps + PackedFilters::place(kernel, kBytes, 0, group, q, part));
#pragma GCC unroll 32
      for (int j = 0; j < (count - 1) * stride + kernel; ++j) {
        const Vector numbers = Vector::load(from + j * 4 * kBytes);
#pragma GCC unroll 8
        for (int q = 0; q < kernel; ++q) {
          const int i = (j - q) / stride;
          if (j >= q && (j - q) % stride == 0 && i < count) sums[i].add_products(numbers, taps[q]);
        }
      }
    }
    if (call.values) {
      for (int i = 0; i < count; ++i) result.store_values(sums[i], part, call.values + (x + i) * call.dst_step);
      continue;
    }
#pragma GCC unroll 8
    for (int i = 0; i < count; ++i) whole[i][part] = result.number(sums[i], part);
  }
  if (call.values) return;
#pragma GCC unroll 8
  for (int i = 0; i < count; ++i) result.store(whole[i], call.dst + (x + i) * call.dst_step);
}

/// Interleave four rows of a block of channels; columns and rows outside of the source have the number `zero`.
template <class Vector>
MPSCNN_AVX512_BYTES void interleave_rows(const Tensor& src, i64 n, i64 row, i64 first, i64 columns, i64 channel,
                                         typename Vector::Mask lanes, int zero, Byte* to) {
  const Vector nothing = Vector::all(zero);
  std::array<const Byte*, kRows> rows;
  for (i64 i = 0; i < kRows; ++i)
    rows[static_cast<std::size_t>(i)] =
        row + i < 0 || row + i >= src.h ? nullptr : reinterpret_cast<const Byte*>(src.at(n, row + i)) + channel;
  for (i64 x = 0; x < columns; ++x, to += 4 * Vector::kChannels) {
    const i64 at = first + x;
    Vector pixels[kRows], result[4];
    for (i64 i = 0; i < kRows; ++i) {
      const Byte* const from = rows[static_cast<std::size_t>(i)];
      pixels[i] = from && at >= 0 && at < src.w ? Vector::load(lanes, from + at * src.w_stride) : nothing;
    }
    interleave(pixels[0], pixels[1], pixels[2], pixels[3], result);
    for (i64 part = 0; part < 4; ++part) result[part].store(to + part * Vector::kChannels);
  }
}

/// One task: rows [first, end) of a block of channels of an image.
template <class Vector, int kernel, int stride>
MPSCNN_AVX512_BYTES void convolve_rows(const QuantizedConvCall& call, const PackedFilters& filters,
                                       const Scaling& scaling, i64 n, i64 block, i64 first, i64 end, Byte* memory) {
  const Tensor &src = call.src, &dst = call.dst;
  const Window& w = call.problem.window;
  constexpr i64 kBytes = Vector::kChannels;
  const i64 channel = block * 64, columns = (dst.w - 1) * stride + kernel;
  const BlockResult<Vector> result(scaling, channel, dst.c);
  RowCall<Vector> row;
  row.dst_step = dst.w_stride;
  const std::int8_t* const taps = filters.taps.data() + block * PackedFilters::block_bytes(kernel, 64);
  const i64 group_bytes = columns * 4 * kBytes;
  std::array<i64, 2> held{-1, -1};
  const i64 top = w.start_h + first * stride;  // the first group's row
  for (i64 y = first; y < end; ++y) {
    const i64 at = y * stride - first * stride, start = at % kRows;
    row.used = start + kernel > kRows ? 2 : 1;
    for (i64 group = at / kRows; group < at / kRows + row.used; ++group) {
      const auto place = static_cast<std::size_t>(group % 2);
      Byte* const to = memory + group % 2 * group_bytes;
      if (held[place] != group)
        interleave_rows<Vector>(src, n, top + group * kRows, w.start_w, columns, channel, result.lanes,
                                call.problem.src_steps.zero, to);
      held[place] = group;
      row.groups[static_cast<std::size_t>(group - at / kRows)] = to;
    }
    row.taps = taps + PackedFilters::place(kernel, kBytes, start, 0, 0, 0);
    if (dst.format == Format::float32)
      row.dst = nullptr, row.values = dst.floats(n, y) + channel;
    else
      row.dst = reinterpret_cast<Byte*>(dst.at(n, y)) + channel, row.values = nullptr;
    i64 x = 0;
    for (; x + kWide <= dst.w; x += kWide) results<Vector, kernel, stride, kWide>(row, result, x);
    for (; x + 2 <= dst.w; x += 2) results<Vector, kernel, stride, 2>(row, result, x);
    if (x < dst.w) results<Vector, kernel, stride, 1>(row, result, x);
  }
}

template <int kernel, int stride>
void convolve(const QuantizedConvCall& call, const PackedFilters& filters, const Scaling& scaling) {
  const Tensor& dst = call.dst;
  const i64 blocks = (dst.c + 63) / 64;
  const int threads = threads_for(dst.size() * kernel * kernel, kGrain);
  const i64 parts = std::clamp<i64>(2 * threads / std::max<i64>(1, dst.n * blocks), 1, (dst.h + 7) / 8);
  const i64 bytes = 2 * ((dst.w - 1) * stride + kernel) * 4 * 64;
  parallel_ranges(dst.n * blocks * parts, threads, [&](i64 begin, i64 end) {
    const Scratch memory(static_cast<std::uint64_t>(bytes));
    for (i64 task = begin; task < end; ++task) {
      const i64 part = task % parts, block = task / parts % blocks, n = task / parts / blocks;
      const auto rows =
          dst.c - block * 64 > 32 ? convolve_rows<Wide, kernel, stride> : convolve_rows<Narrow, kernel, stride>;
      rows(call, filters, scaling, n, block, dst.h * part / parts, dst.h * (part + 1) / parts,
           reinterpret_cast<Byte*>(memory.data()));
    }
  });
}

}  // namespace

const char* quantized_conv_depthwise(const QuantizedConvCall& call) {
  const QuantizedConvProblem& problem = call.problem;
  const ConvWeights& weights = *problem.weights;
  const Window& w = problem.window;
  if (weights.in_channels_per_group != 1 || weights.groups != weights.out_channels || weights.groups == 1)
    return "not depth-wise";
  if (!multiplies_bytes()) return "the processor does not multiply bytes";
  if (w.kernel_h != w.kernel_w || (w.kernel_h != 3 && w.kernel_h != 5)) return "the window is neither 3 x 3 nor 5 x 5";
  if (w.stride_h != w.stride_w || w.stride_h > 2) return "other strides than 1 and 2";
  if (w.dilation_h != 1 || w.dilation_w != 1) return "dilation";
  if (!is_exact_on_sums(problem.neuron)) return "the activation is neither ReLU nor ReLU6";
  const auto bytes = ByteWeights::of(weights);
  if (!bytes) return "the weights are no whole multiples of a step";
  const auto filters = PackedFilters::of(weights, *bytes);
  const Scaling scaling(problem, *bytes, filters->sums);
  const bool is_strided = w.stride_h == 2;
  if (w.kernel_h == 3)
    is_strided ? convolve<3, 2>(call, *filters, scaling) : convolve<3, 1>(call, *filters, scaling);
  else
    is_strided ? convolve<5, 2>(call, *filters, scaling) : convolve<5, 1>(call, *filters, scaling);
  return nullptr;
}

#else

const char* quantized_conv_depthwise(const QuantizedConvCall&) { return "not for this processor"; }

#endif

}  // namespace openmps::cpu
