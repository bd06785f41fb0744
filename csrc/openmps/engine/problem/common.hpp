// SPDX-License-Identifier: Apache-2.0
// Types that several problems share: activation functions, windows, operands, values per channel.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/problem/fields.hpp"

namespace openmps {

/// Values of MPSCNNNeuronType.
enum class NeuronType : std::int32_t {
  none = 0,
  relu,
  linear,
  sigmoid,
  hard_sigmoid,
  tanh,
  absolute,
  softplus,
  softsign,
  elu,
  prelu,
  relun,
  power,
  exponential,
  logarithm,
  gelu,
  // Values that Apple does not have: the source times its gate. Only plans make them.
  swish = 0x100,  ///< x * sigmoid(x)
  hard_swish,     ///< x * hard_sigmoid(x)
};

/// An activation function with Apple's parameters; formulas in engine/shared/neuron.hpp.
struct Neuron {
  NeuronType type = NeuronType::none;
  float a = 0, b = 0, c = 0;
  std::shared_ptr<const std::vector<float>> a_per_channel;  ///< prelu: one slope per output channel

  static constexpr auto fields() {
    using P = Neuron;
    using namespace roles;
    return std::tuple(shape("type", &P::type), shape("a", &P::a), shape("b", &P::b), shape("c", &P::c),
                      shape("a_per_channel", &P::a_per_channel));
  }
};

/// Out-of-bounds taps: zero, or clamped to the edge.
enum class Edge : std::uint8_t { zero, clamp };

/// Source pixels that a destination pixel reads. Tap (p, q) of destination (y, x) is source row start_h + y * stride_h
/// + p * dilation_h; columns likewise.
struct Window {
  std::int64_t kernel_h = 1, kernel_w = 1;
  std::int64_t stride_h = 1, stride_w = 1;
  std::int64_t dilation_h = 1, dilation_w = 1;
  std::int64_t start_h = 0, start_w = 0;
  Edge edge = Edge::zero;

  static constexpr auto fields() {
    using P = Window;
    using namespace roles;
    return std::tuple(shape("kernel_h", &P::kernel_h), shape("kernel_w", &P::kernel_w), shape("stride_h", &P::stride_h),
                      shape("stride_w", &P::stride_w), shape("dilation_h", &P::dilation_h),
                      shape("dilation_w", &P::dilation_w), shape("start_h", &P::start_h), shape("start_w", &P::start_w),
                      shape("edge", &P::edge));
  }
};

/// Source of an element-wise problem. Element (y, x, k) of the destination reads element (start_h + y, start_w + x, k)
/// of the view; a repeated (broadcast) axis is always read at its start, k = 0 for channels. The view has as many
/// images as the destination, and as many channels unless they repeat.
struct Operand {
  ImageView view;
  std::int64_t start_h = 0, start_w = 0;
  bool repeat_h = false, repeat_w = false, repeat_c = false;
  Edge edge = Edge::zero;

  static constexpr auto fields() {
    using P = Operand;
    using namespace roles;
    return std::tuple(in("view", &P::view), shape("start_h", &P::start_h), shape("start_w", &P::start_w),
                      shape("repeat_h", &P::repeat_h), shape("repeat_w", &P::repeat_w), shape("repeat_c", &P::repeat_c),
                      shape("edge", &P::edge));
  }
};

/// For gradients: extents of the forward kernel's source, whose out-of-bounds taps clamped to the edge. Each pixel of
/// diff_src is the sum over all results that read it, and 0 beyond the source. Pixel (0, 0) of diff_src is source pixel
/// (start_h, start_w). diff_dst covers all results. h == 0: no taps were clamped.
struct ClampedSource {
  std::int64_t h = 0, w = 0;
  std::int64_t start_h = 0, start_w = 0;

  static constexpr auto fields() {
    using P = ClampedSource;
    using namespace roles;
    return std::tuple(shape("h", &P::h), shape("w", &P::w), shape("start_h", &P::start_h),
                      shape("start_w", &P::start_w));
  }
};

/// Float32 values in a buffer, one per channel unless stated otherwise.
struct ChannelValues {
  std::shared_ptr<Memory> memory;  ///< null: no values
  std::size_t offset = 0;          ///< of the first value, in bytes; a multiple of 4

  static constexpr auto fields() {
    using P = ChannelValues;
    using namespace roles;
    return std::tuple(inout("memory", &P::memory), shape("offset", &P::offset));
  }
};

}  // namespace openmps
