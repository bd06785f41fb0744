// SPDX-License-Identifier: Apache-2.0
// Normalizations, softmax and their gradients.
#pragma once

#include <cstdint>

#include "engine/problem/common.hpp"

namespace openmps {

/// Local response normalization of x: dst = pm + ps * (x - p0 * M) / (delta + alpha * V)^beta.
///   channels: V is the sum of squares over the existing channels k - size / 2 ... k + (size - 1) / 2 of the pixel,
///             divided by size; M is 0
///   pixels:   V is the mean of the squares in a window of the channel; M is 0
///   contrast: M is the mean and V the variance in the window
/// x is the value under tap (kernel / 2) of the window. Out-of-bounds taps are zero or clamp to the edge; a mean
/// divides by the number of all taps.
enum class LRNType : std::uint8_t { channels, pixels, contrast };

struct LRNProblem {
  ImageView src, dst;  ///< share no memory
  LRNType type = LRNType::channels;
  Window window;          ///< stride and dilation 1; channels: kernel 1 x 1
  std::int64_t size = 1;  ///< channels
  float alpha = 1, beta = 5, delta = 1;
  float p0 = 0, pm = 0, ps = 1;  ///< contrast

  static constexpr auto fields() {
    using P = LRNProblem;
    using namespace roles;
    return std::tuple(in("src", &P::src), out("dst", &P::dst), shape("type", &P::type), shape("window", &P::window),
                      shape("size", &P::size), shape("alpha", &P::alpha), shape("beta", &P::beta),
                      shape("delta", &P::delta), shape("p0", &P::p0), shape("pm", &P::pm), shape("ps", &P::ps));
  }
};

/// Gradient of an LRNProblem. forward.dst is an input here: the gradient of the forward result. Value u of diff_src is
/// the sum over values v of forward.dst, each times the derivative of its formula by value u of src. Pixel (0, 0) of
/// diff_src is pixel (start_h, start_w) of src; diff_src is 0 beyond src.
struct LRNGradientProblem {
  LRNProblem forward;  ///< dst has src's images and channels, any height and width
  ImageView diff_src;  ///< shares no memory with the others
  std::int64_t start_h = 0, start_w = 0;

  static constexpr auto fields() {
    using P = LRNGradientProblem;
    using namespace roles;
    return std::tuple(in("forward", &P::forward), out("diff_src", &P::diff_src), shape("start_h", &P::start_h),
                      shape("start_w", &P::start_w));
  }
};

/// dst = neuron((x - mean) * gamma / sqrt(variance + epsilon) + beta).
struct NormalizeProblem {
  Operand src;  ///< no repeated axes
  ImageView dst;
  ChannelValues gamma, beta;
  /// 0: mean and variance are given. Otherwise they are computed per image, over all pixels of src.view and each of
  /// `groups` groups of c / groups adjacent channels: images x groups values, stored if they have memory.
  std::int64_t groups = 0;
  ChannelValues mean, variance;
  /// If it has memory: the same values in double, as pairs (mean, variance), at an offset that is a multiple of 8. If
  /// mean and variance are given, a pair is used only if it rounds to them: they may have been written since.
  ChannelValues exact;
  float epsilon = 0;
  Neuron neuron;

  static constexpr auto fields() {
    using P = NormalizeProblem;
    using namespace roles;
    return std::tuple(in("src", &P::src), out("dst", &P::dst), in("gamma", &P::gamma), in("beta", &P::beta),
                      shape("groups", &P::groups), inout("mean", &P::mean), inout("variance", &P::variance),
                      inout("exact", &P::exact), shape("epsilon", &P::epsilon), shape("neuron", &P::neuron));
  }
};

/// Mean and variance (mean squared deviation) of each channel over all pixels and images.
struct BatchMomentsProblem {
  ImageView src;
  ChannelValues mean, variance;
  std::int64_t count = 0;  ///< pixels that mean and variance already cover; the new ones are merged in
  ChannelValues exact;     ///< as in NormalizeProblem

  static constexpr auto fields() {
    using P = BatchMomentsProblem;
    using namespace roles;
    return std::tuple(in("src", &P::src), inout("mean", &P::mean), inout("variance", &P::variance),
                      shape("count", &P::count), inout("exact", &P::exact));
  }
};

/// With G = diff_dst * f'(y), y the input of NormalizeProblem's neuron f, and z = (x - mean) / sqrt(variance +
/// epsilon): per channel, diff_beta = sum G and diff_gamma = sum G * z over all pixels and images of diff_dst.
struct BatchMomentsGradientProblem {
  ImageView diff_dst;
  Operand src;  ///< forward source of the pixels of diff_dst; no repeated axes
  ChannelValues gamma, beta, mean, variance, exact;
  float epsilon = 0;
  Neuron neuron;
  ChannelValues diff_gamma, diff_beta;
  bool adds = false;  ///< add to diff_gamma and diff_beta instead of overwriting them

  static constexpr auto fields() {
    using P = BatchMomentsGradientProblem;
    using namespace roles;
    return std::tuple(in("diff_dst", &P::diff_dst), in("src", &P::src), in("gamma", &P::gamma), in("beta", &P::beta),
                      in("mean", &P::mean), in("variance", &P::variance), in("exact", &P::exact),
                      shape("epsilon", &P::epsilon), shape("neuron", &P::neuron), inout("diff_gamma", &P::diff_gamma),
                      inout("diff_beta", &P::diff_beta), shape("adds", &P::adds));
  }
};

/// diff_src = (gamma * G - (sum(gamma * G) + z * sum(gamma * G * z)) / count) / sqrt(variance + epsilon), G and z as
/// above, the sums over all values that share a mean.
struct NormalizeGradientProblem {
  /// No repeated axes; diff_dst has Edge::zero. If src has Edge::clamp, gradients of pixels outside of src add to the
  /// nearest pixel.
  Operand diff_dst, src;
  ImageView diff_src;  ///< shares no memory with the sources; 0 beyond src
  ChannelValues gamma, beta;
  /// 0: diff_gamma and diff_beta hold the sums, as stored by BatchMomentsGradientProblem, and mean and variance are
  /// over `count` pixels; with count 0 they are constants and nothing is subtracted. Otherwise mean, variance and sums
  /// are per image and per group of channels (`groups` of them), and diff_gamma and diff_beta are stored: per channel,
  /// over all images and pixels of diff_dst.view.
  std::int64_t groups = 0;
  ChannelValues mean, variance, exact;
  float epsilon = 0;
  Neuron neuron;
  ChannelValues diff_gamma, diff_beta;
  std::int64_t count = 0;

  static constexpr auto fields() {
    using P = NormalizeGradientProblem;
    using namespace roles;
    return std::tuple(in("diff_dst", &P::diff_dst), in("src", &P::src), out("diff_src", &P::diff_src),
                      in("gamma", &P::gamma), in("beta", &P::beta), shape("groups", &P::groups), in("mean", &P::mean),
                      in("variance", &P::variance), in("exact", &P::exact), shape("epsilon", &P::epsilon),
                      shape("neuron", &P::neuron), inout("diff_gamma", &P::diff_gamma),
                      inout("diff_beta", &P::diff_beta), shape("count", &P::count));
  }
};

/// dst[n][y][x][k] = exp(x_k) / sum exp(x_q), or with `log` its natural logarithm, x_k - ln(sum exp(x_q)); q runs over
/// the channels that src has at the pixel. src has no repeated axes and shares no memory with dst.
struct SoftmaxProblem {
  Operand src;
  ImageView dst;
  bool log = false;

  static constexpr auto fields() {
    using P = SoftmaxProblem;
    using namespace roles;
    return std::tuple(in("src", &P::src), out("dst", &P::dst), shape("log", &P::log));
  }
};

/// Gradient of softmax from its result: diff_src = dst * (diff_dst - sum diff_dst * dst), or with `log` diff_dst -
/// exp(dst) * sum diff_dst. Sums are over the channels of the pixel.
struct SoftmaxGradientProblem {
  Operand diff_dst, dst;  ///< no repeated axes
  ImageView diff_src;     ///< shares no memory with them
  bool log = false;
  ClampedSource source = {};

  static constexpr auto fields() {
    using P = SoftmaxGradientProblem;
    using namespace roles;
    return std::tuple(in("diff_dst", &P::diff_dst), in("dst", &P::dst), out("diff_src", &P::diff_src),
                      shape("log", &P::log), shape("source", &P::source));
  }
};

}  // namespace openmps
