// SPDX-License-Identifier: Apache-2.0
// Convolutions and their gradients as matrix products. E has a row of outputs for each pixel of diff_dst, W a row of
// taps and inputs for each output; a patch has the source values under one pixel's window, as a row of taps and inputs:
//   dst = patches * transposed(W);
//   diff_weights = transposed(E) * patches;  E * W = gradients of the patches, which add up to diff_src.
// Weights and their gradients keep their layout: nothing is packed, and any window is supported.
#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/cpu/convolution/conv_gradient.hpp"
#include "engine/cpu/convolution/convolution.hpp"
#include "engine/cpu/pointwise/elementwise.hpp"
#include "engine/cpu/product/multiply.hpp"
#include "engine/cpu/runtime.hpp"
#include "engine/shared/isa.hpp"
#include "engine/shared/neuron.hpp"
#include "engine/shared/parallel.hpp"

namespace openmps::cpu {
namespace {

using i64 = std::int64_t;

/// Copied values below which a second thread costs more than it saves.
constexpr i64 kCopyGrain = 32 * 1024;
/// Floats of patches per batch: they stay in the last-level cache.
constexpr i64 kPatchFloats = 2 << 20;
/// Max share of in-bounds pairs of a pixel and a tap for which products tap by tap are faster than primitives.
constexpr double kShare = 0.5;

enum class Transposed : std::uint8_t { none, a, b };

/// c = a * b, one of which may be transposed first, row-major; the *_row arguments are row strides in floats.
void multiply(Transposed which, i64 rows, i64 columns, i64 inner, const float* a, i64 a_row, const float* b, i64 b_row,
              float* c, i64 c_row, bool accumulates) {
  multiply(FloatMatrix{a, a_row, which == Transposed::a}, FloatMatrix{b, b_row, which == Transposed::b}, rows, columns,
           inner, c, c_row, 1.0f, accumulates ? 1.0f : 0.0f);
}

i64 ceil_of(i64 a, i64 b) { return a >= 0 ? (a + b - 1) / b : -(-a / b); }
i64 floor_of(i64 a, i64 b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

/// One axis of a window.
struct Axis {
  i64 results, extent;  ///< pixels of diff_dst, of the source
  i64 kernel, stride, dilation, start;
  bool clamp;

  i64 place(i64 result, i64 tap) const { return start + result * stride + tap * dilation; }
  /// Results [first, end) whose tap is in bounds.
  struct Range {
    i64 first, end;
    i64 count() const { return end - first; }
  };
  Range inside(i64 tap) const {
    const i64 place0 = place(0, tap);
    const i64 first = std::clamp<i64>(ceil_of(-place0, stride), 0, results);
    return {first, std::clamp<i64>(floor_of(extent - 1 - place0, stride) + 1, first, results)};
  }
  /// Return the number of in-bounds pairs of results and taps.
  i64 pairs_inside() const {
    i64 count = 0;
    for (i64 k = 0; k < kernel; ++k) count += inside(k).count();
    return count;
  }
  bool all_inside() const { return pairs_inside() == results * kernel; }
};

Axis axis_h(const Window& w, i64 results, i64 extent) {
  return {results, extent, w.kernel_h, w.stride_h, w.dilation_h, w.start_h, w.edge == Edge::clamp};
}
Axis axis_w(const Window& w, i64 results, i64 extent) {
  return {results, extent, w.kernel_w, w.stride_w, w.dilation_w, w.start_w, w.edge == Edge::clamp};
}

MPSCNN_CLONES void add_row(const float* from, float* to, i64 count) {
#pragma omp simd
  for (i64 i = 0; i < count; ++i) to[i] += from[i];
}

/// Add `count` runs of `length` floats.
MPSCNN_CLONES void add_runs(const float* from, i64 from_step, float* to, i64 to_step, i64 length, i64 count) {
  for (i64 k = 0; k < count; ++k, from += from_step, to += to_step) {
#pragma omp simd
    for (i64 i = 0; i < length; ++i) to[i] += from[i];
  }
}

// ---------------------------------------------------------------------------------------------------------- patches

/// Fill rows [begin, end) of the patches of one group: pixels of diff_dst in order. `Value` is that of the source.
template <class Value>
void fill_patches(const WeightsGradientCall& call, const Axis& h, const Axis& v, i64 group, i64 begin, i64 end,
                  Value* patches) {
  const i64 inputs = call.inputs_per_group(), row = h.kernel * v.kernel * inputs;
  const auto bytes = [](i64 values) { return static_cast<std::size_t>(values) * sizeof(Value); };
  const bool adjacent = v.dilation == 1 && call.groups == 1;
  parallel_ranges(end - begin, threads_for((end - begin) * row, kCopyGrain), [&](i64 first, i64 last) {
    for (i64 k = first; k < last; ++k) {
      const i64 pixel = begin + k, x = pixel % v.results, y = pixel / v.results % h.results;
      const i64 n = pixel / v.results / h.results;
      Value* to = patches + k * row;
      for (i64 p = 0; p < h.kernel; ++p, to += v.kernel * inputs) {
        i64 source_y = h.place(y, p);
        if (h.clamp) source_y = std::clamp<i64>(source_y, 0, h.extent - 1);
        if (source_y < 0 || source_y >= h.extent) {
          std::memset(to, 0, bytes(v.kernel * inputs));
          continue;
        }
        const Value* const from = reinterpret_cast<const Value*>(call.src.at(n, source_y)) + group * inputs;
        if (adjacent && !v.clamp) {
          const i64 place = v.place(x, 0);
          const i64 before = std::clamp<i64>(-place, 0, v.kernel);
          const i64 inside = std::clamp<i64>(v.extent - place, before, v.kernel) - before;
          std::memset(to, 0, bytes(before * inputs));
          if (inside > 0) std::memcpy(to + before * inputs, from + (place + before) * inputs, bytes(inside * inputs));
          std::memset(to + (before + inside) * inputs, 0, bytes((v.kernel - before - inside) * inputs));
          continue;
        }
        for (i64 q = 0; q < v.kernel; ++q) {
          i64 source_x = v.place(x, q);
          if (v.clamp) source_x = std::clamp<i64>(source_x, 0, v.extent - 1);
          if (source_x < 0 || source_x >= v.extent)
            std::memset(to + q * inputs, 0, bytes(inputs));
          else
            std::memcpy(to + q * inputs, from + source_x * call.src.c, bytes(inputs));
        }
      }
    }
  });
}

/// A contribution to one source row: tap p of result row j.
struct RowPair {
  i64 p, j;
};

/// Return the contributions to each row of diff_src.
std::vector<std::vector<RowPair>> row_pairs(const DataGradientCall& call, const Axis& h) {
  std::vector<std::vector<RowPair>> pairs(static_cast<std::size_t>(h.extent));
  for (i64 j = 0; j < h.results; ++j) {
    for (i64 p = 0; p < h.kernel; ++p) {
      i64 y = h.place(j, p);
      if (h.clamp) y = std::clamp<i64>(y, call.src_first_h, call.src_first_h + call.src_h - 1);
      if (y >= 0 && y < h.extent) pairs[static_cast<std::size_t>(y)].push_back({p, j});
    }
  }
  return pairs;
}

/// Add the patches of one result row with tap row p (pixel by pixel, `patch_row` floats apart) to a row of diff_src.
void add_patches(const DataGradientCall& call, const Axis& v, i64 inputs, const float* patches, i64 patch_row,
                 float* row) {
  if (v.clamp) {
    for (i64 q = 0; q < v.kernel; ++q) {
      for (i64 i = 0; i < v.results; ++i) {
        const i64 x = std::clamp<i64>(v.place(i, q), call.src_first_w, call.src_first_w + call.src_w - 1);
        if (x >= 0 && x < v.extent) add_row(patches + i * patch_row + q * inputs, row + x * inputs, inputs);
      }
    }
    return;
  }
  // Adjacent taps are one run if all of them are in bounds.
  Axis::Range whole = {0, 0};
  if (v.dilation == 1) {
    const Axis::Range first = v.inside(0), last = v.inside(v.kernel - 1);
    whole = {std::max(first.first, last.first), std::min(first.end, last.end)};
    if (whole.count() <= 0) whole = {0, 0};
    if (whole.count() > 0)
      add_runs(patches + whole.first * patch_row, patch_row, row + v.place(whole.first, 0) * inputs, v.stride * inputs,
               v.kernel * inputs, whole.count());
  }
  for (i64 q = 0; q < v.kernel; ++q) {
    const Axis::Range range = v.inside(q);
    const auto add = [&](i64 first, i64 end) {
      if (first < end)
        add_runs(patches + first * patch_row + q * inputs, patch_row, row + v.place(first, q) * inputs,
                 v.stride * inputs, inputs, end - first);
    };
    if (whole.count() == 0) {
      add(range.first, range.end);
    } else {
      add(range.first, whole.first);
      add(whole.end, range.end);
    }
  }
}

/// Compute rows [y0, y1) of diff_src of images [n0, n1).
void add_up_band(const DataGradientCall& call, const Axis& h, const Axis& v,
                 const std::vector<std::vector<RowPair>>& pairs, i64 n0, i64 n1, i64 y0, i64 y1, i64 j0, i64 j1,
                 const Scratch& memory) {
  const ConvWeights& weights = *call.weights;
  const i64 inputs = weights.in_channels_per_group, outputs = weights.out_channels / weights.groups;
  const i64 row = h.kernel * v.kernel * inputs, rows = j1 - j0, pixels = (n1 - n0) * rows * v.results;
  auto* const patches = reinterpret_cast<float*>(memory.data());
  const Tensor &from = call.diff_dst, &to = call.diff_src;
  for (i64 group = 0; group < weights.groups; ++group) {
    // Bands of several images include all of their rows.
    if (pixels > 0)
      multiply(Transposed::none, pixels, row, outputs, from.floats(n0, j0) + group * outputs, from.c,
               weights.values.data() + group * outputs * row, row, patches, row, false);
    const i64 count = (n1 - n0) * (y1 - y0), length = to.w * inputs;
    const bool in_place = weights.groups == 1;
    const int threads = threads_for(count * length, kCopyGrain);
    const Scratch rows_of_threads(in_place ? 0 : static_cast<std::uint64_t>(length * threads) * sizeof(float));
    parallel_ranges(count, threads, [&](i64 begin, i64 end) {
      auto* const own = reinterpret_cast<float*>(rows_of_threads.data()) + length * thread_number();
      for (i64 k = begin; k < end; ++k) {
        const i64 n = n0 + k / (y1 - y0), y = y0 + k % (y1 - y0);
        float* const sums = in_place ? to.floats(n, y) : own;
        std::memset(sums, 0, static_cast<std::size_t>(length) * sizeof(float));
        for (const RowPair& pair : pairs[static_cast<std::size_t>(y)]) {
          const i64 pixel = ((n - n0) * rows + pair.j - j0) * v.results;
          add_patches(call, v, inputs, patches + pixel * row + pair.p * v.kernel * inputs, row, sums);
        }
        if (in_place) continue;
        for (i64 x = 0; x < to.w; ++x)
          std::memcpy(to.floats(n, y, x) + group * inputs, sums + x * inputs,
                      static_cast<std::size_t>(inputs) * sizeof(float));
      }
    });
  }
}

// ------------------------------------------------------------------------------------------------------------- taps

/// Copy `channels` channels of pixels (first_h + y * step_h, first_w + x * step_w), y < rows, x < columns, without
/// gaps; if all pixels are used, return them in place instead.
const float* gather(const Tensor& from, i64 n0, i64 n1, i64 first_h, i64 step_h, i64 rows, i64 first_w, i64 step_w,
                    i64 columns, i64 channel, i64 channels, float* to, i64* step) {
  if (rows == from.h && columns == from.w) {  // then first_* are 0 and step_* do not matter
    *step = from.c;
    return from.floats(n0, 0) + channel;
  }
  *step = channels;
  const i64 count = (n1 - n0) * rows;
  parallel_ranges(count, threads_for(count * columns * channels, kCopyGrain), [&](i64 begin, i64 end) {
    for (i64 k = begin; k < end; ++k) {
      float* pixel = to + k * columns * channels;
      const i64 y = first_h + k % rows * step_h;
      for (i64 x = 0; x < columns; ++x, pixel += channels)
        std::memcpy(pixel, from.floats(n0 + k / rows, y, first_w + x * step_w) + channel,
                    static_cast<std::size_t>(channels) * sizeof(float));
    }
  });
  return to;
}

/// Return whether products tap by tap pay: large enough matrices, and many out-of-bounds taps.
bool pays_by_taps(const Axis& h, const Axis& v, i64 pixels, i64 inputs, i64 outputs) {
  if (h.clamp && !(h.all_inside() && v.all_inside())) return false;
  if (inputs < 64 || outputs < 64 || pixels < 16) return false;
  const double all = static_cast<double>(h.results * h.kernel * v.results * v.kernel);
  return static_cast<double>(h.pairs_inside() * v.pairs_inside()) <= kShare * all;
}

/// Return the number of images per batch.
i64 images_at_once(i64 floats_per_image, i64 images) {
  return std::clamp<i64>(kPatchFloats / std::max<i64>(floats_per_image, 1), 1, images);
}

}  // namespace

// --------------------------------------------------------------------------------------------------------- forward

const char* conv_by_taps(const ConvCall& call) {
  const ConvWeights& weights = *call.weights;
  const Tensor& src = call.src;
  if (call.adds()) return "something is added";
  if (call.reduced_precision) return "products may be of bfloat16";
  const Axis h = axis_h(call.window, call.dst.h, src.h), v = axis_w(call.window, call.dst.w, src.w);
  const i64 inputs = weights.in_channels_per_group, outputs = weights.out_channels / weights.groups;
  const i64 of_image = call.dst.h * call.dst.w;
  if (!pays_by_taps(h, v, src.n * of_image, inputs, outputs)) return "most taps see a pixel, or there are few channels";
  if (!src.is_dense_float()) return "the source is not dense floats";
  Tensor to = call.dst;
  Scratch to_memory;
  if (!to.is_dense_float()) {
    ScratchTensor dense(to.n, to.h, to.w, to.c);
    to = dense.tensor;
    to_memory = std::move(dense.memory);
  }
  const i64 images = images_at_once(of_image * (inputs + outputs), src.n), pixels = images * of_image;
  const i64 row = h.kernel * v.kernel * inputs;
  const Scratch memory(static_cast<std::uint64_t>(pixels * (inputs + outputs)) * sizeof(float));
  auto* const seen = reinterpret_cast<float*>(memory.data());
  float* const products = seen + pixels * inputs;
  for (i64 n = 0; n < src.n; n += images) {
    const i64 end = std::min(n + images, src.n);
    std::memset(to.floats(n, 0), 0, static_cast<std::size_t>((end - n) * to.n_stride) * sizeof(float));
    for (i64 group = 0; group < weights.groups; ++group) {
      for (i64 p = 0; p < h.kernel; ++p) {
        for (i64 q = 0; q < v.kernel; ++q) {
          const Axis::Range rows = h.inside(p), columns = v.inside(q);
          if (rows.count() == 0 || columns.count() == 0) continue;
          const float* const values = weights.values.data() + group * outputs * row + (p * v.kernel + q) * inputs;
          i64 step = 0;
          const float* const a =
              gather(src, n, end, h.place(rows.first, p), h.stride, rows.count(), v.place(columns.first, q), v.stride,
                     columns.count(), group * inputs, inputs, seen, &step);
          const i64 count = (end - n) * rows.count();
          if (rows.count() == to.h && columns.count() == to.w) {
            multiply(Transposed::b, (end - n) * of_image, outputs, inputs, a, step, values, row,
                     to.floats(n, 0) + group * outputs, to.c, true);
            continue;
          }
          multiply(Transposed::b, count * columns.count(), outputs, inputs, a, step, values, row, products, outputs,
                   false);
          parallel_ranges(count, threads_for(count * columns.count() * outputs, kCopyGrain), [&](i64 first, i64 last) {
            for (i64 k = first; k < last; ++k)
              add_runs(products + k * columns.count() * outputs, outputs,
                       to.floats(n + k / rows.count(), rows.first + k % rows.count(), columns.first) + group * outputs,
                       to.c, outputs, columns.count());
          });
        }
      }
    }
  }
  const float* const bias = weights.bias.empty() ? nullptr : weights.bias.data();
  if (bias || !neuron_is_identity(*call.neuron)) {
    activate(to, call.dst, *call.neuron, bias);
  } else if (to.data != call.dst.data) {
    copy(to, call.dst);
  }
  return nullptr;
}

// ---------------------------------------------------------------------------------------------------------- weights

const char* weights_gradient_by_taps(const WeightsGradientCall& call) {
  const Tensor &e = call.diff_dst, &src = call.src;
  const Axis h = axis_h(call.window, e.h, src.h), v = axis_w(call.window, e.w, src.w);
  const i64 inputs = call.inputs_per_group(), outputs = call.outputs_per_group();
  if (!pays_by_taps(h, v, e.n * e.h * e.w, inputs, outputs)) return "most taps see a pixel, or there are few channels";
  const i64 images = images_at_once(e.h * e.w * (inputs + outputs), e.n), pixels = images * e.h * e.w;
  const i64 row = h.kernel * v.kernel * inputs;
  const Scratch memory(static_cast<std::uint64_t>(pixels * (inputs + outputs)) * sizeof(float));
  auto* const results = reinterpret_cast<float*>(memory.data());
  float* const seen = results + pixels * outputs;
  for (i64 group = 0; group < call.groups; ++group) {
    for (i64 p = 0; p < h.kernel; ++p) {
      for (i64 q = 0; q < v.kernel; ++q) {
        float* const to = call.diff_weights + group * outputs * row + (p * v.kernel + q) * inputs;
        const Axis::Range rows = h.inside(p), columns = v.inside(q);
        if (rows.count() == 0 || columns.count() == 0) {
          if (call.accumulates) continue;
          for (i64 o = 0; o < outputs; ++o)
            std::memset(to + o * row, 0, static_cast<std::size_t>(inputs) * sizeof(float));
          continue;
        }
        for (i64 n = 0; n < e.n; n += images) {
          const i64 end = std::min(n + images, e.n);
          i64 e_step = 0, src_step = 0;
          const float* const a = gather(e, n, end, rows.first, 1, rows.count(), columns.first, 1, columns.count(),
                                        group * outputs, outputs, results, &e_step);
          const float* const b =
              gather(src, n, end, h.place(rows.first, p), h.stride, rows.count(), v.place(columns.first, q), v.stride,
                     columns.count(), group * inputs, inputs, seen, &src_step);
          multiply(Transposed::a, outputs, inputs, (end - n) * rows.count() * columns.count(), a, e_step, b, src_step,
                   to, row, call.accumulates || n > 0);
        }
      }
    }
  }
  return nullptr;
}

/// Return whether the patches are the source itself: those of 1 x 1 kernels, or one of the whole source.
bool are_pixels(const WeightsGradientCall& call) {
  const Tensor &e = call.diff_dst, &src = call.src;
  const Window& w = call.window;
  return w.start_h == 0 && w.start_w == 0 && w.kernel_h == 1 && w.kernel_w == 1 && e.h == src.h && e.w == src.w &&
         (w.stride_h == 1 || e.h == 1) && (w.stride_w == 1 || e.w == 1);
}
bool is_whole_source(const WeightsGradientCall& call) {
  const Tensor &e = call.diff_dst, &src = call.src;
  const Window& w = call.window;
  return w.start_h == 0 && w.start_w == 0 && call.groups == 1 && e.h == 1 && e.w == 1 && w.kernel_h == src.h &&
         w.kernel_w == src.w && (w.dilation_h == 1 || src.h == 1) && (w.dilation_w == 1 || src.w == 1);
}

const char* weights_gradient_in_place(const WeightsGradientCall& call) {
  const Tensor &e = call.diff_dst, &src = call.src;
  const i64 inputs = call.inputs_per_group(), outputs = call.outputs_per_group();
  if (call.groups > 1 && inputs < 16) return "many small groups";
  const bool is_pixel = are_pixels(call);
  if (!is_pixel && !is_whole_source(call)) return "the patches are not the source itself";
  const i64 row = is_pixel ? inputs : src.h * src.w * src.c;
  for (i64 group = 0; group < call.groups; ++group)
    multiply(Transposed::a, outputs, row, e.n * e.h * e.w, e.floats() + group * outputs, e.c,
             src.floats() + group * inputs, is_pixel ? src.c : row, call.diff_weights + group * outputs * row, row,
             call.accumulates);
  return nullptr;
}

const char* weights_gradient_of_bfloats(const WeightsGradientCall& call) {
  constexpr i64 kMostPixels = 2048;  // of patches: with more of them, primitives are as fast
  if (call.groups > 1) return "groups";
  const Tensor &e = call.diff_dst, &src = call.src;
  const i64 pixels = e.n * e.h * e.w, row = call.window.kernel_h * call.window.kernel_w * src.c;
  const auto* from = reinterpret_cast<const std::uint16_t*>(src.data);
  Scratch memory;
  if (!are_pixels(call) && !is_whole_source(call)) {
    if (pixels > kMostPixels) return "many patches";
    memory = Scratch(static_cast<std::uint64_t>(pixels * row) * sizeof(std::uint16_t));
    auto* const patches = reinterpret_cast<std::uint16_t*>(memory.data());
    const Axis h = axis_h(call.window, e.h, src.h), v = axis_w(call.window, e.w, src.w);
    fill_patches(call, h, v, 0, 0, pixels, patches);
    from = patches;
  }
  const BfloatMatrix gradients{reinterpret_cast<const std::uint16_t*>(e.data), e.c, /*is_transposed=*/true};
  const bool is_done = multiply(gradients, {from, row}, e.c, row, pixels, call.diff_weights, row, call.accumulates);
  return is_done ? nullptr : "oneDNN has only its reference for this";
}

const char* weights_gradient_by_patches(const WeightsGradientCall& call) {
  const Tensor& e = call.diff_dst;
  const Axis h = axis_h(call.window, e.h, call.src.h), v = axis_w(call.window, e.w, call.src.w);
  const i64 inputs = call.inputs_per_group(), outputs = call.outputs_per_group();
  const i64 row = h.kernel * v.kernel * inputs, pixels = e.n * e.h * e.w;
  const i64 at_once = std::min(pixels, std::max<i64>(32, kPatchFloats / row));
  const Scratch memory(static_cast<std::uint64_t>(at_once * row) * sizeof(float));
  auto* const patches = reinterpret_cast<float*>(memory.data());
  for (i64 group = 0; group < call.groups; ++group) {
    for (i64 begin = 0; begin < pixels; begin += at_once) {
      const i64 end = std::min(begin + at_once, pixels);
      fill_patches(call, h, v, group, begin, end, patches);
      multiply(Transposed::a, outputs, row, end - begin, e.floats() + begin * e.c + group * outputs, e.c, patches, row,
               call.diff_weights + group * outputs * row, row, call.accumulates || begin > 0);
    }
  }
  return nullptr;
}

// ------------------------------------------------------------------------------------------------------------- data

const char* data_gradient_by_taps(const DataGradientCall& call) {
  const ConvWeights& weights = *call.weights;
  const Tensor &e = call.diff_dst, &to = call.diff_src;
  const Axis h = axis_h(call.window, e.h, to.h), v = axis_w(call.window, e.w, to.w);
  const i64 inputs = weights.in_channels_per_group, outputs = weights.out_channels / weights.groups;
  if (!pays_by_taps(h, v, e.n * e.h * e.w, inputs, outputs)) return "most taps see a pixel, or there are few channels";
  const i64 images = images_at_once(e.h * e.w * (inputs + outputs), e.n), pixels = images * e.h * e.w;
  const i64 row = h.kernel * v.kernel * inputs;
  const Scratch memory(static_cast<std::uint64_t>(pixels * (inputs + outputs)) * sizeof(float));
  auto* const results = reinterpret_cast<float*>(memory.data());
  float* const products = results + pixels * outputs;
  for (i64 n = 0; n < e.n; n += images) {
    const i64 end = std::min(n + images, e.n);
    std::memset(to.floats(n, 0), 0, static_cast<std::size_t>((end - n) * to.n_stride) * sizeof(float));
    for (i64 group = 0; group < weights.groups; ++group) {
      for (i64 p = 0; p < h.kernel; ++p) {
        for (i64 q = 0; q < v.kernel; ++q) {
          const Axis::Range rows = h.inside(p), columns = v.inside(q);
          if (rows.count() == 0 || columns.count() == 0) continue;
          i64 e_step = 0;
          const float* const a = gather(e, n, end, rows.first, 1, rows.count(), columns.first, 1, columns.count(),
                                        group * outputs, outputs, results, &e_step);
          multiply(Transposed::none, (end - n) * rows.count() * columns.count(), inputs, outputs, a, e_step,
                   weights.values.data() + group * outputs * row + (p * v.kernel + q) * inputs, row, products, inputs,
                   false);
          const i64 count = (end - n) * rows.count();
          parallel_ranges(count, threads_for(count * columns.count() * inputs, kCopyGrain), [&](i64 first, i64 last) {
            for (i64 k = first; k < last; ++k) {
              const i64 y = h.place(rows.first + k % rows.count(), p);
              add_runs(products + k * columns.count() * inputs, inputs,
                       to.floats(n + k / rows.count(), y, v.place(columns.first, q)) + group * inputs, v.stride * to.c,
                       inputs, columns.count());
            }
          });
        }
      }
    }
  }
  return nullptr;
}

const char* data_gradient_by_patches(const DataGradientCall& call) {
  const Tensor &e = call.diff_dst, &to = call.diff_src;
  const Axis h = axis_h(call.window, e.h, to.h), v = axis_w(call.window, e.w, to.w);
  const i64 row = h.kernel * v.kernel * call.weights->in_channels_per_group;
  const auto pairs = row_pairs(call, h);
  const i64 of_image = e.h * e.w * row;
  if (of_image <= 8 * kPatchFloats) {
    // Few at a time, so that the sums find the products in the second-level cache.
    const i64 images = images_at_once(8 * of_image, e.n);
    const Scratch memory(static_cast<std::uint64_t>(images * of_image) * sizeof(float));
    for (i64 n = 0; n < e.n; n += images)
      add_up_band(call, h, v, pairs, n, std::min(n + images, e.n), 0, to.h, 0, e.h, memory);
    return nullptr;
  }
  // Bands of rows; patches at their borders are computed twice.
  struct Band {
    i64 y0, y1, j0, j1;
  };
  std::vector<Band> bands;
  i64 most = 0;
  for (i64 y = 0; y < to.h; ++y) {
    i64 j0 = e.h, j1 = 0;
    for (const RowPair& pair : pairs[static_cast<std::size_t>(y)])
      j0 = std::min(j0, pair.j), j1 = std::max(j1, pair.j + 1);
    if (j0 >= j1) j0 = j1 = bands.empty() ? 0 : bands.back().j1;
    if (!bands.empty()) {
      Band& last = bands.back();
      const bool none = last.j0 == last.j1;
      const i64 first = none ? j0 : std::min(last.j0, j0), end = none ? j1 : std::max(last.j1, j1);
      if ((end - first) * e.w * row <= 8 * kPatchFloats) {
        last = {last.y0, y + 1, first, end};
        most = std::max(most, end - first);
        continue;
      }
    }
    bands.push_back({y, y + 1, j0, j1});
    most = std::max(most, j1 - j0);
  }
  const Scratch memory(static_cast<std::uint64_t>(most * e.w * row) * sizeof(float));
  for (i64 n = 0; n < e.n; ++n)
    for (const Band& band : bands) add_up_band(call, h, v, pairs, n, n + 1, band.y0, band.y1, band.j0, band.j1, memory);
  return nullptr;
}

const char* data_gradient_narrow(const DataGradientCall& call) {
  const ConvWeights& weights = *call.weights;
  const Window& w = call.window;
  const bool is_pixel = w.kernel_h == 1 && w.kernel_w == 1;
  const bool is_image = call.diff_dst.h == 1 && call.diff_dst.w == 1;
  if (weights.groups > 1) return "groups";
  if (weights.in_channels_per_group >= 16 && !is_pixel && !is_image) return "oneDNN fills its vectors";
  const Tensor &e = call.diff_dst, &to = call.diff_src;
  const bool starts = w.start_h == 0 && w.start_w == 0;
  const bool same_source = w.edge == Edge::zero ||
                           (call.src_first_h == 0 && call.src_first_w == 0 && call.src_h == to.h && call.src_w == to.w);
  const bool each_once =
      is_pixel ? e.h == to.h && e.w == to.w && w.stride_h == 1 && w.stride_w == 1
               : is_image && w.kernel_h == to.h && w.kernel_w == to.w && w.dilation_h == 1 && w.dilation_w == 1;
  if (starts && same_source && each_once) {  // the products are the result
    const i64 row = w.kernel_h * w.kernel_w * to.c;
    multiply(Transposed::none, e.n * e.h * e.w, row, e.c, e.floats(), e.c, weights.values.data(), row, to.floats(), row,
             false);
    return nullptr;
  }
  return data_gradient_by_patches(call);
}

}  // namespace openmps::cpu
