// SPDX-License-Identifier: Apache-2.0
// The plain convolution: any geometry, any format, no memory except one pixel per thread.
#include <algorithm>
#include <vector>

#include "engine/cpu/convolution/convolution.hpp"
#include "engine/shared/isa.hpp"
#include "engine/shared/parallel.hpp"
#include "engine/shared/rows.hpp"

namespace openmps::cpu {
namespace {

/// sums[o] += dot(weights[o], pixel) for one group's filters.
MPSCNN_CLONES void add_tap(const float* pixel, const float* weights, std::int64_t filter_stride, float* sums,
                           std::int64_t filters, std::int64_t channels) {
  for (std::int64_t o = 0; o < filters; ++o) {
    const float* filter = weights + o * filter_stride;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = 0; i < channels; ++i) sum += filter[i] * pixel[i];
    sums[o] += sum;
  }
}

/// Return the source pixel of one tap, -1 for zero.
inline std::int64_t resolve(std::int64_t at, std::int64_t extent, Edge edge) {
  if (at >= 0 && at < extent) return at;
  return edge == Edge::zero ? -1 : std::clamp<std::int64_t>(at, 0, extent - 1);
}

/// Buffers per thread: a source pixel and the sums as floats.
struct PixelBuffers {
  std::vector<float> values;
  std::int64_t channels, results;
  PixelBuffers(std::int64_t c, std::int64_t o)
      : values(static_cast<std::size_t>((c + o) * max_threads())), channels(c), results(o) {}
  float* pixel() { return values.data() + (channels + results) * thread_number(); }
  float* sums() { return pixel() + channels; }
};

/// Compute one row of results. `tap_row(p)`, `tap_column(x, q)`: source row and column of a tap, or -1.
template <class Row, class Column>
void compute_row(const Tensor& src, const Tensor& dst, const ConvWeights& weights, const Neuron& neuron, std::int64_t n,
                 std::int64_t y, PixelBuffers& buffers, const Row& tap_row, const Column& tap_column) {
  const std::int64_t kh = weights.kernel_h, kw = weights.kernel_w, per_group = weights.in_channels_per_group;
  const std::int64_t filters = weights.out_channels / weights.groups, filter_size = kh * kw * per_group;
  float* const pixel = buffers.pixel();
  float* const sums = buffers.sums();
  for (std::int64_t x = 0; x < dst.w; ++x) {
    std::fill(sums, sums + dst.c, 0.0f);
    for (std::int64_t p = 0; p < kh; ++p) {
      const std::int64_t sy = tap_row(p);
      if (sy < 0) continue;
      for (std::int64_t q = 0; q < kw; ++q) {
        const std::int64_t sx = tap_column(x, q);
        if (sx < 0) continue;
        row_to_float(src.at(n, sy, sx), src.format, pixel, src.c);
        for (std::int64_t g = 0; g < weights.groups; ++g) {
          add_tap(pixel + g * per_group, weights.values.data() + g * filters * filter_size + (p * kw + q) * per_group,
                  filter_size, sums + g * filters, filters, per_group);
        }
      }
    }
    row_neuron(neuron, sums, sums, dst.c, dst.c, weights.bias.empty() ? nullptr : weights.bias.data());
    row_from_float(sums, dst.at(n, y, x), dst.format, dst.c);
  }
}

int threads_of(const Tensor& dst, const ConvWeights& weights) {
  return threads_for(dst.size() * weights.kernel_h * weights.kernel_w * weights.in_channels_per_group, 100 * 1000);
}

}  // namespace

const char* conv_loop(const ConvCall& call) {
  if (call.adds()) return conv_apart(call);  // which calls this function again, without the addend
  const Window& w = call.window;
  const Tensor &src = call.src, &dst = call.dst;
  PixelBuffers buffers(src.c, dst.c);
  parallel_ranges(dst.n * dst.h, threads_of(dst, *call.weights), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t y = i % dst.h;
      compute_row(
          src, dst, *call.weights, *call.neuron, i / dst.h, y, buffers,
          [&](std::int64_t p) { return resolve(w.start_h + y * w.stride_h + p * w.dilation_h, src.h, w.edge); },
          [&](std::int64_t x, std::int64_t q) {
            return resolve(w.start_w + x * w.stride_w + q * w.dilation_w, src.w, w.edge);
          });
    }
  });
  return nullptr;
}

const char* transpose_loop(const TransposeCall& call) {
  const Window& w = call.window;
  const Tensor &src = call.src, &dst = call.dst;
  // Return the source position of a position in Z; -1 where Z is zero.
  const auto unstuff = [](std::int64_t z, std::int64_t stride, std::int64_t extent) {
    return z < 0 || z % stride != 0 || z / stride >= extent ? -1 : z / stride;
  };
  PixelBuffers buffers(src.c, dst.c);
  parallel_ranges(dst.n * dst.h, threads_of(dst, *call.weights), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t y = i % dst.h;
      compute_row(
          src, dst, *call.weights, *call.neuron, i / dst.h, y, buffers,
          [&](std::int64_t p) { return unstuff(w.start_h + y + p * w.dilation_h, w.stride_h, src.h); },
          [&](std::int64_t x, std::int64_t q) { return unstuff(w.start_w + x + q * w.dilation_w, w.stride_w, src.w); });
    }
  });
  return nullptr;
}

}  // namespace openmps::cpu
