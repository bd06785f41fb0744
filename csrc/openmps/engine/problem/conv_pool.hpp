// SPDX-License-Identifier: Apache-2.0
// A convolution and the max pooling of its result as one problem.
#pragma once

#include "engine/problem/conv.hpp"
#include "engine/problem/pool.hpp"

namespace openmps {

/// dst = max over the windows `pool` of a convolution's result, which has h x w pixels and dst's format. Only plans
/// make such problems, for engines that fuse the two.
struct ConvPoolProblem {
  ImageView src, dst;
  std::shared_ptr<const ConvWeights> weights;
  Window window;
  Neuron neuron;
  bool reduced_precision = false;
  std::int64_t h = 1, w = 1;
  Window pool;

  static constexpr auto fields() {
    using P = ConvPoolProblem;
    using namespace roles;
    return std::tuple(in("src", &P::src), out("dst", &P::dst), roles::weights("weights", &P::weights),
                      shape("window", &P::window), shape("neuron", &P::neuron),
                      shape("reduced_precision", &P::reduced_precision), shape("h", &P::h), shape("w", &P::w),
                      shape("pool", &P::pool));
  }
};

}  // namespace openmps
