// SPDX-License-Identifier: Apache-2.0
// Convolutions to at most four channels, as networks have that end in an image: vectors hold inputs of a pixel instead
// of outputs, most of which would be empty. The lanes are summed at the end. For AVX-512 and AVX2.
#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "engine/cpu/convolution/convolution.hpp"
#include "engine/cpu/pointwise/elementwise.hpp"
#include "engine/cpu/pointwise/vectors.hpp"
#include "engine/cpu/runtime.hpp"
#include "engine/shared/parallel.hpp"

#if defined(__x86_64__)

namespace openmps::cpu::few_outputs {

using i64 = std::int64_t;

constexpr i64 kMinInputs = 16, kMaxOutputs = 4;
constexpr i64 kGrain = 200 * 1000;  // min multiplications per thread

#define MPSCNN_LOOPS "engine/cpu/convolution/few_outputs.inc"
#include "engine/cpu/pointwise/vector_copies.inc"

}  // namespace openmps::cpu::few_outputs

#endif

namespace openmps::cpu {

#if defined(__x86_64__)

const char* conv_few_outputs(const ConvCall& call) {
  const ConvWeights& weights = *call.weights;
  if (weights.out_channels > few_outputs::kMaxOutputs) return "more than four outputs";
  if (weights.groups != 1) return "groups";
  if (weights.in_channels_per_group < few_outputs::kMinInputs) return "fewer than 16 inputs";
  if (!has_avx512() && !has_avx2()) return "the processor has no AVX2";
  if (call.adds()) return "something is added";
  if (call.window.edge != Edge::zero) return "edges are clamped";
  if (call.reduced_precision) return "products of bfloat16 are faster";
  const std::optional<Activation> neuron = activation_of(*call.neuron);
  Scratch src_memory, dst_memory;
  ConvCall floats = call;
  if (call.src.format != Format::float32) floats.src = dense(call.src, Format::float32, src_memory);
  if (call.dst.format != Format::float32) {
    ScratchTensor result(call.dst.n, call.dst.h, call.dst.w, call.dst.c);
    floats.dst = result.tensor, dst_memory = std::move(result.memory);
  }
  const Activation f = neuron.value_or(Activation());
  has_avx512() ? few_outputs::with_avx512::convolve(floats, f) : few_outputs::with_avx2::convolve(floats, f);
  if (!neuron)
    activate(floats.dst, call.dst, *call.neuron);
  else if (floats.dst.data != call.dst.data)
    copy(floats.dst, call.dst);
  return nullptr;
}

#else

const char* conv_few_outputs(const ConvCall&) { return "not for this processor"; }

#endif

}  // namespace openmps::cpu
