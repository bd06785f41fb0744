// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/convolution/conv_pool.hpp"

#include "engine/cpu/convolution/convolution.hpp"
#include "engine/cpu/pooling/pooling.hpp"
#include "engine/cpu/runtime.hpp"

namespace openmps::cpu {

void run(const ConvPoolProblem& problem) {
  const ConvPoolProblem& p = problem;
  ImageView result;
  result.format = p.dst.format;
  result.n = p.dst.n, result.h = p.h, result.w = p.w, result.c = p.dst.c;
  result.w_stride = result.c, result.h_stride = result.w * result.c, result.n_stride = result.h * result.h_stride;
  const auto bytes = static_cast<std::size_t>(result.size()) * size_of(result.format);
  const Scratch scratch(bytes);
  result.memory = Memory::wrap(scratch.data(), bytes, nullptr);
  ConvProblem conv;
  conv.src = p.src, conv.dst = result;
  conv.weights = p.weights;
  conv.window = p.window;
  conv.neuron = p.neuron;
  conv.reduced_precision = p.reduced_precision;
  run(conv);
  PoolProblem pool;
  pool.src = result, pool.dst = p.dst;
  pool.window = p.pool;
  run(pool);
}

}  // namespace openmps::cpu
