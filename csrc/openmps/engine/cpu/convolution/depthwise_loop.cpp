// SPDX-License-Identifier: Apache-2.0
// Depth-wise convolution for processors for which oneDNN has only its reference. Any strides; no padded copy.
#include <algorithm>
#include <vector>

#include "engine/cpu/convolution/convolution.hpp"
#include "engine/shared/isa.hpp"
#include "engine/shared/parallel.hpp"
#include "engine/shared/rows.hpp"

namespace openmps::cpu {
namespace {

MPSCNN_CLONES void multiply_add(const float* pixel, const float* weights, float* sums, std::int64_t channels) {
#pragma omp simd
  for (std::int64_t i = 0; i < channels; ++i) sums[i] += weights[i] * pixel[i];
}

}  // namespace

const char* conv_depthwise_loop(const ConvCall& call) {
  if (call.adds()) return "something is added";
  const ConvWeights& weights = *call.weights;
  if (weights.in_channels_per_group != 1 || weights.groups != weights.out_channels) return "not depth-wise";
  if (call.src.format != Format::float32) return "the source is not float32";
  const Window& w = call.window;
  const Tensor &src = call.src, &dst = call.dst;
  const std::int64_t c = dst.c, taps = w.kernel_h * w.kernel_w;
  std::vector<float> by_tap(weights.values.size());  // [kH][kW][C]
  for (std::int64_t o = 0; o < c; ++o) {
    for (std::int64_t t = 0; t < taps; ++t)
      by_tap[static_cast<std::size_t>(t * c + o)] = weights.values[static_cast<std::size_t>(o * taps + t)];
  }
  std::vector<float> sums_of_threads(static_cast<std::size_t>(c * max_threads()));
  const auto resolve = [&](std::int64_t at, std::int64_t extent) {
    if (at >= 0 && at < extent) return at;
    return w.edge == Edge::zero ? std::int64_t{-1} : std::clamp<std::int64_t>(at, 0, extent - 1);
  };
  parallel_ranges(dst.n * dst.h, threads_for(dst.size() * taps, 64 * 1024), [&](std::int64_t begin, std::int64_t end) {
    float* const sums = sums_of_threads.data() + c * thread_number();
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t n = i / dst.h, y = i % dst.h;
      for (std::int64_t x = 0; x < dst.w; ++x) {
        std::fill(sums, sums + c, 0.0f);
        for (std::int64_t p = 0; p < w.kernel_h; ++p) {
          const std::int64_t sy = resolve(w.start_h + y * w.stride_h + p * w.dilation_h, src.h);
          if (sy < 0) continue;
          for (std::int64_t q = 0; q < w.kernel_w; ++q) {
            const std::int64_t sx = resolve(w.start_w + x * w.stride_w + q * w.dilation_w, src.w);
            if (sx >= 0) multiply_add(src.floats(n, sy, sx), by_tap.data() + (p * w.kernel_w + q) * c, sums, c);
          }
        }
        row_neuron(*call.neuron, sums, sums, c, c, weights.bias.empty() ? nullptr : weights.bias.data());
        row_from_float(sums, dst.at(n, y, x), dst.format, c);
      }
    }
  });
  return nullptr;
}

}  // namespace openmps::cpu
