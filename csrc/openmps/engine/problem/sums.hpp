// SPDX-License-Identifier: Apache-2.0
// Sums as one problem with the normalization before them, or with the mask and the sums behind them. Only plans make
// such problems, for engines that fuse the two.
#pragma once

#include <limits>

#include "engine/problem/normalize.hpp"

namespace openmps {

/// dst = min(max((x - mean) * gamma / sqrt(variance + epsilon) + beta + addend, min), max); NaN stays NaN. Statistics
/// are those of a NormalizeProblem with groups 0. If `mask` has memory, it has dst's extents and is 1 where the value
/// is strictly between the bounds, else 0. It may be packed, a dense image of c / 8 bytes per pixel for a
/// float16 result or c / 4 for float32, a multiple of 8: bits 0 ... 7 or 0 ... 3 of byte b of pixel p, which is byte
/// (b / 8 * pixels + p) * 8 + b % 8, are those of adjacent channels.
struct NormalizeAddProblem {
  Operand src, addend;  ///< no repeated axes
  ImageView dst;        ///< shares no memory with the sources
  ChannelValues gamma, beta, mean, variance, exact;
  float epsilon = 0;
  float min = -std::numeric_limits<float>::infinity(), max = std::numeric_limits<float>::infinity();
  ImageView mask = {};

  static constexpr auto fields() {
    using P = NormalizeAddProblem;
    using namespace roles;
    return std::tuple(in("src", &P::src), in("addend", &P::addend), out("dst", &P::dst), in("gamma", &P::gamma),
                      in("beta", &P::beta), in("mean", &P::mean), in("variance", &P::variance), in("exact", &P::exact),
                      shape("epsilon", &P::epsilon), shape("min", &P::min), shape("max", &P::max),
                      out("mask", &P::mask));
  }
};

/// dst = scale * (src0 + src1) where the mask is not 0, else 0.
struct MaskedSumProblem {
  Operand src0, src1, mask;  ///< no repeated axes
  ImageView dst;             ///< shares no memory with the sources
  float scale = 1;

  static constexpr auto fields() {
    using P = MaskedSumProblem;
    using namespace roles;
    return std::tuple(in("src0", &P::src0), in("src1", &P::src1), in("mask", &P::mask), out("dst", &P::dst),
                      shape("scale", &P::scale));
  }
};

/// A MaskedSumProblem, and the BatchMomentsGradientProblem whose diff_dst is its result; without neuron. The mask may
/// be packed, as in NormalizeAddProblem.
struct MaskedSumMomentsProblem {
  Operand src0, src1, mask;
  ImageView dst;
  float scale = 1;
  Operand src;
  ChannelValues gamma, beta, mean, variance, exact;
  float epsilon = 0;
  ChannelValues diff_gamma, diff_beta;
  bool adds = false;

  static constexpr auto fields() {
    using P = MaskedSumMomentsProblem;
    using namespace roles;
    return std::tuple(in("src0", &P::src0), in("src1", &P::src1), in("mask", &P::mask), out("dst", &P::dst),
                      shape("scale", &P::scale), in("src", &P::src), in("gamma", &P::gamma), in("beta", &P::beta),
                      in("mean", &P::mean), in("variance", &P::variance), in("exact", &P::exact),
                      shape("epsilon", &P::epsilon), inout("diff_gamma", &P::diff_gamma),
                      inout("diff_beta", &P::diff_beta), shape("adds", &P::adds));
  }

  MaskedSumProblem sum() const { return {src0, src1, mask, dst, scale}; }
  BatchMomentsGradientProblem moments() const {
    return {.diff_dst = dst,
            .src = src,
            .gamma = gamma,
            .beta = beta,
            .mean = mean,
            .variance = variance,
            .exact = exact,
            .epsilon = epsilon,
            .neuron = {},
            .diff_gamma = diff_gamma,
            .diff_beta = diff_beta,
            .adds = adds};
  }
};

}  // namespace openmps
