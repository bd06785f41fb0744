// SPDX-License-Identifier: Apache-2.0
// Activation functions, windows, operands and values per channel, which several problems share.
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
};

/// An activation function with Apple's parameters; formulas in engine/shared/neuron.hpp.
struct Neuron {
  NeuronType type = NeuronType::none;
  float a = 0, b = 0, c = 0;
  std::shared_ptr<const std::vector<float>> a_per_channel;  ///< prelu: one value per channel of the result

  static constexpr auto fields() {
    using P = Neuron;
    using namespace roles;
    return std::tuple(shape("type", &P::type), shape("a", &P::a), shape("b", &P::b), shape("c", &P::c),
                      shape("a_per_channel", &P::a_per_channel));
  }
};

/// Pixels outside of the source: zero, or the nearest pixel.
enum class Edge : std::uint8_t { zero, clamp };

/// Which source pixels a destination pixel sees. Tap (p, q) of destination (y, x) is source row
/// start_h + y * stride_h + p * dilation_h, column likewise.
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

/// A source of a problem that works value by value. Value (y, x, k) of the destination sees value (start_h + y, start_w
/// + x, k) of the view; along an axis that repeats, the one at the start, k = 0 for channels. The view has as many
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

/// Of a gradient, the forward kernel's source of h x w pixels, when results that looked beyond it saw its nearest
/// pixel: each pixel of diff_src is the sum over all results that saw it, and 0 beyond the source. Pixel (0, 0) of
/// diff_src is the source's pixel (start_h, start_w). The pixels of diff_dst are all results there are. h == 0: no
/// results see the nearest pixel.
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

/// Float32 values in a buffer, one per channel unless something else is said.
struct ChannelValues {
  std::shared_ptr<Memory> memory;  ///< none: there are no values
  std::size_t offset = 0;          ///< bytes to the first one, a multiple of 4

  static constexpr auto fields() {
    using P = ChannelValues;
    using namespace roles;
    return std::tuple(inout("memory", &P::memory), shape("offset", &P::offset));
  }
};

}  // namespace openmps
