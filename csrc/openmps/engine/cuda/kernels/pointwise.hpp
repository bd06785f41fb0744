// SPDX-License-Identifier: Apache-2.0
// Element-wise kernels. Those named *_lanes compute several adjacent values per thread.
#pragma once

#include "engine/cuda/kernels/device.hpp"
#include "engine/cuda/kernels/lanes.hpp"
#include "engine/problem/element_type.hpp"
#include "engine/problem/pointwise.hpp"
#include "engine/shared/arithmetic.hpp"
#include "engine/shared/elements.hpp"
#include "engine/shared/philox.hpp"
#include "engine/shared/results_axis.hpp"

namespace openmps::cuda::pointwise {

inline constexpr const char* kFile = "engine/cuda/kernels/pointwise.hpp";

// Long formulas are not repeated for each lane: code for 8 of them would take seconds to compile.
#if MPSCNN_ON_GPU
#define MPSCNN_NO_UNROLL _Pragma("unroll 1")
#else
#define MPSCNN_NO_UNROLL
#endif

struct CopyArgs {
  View src, dst;
};
MPSCNN_VALUE_KERNEL(copy, CopyArgs) {
  const Place at = place_of(index, args.dst);
  store(args.dst, at, load(args.src, at));
}

/// Copies of words of 4 bytes between buffers that do not overlap.
struct CopyManyArgs {
  static constexpr int kMost = 96;             ///< arguments of a kernel have at most 4 KB
  static constexpr i64 kWords = 4 * kThreads;  ///< of a block
  struct Range {
    Pointer<const std::uint32_t> from;
    Pointer<std::uint32_t> to;
    i64 words;
    i64 end;  ///< blocks of this one and of those before it
  };
  int count;
  Range ranges[kMost];
};
static_assert(sizeof(CopyManyArgs) <= 4096 - sizeof(i64));
MPSCNN_BLOCK_KERNEL(copy_many, CopyManyArgs) {
  int which = 0;
  while (index >= args.ranges[which].end) ++which;
  const CopyManyArgs::Range& mine = args.ranges[which];
  const i64 first = (index - (which > 0 ? args.ranges[which - 1].end : 0)) * CopyManyArgs::kWords;
  const i64 rest = mine.words - first;
  block.for_each(rest < CopyManyArgs::kWords ? rest : CopyManyArgs::kWords,
                 [&](i64 i) { mine.to[first + i] = mine.from[first + i]; });
}

struct CopyLanesArgs {
  View src, dst;
  Chunks chunks;
};
MPSCNN_VALUE_KERNEL(copy_lanes, CopyLanesArgs) {
  const int lanes = lanes_of(args.chunks);
  const Chunk chunk = chunk_of(index, args.chunks, args.dst);
  store_lanes(args.dst, chunk, lanes, load_lanes(args.src, chunk, lanes));
}

struct NeuronArgs {
  View src, dst;
  Activation neuron;
};
MPSCNN_VALUE_KERNEL(neuron, NeuronArgs) {
  const Place at = place_of(index, args.dst);
  store(args.dst, at, activate(args.neuron, load(args.src, at), at.k));
}

struct NeuronLanesArgs {
  View src, dst;
  Activation neuron;
  Chunks chunks;
};
MPSCNN_VALUE_KERNEL(neuron_lanes, NeuronLanesArgs) {
  using F = NeuronFormulas<DeviceMath>;
  const int lanes = lanes_of(args.chunks);
  const Chunk chunk = chunk_of(index, args.chunks, args.dst);
  Lanes x = load_lanes(args.src, chunk, lanes);
  const Activation& f = args.neuron;
  if (f.type == NeuronType::relu) {
    for (int i = 0; i < lanes; ++i) x.v[i] = F::relu(x.v[i], f.a);
  } else if (f.type == NeuronType::relun) {
    for (int i = 0; i < lanes; ++i) x.v[i] = F::relun(x.v[i], f.a, f.b);
  } else if (f.type == NeuronType::prelu) {
    for (int i = 0; i < lanes; ++i) x.v[i] = F::relu(x.v[i], f.slopes ? f.slopes[chunk.at.k + i] : f.a);
  } else if (f.type == NeuronType::linear) {
    for (int i = 0; i < lanes; ++i) x.v[i] = F::linear(x.v[i], f.a, f.b);
  } else if (f.type == NeuronType::hard_sigmoid) {
    for (int i = 0; i < lanes; ++i) x.v[i] = F::hard_sigmoid(x.v[i], f.a, f.b);
  } else if (f.type == NeuronType::sigmoid) {
    for (int i = 0; i < lanes; ++i) x.v[i] = F::sigmoid(x.v[i]);
  } else if (f.type != NeuronType::none) {
    Lanes y = x;
    MPSCNN_NO_UNROLL
    for (int i = 0; i < lanes; ++i) y.v[i] = activate(f, y.v[i], chunk.at.k + i);
    x = y;
  }
  store_lanes(args.dst, chunk, lanes, x);
}

struct NeuronGradientArgs {
  Source diff_dst, src;
  View diff_src;
  Activation neuron;
  ResultsAxis rows, columns;  ///< of a clamped source
};
MPSCNN_VALUE_KERNEL(neuron_gradient, NeuronGradientArgs) {
  const Place at = place_of(index, args.diff_src);
  store(args.diff_src, at, activate_gradient(args.neuron, load(args.diff_dst, at), load(args.src, at), at.k));
}

MPSCNN_VALUE_KERNEL(neuron_gradient_clamped, NeuronGradientArgs) {
  const Place at = place_of(index, args.diff_src);
  const i64 y = args.src.start_h + at.y, x = args.src.start_w + at.x;
  float result = 0;
  if (y >= 0 && y < args.src.view.h && x >= 0 && x < args.src.view.w) {
    const Seers rows = args.rows.of(at.y), columns = args.columns.of(at.x);
    double sum = 0;
    for (i64 v = rows.first; v <= rows.last; ++v)
      for (i64 u = columns.first; u <= columns.last; ++u) sum += load(args.diff_dst.view, at.n, v, u, at.k);
    result = activate_gradient(args.neuron, static_cast<float>(sum), load(args.src, at), at.k);
  }
  store(args.diff_src, at, result);
}

struct NeuronGradientLanesArgs {
  Source diff_dst, src;
  View diff_src;
  Activation neuron;
  Chunks chunks;
};
MPSCNN_VALUE_KERNEL(neuron_gradient_lanes, NeuronGradientLanesArgs) {
  using F = NeuronFormulas<DeviceMath>;
  const int lanes = lanes_of(args.chunks);
  const Chunk chunk = chunk_of(index, args.chunks, args.diff_src);
  Lanes g = load_lanes(args.diff_dst, chunk, lanes);
  const Lanes x = load_lanes(args.src, chunk, lanes);
  const Activation& f = args.neuron;
  if (f.type == NeuronType::relu) {
    for (int i = 0; i < lanes; ++i) g.v[i] = F::relu_gradient(g.v[i], x.v[i], f.a);
  } else if (f.type == NeuronType::relun) {
    for (int i = 0; i < lanes; ++i) g.v[i] = F::relun_gradient(g.v[i], x.v[i], f.a, f.b);
  } else if (f.type == NeuronType::prelu) {
    for (int i = 0; i < lanes; ++i)
      g.v[i] = F::relu_gradient(g.v[i], x.v[i], f.slopes ? f.slopes[chunk.at.k + i] : f.a);
  } else if (f.type == NeuronType::linear) {
    for (int i = 0; i < lanes; ++i) g.v[i] = f.a * g.v[i];
  } else if (f.type == NeuronType::hard_sigmoid) {
    for (int i = 0; i < lanes; ++i) g.v[i] = F::hard_sigmoid_gradient(g.v[i], x.v[i], f.a, f.b);
  } else if (f.type == NeuronType::sigmoid) {
    for (int i = 0; i < lanes; ++i) g.v[i] = F::sigmoid_gradient(g.v[i], x.v[i]);
  } else if (f.type != NeuronType::none) {
    Lanes from = x, to = g;
    MPSCNN_NO_UNROLL
    for (int i = 0; i < lanes; ++i) to.v[i] = activate_gradient(f, to.v[i], from.v[i], chunk.at.k + i);
    g = to;
  }
  store_lanes(args.diff_src, chunk, lanes, g);
}

/// Return the result before clamping.
MPSCNN_HOST_DEVICE float unclamped(const Arithmetic& function, float a, float b) {
  Arithmetic f = function;
  f.min = -std::numeric_limits<float>::infinity();
  f.max = std::numeric_limits<float>::infinity();
  float value = 0;
  switch (f.operation) {
    case BinaryOperation::add: arithmetic<BinaryOperation::add>(f, a, b, value); break;
    case BinaryOperation::subtract: arithmetic<BinaryOperation::subtract>(f, a, b, value); break;
    case BinaryOperation::multiply: arithmetic<BinaryOperation::multiply>(f, a, b, value); break;
    case BinaryOperation::divide: arithmetic<BinaryOperation::divide>(f, a, b, value); break;
    case BinaryOperation::equal: arithmetic<BinaryOperation::equal>(f, a, b, value); break;
    case BinaryOperation::not_equal: arithmetic<BinaryOperation::not_equal>(f, a, b, value); break;
    case BinaryOperation::less: arithmetic<BinaryOperation::less>(f, a, b, value); break;
    case BinaryOperation::less_or_equal: arithmetic<BinaryOperation::less_or_equal>(f, a, b, value); break;
    case BinaryOperation::greater: arithmetic<BinaryOperation::greater>(f, a, b, value); break;
    case BinaryOperation::greater_or_equal: arithmetic<BinaryOperation::greater_or_equal>(f, a, b, value); break;
  }
  return value;
}
MPSCNN_HOST_DEVICE float mask_of(const Arithmetic& f, float unclamped) {
  return unclamped > f.min && unclamped < f.max ? 1.0f : 0.0f;
}
MPSCNN_HOST_DEVICE float clamped(const Arithmetic& f, float value) {
  value = value < f.min ? f.min : value;
  return value > f.max ? f.max : value;
}

struct BinaryArgs {
  Source src0, src1;
  View dst, mask;
  Arithmetic function;
};
MPSCNN_VALUE_KERNEL(binary, BinaryArgs) {
  const Place at = place_of(index, args.dst);
  const float value = unclamped(args.function, load(args.src0, at), load(args.src1, at));
  if (args.mask) store(args.mask, at, mask_of(args.function, value));
  store(args.dst, at, clamped(args.function, value));
}

struct BinaryLanesArgs {
  Source src0, src1;
  View dst, mask;
  Arithmetic function;
  Chunks chunks;
};
MPSCNN_VALUE_KERNEL(binary_lanes, BinaryLanesArgs) {
  const int lanes = lanes_of(args.chunks);
  const Chunk chunk = chunk_of(index, args.chunks, args.dst);
  Lanes a = load_lanes(args.src0, chunk, lanes);
  const Lanes b = load_lanes(args.src1, chunk, lanes);
  for (int i = 0; i < lanes; ++i) a.v[i] = unclamped(args.function, a.v[i], b.v[i]);
  if (args.mask) {
    Lanes mask = a;
    for (int i = 0; i < lanes; ++i) mask.v[i] = mask_of(args.function, a.v[i]);
    store_lanes(args.mask, chunk, lanes, mask);
  }
  for (int i = 0; i < lanes; ++i) a.v[i] = clamped(args.function, a.v[i]);
  store_lanes(args.dst, chunk, lanes, a);
}

struct BinaryGradientArgs {
  Source diff_dst, other, mask;
  View diff_src;
  float scale = 1;
  i64 sum_h = 1, sum_w = 1, sum_c = 1;
  bool is_clamped = false;    ///< results along rows and columns without sums saw a pixel twice
  ResultsAxis rows, columns;  ///< if is_clamped
  i64 parts = 1;              ///< of a sum
  Pointer<double> partial;    ///< if parts > 1: one sum per index
};

/// diff_dst * other * mask.
MPSCNN_HOST_DEVICE float product(const BinaryGradientArgs& args, float scale, const Place& at) {
  float value = scale * load(args.diff_dst, at);
  if (args.other.view) value *= load(args.other, at);
  return args.mask.view && load(args.mask, at) == 0 ? 0.0f : value;
}

MPSCNN_VALUE_KERNEL(binary_gradient, BinaryGradientArgs) {
  const Place at = place_of(index, args.diff_src);
  store(args.diff_src, at, product(args, args.scale, at));
}

struct BinaryGradientLanesArgs {
  Source diff_dst, other, mask;
  View diff_src;
  float scale;
  Chunks chunks;
};
MPSCNN_VALUE_KERNEL(binary_gradient_lanes, BinaryGradientLanesArgs) {
  const int lanes = lanes_of(args.chunks);
  const Chunk chunk = chunk_of(index, args.chunks, args.diff_src);
  Lanes value = load_lanes(args.diff_dst, chunk, lanes);
  for (int i = 0; i < lanes; ++i) value.v[i] = args.scale * value.v[i];
  if (args.other.view) {
    const Lanes other = load_lanes(args.other, chunk, lanes);
    for (int i = 0; i < lanes; ++i) value.v[i] *= other.v[i];
  }
  if (args.mask.view) {
    const Lanes mask = load_lanes(args.mask, chunk, lanes);
    for (int i = 0; i < lanes; ++i) value.v[i] = mask.v[i] == 0 ? 0.0f : value.v[i];
  }
  store_lanes(args.diff_src, chunk, lanes, value);
}

struct MaskedSumArgs {
  Source src0, src1, mask;
  View dst;
  float scale;
  Chunks chunks;
};

MPSCNN_VALUE_KERNEL(masked_sum, MaskedSumArgs) {
  const Place at = place_of(index, args.dst);
  const float sum = args.scale * (load(args.src0, at) + load(args.src1, at));
  const View& mask = args.mask.view;
  bool passes = true;
  if (mask && mask.c != args.dst.c) {  // packed [NormalizeAddProblem]
    const i64 values = args.dst.c / mask.c, byte = at.k / values, pixel = (at.n * mask.h + at.y) * mask.w + at.x;
    passes = (mask.data[(byte / 8 * mask.n * mask.h * mask.w + pixel) * 8 + byte % 8] >> (at.k % values) & 1) != 0;
  } else if (mask) {
    passes = load(args.mask, at) != 0;
  }
  store(args.dst, at, passes ? sum : 0.0f);
}

/// The same for images without gaps; the mask is unorm8, or has the other images' format. All loads of a thread are
/// under way before the first is used.
MPSCNN_VALUE_KERNEL(masked_sum_lanes, MaskedSumArgs) {
  const int lanes = lanes_of(args.chunks);
  const Chunk chunk = chunk_of(index, args.chunks, args.dst);
  const Format format = format_of(args.dst);
  const unsigned char *const from0 = args.src0.view.data.get(), *const from1 = args.src1.view.data.get(),
                             *const mask = args.mask.view.data.get();
  const i64 first = chunk.at.k;
  const bool is_masked = mask != nullptr, has_bytes = is_masked && args.mask.view.format == Format::unorm8;
  if (chunk.count < lanes) {
    for (int i = 0; i < chunk.count; ++i) {
      const float sum = args.scale * (load(format_of(args.src0.view), from0, first + i) +
                                      load(format_of(args.src1.view), from1, first + i));
      const bool is_zero = is_masked && load(has_bytes ? Format::unorm8 : format, mask, first + i) == 0;
      store(format, args.dst.data.get(), first + i, is_zero ? 0.0f : sum);
    }
    return;
  }
  Words<8> bytes = {{0x01010101u, 0x01010101u}};
  Lanes own = {};
  if (is_masked && !has_bytes)
    own = load_lanes(format, mask, first, lanes);
  else if (has_bytes && lanes == 8)
    bytes = load_words<8>(mask + first);
  else if (has_bytes)
    bytes.word[0] = load_words<4>(mask + first).word[0];
  Lanes sum = load_lanes(format_of(args.src0.view), from0, first, lanes);
  const Lanes other = load_lanes(format_of(args.src1.view), from1, first, lanes);
  for (int i = 0; i < lanes; ++i) {
    const bool passes = is_masked && !has_bytes ? own.v[i] != 0 : (bytes.word[i / 4] >> (i % 4 * 8) & 0xffu) != 0;
    sum.v[i] = passes ? args.scale * (sum.v[i] + other.v[i]) : 0.0f;
  }
  store_lanes(format, args.dst.data.get(), first, lanes, sum);
}

/// The products of a sum: a box of rows x columns x channels whose first one is at `first`.
struct Box {
  Place first;
  i64 rows, columns, channels;

  MPSCNN_HOST_DEVICE i64 size() const { return rows > 0 && columns > 0 ? rows * columns * channels : 0; }
};

MPSCNN_HOST_DEVICE Box box_of(const BinaryGradientArgs& args, const Place& at) {
  Box box{at, args.sum_h, args.sum_w, args.sum_c};
  if (args.is_clamped && args.sum_h == 1) {
    const Seers seers = args.rows.of(at.y);
    box.first.y = seers.first - args.diff_dst.start_h, box.rows = seers.last - seers.first + 1;
  }
  if (args.is_clamped && args.sum_w == 1) {
    const Seers seers = args.columns.of(at.x);
    box.first.x = seers.first - args.diff_dst.start_w, box.columns = seers.last - seers.first + 1;
  }
  return box;
}

/// A product of a box, and steps to later ones without a division.
struct Step {
  i64 row, column, channel;

  MPSCNN_HOST_DEVICE Step(i64 products, const Box& box) {
    const Place at = place_of(products, 0x7fffffff, box.columns, box.channels);
    row = at.y, column = at.x, channel = at.k;
  }
  MPSCNN_HOST_DEVICE void advance(const Step& by, const Box& box) {
    channel += by.channel, column += by.column, row += by.row;
    if (channel >= box.channels) channel -= box.channels, ++column;
    if (column >= box.columns) column -= box.columns, ++row;
  }
};

// Part `p` of a sum has products p, p + parts, p + 2 * parts and so on, so that adjacent threads read adjacent values.
MPSCNN_VALUE_KERNEL(binary_gradient_sums, BinaryGradientArgs) {
  const View& dst = args.diff_src;
  Place at;
  i64 part = 0;
  if (args.parts == 1) {
    at = place_of(index, dst);
  } else if (args.sum_c > 1) {  // order of indices: images, rows, columns, parts
    at = place_of(index, dst.h, dst.w, args.parts);
    part = at.k, at.k = 0;
  } else {  // images, rows, parts, columns, channels
    const Place line = place_of(index, args.parts, dst.w, dst.c);
    part = line.y;
    at = {line.n / dst.h, line.n % dst.h, line.x, line.k};
  }
  const Box box = box_of(args, at);
  double sum = 0;
  if (const i64 size = box.size(); part < size) {
    Step product_at(part, box);
    const Step by(args.parts, box);
    for (i64 i = part; i < size; i += args.parts) {
      sum += product(args, 1.0f,
                     {box.first.n, box.first.y + product_at.row, box.first.x + product_at.column,
                      box.first.k + product_at.channel});
      product_at.advance(by, box);
    }
  }
  if (args.parts > 1)
    args.partial[index] = sum;
  else
    store(dst, at, static_cast<float>(sum * args.scale));
}

MPSCNN_VALUE_KERNEL(binary_gradient_total, BinaryGradientArgs) {
  const View& dst = args.diff_src;
  const Place at = place_of(index, dst);
  const i64 line = at.n * dst.h + at.y, length = dst.w * dst.c;
  const i64 first = args.sum_c > 1 ? index * args.parts : line * args.parts * length + at.x * dst.c + at.k,
            step = args.sum_c > 1 ? 1 : length;
  double sum = 0;
  for (i64 part = 0; part < args.parts; ++part) sum += args.partial[first + part * step];
  store(dst, at, static_cast<float>(sum * args.scale));
}

// One block per sum.
MPSCNN_BLOCK_KERNEL(binary_gradient_blocks, BinaryGradientArgs) {
  const Place at = place_of(index, args.diff_src);
  const Box box = box_of(args, at);
  const double sum = block.reduce(
      box.size(), 0.0,
      [&](i64 i) -> double {
        const Step step(i, box);
        return product(args, 1.0f,
                       {box.first.n, box.first.y + step.row, box.first.x + step.column, box.first.k + step.channel});
      },
      [](double a, double b) { return a + b; });
  block.for_each(1, [&](i64) { store(args.diff_src, at, static_cast<float>(sum * args.scale)); });
}

struct DropoutArgs {
  Source src;
  View dst;
  DropoutMask mask;
  std::uint32_t threshold;
  i64 start_h, start_w;
  bool is_clamped;
  ResultsAxis rows, columns;  ///< if is_clamped
};

/// Return whether the mask keeps a value; `at` counts from the mask's start.
MPSCNN_HOST_DEVICE bool is_kept(const DropoutArgs& args, const Place& at) {
  const DropoutMask& mask = args.mask;
  const i64 y = args.start_h + at.y, x = args.start_w + at.x;
  if ((mask.h > 1 && (y < 0 || y >= mask.h)) || (mask.w > 1 && (x < 0 || x >= mask.w))) return false;
  const i64 value = ((mask.h == 1 ? 0 : y) * mask.w + (mask.w == 1 ? 0 : x)) * mask.c + (mask.c == 1 ? 0 : at.k);
  return dropout_bits_of(mask.seed, mask.image + static_cast<std::uint64_t>(at.n), value) < args.threshold;
}

MPSCNN_VALUE_KERNEL(dropout, DropoutArgs) {
  const Place at = place_of(index, args.dst);
  store(args.dst, at, is_kept(args, at) ? load(args.src, at) / args.mask.keep : 0.0f);
}

// The start of the mask is that of result (0, 0).
MPSCNN_VALUE_KERNEL(dropout_clamped, DropoutArgs) {
  const Place at = place_of(index, args.dst);
  const Seers rows = args.rows.of(at.y), columns = args.columns.of(at.x);
  double sum = 0;
  for (i64 v = rows.first; v <= rows.last; ++v)
    for (i64 u = columns.first; u <= columns.last; ++u)
      if (is_kept(args, {at.n, v, u, at.k})) sum += load(args.src.view, at.n, v, u, at.k) / args.mask.keep;
  store(args.dst, at, static_cast<float>(sum));
}

struct DropoutDenseArgs {
  View src, dst;
  std::uint64_t seed, image;
  std::uint32_t threshold;
  float keep;
  i64 values, blocks;  ///< of an image
};

// Four values per thread, those of one block of random bits. Images have no gaps and the extents of the mask.
MPSCNN_VALUE_KERNEL(dropout_dense, DropoutDenseArgs) {
  const Place at = place_of(index, 1, 1, args.blocks);
  const Philox bits(args.seed, static_cast<std::uint64_t>(at.k), args.image + static_cast<std::uint64_t>(at.n));
  const i64 first = at.k / 16 * 64 + at.k % 16;
  for (int w = 0; w < 4; ++w) {
    const i64 value = first + 16 * w, offset = at.n * args.values + value;
    if (value >= args.values) continue;
    const float kept = load(format_of(args.src), args.src.data.get(), offset) / args.keep;
    store(format_of(args.dst), args.dst.data.get(), offset, bits.words[w] < args.threshold ? kept : 0.0f);
  }
}

struct PixelCopyArgs {
  Pointer<unsigned char> src, dst;
  i64 src_pixel, src_row, dst_pixel, dst_row;  ///< strides in bytes
  i64 h, w, units, zeros;                      ///< of a pixel: units to copy, and zero units after them
  int unit;                                    ///< bytes that one thread moves: 16, 8, 4, 2 or 1
};

template <int unit>
MPSCNN_HOST_DEVICE void copy_unit(const unsigned char* from, unsigned char* to) {
  store_words<unit>(to, from ? load_words<unit>(from) : Words<unit>{});
}

MPSCNN_VALUE_KERNEL(pixel_copy, PixelCopyArgs) {
  const Place at = place_of(index, args.h, args.w, args.units + args.zeros);
  const unsigned char* const from =
      at.k < args.units ? args.src.get() + at.y * args.src_row + at.x * args.src_pixel + at.k * args.unit : nullptr;
  unsigned char* const to = args.dst.get() + at.y * args.dst_row + at.x * args.dst_pixel + at.k * args.unit;
  switch (args.unit) {
    case 16: copy_unit<16>(from, to); break;
    case 8: copy_unit<8>(from, to); break;
    case 4: copy_unit<4>(from, to); break;
    case 2: copy_unit<2>(from, to); break;
    default: copy_unit<1>(from, to);
  }
}

/// An element of any type: a real number or an integer.
struct Number {
  bool is_real = false;
  bool is_unsigned = false;  ///< `integer` is a std::uint64_t
  float real = 0.0f;
  i64 integer = 0;
};

template <class T>
MPSCNN_HOST_DEVICE T element_at(const unsigned char* from) {
  return *reinterpret_cast<const T*>(from);
}

MPSCNN_HOST_DEVICE Number real_number(float value) { return {true, false, value, 0}; }
MPSCNN_HOST_DEVICE Number whole_number(i64 value) { return {false, false, 0.0f, value}; }

MPSCNN_HOST_DEVICE Number load_number(ElementType type, const unsigned char* from) {
  switch (type) {
    case ElementType::uint8: return whole_number(*from);
    case ElementType::uint16: return whole_number(element_at<std::uint16_t>(from));
    case ElementType::uint32: return whole_number(element_at<std::uint32_t>(from));
    case ElementType::uint64: return Number{false, true, 0.0f, element_at<i64>(from)};
    case ElementType::int8: return whole_number(element_at<std::int8_t>(from));
    case ElementType::int16: return whole_number(element_at<std::int16_t>(from));
    case ElementType::int32: return whole_number(element_at<std::int32_t>(from));
    case ElementType::int64: return whole_number(element_at<i64>(from));
    case ElementType::boolean: return whole_number(*from != 0);
    case ElementType::unorm8: return real_number(unorm_to_float(*from, 255.0f));
    case ElementType::unorm16: return real_number(unorm_to_float(element_at<std::uint16_t>(from), 65535.0f));
    case ElementType::float16: return real_number(half_value(element_at<std::uint16_t>(from)));
    case ElementType::bfloat16: return real_number(bfloat_to_float(element_at<std::uint16_t>(from)));
    default: return real_number(element_at<float>(from));
  }
}

template <class T>
MPSCNN_HOST_DEVICE void put_element(unsigned char* to, T value) {
  *reinterpret_cast<T*>(to) = value;
}
template <class T>
MPSCNN_HOST_DEVICE void put_integer(unsigned char* to, const Number& number, T min, T max) {
  put_element(to, number.is_real ? float_to_integer(number.real, min, max) : static_cast<T>(number.integer));
}

MPSCNN_HOST_DEVICE void store_number(ElementType type, unsigned char* to, const Number& number) {
  using std::int16_t, std::int32_t, std::int8_t, std::uint16_t, std::uint32_t, std::uint64_t, std::uint8_t;
  const float real = number.is_real       ? number.real
                     : number.is_unsigned ? static_cast<float>(static_cast<uint64_t>(number.integer))
                                          : static_cast<float>(number.integer);
  constexpr i64 kMin64 = -0x7fffffffffffffff - 1;
  switch (type) {
    case ElementType::uint8: return put_integer<uint8_t>(to, number, 0, 0xff);
    case ElementType::uint16: return put_integer<uint16_t>(to, number, 0, 0xffff);
    case ElementType::uint32: return put_integer<uint32_t>(to, number, 0, 0xffffffff);
    case ElementType::uint64: return put_integer<uint64_t>(to, number, 0, 0xffffffffffffffff);
    case ElementType::int8: return put_integer<int8_t>(to, number, -0x80, 0x7f);
    case ElementType::int16: return put_integer<int16_t>(to, number, -0x8000, 0x7fff);
    case ElementType::int32: return put_integer<int32_t>(to, number, -0x7fffffff - 1, 0x7fffffff);
    case ElementType::int64: return put_integer<i64>(to, number, kMin64, 0x7fffffffffffffff);
    case ElementType::boolean: return put_element<uint8_t>(to, number.is_real ? real != 0.0f : number.integer != 0);
    case ElementType::unorm8: return put_element(to, static_cast<uint8_t>(float_to_unorm(real, 255.0f)));
    case ElementType::unorm16: return put_element(to, static_cast<uint16_t>(float_to_unorm(real, 65535.0f)));
    case ElementType::float16: return put_element(to, half_bits(real));
    case ElementType::bfloat16: return put_element(to, float_to_bfloat(real));
    default: return put_element(to, real);
  }
}

struct StridedCopyArgs {
  Pointer<unsigned char> src, dst;
  ElementType src_type = ElementType::float32, dst_type = ElementType::float32;
  int unit = 0;  ///< bytes of an element if the types are the same, otherwise 0
  int axes = 0;
  i64 lengths[16] = {}, src_strides[16] = {}, dst_strides[16] = {};  ///< strides in bytes
};

MPSCNN_VALUE_KERNEL(strided_copy, StridedCopyArgs) {
  const unsigned char* from = args.src.get();
  unsigned char* to = args.dst.get();
  i64 rest = index;
  for (int i = 0; i < args.axes; ++i) {
    const i64 at = rest % args.lengths[i];
    rest /= args.lengths[i];
    from += at * args.src_strides[i];
    to += at * args.dst_strides[i];
  }
  switch (args.unit) {
    case 0: store_number(args.dst_type, to, load_number(args.src_type, from)); break;
    case 8: copy_unit<8>(from, to); break;
    case 4: copy_unit<4>(from, to); break;
    case 2: copy_unit<2>(from, to); break;
    default: copy_unit<1>(from, to);
  }
}

#undef MPSCNN_NO_UNROLL

}  // namespace openmps::cuda::pointwise
