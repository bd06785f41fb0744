// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "engine/cpu/convolution/convolution.hpp"
#include "engine/cpu/pointwise/elementwise.hpp"
#include "engine/cpu/runtime.hpp"

namespace openmps::cpu {

const char* transpose_stuffed(const TransposeCall& call) {
  const Window& w = call.window;
  if (w.stride_h * w.stride_w > 64) return "nearly all of the stuffed source would be zeros";
  const std::int64_t height = call.dst.h + reach_h(w) - 1, width = call.dst.w + reach_w(w) - 1;
  // Only the part of Z that windows read; pixel n of the source is at n * stride - start.
  const ScratchTensor stuffed(call.src.n, height, width, call.src.c);
  std::memset(stuffed.tensor.data, 0, static_cast<std::size_t>(stuffed.tensor.size()) * 4);
  const auto first = [](std::int64_t start, std::int64_t stride) {
    return start <= 0 ? 0 : (start + stride - 1) / stride;
  };
  const auto end = [](std::int64_t start, std::int64_t stride, std::int64_t seen, std::int64_t extent) {
    return start + seen <= 0 ? 0 : std::min(extent, (start + seen + stride - 1) / stride);
  };
  const std::int64_t y0 = first(w.start_h, w.stride_h), y1 = end(w.start_h, w.stride_h, height, call.src.h);
  const std::int64_t x0 = first(w.start_w, w.stride_w), x1 = end(w.start_w, w.stride_w, width, call.src.w);
  if (y0 < y1 && x0 < x1) {
    Tensor to = stuffed.tensor.region(y0 * w.stride_h - w.start_h, x0 * w.stride_w - w.start_w, y1 - y0, x1 - x0);
    to.h_stride *= w.stride_h;
    to.w_stride *= w.stride_w;
    copy(call.src.region(y0, x0, y1 - y0, x1 - x0), to);
  }
  ConvCall next = {stuffed.tensor, call.dst, call.weights, w, call.neuron, call.reduced_precision};
  next.window.stride_h = next.window.stride_w = 1;
  next.window.start_h = next.window.start_w = 0;
  run_convolution(next);
  return nullptr;
}

}  // namespace openmps::cpu
