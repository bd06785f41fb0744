// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/convolution/winograd.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "engine/cpu/convolution/conv_gradient.hpp"
#include "engine/cpu/convolution/convolution.hpp"
#include "engine/cpu/pointwise/elementwise.hpp"
#include "engine/cpu/runtime.hpp"
#include "engine/shared/env.hpp"
#include "engine/shared/implementations.hpp"
#include "engine/shared/parallel.hpp"

#if defined(__x86_64__)

namespace openmps::cpu::winograd {

#define MPSCNN_LOOPS "engine/cpu/convolution/winograd_loops.inc"
#include "engine/cpu/pointwise/vector_copies.inc"

}  // namespace openmps::cpu::winograd

#endif

namespace openmps::cpu {

#if defined(__x86_64__)

using namespace winograd;

namespace {

/// Return null, or why a processor, a window or groups are not for Winograd's convolution.
const char* declines(const Window& window, i64 groups) {
  if (!has_avx512() && !has_avx2()) return "the processor has no AVX2";
  static const bool is_off = env::value_of(env::Variable::winograd) == "0";
  if (is_off) return "MPSCNN_WINOGRAD is 0";
  if (window.kernel_h != 3 || window.kernel_w != 3) return "the window is not 3 x 3";
  if (window.stride_h != 1 || window.stride_w != 1) return "strides";
  if (window.dilation_h != 1 || window.dilation_w != 1) return "dilation";
  if (window.edge != Edge::zero) return "edges are clamped";
  return groups != 1 ? "groups" : nullptr;
}

/// Zen 4 computes vectors of AVX-512 in two halves. So its multiplications take twice as long as others', and the
/// transforms, which wait for the caches, as long.
const Costs& costs() {
  static const Costs result = is_zen4() ? Costs{12, 10, 4, 4, 36} : Costs{24, 22, 5, 8, 36};
  return result;
}

/// How many times as fast direct multiplications are as those of Winograd's convolution, which are of float32; at least
/// this with AMX.
constexpr i64 kBfloatSpeed = 2, kAmxSpeed = 8;
i64 direct_speed(bool of_bfloats) { return !of_bfloats ? 1 : multiplies_tiles() ? kAmxSpeed : kBfloatSpeed; }

constexpr const char* kDoesNotPay = "the transforms cost more than they save";

const char* declines(const ConvWeights& weights, const Window& window, const Tensor& dst, bool of_bfloats,
                     bool is_wanted) {
  if (const char* why_not = declines(window, weights.groups)) return why_not;
  const i64 speed = direct_speed(of_bfloats);
  const bool pays =
      has_avx512() ? with_avx512::pays(dst, weights, costs(), speed) : with_avx2::pays(dst, weights, costs(), speed);
  return pays || is_wanted ? nullptr : kDoesNotPay;
}

/// Return whether the loops read and write images of this format.
bool takes(Format format) { return format == Format::float32 || (format == Format::bfloat16 && has_avx512_bfloat16()); }

void convolve(const WinogradCall& call) { has_avx512() ? with_avx512::convolve(call) : with_avx2::convolve(call); }

}  // namespace

const char* conv_winograd(const ConvCall& call) {
  if (const char* why_not =
          declines(*call.weights, call.window, call.dst, call.reduced_precision, call.wants("winograd")))
    return why_not;
  const std::optional<Activation> neuron = activation_of(*call.neuron);
  const std::optional<Activation> after = call.after ? activation_of(*call.after) : Activation();
  if (call.adds() && (!neuron || !after)) return "a neuron without vectors";
  Scratch src_memory, dst_memory, addend_memory;
  WinogradCall own = {call.src, call.dst, call.window, call.weights, false, bias_of(call)};
  if (!takes(call.src.format)) own.src = dense(call.src, Format::float32, src_memory);
  if (!takes(call.dst.format) || (!neuron && call.dst.format != Format::float32)) {
    ScratchTensor result(call.dst.n, call.dst.h, call.dst.w, call.dst.c);
    own.dst = result.tensor, dst_memory = std::move(result.memory);
  }
  if (call.adds()) {
    own.addend = call.addend;
    if (!takes(call.addend.format)) own.addend = dense(call.addend, Format::float32, addend_memory);
    own.after = *after;
  }
  if (neuron) own.neuron = *neuron;
  convolve(own);
  if (!neuron)
    activate(own.dst, call.dst, *call.neuron);
  else if (own.dst.data != call.dst.data)
    copy(own.dst, call.dst);
  return nullptr;
}

const char* data_gradient_winograd(const DataGradientCall& call) {
  Window window = call.window;
  // Pixel y of the source is read by results y - start - p. That is a convolution of the gradient with the taps in
  // reverse order.
  window.start_h = -window.start_h - 2, window.start_w = -window.start_w - 2;
  const bool of_bfloats = call.diff_dst.format == Format::bfloat16;
  if (const char* why_not = declines(*call.weights, window, call.diff_src, of_bfloats, is_forced("winograd")))
    return why_not;
  convolve({call.diff_dst, call.diff_src, window, call.weights, true});
  return nullptr;
}

const char* weights_gradient_winograd(const WeightsGradientCall& call) {
  if (const char* why_not = declines(call.window, call.groups)) return why_not;
  const i64 tiles = Tiles(call.diff_dst).count, speed = direct_speed(call.src.format == Format::bfloat16);
  // Errors of fewer tiles are up to 5 times those of the direct sum, and more tiles' at most 4 times.
  if (!is_forced("winograd") && tiles < 64) return "few tiles";
  const bool pays =
      has_avx512() ? with_avx512::pays(call, tiles, costs(), speed) : with_avx2::pays(call, tiles, costs(), speed);
  if (!pays && !is_forced("winograd")) return kDoesNotPay;
  has_avx512() ? with_avx512::weights_gradient(call) : with_avx2::weights_gradient(call);
  return nullptr;
}

#else

const char* conv_winograd(const ConvCall&) { return "not for this processor"; }
const char* data_gradient_winograd(const DataGradientCall&) { return "not for this processor"; }
const char* weights_gradient_winograd(const WeightsGradientCall&) { return "not for this processor"; }

#endif

}  // namespace openmps::cpu
