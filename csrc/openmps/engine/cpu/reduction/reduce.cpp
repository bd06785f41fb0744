// SPDX-License-Identifier: Apache-2.0

#include "engine/cpu/reduction/reduce.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "engine/cpu/runtime.hpp"
#include "engine/shared/implementations.hpp"
#include "engine/shared/isa.hpp"
#include "engine/shared/neuron.hpp"
#include "engine/shared/operands.hpp"

namespace openmps::cpu {
namespace {

constexpr std::int64_t kGrain = 64 * 1024;  // min values per thread
constexpr std::int64_t kBlock = 128;        // results that stay in the first-level cache, if not in registers
constexpr std::int64_t kRun = 64;           // values per float sum: the error grows with runs, not with values
constexpr std::int64_t kLane = 512;         // values of a pixel per vector sum that is still exact enough
constexpr std::int64_t kFew = 32;           // with fewer channels, vectors hold several pixels

struct Max {
  static constexpr float kStart = -INFINITY;
  MPSCNN_HOST_DEVICE float operator()(float a, float x) const { return (x > a) | (x != x) ? x : a; }
};
struct Min {
  static constexpr float kStart = INFINITY;
  MPSCNN_HOST_DEVICE float operator()(float a, float x) const { return (x < a) | (x != x) ? x : a; }
};
struct Sum {
  static constexpr float kStart = 0;
  template <class T>
  MPSCNN_HOST_DEVICE T operator()(T a, float x) const {
    return a + x;
  }
};

// ----------------------------------------------------------------------------------------------- rows and columns

/// result[i] = result[i] op (values[0 * stride + i] op values[1 * stride + i] ...), `count` of them.
template <class Op, class Result>
MPSCNN_HOST_DEVICE void fold_by(Op op, const float* values, std::int64_t stride, std::int64_t count, Result* result,
                                std::int64_t length) {
  std::int64_t c = 0;
  for (; c + kBlock <= length; c += kBlock) {
    float part[kBlock];
    for (std::int64_t k = 0; k < kBlock; ++k) part[k] = Op::kStart;
    for (std::int64_t j = 0; j < count; ++j) {
      const float* const row = values + j * stride + c;
#pragma omp simd
      for (std::int64_t k = 0; k < kBlock; ++k) part[k] = op(part[k], row[k]);
    }
#pragma omp simd
    for (std::int64_t k = 0; k < kBlock; ++k) result[c + k] = op(result[c + k], part[k]);
  }
  const std::int64_t rest = length - c;
  float part[kBlock];
  for (std::int64_t k = 0; k < rest; ++k) part[k] = Op::kStart;
  for (std::int64_t j = 0; j < count; ++j) {
    const float* const row = values + j * stride + c;
#pragma omp simd
    for (std::int64_t k = 0; k < rest; ++k) part[k] = op(part[k], row[k]);
  }
#pragma omp simd
  for (std::int64_t k = 0; k < rest; ++k) result[c + k] = op(result[c + k], part[k]);
}

MPSCNN_CLONES void fold(ReduceType type, const float* values, std::int64_t stride, std::int64_t count, float* extremes,
                        double* sums, std::int64_t length) {
  switch (type) {
    case ReduceType::max: return fold_by(Max(), values, stride, count, extremes, length);
    case ReduceType::min: return fold_by(Min(), values, stride, count, extremes, length);
    default: return fold_by(Sum(), values, stride, count, sums, length);
  }
}

MPSCNN_CLONES void scale_sums(const double* sums, double scale, float* result, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) result[i] = static_cast<float>(sums[i] * scale);
}

/// One task is a range of channels of one row of src (row), or of pixels of one row of dst (column).
void reduce_pixels(const ReduceProblem& problem, const OperandSource& source, bool direct) {
  const bool rows = problem.axis == ReduceAxis::row;
  const Tensor &src = source.tensor, dst = tensor_of(problem.dst);
  const std::int64_t c = src.c, folded = rows ? src.w : src.h;

  const int threads = threads_for(dst.size() * folded, kGrain);
  const std::int64_t lines = rows ? dst.n * dst.h : dst.n;
  // Columns: as many pixels as keep the results in the first-level cache. Rows: threads split the channels only if
  // there are fewer rows than threads.
  std::int64_t part = rows ? c : std::clamp<std::int64_t>(4096 / c, 1, dst.w);
  if (!rows && !direct) part = std::clamp<std::int64_t>(kOperandChunk / c, 1, dst.w);
  if (rows && direct && lines < threads) part = (c * lines / threads + kBlock - 1) / kBlock * kBlock;
  const std::int64_t extent = rows ? c : dst.w, parts = (extent + part - 1) / part;
  const std::int64_t length = rows ? part : part * c, chunk = std::max(kOperandChunk, c);

  const bool sum = problem.type == ReduceType::sum;
  std::vector<float> memory(static_cast<std::size_t>(threads * (length + chunk)));
  std::vector<double> sum_memory(static_cast<std::size_t>(sum ? threads * length : 0));
  parallel_ranges(lines * parts, threads, [&](std::int64_t begin, std::int64_t end) {
    float* const result = memory.data() + thread_number() * (length + chunk);
    double* const sums = sum ? sum_memory.data() + thread_number() * length : nullptr;
    OperandReader reader(source, c, result + length);
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t line = task / parts, first = task % parts * part, count = std::min(part, extent - first);
      const std::int64_t n = rows ? line / dst.h : line, y = rows ? line % dst.h : 0;
      const std::int64_t values = rows ? count : count * c;
      if (sum) {
        std::fill_n(sums, values, 0.0);
      } else {
        std::fill_n(result, values, problem.type == ReduceType::max ? Max::kStart : Min::kStart);
      }
      const auto add = [&](const float* from, std::int64_t stride, std::int64_t many) {
        fold(problem.type, from, stride, many, result, sums, values);
      };
      if (direct) {
        const float* const from = rows ? src.floats(n, y) + first : src.floats(n, 0, first);
        const std::int64_t stride = rows ? src.w_stride : src.h_stride;
        for (std::int64_t j = 0; j < folded; j += kRun) add(from + j * stride, stride, std::min(kRun, folded - j));
      } else if (rows) {
        const std::int64_t run = std::clamp<std::int64_t>(kOperandChunk / c, 1, kRun);
        for (std::int64_t x = 0; x < folded; x += run) {
          const std::int64_t pixels = std::min(run, folded - x);
          add(reader.read(n, y, x, pixels), c, pixels);
        }
      } else {
        for (std::int64_t j = 0; j < folded; ++j) add(reader.read(n, j, first, count), 0, 1);
      }
      if (sum) scale_sums(sums, problem.scale, result, values);
      if (rows) {
        row_from_float(result, dst.at(n, y) + first * static_cast<std::int64_t>(size_of(dst.format)), dst.format,
                       values);
      } else {
        store_pixels(result, dst.at(n, 0, first), dst, count);
      }
    }
  });
}

OperandSource source_of(const ImageView& view) {
  Operand operand;
  operand.view = view;
  return OperandSource(operand);
}

const char* reduce_in_place(const ReduceProblem& problem) {
  if (problem.src.format != Format::float32) return "the source is not float32";
  const OperandSource source = source_of(problem.src);
  if (problem.axis == ReduceAxis::column && !source.is_direct()) return "pixels are not adjacent";
  reduce_pixels(problem, source, true);
  return nullptr;
}

const char* reduce_through_floats(const ReduceProblem& problem) {
  reduce_pixels(problem, source_of(problem.src), false);
  return nullptr;
}

constexpr Implementation<ReduceProblem> kPixelReductions[] = {
    {"reduce_in_place", reduce_in_place},
    {"reduce_through_floats", reduce_through_floats},
};
const ImplementationNames kPixelReductionNames(kPixelReductions);

// --------------------------------------------------------------------------------------------------------- channels

// Pixels are many and short: four are folded together, each in its own vectors, whose lanes are then folded across the
// pixels. Scalar heads and tails of general loops would be most of the work. The vectors are the compiler's; it uses
// several of the processor's if those are shorter.
using Lanes = float __attribute__((vector_size(64)));
using HalfLanes = float __attribute__((vector_size(32)));
using Quad = float __attribute__((vector_size(16)));
constexpr std::int64_t kLanes = 16, kTogether = 4;

struct Add {
  static constexpr float kStart = 0;
  template <class V>
  MPSCNN_HOST_DEVICE void operator()(V& a, const V& x) const {
    a = a + x;
  }
};
// Does not handle NaN.
struct Greater {
  static constexpr float kStart = -INFINITY;
  template <class V>
  MPSCNN_HOST_DEVICE void operator()(V& a, const V& x) const {
    a = x > a ? x : a;
  }
};
struct Less {
  static constexpr float kStart = INFINITY;
  template <class V>
  MPSCNN_HOST_DEVICE void operator()(V& a, const V& x) const {
    a = x < a ? x : a;
  }
};

template <class Op>
MPSCNN_HOST_DEVICE void fold_lanes(Op op, const Lanes& lanes, Quad& result) {
  HalfLanes halves[2];
  std::memcpy(halves, &lanes, sizeof lanes);
  op(halves[0], halves[1]);
  Quad quads[2];
  std::memcpy(quads, &halves[0], sizeof quads);
  op(quads[0], quads[1]);
  result = quads[0];
}

/// Fold the lanes of each of four vectors into one value.
template <class Op>
MPSCNN_HOST_DEVICE void fold_across(Op op, const Lanes (&lanes)[kTogether], Quad& result) {
  Quad q[kTogether];
  for (int p = 0; p < kTogether; ++p) fold_lanes(op, lanes[p], q[p]);
  Quad low = __builtin_shufflevector(q[0], q[1], 0, 4, 1, 5), high = __builtin_shufflevector(q[2], q[3], 0, 4, 1, 5);
  op(low, __builtin_shufflevector(q[0], q[1], 2, 6, 3, 7));
  op(high, __builtin_shufflevector(q[2], q[3], 2, 6, 3, 7));
  result = __builtin_shufflevector(low, high, 0, 1, 4, 5);
  op(result, __builtin_shufflevector(low, high, 2, 3, 6, 7));
}

/// The values of four pixels, or their products with the weights.
struct FourPixels {
  const float *values, *weights;  ///< weights may be null
  std::int64_t channels, step;    ///< values from one pixel to the next; 0: the same pixel four times

  MPSCNN_HOST_DEVICE void read(int pixel, std::int64_t channel, Lanes& lanes) const {
    std::memcpy(&lanes, values + pixel * step + channel, sizeof lanes);
    if (!weights) return;
    Lanes factors;
    std::memcpy(&factors, weights + pixel * step + channel, sizeof factors);
    lanes = lanes * factors;
  }
  MPSCNN_HOST_DEVICE void read(std::int64_t channel, Quad& quad) const {
    for (int p = 0; p < kTogether; ++p) {
      const std::int64_t at = p * step + channel;
      quad[p] = weights ? values[at] * weights[at] : values[at];
    }
  }
};

/// Sum four pixels: blocks in float, the blocks' sums in double.
MPSCNN_HOST_DEVICE void sum_four(const FourPixels& pixels, double* sums) {
  std::fill_n(sums, kTogether, 0.0);
  for (std::int64_t begin = 0; begin < pixels.channels; begin += kLane) {
    const std::int64_t end = std::min(begin + kLane, pixels.channels);
    Lanes lanes[kTogether] = {};
    Quad rest = {}, result;
    std::int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      for (int p = 0; p < kTogether; ++p) {
        Lanes values;
        pixels.read(p, i, values);
        lanes[p] = lanes[p] + values;
      }
    }
    for (; i < end; ++i) {
      Quad values;
      pixels.read(i, values);
      rest = rest + values;
    }
    fold_across(Add(), lanes, result);
    for (int p = 0; p < kTogether; ++p) sums[p] += result[p] + rest[p];
  }
}

/// Find the extremes of four pixels. Return false, with invalid extremes, if one of the pixels may have a NaN.
template <class Op>
MPSCNN_HOST_DEVICE bool extremes_of_four(Op op, const FourPixels& pixels, float* extremes) {
  // Sum of all values times 0: 0 if all are finite. Infinities and sums that overflow give NaN as well.
  Lanes lanes[kTogether], probe = {};
  for (int p = 0; p < kTogether; ++p) lanes[p] = Op::kStart - Lanes{};
  Quad rest = Op::kStart - Quad{}, result;
  std::int64_t i = 0;
  for (; i + kLanes <= pixels.channels; i += kLanes) {
    Lanes values[kTogether];
    for (int p = 0; p < kTogether; ++p) {
      pixels.read(p, i, values[p]);
      op(lanes[p], values[p]);
    }
    probe = probe + (values[0] + values[1] + values[2] + values[3]) * 0.0f;
  }
  Quad bad;
  fold_lanes(Add(), probe, bad);
  for (; i < pixels.channels; ++i) {
    Quad values;
    pixels.read(i, values);
    op(rest, values);
    bad = bad + values * 0.0f;
  }
  fold_across(op, lanes, result);
  op(result, rest);
  for (int p = 0; p < kTogether; ++p) extremes[p] = result[p];
  return bad[0] + bad[1] + bad[2] + bad[3] == 0;
}

/// Return the extreme of a pixel, the max with sign 1 and the min with -1; NaN if there is one.
MPSCNN_HOST_DEVICE float extreme_of(const float* pixel, std::int64_t channels, float sign) {
  float most = -INFINITY;
  int bad = 0;
#pragma omp simd reduction(max : most) reduction(| : bad)
  for (std::int64_t i = 0; i < channels; ++i) {
    const float x = sign * pixel[i];
    most = x > most ? x : most;
    bad |= x != x;
  }
  return bad ? std::numeric_limits<float>::quiet_NaN() : sign * most;
}

MPSCNN_HOST_DEVICE float argument_of(const float* pixel, std::int64_t channels, float extreme) {
  int first = std::numeric_limits<int>::max();
  const bool nan = extreme != extreme;
#pragma omp simd reduction(min : first)
  for (int i = 0; i < static_cast<int>(channels); ++i) {
    const bool hit = nan ? pixel[i] != pixel[i] : pixel[i] == extreme;
    const int index = hit ? i : std::numeric_limits<int>::max();
    first = index < first ? index : first;
  }
  return static_cast<float>(first);
}

/// Find the extremes of `count` pixels, at most four; `four` reads them.
MPSCNN_HOST_DEVICE void find_extremes(bool min, const FourPixels& four, std::int64_t count, float* extremes) {
  if (count == kTogether &&
      (min ? extremes_of_four(Less(), four, extremes) : extremes_of_four(Greater(), four, extremes)))
    return;
  for (std::int64_t p = 0; p < count; ++p)
    extremes[p] = extreme_of(four.values + p * four.channels, four.channels, min ? -1.0f : 1.0f);
}

/// Four pixels at a time; the last four may overlap those before. If there are fewer, each is read four times, so that
/// a sum does not depend on adjacent pixels.
MPSCNN_CLONES void sum_many(double scale, bool by_nonzero, const float* src, const float* weights, float* dst,
                            std::int64_t pixels, std::int64_t channels) {
  const std::int64_t count = pixels < kTogether ? 1 : kTogether, step = count == 1 ? 0 : channels;
  double sums[kTogether];
  for (std::int64_t p = 0; p < pixels; p += count) {
    const std::int64_t first = std::min(p, pixels - count);
    const float *const values = src + first * channels, *const factors = weights ? weights + first * channels : nullptr;
    sum_four({values, factors, channels, step}, sums);
    for (std::int64_t q = 0; q < count; ++q) {
      double sum = scale * sums[q];
      if (by_nonzero) {
        std::int64_t nonzero = 0;
#pragma omp simd reduction(+ : nonzero)
        for (std::int64_t i = q * channels; i < (q + 1) * channels; ++i) nonzero += factors[i] != 0;
        if (nonzero > 0) sum /= static_cast<double>(nonzero);
      }
      dst[first + q] = static_cast<float>(sum);
    }
  }
}

/// Four pixels at a time as above, or one by one.
MPSCNN_CLONES void find_many(ReduceType type, const float* src, float* dst, std::int64_t pixels,
                             std::int64_t channels) {
  const bool min = type == ReduceType::min || type == ReduceType::argument_min;
  const bool argument = type == ReduceType::argument_max || type == ReduceType::argument_min;
  for (std::int64_t p = 0; p < pixels; p += kTogether) {
    const std::int64_t first = std::max<std::int64_t>(0, std::min(p, pixels - kTogether));
    const std::int64_t count = std::min(kTogether, pixels);
    float extremes[kTogether];
    find_extremes(min, {src + first * channels, nullptr, channels, channels}, count, extremes);
    for (std::int64_t q = 0; q < count; ++q)
      dst[first + q] = argument ? argument_of(src + (first + q) * channels, channels, extremes[q]) : extremes[q];
  }
}

MPSCNN_CLONES void reduce_few(ReduceType type, double scale, const float* src, float* dst, std::int64_t pixels,
                              std::int64_t channels) {
  if (type == ReduceType::sum) {
    std::fill_n(dst, pixels, 0.0f);
    for (std::int64_t i = 0; i < channels; ++i) {
#pragma omp simd
      for (std::int64_t p = 0; p < pixels; ++p) dst[p] += src[p * channels + i];
    }
    for (std::int64_t p = 0; p < pixels; ++p) dst[p] = static_cast<float>(dst[p] * scale);
    return;
  }
  const float sign = type == ReduceType::min || type == ReduceType::argument_min ? -1.0f : 1.0f;
  const bool argument = type == ReduceType::argument_max || type == ReduceType::argument_min;
  float most[kRun], index[kRun];
  for (; pixels > 0; pixels -= kRun, src += kRun * channels, dst += kRun) {
    const std::int64_t count = std::min(pixels, kRun);
    for (std::int64_t p = 0; p < count; ++p) most[p] = sign * src[p * channels], index[p] = 0;
    for (std::int64_t i = 1; i < channels; ++i) {
      const auto number = static_cast<float>(i);
#pragma omp simd
      for (std::int64_t p = 0; p < count; ++p) {
        const float x = sign * src[p * channels + i], m = most[p];
        const bool better = (x > m) | ((x != x) & (m == m));  // the first NaN stays
        most[p] = better ? x : m;
        index[p] = better ? number : index[p];
      }
    }
    for (std::int64_t p = 0; p < count; ++p) dst[p] = argument ? index[p] : sign * most[p];
  }
}

/// Call reduce(values, factors, result, pixels), with factors if the problem has weights.
template <class Reduce>
void reduce_channels(const ReduceProblem& problem, const Reduce& reduce) {
  const bool weighted = problem.weights.memory != nullptr;
  const OperandSource source = source_of(problem.src), second = source_of(weighted ? problem.weights : problem.src);
  const Tensor &src = source.tensor, dst = tensor_of(problem.dst);
  const std::int64_t c = src.c;
  const std::int64_t chunk = std::max(kOperandChunk, c);
  // Pixels read in place need no buffer, and long runs save calls.
  const bool direct = source.is_direct() && second.is_direct();
  const std::int64_t run = direct ? std::min(dst.w, kOperandChunk) : std::max<std::int64_t>(1, kOperandChunk / c);

  const int threads = threads_for(dst.n * dst.h * dst.w * c, kGrain);
  std::vector<float> memory(static_cast<std::size_t>(threads * (2 * chunk + run)));
  parallel_ranges(dst.n * dst.h, threads, [&](std::int64_t begin, std::int64_t end) {
    float* const result = memory.data() + thread_number() * (2 * chunk + run);
    OperandReader reader(source, c, result + run), reader_of_second(second, c, result + run + chunk);
    for (std::int64_t line = begin; line < end; ++line) {
      const std::int64_t n = line / dst.h, y = line % dst.h;
      for (std::int64_t x = 0; x < dst.w; x += run) {
        const std::int64_t pixels = std::min(run, dst.w - x);
        reduce(reader.read(n, y, x, pixels), weighted ? reader_of_second.read(n, y, x, pixels) : nullptr, result,
               pixels);
        store_pixels(result, dst.at(n, y, x), dst, pixels);
      }
    }
  });
}

const char* reduce_few_channels(const ReduceProblem& problem) {
  const std::int64_t c = problem.src.c;
  if (c >= kFew) return "many channels";
  if (problem.weights.memory) return "weights";
  reduce_channels(problem, [&](const float* values, const float*, float* result, std::int64_t pixels) {
    reduce_few(problem.type, problem.scale, values, result, pixels, c);
  });
  return nullptr;
}

const char* reduce_many_channels(const ReduceProblem& problem) {
  const std::int64_t c = problem.src.c;
  reduce_channels(problem, [&](const float* values, const float* factors, float* result, std::int64_t pixels) {
    if (problem.type == ReduceType::sum) {
      sum_many(problem.scale, factors && problem.by_nonzero_weights, values, factors, result, pixels, c);
    } else {
      find_many(problem.type, values, result, pixels, c);
    }
  });
  return nullptr;
}

constexpr Implementation<ReduceProblem> kChannelReductions[] = {
    {"reduce_few_channels", reduce_few_channels},
    {"reduce_many_channels", reduce_many_channels},
};
const ImplementationNames kChannelReductionNames(kChannelReductions);

/// Sum the rows, and then their sums.
const char* pixel_sums_by_axes(const ReduceProblem& problem) {
  ImageView sums = problem.src;
  sums.offset = 0;
  sums.format = Format::float32;
  sums.w = 1, sums.w_stride = sums.c, sums.h_stride = sums.c, sums.n_stride = sums.h * sums.c;
  const auto bytes = static_cast<std::size_t>(sums.size()) * sizeof(float);
  const Scratch scratch(bytes);
  sums.memory = Memory::wrap(scratch.data(), bytes, nullptr);
  ReduceProblem rows = problem, columns = problem;
  rows.axis = ReduceAxis::row, rows.scale = 1, rows.dst = sums;
  columns.axis = ReduceAxis::column, columns.src = sums;
  run(rows);
  run(columns);
  return nullptr;
}

constexpr Implementation<ReduceProblem> kPixelSums[] = {
    {"pixel_sums_in_vectors", pixel_sums_in_vectors},
    {"pixel_sums_by_axes", pixel_sums_by_axes},
};
const ImplementationNames kPixelSumsNames(kPixelSums);

}  // namespace

void run(const ReduceProblem& problem) {
  if (problem.axis == ReduceAxis::pixels) return run_first("reduce, all pixels", kPixelSums, problem);
  problem.axis == ReduceAxis::channels ? run_first("reduce, channels", kChannelReductions, problem)
                                       : run_first("reduce, pixels", kPixelReductions, problem);
}

}  // namespace openmps::cpu
