// SPDX-License-Identifier: Apache-2.0
// Convolutions that another one computes after a rearrangement, or that read no source pixel.
#include <mutex>

#include "engine/cpu/convolution/convolution.hpp"
#include "engine/cpu/pointwise/elementwise.hpp"
#include "engine/cpu/runtime.hpp"
#include "engine/shared/neuron.hpp"
#include "engine/shared/parallel.hpp"
#include "engine/shared/rows.hpp"

namespace openmps::cpu {

const char* conv_nothing_seen(const ConvCall& call) {
  if (call.adds()) return "something is added";
  if (call.window.edge == Edge::clamp) return "clamped edges always show something";
  const Window& w = call.window;
  const auto outside = [](std::int64_t extent, std::int64_t results, std::int64_t start, std::int64_t stride,
                          std::int64_t reach) {
    return start >= extent || start + (results - 1) * stride + reach <= 0;
  };
  if (!outside(call.src.h, call.dst.h, w.start_h, w.stride_h, reach_h(w)) &&
      !outside(call.src.w, call.dst.w, w.start_w, w.stride_w, reach_w(w))) {
    return "some window touches the source";
  }
  fill_pixels(call.dst, *call.neuron, bias_of(call));
  return nullptr;
}

const char* conv_multiplier(const ConvCall& call) {
  const ConvWeights& weights = *call.weights;
  if (weights.in_channels_per_group != 1 || weights.groups == 1) return "not depth-wise";
  const std::int64_t copies = weights.out_channels / weights.groups;
  if (copies == 1) return "the channel multiplier is 1";
  // With the source repeated, each filter has its own channel: depth-wise with as many groups as filters.
  const ScratchTensor dense(call.src.n, call.src.h, call.src.w, call.src.c);
  copy(call.src, dense.tensor);
  const ScratchTensor repeated(call.src.n, call.src.h, call.src.w, call.src.c * copies);
  const std::int64_t values = call.src.size();
  parallel_ranges(values, threads_for(values * copies, 32 * 1024), [&](std::int64_t begin, std::int64_t end) {
    row_repeat(dense.tensor.floats() + begin, repeated.tensor.floats() + begin * copies, end - begin, copies);
  });
  // The same values with other groups; kept with the weights, so that its own cache lives as long.
  const auto regrouped = [&] {
    const std::lock_guard lock(weights.cache.mutex);
    std::shared_ptr<void>& entry = weights.cache.entries["onednn.regrouped"];
    if (!entry) {
      auto made = std::make_shared<ConvWeights>();
      made->out_channels = made->groups = weights.out_channels;
      made->kernel_h = weights.kernel_h;
      made->kernel_w = weights.kernel_w;
      made->in_channels_per_group = 1;
      made->values = weights.values;
      made->bias = weights.bias;
      entry = made;
    }
    return std::static_pointer_cast<ConvWeights>(entry);
  }();
  ConvCall next = call;
  next.src = repeated.tensor;
  next.weights = regrouped.get();
  run_convolution(next);
  return nullptr;
}

const char* conv_apart(const ConvCall& call) {
  if (!call.adds()) return "nothing is added";
  const Tensor& dst = call.dst;
  const ScratchTensor result(dst.n, dst.h, dst.w, dst.c);
  ConvCall next = call;
  next.dst = result.tensor;
  next.addend = {};
  run_convolution(next);
  Tensor addend = call.addend;
  Scratch addend_memory;
  if (!addend.is_dense_float()) {
    ScratchTensor dense(dst.n, dst.h, dst.w, dst.c);
    copy(addend, dense.tensor);
    addend = dense.tensor;
    addend_memory = std::move(dense.memory);
  }
  const std::int64_t values = dst.size();
  parallel_ranges(values, threads_for(values, 32 * 1024), [&](std::int64_t begin, std::int64_t end) {
    float* const sums = result.tensor.floats() + begin;
    row_arithmetic({}, sums, addend.floats() + begin, sums, end - begin);
  });
  activate(result.tensor, dst, *call.after);
  return nullptr;
}

}  // namespace openmps::cpu
