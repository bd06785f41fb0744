// SPDX-License-Identifier: Apache-2.0
// Copies that prepare operands of cuDNN and cuBLASLt.
#pragma once

#include "engine/cuda/kernels/clusters.hpp"
#include "engine/cuda/kernels/constants.hpp"
#include "engine/cuda/kernels/device.hpp"
#include "engine/cuda/kernels/lanes.hpp"
#include "engine/cuda/kernels/vectors.hpp"

namespace openmps::cuda::layout {

inline constexpr const char* kFile = "engine/cuda/kernels/layout.hpp";

struct ZeroWordsArgs {
  Pointer<std::uint32_t> to;
};
MPSCNN_VALUE_KERNEL(zero_words, ZeroWordsArgs) { args.to[index] = 0; }

struct PadChannelsArgs {
  View src, dst;  ///< dst has more channels, and any format
};
/// Convert pixels; channels that src does not have become 0. One thread per pixel.
MPSCNN_VALUE_KERNEL(pad_channels, PadChannelsArgs) {
  const View &src = args.src, &dst = args.dst;
  const Place at = place_of(index, dst.h, dst.w, 1);
  for (i64 k = 0; k < dst.c; ++k)
    store(dst.format, dst.data.get(), dst.offset(at.n, at.y, at.x, k),
          k < src.c ? load(src.format, src.data.get(), src.offset(at.n, at.y, at.x, k)) : 0.0f);
}

struct PadThreeArgs {
  Pointer<const std::uint16_t> src;
  Pointer<std::uint64_t> dst;
};
/// Pixels of 3 values of 16 bits become pixels of 4, the last one 0. One thread per pixel; without gaps.
MPSCNN_VALUE_KERNEL(pad_three, PadThreeArgs) {
  const std::uint16_t* const from = args.src.get() + 3 * index;
  args.dst[index] = from[0] | static_cast<std::uint64_t>(from[1]) << 16 | static_cast<std::uint64_t>(from[2]) << 32;
}

struct PadThreeBytesArgs {
  Pointer<const unsigned char> src;  ///< aligned to 4 bytes
  Pointer<unsigned char> dst;        ///< aligned to 16 bytes
};
/// Pixels of 3 unorm8 become pixels of 4 float16, the last one 0. One thread per 4 pixels; without gaps.
MPSCNN_VALUE_KERNEL(pad_three_bytes, PadThreeBytesArgs) {
  const FourPixelsOfBytes from(args.src.get() + 12 * index);
  for (int pair = 0; pair < 2; ++pair) {
    Words<16> words = {};
    for (int i = 0; i < 6; ++i) {
      const int at = i + i / 3;  // of the pair's 8 values
      words.word[at / 2] |= static_cast<std::uint32_t>(half_bits(from.value(6 * pair + i))) << (at % 2 * 16);
    }
    store_words(args.dst.get() + 32 * index + 16 * pair, words);
  }
}

struct GatherPixelsArgs {
  Pointer<const Vector> src;
  Pointer<Vector> dst;               ///< dense
  i64 h, w, parts;                   ///< parts: 16 bytes each, of a pixel
  i64 n_stride, h_stride, w_stride;  ///< of src, in parts
};
/// Copy pixels that are not adjacent to adjacent ones. One thread per part.
MPSCNN_VALUE_KERNEL(gather_pixels, GatherPixelsArgs) {
  const Place at = place_of(index, args.h, args.w, args.parts);
  args.dst[index] = args.src[at.n * args.n_stride + at.y * args.h_stride + at.x * args.w_stride + at.k];
}

inline constexpr unsigned char kUnwritten = 0xa5;
inline constexpr i64 kBehind = 64;  ///< values behind the last pixel that are looked at, too

struct FindWritesArgs {
  View view;
  Pointer<std::uint32_t> found;
};
/// Set `found` if a byte between two pixels, or behind the last one, is not kUnwritten. One thread per pixel.
MPSCNN_VALUE_KERNEL(find_writes_between, FindWritesArgs) {
  const View& view = args.view;
  const Place at = place_of(index, view.h, view.w, 1), next = place_of(index + 1, view.h, view.w, 1);
  const i64 own = view.offset(at.n, at.y, at.x, 0) + view.c;
  const i64 end = next.n < view.n ? view.offset(next.n, next.y, next.x, 0) : own + kBehind;
  const i64 size = view.format == Format::float16 ? 2 : 4;
  for (i64 i = own * size; i < end * size; ++i)
    if (view.data.get()[i] != kUnwritten) args.found[0] = 1;
}

/// Windows of an image as rows of a matrix.
struct GatherPatchesArgs {
  View src;            ///< float16 or float32
  Pointer<Vector> to;  ///< [window][parts], in the source's format
  i64 first;           ///< the first window of [n][h][w]
  i64 h, w, parts;     ///< windows; parts: 16 bytes each, of a row
  i64 kernel_h, kernel_w;
  i64 start_h, start_w, stride_h, stride_w, dilation_h, dilation_w;
};
/// A row has the values of a window, [kernel_h][kernel_w][c], and zeros. One thread per part.
MPSCNN_VALUE_KERNEL(gather_patches, GatherPatchesArgs) {
  const View& src = args.src;
  const Place at = place_of(args.first * args.parts + index, args.h, args.w, args.parts);
  const bool is_half = format_of(src) == Format::float16;
  const int lanes = is_half ? 8 : 4, channels = static_cast<int>(src.c), columns = static_cast<int>(args.kernel_w);
  const i64 top = args.start_h + at.y * args.stride_h, left = args.start_w + at.x * args.stride_w;
  const int first = static_cast<int>(at.k) * lanes;
  int tap = first / channels, k = first - tap * channels;
  int p = tap / columns, q = tap - p * columns;
  Words<16> words = {};
  for (int i = 0; i < lanes; ++i) {
    const i64 y = top + p * args.dilation_h, x = left + q * args.dilation_w;
    if (p < args.kernel_h && y >= 0 && y < src.h && x >= 0 && x < src.w) {
      const i64 offset = src.offset(at.n, y, x, k);
      if (is_half)
        words.word[i / 2] |= std::uint32_t{reinterpret_cast<const std::uint16_t*>(src.data.get())[offset]}
                             << (i % 2 * 16);
      else
        words.word[i] = reinterpret_cast<const std::uint32_t*>(src.data.get())[offset];
    }
    if (++k < channels) continue;
    k = 0;
    if (++q == columns) q = 0, ++p;
  }
  store_words(reinterpret_cast<unsigned char*>(args.to.get() + index), words);
}

/// The same for channels that are a multiple of 16 bytes, so that a part has values of one tap. One thread per part of
/// the channels and row of taps: a thread per part of the matrix would divide more than it copies.
MPSCNN_VALUE_KERNEL(gather_taps, GatherPatchesArgs) {
  const View& src = args.src;
  const int lanes = lanes_of<true>(src), of_tap = static_cast<int>(src.c) / lanes;
  const i64 of_window = args.kernel_h * of_tap;
  const Place at = place_of(args.first * of_window + index, args.h, args.w, of_window);
  const int p = static_cast<int>(at.k) / of_tap, k = static_cast<int>(at.k) - p * of_tap;
  const i64 y = args.start_h + at.y * args.stride_h + p * args.dilation_h, left = args.start_w + at.x * args.stride_w;
  const bool has_row = y >= 0 && y < src.h;
  const i64 window = (at.n * args.h + at.y) * args.w + at.x - args.first;
  Vector* const to = args.to.get() + window * args.parts + p * args.kernel_w * of_tap + k;
  for (i64 q = 0; q < args.kernel_w; ++q) {
    const i64 x = left + q * args.dilation_w;
    Vector values = {};
    if (has_row && x >= 0 && x < src.w) values = load_vector(src, src.offset(at.n, y, x, k * lanes));
    to[q * of_tap] = values;
  }
}

/// Extents, or strides, of an array whose first extent is not needed.
struct Extents3 {
  i64 b, c, d;
};
struct Strides4 {
  i64 a, b, c, d;
};

struct ArrangeWeightsArgs {
  static constexpr i64 kTile = 64;  ///< a block computes kTile x kTile values
  static constexpr i64 kFew = 8;    ///< smaller extents would leave most of a tile empty

  Pointer<const float> from;
  Pointer<unsigned char> to;
  Format format;     ///< of `to`: float16 or float32
  bool rounds;       ///< to float16 first
  i64 values;        ///< of `to`
  Extents3 extents;  ///< of `to`, [a][b][c][d]
  i64 known;         ///< values along d that `from` has; the others become 0
  i64 first;         ///< index of value (0, 0, 0, 0) in `from`
  Strides4 strides;  ///< of `from`

  /// Both have the same values in the same order.
  MPSCNN_HOST_DEVICE bool is_copy() const {
    return extents.b == 1 && extents.c == 1 && known == extents.d && strides.a == known && strides.d == 1;
  }
  /// `to` has transposed matrices: values that are adjacent in `from` are along b.
  MPSCNN_HOST_DEVICE bool is_transposed() const {
    return strides.b == 1 && known == extents.d && extents.b >= kFew && extents.d >= kFew;
  }
  /// Return how many blocks compute the values.
  MPSCNN_HOST_DEVICE i64 blocks() const {
    if (!is_transposed()) return (values + kTile * kTile - 1) / (kTile * kTile);
    return values / (extents.b * extents.d) * tiles(extents.b) * tiles(extents.d);
  }
  MPSCNN_HOST_DEVICE static i64 tiles(i64 extent) { return (extent + kTile - 1) / kTile; }
};

/// Store values `index` to `index + count - 1` of `to`, at most 4.
MPSCNN_HOST_DEVICE void store_weights(const ArrangeWeightsArgs& args, i64 index, int count, float (&values)[4]) {
  if (args.rounds)
    for (float& value : values) value = half_value(half_bits(value));
  const bool is_half = args.format == Format::float16;
  unsigned char* const to = args.to.get();
  if (count < 4 || index % 4 != 0) {
    for (int i = 0; i < 4; ++i)
      if (i < count) store(args.format, to, index + i, values[i]);
  } else if (is_half) {
    *reinterpret_cast<Bits<2>*>(to + index * 2) = {{half_pair(values[0], values[1]), half_pair(values[2], values[3])}};
  } else {
    Bits<4> words;
    for (int i = 0; i < 4; ++i) words.words[i] = std::bit_cast<std::uint32_t>(values[i]);
    *reinterpret_cast<Bits<4>*>(to + index * 4) = words;
  }
}

/// Return `count` values from `from` on, at most 4, and zeros. is_aligned: `from` is aligned to 16 bytes.
MPSCNN_HOST_DEVICE Bits<4> load_weights(const float* from, i64 count, bool is_aligned) {
  if (is_aligned && count >= 4) return load_constant<4>(from);
  Bits<4> words = {};
  for (int i = 0; i < 4; ++i) words.words[i] = load_constant<1>(from + i, i < count).words[0];
  return words;
}

constexpr int kPartsOfTile =
    static_cast<int>(ArrangeWeightsArgs::kTile * ArrangeWeightsArgs::kTile / 4);  ///< of 4 values
constexpr int kPartsOfThread = kPartsOfTile / kThreads;

/// Arrange the values of block `index`, in the order of `to`.
MPSCNN_HOST_DEVICE void arrange_in_order(const ArrangeWeightsArgs& args, i64 index, const Block& block) {
  const i64 first = index * (4 * kPartsOfTile);
  const float* const from = args.from.get() + args.first;
  const bool is_copy = args.is_copy(), is_aligned = reinterpret_cast<std::uint64_t>(from) % 16 == 0;
  block.for_each(kThreads, [&](i64 thread) {
    Bits<4> loaded[kPartsOfThread];
    MPSCNN_UNROLL
    for (int i = 0; i < kPartsOfThread; ++i) {
      const i64 at = first + (i * kThreads + thread) * 4;
      loaded[i] = {};
      if (is_copy) {
        loaded[i] = load_weights(from + at, args.values - at, is_aligned);
        continue;
      }
      for (int v = 0; v < 4; ++v) {
        if (at + v >= args.values) continue;
        const Place p = place_of(at + v, args.extents.b, args.extents.c, args.extents.d);
        const Strides4& s = args.strides;
        if (p.k < args.known)
          loaded[i].words[v] = std::bit_cast<std::uint32_t>(from[p.n * s.a + p.y * s.b + p.x * s.c + p.k * s.d]);
      }
    }
    MPSCNN_UNROLL
    for (int i = 0; i < kPartsOfThread; ++i) {
      const i64 at = first + (i * kThreads + thread) * 4, rest = args.values - at;
      float values[4];
      for (int v = 0; v < 4; ++v) values[v] = std::bit_cast<float>(loaded[i].words[v]);
      if (rest > 0) store_weights(args, at, rest < 4 ? static_cast<int>(rest) : 4, values);
    }
  });
}

/// Values of a tile; 65 per row, so that the lanes of a warp use different banks along both axes.
struct ArrangeTile {
  float values[ArrangeWeightsArgs::kTile][ArrangeWeightsArgs::kTile + 1];
};

/// Transpose tile `index`, kTile x kTile values of a matrix.
MPSCNN_HOST_DEVICE void arrange_transposed(const ArrangeWeightsArgs& args, i64 index, const Block& block,
                                           ArrangeTile& tile) {
  constexpr i64 kTile = ArrangeWeightsArgs::kTile;
  const Extents3& extents = args.extents;
  const Strides4& s = args.strides;
  // Image: a, row: c, column: tile along b, channel: tile along d.
  const Place at = place_of(index, extents.c, args.tiles(extents.b), args.tiles(extents.d));
  const i64 b = at.x * kTile, d = at.k * kTile, rest_b = extents.b - b, rest_d = extents.d - d;
  const float* const from = args.from.get() + args.first + at.n * s.a + at.y * s.c + d * s.d + b;
  const bool is_aligned = reinterpret_cast<std::uint64_t>(from) % 16 == 0 && s.d % 4 == 0;
  // A warp has 4 rows of 8 parts: 128 bytes of each row of `from`, 64 or 128 bytes of `to`.
  const auto row_of = [](i64 part) { return static_cast<int>(part / 8 % kTile); };
  const auto first_of = [](i64 part) { return static_cast<int>(part % 8 + part / (8 * kTile) * 8) * 4; };
  block.for_each(kThreads, [&](i64 thread) {
    Bits<4> loaded[kPartsOfThread];
    MPSCNN_UNROLL
    for (int i = 0; i < kPartsOfThread; ++i) {
      const i64 part = i * kThreads + thread;
      const int row = row_of(part), column = first_of(part);
      loaded[i] = load_weights(from + row * s.d + column, row < rest_d ? rest_b - column : 0, is_aligned);
    }
    MPSCNN_UNROLL
    for (int i = 0; i < kPartsOfThread; ++i) {
      const i64 part = i * kThreads + thread;
      for (int v = 0; v < 4; ++v)
        tile.values[row_of(part)][first_of(part) + v] = std::bit_cast<float>(loaded[i].words[v]);
    }
  });
  block.for_each(kPartsOfTile, [&](i64 part) {
    const int column = row_of(part), row = first_of(part);
    if (column >= rest_b || row >= rest_d) return;
    float values[4];
    for (int v = 0; v < 4; ++v) values[v] = tile.values[row + v][column];
    const i64 to = ((at.n * extents.b + b + column) * extents.c + at.y) * extents.d + d + row;
    store_weights(args, to, rest_d - row < 4 ? static_cast<int>(rest_d - row) : 4, values);
  });
}

/// Several arrangements in one launch.
struct ArrangeManyArgs {
  static constexpr int kMost = 34;  ///< arguments of a kernel have at most 4 KB
  struct Part {
    ArrangeWeightsArgs args;
    i64 end;  ///< blocks of this one and of those before it
  };
  int count;
  Part parts[kMost];
};
static_assert(sizeof(ArrangeManyArgs) <= 4096 - sizeof(i64));
MPSCNN_BLOCK_KERNEL(arrange_many, ArrangeManyArgs, 4) {
  MPSCNN_SHARED(ArrangeTile, shared, 1);
  int which = 0;
  while (index >= args.parts[which].end) ++which;
  const ArrangeWeightsArgs& mine = args.parts[which].args;
  const i64 of_part = index - (which > 0 ? args.parts[which - 1].end : 0);
  if (mine.is_transposed())
    arrange_transposed(mine, of_part, block, shared.own(0));
  else
    arrange_in_order(mine, of_part, block);
}

struct AddGradientArgs {
  Pointer<unsigned char> from;
  Pointer<float> to;
  Format format;               ///< of `from`
  i64 channels, all_channels;  ///< of `to`, and of `from`, whose last ones are dropped
  bool accumulates;            ///< add instead of overwriting
};
MPSCNN_VALUE_KERNEL(add_gradient, AddGradientArgs) {
  const i64 row = index / args.channels;
  const float value = load(args.format, args.from.get(), row * args.all_channels + index - row * args.channels);
  args.to[index] = args.accumulates ? args.to[index] + value : value;
}

struct SpreadPixelsArgs {
  View from, to;  ///< `from` has every stride-th pixel of `to`, from the first on
  i64 stride_h, stride_w;

  /// Return the place in `from`; a negative image: there is none.
  MPSCNN_HOST_DEVICE Place source_of(const Place& at) const {
    const auto row = static_cast<std::uint32_t>(at.y), column = static_cast<std::uint32_t>(at.x);  // divide faster
    const i64 y = row / static_cast<std::uint32_t>(stride_h), x = column / static_cast<std::uint32_t>(stride_w);
    const bool is_there = y * stride_h == at.y && x * stride_w == at.x && y < from.h && x < from.w;
    return {is_there ? at.n : -1, y, x, at.k};
  }
};
/// Copy pixels, with zeros between them.
MPSCNN_VALUE_KERNEL(spread_pixels, SpreadPixelsArgs) {
  const Place at = place_of(index, args.to);
  const Place from = args.source_of(at);
  store(args.to, at, from.n < 0 ? 0.0f : load(args.from, from));
}
/// The same by 16 bytes of adjacent channels.
MPSCNN_VALUE_KERNEL(spread_vectors, SpreadPixelsArgs) {
  const Place at = first_place_of(index, args.to, lanes_of<true>(args.to));
  const Place from = args.source_of(at);
  Vector values = {};
  if (from.n >= 0) values = load_vector(args.from, args.from.offset(from.n, from.y, from.x, from.k));
  store_vector(args.to, args.to.offset(at.n, at.y, at.x, at.k), values);
}

struct AddTransposedArgs {
  Pointer<const float> from;  ///< [groups][inputs][taps][outputs], taps in reverse order
  Pointer<float> to;          ///< [groups][outputs][taps][inputs]
  i64 outputs, taps, inputs;  ///< of a group
  bool accumulates;
};
MPSCNN_VALUE_KERNEL(add_transposed_gradient, AddTransposedArgs) {
  const Place at = place_of(index, args.outputs, args.taps, args.inputs);
  const float value = args.from[((at.n * args.inputs + at.k) * args.taps + args.taps - 1 - at.x) * args.outputs + at.y];
  args.to[index] = args.accumulates ? args.to[index] + value : value;
}

struct AddBiasArgs {
  View image;
  Pointer<const float> bias;  ///< may be null
  Activation neuron;
};
/// image = neuron(image + bias).
MPSCNN_VALUE_KERNEL(add_bias, AddBiasArgs) {
  const Place at = place_of(index, args.image);
  const float value = load(args.image, at);
  store(args.image, at, activate(args.neuron, args.bias ? value + args.bias[at.k] : value, at.k));
}

struct AddBiasRowArgs {
  View image;  ///< one row of pixels
  Pointer<const float> bias;
  bool is_relu;
  float slope;
  i64 step;  ///< between the pixels of a thread
};
constexpr int kBiasPixels = 8;  ///< of a thread
/// The same for 16 bytes of channels, the same ones of several pixels. The neuron is none or relu.
MPSCNN_VALUE_KERNEL(add_bias_row, AddBiasRowArgs) {
  const View& image = args.image;
  const int lanes = lanes_of<true>(image);
  const i64 parts = image.c / lanes, first = index / parts, k = (index - first * parts) * lanes;
  float bias[kMostLanes];
  for (int i = 0; i < lanes; ++i) bias[i] = args.bias ? args.bias[k + i] : 0;
  Vector loaded[kBiasPixels] = {};
  MPSCNN_UNROLL
  for (int j = 0; j < kBiasPixels; ++j)
    if (const i64 x = first + j * args.step; x < image.w) loaded[j] = load_vector(image, x * image.w_stride + k);
  MPSCNN_UNROLL
  for (int j = 0; j < kBiasPixels; ++j) {
    const i64 x = first + j * args.step;
    if (x >= image.w) continue;
    float values[kMostLanes];
    unpack(image, loaded[j], values);
    for (int i = 0; i < lanes; ++i) {
      values[i] += bias[i];
      if (args.is_relu) values[i] = NeuronFormulas<DeviceMath>::relu(values[i], args.slope);
    }
    store_lanes<true>(image, {0, 0, x, k}, values);
  }
}

}  // namespace openmps::cuda::layout
