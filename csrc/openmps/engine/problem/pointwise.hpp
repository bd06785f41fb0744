// SPDX-License-Identifier: Apache-2.0
// Element-wise problems: activations, arithmetic of two images, dropout.
#pragma once

#include <cstdint>
#include <limits>

#include "engine/problem/common.hpp"

namespace openmps {

/// dst = neuron(src), same extents. src and dst may be the same view.
struct NeuronProblem {
  ImageView src, dst;
  Neuron neuron;

  static constexpr auto fields() {
    using P = NeuronProblem;
    using namespace roles;
    return std::tuple(in("src", &P::src), out("dst", &P::dst), shape("neuron", &P::neuron));
  }
};

/// diff_src = diff_dst * f'(src), f the neuron: slopes in engine/shared/neuron.hpp.
struct NeuronGradientProblem {
  /// If src has Edge::clamp, it is a ClampedSource without repeated axes, and diff_dst has Edge::zero.
  Operand diff_dst, src;
  ImageView diff_src;  ///< shares no memory with the sources
  Neuron neuron;

  static constexpr auto fields() {
    using P = NeuronGradientProblem;
    using namespace roles;
    return std::tuple(in("diff_dst", &P::diff_dst), in("src", &P::src), out("diff_src", &P::diff_src),
                      shape("neuron", &P::neuron));
  }
};

/// Comparisons come after the operations that have gradients.
enum class BinaryOperation : std::uint8_t {
  add,
  subtract,
  multiply,
  divide,
  equal,
  not_equal,
  less,
  less_or_equal,
  greater,
  greater_or_equal,
};

/// min(max((scale0 * a) op (scale1 * b) + bias, min), max); NaN stays NaN. Infinite bounds do nothing. Comparisons are
/// 1 or 0, plus the bias; numbers are equal if their difference is at most `threshold`, which the others ignore.
struct Arithmetic {
  BinaryOperation operation = BinaryOperation::add;
  float scale0 = 1, scale1 = 1, bias = 0;
  float min = -std::numeric_limits<float>::infinity(), max = std::numeric_limits<float>::infinity();
  float threshold = 0;

  static constexpr auto fields() {
    using P = Arithmetic;
    using namespace roles;
    return std::tuple(shape("operation", &P::operation), shape("scale0", &P::scale0), shape("scale1", &P::scale1),
                      shape("bias", &P::bias), shape("min", &P::min), shape("max", &P::max),
                      shape("threshold", &P::threshold));
  }
};

/// dst = function(src0, src1). If `mask` has memory, it has dst's extents and is 1 where the value before clamping is
/// strictly between the bounds, else 0.
struct BinaryProblem {
  Operand src0, src1;
  /// Shares no memory with the sources; or, without a mask, the same view as sources that it reads value by value.
  ImageView dst;
  Arithmetic function;
  ImageView mask = {};

  static constexpr auto fields() {
    using P = BinaryProblem;
    using namespace roles;
    return std::tuple(in("src0", &P::src0), in("src1", &P::src1), out("dst", &P::dst), shape("function", &P::function),
                      out("mask", &P::mask));
  }
};

/// diff_src = scale * diff_dst * other * mask, element by element. Along an axis with `sum` > 1, diff_src has extent 1
/// and is the sum of that many products. Operands are read as for a destination with the extents of these products;
/// other and mask without memory are 1.
struct BinaryGradientProblem {
  Operand diff_dst, other, mask;
  ImageView diff_src;  ///< shares no memory with the sources
  std::int64_t sum_h = 1, sum_w = 1, sum_c = 1;
  float scale = 1;
  ClampedSource source = {};  ///< extent 1 and start 0 along its repeated axes

  static constexpr auto fields() {
    using P = BinaryGradientProblem;
    using namespace roles;
    return std::tuple(in("diff_dst", &P::diff_dst), in("other", &P::other), in("mask", &P::mask),
                      out("diff_src", &P::diff_src), shape("sum_h", &P::sum_h), shape("sum_w", &P::sum_w),
                      shape("sum_c", &P::sum_c), shape("scale", &P::scale), shape("source", &P::source));
  }
};

/// Dropout mask, as computed in engine/shared/dropout.hpp. All values along an axis of extent 1 share one decision.
struct DropoutMask {
  std::uint64_t seed = 0, image = 0;  ///< of the first image; the second has image + 1
  std::int64_t h = 1, w = 1, c = 1;
  float keep = 0.5f;  ///< probability

  static constexpr auto fields() {
    using P = DropoutMask;
    using namespace roles;
    return std::tuple(value("seed", &P::seed), value("image", &P::image), value("h", &P::h), value("w", &P::w),
                      value("c", &P::c), value("keep", &P::keep));
  }
};

/// dst = src / mask.keep where the mask keeps the value, else 0. Element (y, x, k) reads the mask at (start_h + y,
/// start_w + x, k) and is 0 beyond it. src has no repeated axes and shares no memory with dst.
struct DropoutProblem {
  Operand src;
  ImageView dst;
  DropoutMask mask;
  std::int64_t start_h = 0, start_w = 0;  ///< 0 along axes on which the mask has extent 1
  ClampedSource source = {};              ///< for gradients: src is diff_dst, dst is diff_src

  static constexpr auto fields() {
    using P = DropoutProblem;
    using namespace roles;
    return std::tuple(in("src", &P::src), out("dst", &P::dst), value("mask", &P::mask), value("start_h", &P::start_h),
                      value("start_w", &P::start_w), shape("source", &P::source));
  }
};

}  // namespace openmps
