// SPDX-License-Identifier: Apache-2.0
// Problems on 8-bit numbers. Only plans make them (plan/quantization.hpp).
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "engine/problem/conv.hpp"

namespace openmps {

/// Values of the 8-bit numbers q of an image of Format::unorm8, which reads as q / 255: scale * (q - zero). Storing
/// rounds x / scale to the nearest number, to the even one in the middle, adds zero, and clamps to 0...255. A scale of
/// 0 stands for the values of a float32 image.
struct Quantization {
  float scale = 0;
  std::int32_t zero = 0;

  static constexpr auto fields() {
    using P = Quantization;
    using namespace roles;
    return std::tuple(shape("scale", &P::scale), shape("zero", &P::zero));
  }
};

/// A ConvProblem without addend and subpixel on the values of 8-bit numbers; out-of-bounds taps have the value 0.
struct QuantizedConvProblem {
  ImageView src, dst;  ///< dst: unorm8, or float32 if dst_steps has a scale of 0
  std::shared_ptr<const ConvWeights> weights;
  Window window;  ///< its edge is zero
  Neuron neuron;
  Quantization src_steps, dst_steps;

  static constexpr auto fields() {
    using P = QuantizedConvProblem;
    using namespace roles;
    return std::tuple(in("src", &P::src), out("dst", &P::dst), roles::weights("weights", &P::weights),
                      shape("window", &P::window), shape("neuron", &P::neuron), shape("src_steps", &P::src_steps),
                      shape("dst_steps", &P::dst_steps));
  }
};

/// dst = min(max(src0 + src1, min), max), of the values of 8-bit numbers; all three of the same extents.
struct QuantizedSumProblem {
  ImageView src0, src1, dst;
  Quantization src0_steps, src1_steps, dst_steps;
  float min = -std::numeric_limits<float>::infinity(), max = std::numeric_limits<float>::infinity();

  static constexpr auto fields() {
    using P = QuantizedSumProblem;
    using namespace roles;
    return std::tuple(in("src0", &P::src0), in("src1", &P::src1), out("dst", &P::dst),
                      shape("src0_steps", &P::src0_steps), shape("src1_steps", &P::src1_steps),
                      shape("dst_steps", &P::dst_steps), shape("min", &P::min), shape("max", &P::max));
  }
};

/// dst = src0 * src1, of the values of 8-bit numbers. src0 has dst's extents; so has src1, or it is one pixel per
/// image, with which all pixels are multiplied.
struct QuantizedProductProblem {
  ImageView src0, src1, dst;  ///< src1: unorm8, or one float32 pixel if src1_steps has a scale of 0
  Quantization src0_steps, src1_steps, dst_steps;

  static constexpr auto fields() {
    using P = QuantizedProductProblem;
    using namespace roles;
    return std::tuple(in("src0", &P::src0), in("src1", &P::src1), out("dst", &P::dst),
                      shape("src0_steps", &P::src0_steps), shape("src1_steps", &P::src1_steps),
                      shape("dst_steps", &P::dst_steps));
  }
};

/// dst, one pixel per image: `scale` times the sum of all pixels of src, of the values of 8-bit numbers.
struct QuantizedPixelSumProblem {
  ImageView src, dst;  ///< dst: unorm8, or float32 if dst_steps has a scale of 0
  double scale = 1;
  Quantization src_steps, dst_steps;

  static constexpr auto fields() {
    using P = QuantizedPixelSumProblem;
    using namespace roles;
    return std::tuple(in("src", &P::src), out("dst", &P::dst), value("scale", &P::scale),
                      shape("src_steps", &P::src_steps), shape("dst_steps", &P::dst_steps));
  }
};

/// dst = numbers[src], number by number; the same extents.
struct QuantizedMapProblem {
  ImageView src, dst;
  std::shared_ptr<const std::vector<float>> numbers;  ///< 256 whole ones from 0 to 255

  static constexpr auto fields() {
    using P = QuantizedMapProblem;
    using namespace roles;
    return std::tuple(in("src", &P::src), out("dst", &P::dst), value("numbers", &P::numbers));
  }
};

}  // namespace openmps
