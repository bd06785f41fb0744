// SPDX-License-Identifier: Apache-2.0
// Convolutions and their gradients: any window, any format, any strides. Adjacent threads compute adjacent channels.
#pragma once

#include "engine/cuda/kernels/clusters.hpp"
#include "engine/cuda/kernels/device.hpp"
#include "engine/cuda/kernels/vectors.hpp"

#if !MPSCNN_ON_GPU
#include <bit>
#endif

namespace openmps::cuda::convolution {

inline constexpr const char* kFile = "engine/cuda/kernels/convolution.hpp";

/// Weights of a ConvProblem or a TransposeProblem: weight (o, tap, i) is at o * o_step + tap * tap_step + i * i_step,
/// i within its group.
struct Filters {
  Pointer<const float> values, bias;  ///< null bias: none
  i64 outputs = 1, inputs = 1;        ///< per group
  i64 o_step = 0, tap_step = 0, i_step = 0;
};

/// a / b and a % b == 0, for b > 0; 32 bits divide faster.
MPSCNN_HOST_DEVICE i64 divided(i64 a, i64 b) {
  if (a >= 0 && a <= 0x7fffffff && b <= 0x7fffffff)
    return static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b);
  return a / b;
}
MPSCNN_HOST_DEVICE i64 floor_of(i64 a, i64 b) { return a >= 0 ? divided(a, b) : -divided(-a + b - 1, b); }
MPSCNN_HOST_DEVICE i64 ceil_of(i64 a, i64 b) { return a >= 0 ? divided(a + b - 1, b) : -divided(-a, b); }

/// One axis of a window over a source.
struct Axis {
  i64 start = 0, stride = 1, dilation = 1;
  i64 extent = 1;           ///< of the source
  bool clamps = false;      ///< out-of-bounds taps read the edge
  bool transposed = false;  ///< the window is over Z, as in TransposeProblem

  /// Return the source position that a tap of a result reads; -1: it reads 0.
  MPSCNN_HOST_DEVICE i64 position(i64 result, i64 tap) const {
    if (transposed) {
      const i64 z = start + result + tap * dilation;
      if (z < 0) return -1;
      const i64 at = divided(z, stride);
      return at * stride == z && at < extent ? at : -1;
    }
    const i64 at = start + result * stride + tap * dilation;
    if (at >= 0 && at < extent) return at;
    return clamps ? (at < 0 ? 0 : extent - 1) : -1;
  }
};

/// Results [first, end), or every step-th position from `first` on.
struct Range {
  i64 first, end;
};

/// Return the results whose tap reads source position `at`. Without clamping the source has no end.
MPSCNN_HOST_DEVICE Range readers(const Axis& axis, i64 results, i64 at, i64 tap) {
  if (axis.transposed) {
    const i64 result = at * axis.stride - axis.start - tap * axis.dilation;
    return result >= 0 && result < results ? Range{result, result + 1} : Range{0, 0};
  }
  const i64 place = at - axis.start - tap * axis.dilation;
  Range range = {ceil_of(place, axis.stride), floor_of(place, axis.stride) + 1};
  if (axis.clamps) {
    if (at < 0 || at >= axis.extent) return {0, 0};
    if (at == 0) range.first = 0;
    if (at == axis.extent - 1) range.end = results;
  }
  return {range.first < 0 ? 0 : range.first, range.end > results ? results : range.end};
}

// ---------------------------------------------------------------------------------------------------------- forward

struct ForwardArgs {
  View src, dst, addend;  ///< addend as in ConvProblem
  Filters filters;
  Axis h, w;
  i64 kernel_h = 1, kernel_w = 1;
  i64 subpixel = 1;
  Activation neuron, after;
};

/// Return the output that channel `k` of a result at (y, x) comes from.
MPSCNN_HOST_DEVICE i64 output_of(const ForwardArgs& args, i64 y, i64 x, i64 k) {
  const i64 r = args.subpixel;
  return r == 1 ? k : (r * (y - r * divided(y, r)) + x - r * divided(x, r)) * args.dst.c + k;
}

MPSCNN_HOST_DEVICE void finish(const ForwardArgs& args, const Place& at, i64 output, float sum) {
  const Filters& f = args.filters;
  sum = activate(args.neuron, f.bias ? sum + f.bias[output] : sum, output);
  if (args.addend) sum = activate(args.after, sum + load(args.addend, at), at.k);
  store(args.dst, at, sum);
}

/// Compute the results of kColumns adjacent columns; with several, subpixel is 1.
template <int kColumns>
MPSCNN_HOST_DEVICE void convolve(const ForwardArgs& args, const Place& at) {
  const Filters& f = args.filters;
  const i64 r = args.subpixel, y = r == 1 ? at.y : divided(at.y, r), x = r == 1 ? at.x : divided(at.x, r);
  const i64 output = output_of(args, at.y, at.x, at.k), first = divided(output, f.outputs) * f.inputs;
  const Format format = format_of(args.src);
  float sums[kColumns] = {};
  for (i64 p = 0; p < args.kernel_h; ++p) {
    const i64 row = args.h.position(y, p);
    if (row < 0) continue;
    for (i64 q = 0; q < args.kernel_w; ++q) {
      i64 offsets[kColumns];
      bool any = false;
      for (int j = 0; j < kColumns; ++j) {
        const i64 column = x + j < args.dst.w ? args.w.position(x + j, q) : -1;
        offsets[j] = column < 0 ? -1 : args.src.offset(at.n, row, column, first);
        any = any || column >= 0;
      }
      if (!any) continue;
      const float* weights = f.values.get() + output * f.o_step + (p * args.kernel_w + q) * f.tap_step;
      float parts[kColumns] = {};
      for (i64 i = 0; i < f.inputs; ++i, weights += f.i_step) {
        const float weight = *weights;
        for (int j = 0; j < kColumns; ++j)
          if (offsets[j] >= 0) parts[j] += weight * load(format, args.src.data.get(), offsets[j] + i);
      }
      for (int j = 0; j < kColumns; ++j) sums[j] += parts[j];
    }
  }
  for (int j = 0; j < kColumns; ++j)
    if (at.x + j < args.dst.w) finish(args, {at.n, at.y, at.x + j, at.k}, output, sums[j]);
}

MPSCNN_VALUE_KERNEL(conv_values, ForwardArgs) { convolve<1>(args, place_of(index, args.dst)); }

constexpr int kColumns = 4;  ///< of a thread

MPSCNN_VALUE_KERNEL(conv_columns, ForwardArgs) {
  Place at = place_of(index, args.dst.h, (args.dst.w + kColumns - 1) / kColumns, args.dst.c);
  at.x *= kColumns;
  convolve<kColumns>(args, at);
}

/// A block per result: for few results with many products, as of fully connected layers.
MPSCNN_BLOCK_KERNEL(conv_sums, ForwardArgs) {
  const Filters& f = args.filters;
  const Place at = place_of(index, args.dst);
  const i64 r = args.subpixel, y = at.y / r, x = at.x / r;
  const i64 output = output_of(args, at.y, at.x, at.k), first = divided(output, f.outputs) * f.inputs;
  const Format format = format_of(args.src);
  const float sum = block.reduce(
      args.kernel_h * args.kernel_w * f.inputs, 0.0f,
      [&](i64 k) {
        const i64 tap = divided(k, f.inputs), i = k - tap * f.inputs, p = divided(tap, args.kernel_w);
        const i64 row = args.h.position(y, p), column = args.w.position(x, tap - p * args.kernel_w);
        if (row < 0 || column < 0) return 0.0f;
        return f.values[output * f.o_step + tap * f.tap_step + i * f.i_step] *
               load(format, args.src.data.get(), args.src.offset(at.n, row, column, first + i));
      },
      [](float a, float b) { return a + b; });
  block.for_each(1, [&](i64) { finish(args, at, output, sum); });
}

// --------------------------------------------------------------------------------------------- gradient by the source

struct DataArgs {
  View diff_dst, diff_src;
  Filters filters;
  Axis h, w;  ///< of the forward problem
  i64 kernel_h = 1, kernel_w = 1;
  i64 first_h = 0, first_w = 0;  ///< of diff_src in the source
};
MPSCNN_VALUE_KERNEL(conv_data, DataArgs) {
  const Filters& f = args.filters;
  const Place at = place_of(index, args.diff_src);
  const i64 group = divided(at.k, f.inputs), first = group * f.outputs;
  const Format format = format_of(args.diff_dst);
  float sum = 0;
  for (i64 p = 0; p < args.kernel_h; ++p) {
    const Range rows = readers(args.h, args.diff_dst.h, args.first_h + at.y, p);
    if (rows.first >= rows.end) continue;
    for (i64 q = 0; q < args.kernel_w; ++q) {
      const Range columns = readers(args.w, args.diff_dst.w, args.first_w + at.x, q);
      const float* const weights = f.values.get() + first * f.o_step + (p * args.kernel_w + q) * f.tap_step +
                                   (at.k - group * f.inputs) * f.i_step;
      for (i64 v = rows.first; v < rows.end; ++v)
        for (i64 u = columns.first; u < columns.end; ++u) {
          const i64 offset = args.diff_dst.offset(at.n, v, u, first);
          float part = 0;
          for (i64 o = 0; o < f.outputs; ++o)
            part += weights[o * f.o_step] * load(format, args.diff_dst.data.get(), offset + o);
          sum += part;
        }
    }
  }
  store(args.diff_src, at, sum);
}

// -------------------------------------------------------------------------------------------- gradients by the weights

/// Rows of diff_dst, of all images, are split into runs of `rows`; each split has a partial sum of each weight.
struct WeightsArgs {
  View diff_dst, src;
  Axis h, w;
  i64 kernel_h = 1, kernel_w = 1;
  i64 groups = 1;
  i64 rows = 1;             ///< per split
  Pointer<float> partials;  ///< [split][O][kH][kW][I / groups]
};

/// Adjacent products of one tap: column j of diff_dst and of the source, j < count.
struct Products {
  i64 count, diff_first, diff_step, src_first, src_step;
};

/// Return products of a tap with in-bounds columns, and with those clamped to the left and right edge.
MPSCNN_HOST_DEVICE void products_of(const Axis& axis, i64 results, i64 tap, Products (&products)[3]) {
  const i64 place = axis.start + tap * axis.dilation;
  products[1] = products[2] = {0, 0, 0, 0, 0};
  if (axis.transposed) {
    i64 first = ceil_of(place, axis.stride), end = floor_of(results - 1 + place, axis.stride) + 1;
    first = first < 0 ? 0 : first;
    end = end > axis.extent ? axis.extent : end;
    products[0] = {end - first, first * axis.stride - place, axis.stride, first, 1};
    return;
  }
  i64 first = ceil_of(-place, axis.stride), end = floor_of(axis.extent - 1 - place, axis.stride) + 1;
  first = first < 0 ? 0 : first > results ? results : first;
  end = end < first ? first : end > results ? results : end;
  products[0] = {end - first, first, 1, place + first * axis.stride, axis.stride};
  if (!axis.clamps) return;
  products[1] = {first, 0, 1, 0, 0};
  products[2] = {results - end, end, 1, axis.extent - 1, 0};
}

/// Compute partial sums of kOutputs adjacent outputs of a group, for one tap and one input.
template <int kOutputs>
MPSCNN_HOST_DEVICE void sum_weights(const WeightsArgs& args, i64 index) {
  const View &e = args.diff_dst, &src = args.src;
  const i64 inputs = divided(src.c, args.groups), outputs = divided(e.c, args.groups);
  const i64 tiles = divided(outputs + kOutputs - 1, kOutputs), taps = args.kernel_h * args.kernel_w;
  // Splits, then taps, then tiles of all groups, then inputs.
  const Place at = place_of(index, taps, args.groups * tiles, inputs);
  const i64 split = at.n, tap = at.y, group = divided(at.x, tiles), tile = at.x - group * tiles;
  const i64 p = divided(tap, args.kernel_w), q = tap - p * args.kernel_w;
  const i64 first_of_tile = tile * kOutputs, output = group * outputs + first_of_tile;
  const i64 count = outputs - first_of_tile < kOutputs ? outputs - first_of_tile : kOutputs;
  Products products[3];
  products_of(args.w, e.w, q, products);
  const Format e_format = format_of(e), src_format = format_of(src);
  float sums[kOutputs] = {};
  const i64 last = (split + 1) * args.rows < e.n * e.h ? (split + 1) * args.rows : e.n * e.h;
  for (i64 row = split * args.rows; row < last; ++row) {
    const i64 n = divided(row, e.h), v = row - n * e.h, y = args.h.position(v, p);
    if (y < 0) continue;
    for (const Products& each : products) {
      i64 from = e.offset(n, v, each.diff_first, output),
          seen = src.offset(n, y, each.src_first, group * inputs + at.k);
      float parts[kOutputs] = {};
      for (i64 j = 0; j < each.count; ++j) {
        const float value = load(src_format, src.data.get(), seen);
        for (int o = 0; o < kOutputs; ++o)
          if (o < count) parts[o] += value * load(e_format, e.data.get(), from + o);
        from += each.diff_step * e.w_stride, seen += each.src_step * src.w_stride;
      }
      for (int o = 0; o < kOutputs; ++o) sums[o] += parts[o];
    }
  }
  for (int o = 0; o < kOutputs; ++o)
    if (o < count) args.partials[((split * e.c + output + o) * taps + tap) * inputs + at.k] = sums[o];
}

MPSCNN_VALUE_KERNEL(conv_weights, WeightsArgs) { sum_weights<1>(args, index); }

constexpr int kOutputs = 4;  ///< of a thread

MPSCNN_VALUE_KERNEL(conv_weights_tiles, WeightsArgs) { sum_weights<kOutputs>(args, index); }

struct BiasArgs {
  View diff_dst;
  i64 rows = 1;             ///< per split
  Pointer<float> partials;  ///< [split][O]
};
MPSCNN_VALUE_KERNEL(conv_bias, BiasArgs) {
  const View& e = args.diff_dst;
  const i64 split = divided(index, e.c), output = index - split * e.c;
  const Format format = format_of(e);
  float sum = 0;
  const i64 last = (split + 1) * args.rows < e.n * e.h ? (split + 1) * args.rows : e.n * e.h;
  for (i64 row = split * args.rows; row < last; ++row) {
    const i64 n = divided(row, e.h), v = row - n * e.h;
    float part = 0;
    for (i64 u = 0; u < e.w; ++u) part += load(format, e.data.get(), e.offset(n, v, u, output));
    sum += part;
  }
  args.partials[index] = sum;
}

/// The same by 16 bytes of adjacent channels, with several loads under way.
MPSCNN_VALUE_KERNEL(conv_bias_vectors, BiasArgs) {
  constexpr int kTogether = 4;
  const View& e = args.diff_dst;
  const int lanes = lanes_of<true>(e);
  const i64 vectors = divided(e.c, lanes), split = divided(index, vectors), output = (index - split * vectors) * lanes;
  float sums[kMostLanes] = {};
  const i64 last = (split + 1) * args.rows < e.n * e.h ? (split + 1) * args.rows : e.n * e.h;
  for (i64 row = split * args.rows; row < last; ++row) {
    const i64 n = divided(row, e.h), from = e.offset(n, row - n * e.h, 0, output);
    float parts[kMostLanes] = {};
    for (i64 u = 0; u < e.w; u += kTogether) {
      Vector loaded[kTogether] = {};
      MPSCNN_UNROLL
      for (int j = 0; j < kTogether; ++j)
        if (u + j < e.w) loaded[j] = load_vector(e, from + (u + j) * e.w_stride);
      MPSCNN_UNROLL
      for (int j = 0; j < kTogether; ++j) {
        float values[kMostLanes];
        unpack(e, loaded[j], values);
        for (int i = 0; i < lanes; ++i) parts[i] += values[i];  // zeros beyond the last column
      }
    }
    for (int i = 0; i < lanes; ++i) sums[i] += parts[i];
  }
  for (int i = 0; i < lanes; ++i) args.partials[split * e.c + output + i] = sums[i];
}

/// Sum the partial sums of each value, which are `count` apart.
struct SumArgs {
  Pointer<const float> partials;
  Pointer<float> sums;
  i64 splits = 1, count = 1;
  i64 taps = 1;  ///< > 1: partial sums are [split][taps][O], and sums [O][taps]
  bool accumulates = false;

  MPSCNN_HOST_DEVICE i64 place(i64 index) const {
    if (taps == 1) return index;
    const i64 output = divided(index, taps);
    return (index - output * taps) * divided(count, taps) + output;
  }
};
MPSCNN_VALUE_KERNEL(conv_add_few, SumArgs) {
  double sum = args.accumulates ? args.sums[index] : 0.0f;
  const i64 place = args.place(index);
  constexpr int kAhead = 8;  // loads under way
  for (i64 i = 0; i < args.splits; i += kAhead) {
    float parts[kAhead];
    MPSCNN_UNROLL
    for (int j = 0; j < kAhead; ++j)
      parts[j] = i + j < args.splits ? args.partials[(i + j) * args.count + place] : 0.0f;
    MPSCNN_UNROLL
    for (int j = 0; j < kAhead; ++j) sum += parts[j];
  }
  args.sums[index] = static_cast<float>(sum);
}
/// One block for 32 adjacent sums, of whose partial sums each warp adds a part.
MPSCNN_BLOCK_KERNEL(conv_add_by_warps, SumArgs) {
  constexpr int kSums = 32, kParts = kThreads / kSums, kAhead = 8;
  struct Totals {
    double of[kParts][kSums];
  };
  MPSCNN_SHARED(Totals, shared, 1);
  auto& totals = shared.own(0).of;
  const i64 first = index * kSums;
  block.for_each(kThreads, [&](i64 i) {
    const int part = static_cast<int>(i) / kSums, own = static_cast<int>(i) % kSums;
    double total = 0;
    if (first + own < args.count) {
      const i64 place = args.place(first + own);
      for (i64 split = part; split < args.splits; split += kAhead * kParts) {
        float parts[kAhead];
        MPSCNN_UNROLL
        for (int j = 0; j < kAhead; ++j) {
          const i64 at = split + j * kParts;
          parts[j] = at < args.splits ? args.partials[at * args.count + place] : 0.0f;
        }
        MPSCNN_UNROLL
        for (int j = 0; j < kAhead; ++j) total += parts[j];
      }
    }
    totals[part][own] = total;
  });
  block.for_each(kSums, [&](i64 own) {
    if (first + own >= args.count) return;
    double sum = args.accumulates ? args.sums[first + own] : 0.0f;
    MPSCNN_UNROLL
    for (int part = 0; part < kParts; ++part) sum += totals[part][own];
    args.sums[first + own] = static_cast<float>(sum);
  });
}
MPSCNN_BLOCK_KERNEL(conv_add_many, SumArgs) {
  const i64 place = args.place(index);
  const double sum = block.reduce(
      args.splits, 0.0, [&](i64 i) { return static_cast<double>(args.partials[i * args.count + place]); },
      [](double a, double b) { return a + b; });
  block.for_each(1,
                 [&](i64) { args.sums[index] = static_cast<float>(args.accumulates ? sum + args.sums[index] : sum); });
}

// ------------------------------------------------------------------------------------------------------------- binary

MPSCNN_HOST_DEVICE int count_bits(std::uint32_t word) {
#if MPSCNN_ON_GPU
  return __popc(word);
#else
  return std::popcount(word);
#endif
}

/// The source as it enters the products: u = (x + bias) * scale. Null pointers: no bias, no scale.
struct BinarySource {
  View src;
  Pointer<const float> bias, scale;

  MPSCNN_HOST_DEVICE float value(i64 offset, i64 k) const {
    const float x = load(format_of(src), src.data.get(), offset) + (bias ? bias[k] : 0.0f);
    return x * (scale ? scale[k] : 1.0f);
  }
};

/// Bits of u, 32 channels in a word, lowest bit first: 1 unless u < 0.
struct BinaryBitsArgs {
  BinarySource source;
  i64 words = 1;                           ///< per pixel
  Pointer<std::uint32_t> words_of_pixels;  ///< [n][h][w][words]
};
MPSCNN_VALUE_KERNEL(conv_binary_bits, BinaryBitsArgs) {
  const View& src = args.source.src;
  const Place at = place_of(index, src.h, src.w, args.words);
  const i64 first = at.k * 32, count = src.c - first < 32 ? src.c - first : 32;
  std::uint32_t word = 0;
  for (i64 i = 0; i < count; ++i)
    if (!(args.source.value(src.offset(at.n, at.y, at.x, first + i), first + i) < 0)) word |= 1u << i;
  args.words_of_pixels[index] = word;
}

/// Means of |u| over the channels of each pixel.
struct BinarySizesArgs {
  BinarySource source;
  Pointer<float> sizes;  ///< [n][h][w]
};
MPSCNN_BLOCK_KERNEL(conv_binary_sizes, BinarySizesArgs) {
  const View& src = args.source.src;
  const Place at = place_of(index, src.h, src.w, 1);
  const i64 offset = src.offset(at.n, at.y, at.x, 0);
  const double sum = block.reduce(
      src.c, 0.0,
      [&](i64 k) {
        const float u = args.source.value(offset + k, k);
        return static_cast<double>(u < 0 ? -u : u);
      },
      [](double a, double b) { return a + b; });
  block.for_each(1, [&](i64) { args.sizes[index] = static_cast<float>(sum / static_cast<double>(src.c)); });
}

/// Values of BinaryConvType.
enum class BinaryType : std::int32_t { binary_weights = 0, xnor, logical_and };

struct BinaryArgs {
  BinarySource source;
  View dst;
  BinaryType type = BinaryType::xnor;
  Filters filters;                       ///< of binary_weights: +-scale
  Pointer<const std::uint32_t> by_word;  ///< otherwise, as in BinaryWeights
  i64 words = 1, lanes = 1;              ///< words per pixel; outputs per word of by_word
  Pointer<const std::uint32_t> words_of_pixels;
  Pointer<const float> sizes;        ///< null: beta is 1
  Pointer<const float> scale, bias;  ///< null: 1, 0
  Axis h, w;
  i64 kernel_h = 1, kernel_w = 1;
  Activation neuron;
};
MPSCNN_VALUE_KERNEL(conv_binary, BinaryArgs) {
  const View& src = args.source.src;
  const Filters& f = args.filters;
  const Place at = place_of(index, args.dst);
  const i64 tail = src.c % 32;
  float sum = 0;
  double size = 0;
  i64 count = 0;  // of differing bits, or of bits that both have
  for (i64 p = 0; p < args.kernel_h; ++p) {
    const i64 row = args.h.position(at.y, p);
    for (i64 q = 0; q < args.kernel_w; ++q) {
      const i64 column = args.w.position(at.x, q), tap = p * args.kernel_w + q;
      const bool inside = row >= 0 && column >= 0;
      const i64 pixel = inside ? (at.n * src.h + row) * src.w + column : 0;
      if (args.sizes && inside) size += args.sizes[pixel];
      if (args.type == BinaryType::binary_weights) {
        if (!inside) continue;
        const i64 offset = src.offset(at.n, row, column, 0);
        const float* const weights = f.values.get() + at.k * f.o_step + tap * f.tap_step;
        float part = 0;
        for (i64 i = 0; i < src.c; ++i) part += weights[i * f.i_step] * args.source.value(offset + i, i);
        sum += part;
        continue;
      }
      for (i64 i = 0; i < args.words; ++i) {
        // u is 0 outside of the source, and the bit of 0 is 1.
        const std::uint32_t outside = i + 1 < args.words || tail == 0 ? 0xffffffffu : (1u << tail) - 1;
        const std::uint32_t bits = inside ? args.words_of_pixels[pixel * args.words + i] : outside;
        const std::uint32_t weights = args.by_word[(tap * args.words + i) * args.lanes + at.k];
        count += count_bits(args.type == BinaryType::xnor ? bits ^ weights : bits & weights);
      }
    }
  }
  if (args.type == BinaryType::logical_and) sum = static_cast<float>(count);
  if (args.type == BinaryType::xnor) sum = static_cast<float>(src.c * args.kernel_h * args.kernel_w - 2 * count);
  const float beta = args.sizes ? static_cast<float>(size / static_cast<double>(args.kernel_h * args.kernel_w)) : 1.0f;
  const float value = sum * (args.scale ? args.scale[at.k] * beta : beta) + (args.bias ? args.bias[at.k] : 0.0f);
  store(args.dst, at, activate(args.neuron, value, at.k));
}

}  // namespace openmps::cuda::convolution
