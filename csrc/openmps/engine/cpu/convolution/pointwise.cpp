// SPDX-License-Identifier: Apache-2.0
// Convolution of one pixel as a product of matrices, for AVX-512 and AVX2.
#include <optional>

#include "engine/cpu/convolution/convolution.hpp"
#include "engine/cpu/convolution/pointwise_kernels.hpp"
#include "engine/shared/implementations.hpp"

namespace openmps::cpu {

#if defined(__x86_64__)

namespace {

using pointwise::i64;

constexpr i64 kFewPixels = 1024;

/// Return whether this is faster than oneDNN, which computes swish more slowly than both of ours. Else it is where
/// panels are whole, nearly, and a panel of weights fits the first-level cache, and where there are few pixels, which
/// oneDNN computes more slowly per pixel than many. Measured on Zen 4, where it is also faster than oneDNN's inner
/// product of fully connected layers, and for float32 on Zen 5: there it takes 0.88 to 1.03 of oneDNN's time, and no
/// code is generated at the first call.
bool pays(const ConvWeights& weights, const Activation& activation, bool is_float, i64 pixels, bool is_connected) {
  const i64 panel =
      has_avx512() ? pointwise::with_avx512::kVectors * avx512::kLanes : pointwise::with_avx2::kVectors * avx2::kLanes;
  const i64 outputs = weights.out_channels, sums = (outputs + panel - 1) / panel * panel;
  const i64 inputs = weights.in_channels_per_group;
  if (is_connected && !is_zen4()) return false;
  if (activation.gate == Activation::sigmoid) return 3 * sums <= 4 * outputs;
  if (!is_zen4() && !(is_zen5() && is_float && inputs >= 24)) return false;
  if (is_zen4() && pixels <= kFewPixels && 2 * sums <= 3 * outputs) return true;
  return inputs <= 384 && 10 * sums <= 11 * outputs;
}

template <class Value>
void convolve_with_avx512(const ConvCall& call, const Activation& activation) {
  using namespace pointwise::with_avx512;
  convolve(call, *Panels<Value>::of(*call.weights), activation, Activation());
}

void convolve_with_avx2(const ConvCall& call, const Activation& activation) {
  using namespace pointwise::with_avx2;
  convolve(call, *Panels<float>::of(*call.weights), activation, Activation());
}

}  // namespace

const char* conv_pointwise(const ConvCall& call) {
  const ConvWeights& weights = *call.weights;
  const Window& w = call.window;
  const bool is_float = call.src.format == Format::float32, is_bfloat = call.src.format == Format::bfloat16;
  if (call.src.format != call.dst.format || !(is_float || is_bfloat)) return "images are of other formats";
  if (is_float && call.reduced_precision) return "products of bfloat16 are faster";
  if (is_bfloat && !call.reduced_precision) return "weights would be rounded";
  if (!(is_bfloat ? has_avx512_bfloat16() : has_avx512() || has_avx2())) return "the processor has no such products";
  if (is_bfloat && multiplies_tiles()) return "products of tiles are faster";
  if (w.kernel_h != 1 || w.kernel_w != 1 || w.stride_h != 1 || w.stride_w != 1 || w.start_h != 0 || w.start_w != 0 ||
      call.dst.h != call.src.h || call.dst.w != call.src.w)
    return "the window is not one pixel";
  if (weights.groups != 1) return "groups";
  if (is_bfloat && weights.in_channels_per_group % 2 != 0) return "an odd number of inputs";
  if (weights.in_place) return "weights would be packed at each call";
  if (call.adds()) return "something is added";
  if (!is_one_row(call.src) || !is_one_row(call.dst)) return "gaps between rows";
  const std::optional<Activation> activation = activation_of(*call.neuron);
  if (!activation) return "a neuron without vectors";
  if (!pays(weights, *activation, is_float, call.dst.n * call.dst.h * call.dst.w, is_fully_connected(call)) &&
      !call.wants("pointwise"))
    return "oneDNN is as fast";
  if (is_bfloat)
    convolve_with_avx512<std::uint16_t>(call, *activation);
  else
    has_avx512() ? convolve_with_avx512<float>(call, *activation) : convolve_with_avx2(call, *activation);
  return nullptr;
}

#else

const char* conv_pointwise(const ConvCall&) { return "not for this processor"; }

#endif

}  // namespace openmps::cpu
