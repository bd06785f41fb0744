// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/convolution/convolution.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "engine/cpu/choices.hpp"
#include "engine/cpu/pointwise/elementwise.hpp"
#include "engine/cpu/runtime.hpp"
#include "engine/shared/implementations.hpp"
#include "engine/shared/neuron.hpp"
#include "engine/shared/team.hpp"

namespace openmps::cpu {
namespace {

/// In order: the first that does not decline runs. The loops at the end accept everything.
constexpr Implementation<ConvCall> kConvolutions[] = {
    {"nothing_seen", conv_nothing_seen},
    {"multiplier", conv_multiplier},
    {"matrix_vector", conv_matrix_vector},
    {"pointwise", conv_pointwise},
    {"tiles", conv_tiles},
    {"inner_product", conv_inner_product},
    {"taps", conv_by_taps},
    {"depthwise_vectors", conv_depthwise_vectors},
    {"few_outputs", conv_few_outputs},
    {"winograd", conv_winograd},
    {"primitive", conv_primitive},
    {"materialized", conv_materialized},
    {"apart", conv_apart},
    {"depthwise_loop", conv_depthwise_loop},
    {"loop", conv_loop},
};
const ImplementationNames kConvolutionsNames(kConvolutions);
constexpr Implementation<TransposeCall> kTransposes[] = {
    {"subpixel", transpose_subpixel},
    {"primitive", transpose_primitive},
    {"stuffed", transpose_stuffed},
    {"loop", transpose_loop},
};
const ImplementationNames kTransposesNames(kTransposes);

/// Return whether products may be of bfloat16. Depth-wise windows gain nothing by it, unless the source is stored so.
bool reduces_precision(const ConvProblem& problem) {
  const bool is_depthwise = problem.weights->in_channels_per_group == 1 && problem.weights->groups > 1;
  return problem.reduced_precision && multiplies_bfloat16() &&
         (!is_depthwise || problem.src.format == Format::bfloat16);
}

/// Those between which times may choose. All are of the precision that the call allows, and use no other list.
constexpr std::array kTimed = {"matrix_vector", "tiles",       "inner_product", "taps",     "depthwise_vectors",
                               "pointwise",     "few_outputs", "winograd",      "primitive"};
/// Max number of weights of which copies are made in other layouts, to time these.
constexpr std::size_t kMaxTimedWeights = 1 << 24;

Digest digest_of(const ConvCall& call) {
  const auto add = [](Digest& digest, const Tensor& image) {
    digest.add({image.n, image.h, image.w, image.c, image.n_stride, image.h_stride, image.w_stride,
                static_cast<std::int64_t>(image.format)});
  };
  const ConvWeights& weights = *call.weights;
  const Window& w = call.window;
  Digest digest;
  add(digest, call.src), add(digest, call.dst);
  digest.add({max_threads(), weights.in_channels_per_group, weights.groups, !weights.bias.empty(), w.kernel_h,
              w.kernel_w, w.stride_h, w.stride_w, w.dilation_h, w.dilation_w, w.start_h, w.start_w,
              static_cast<std::int64_t>(w.edge), static_cast<std::int64_t>(call.neuron->type),
              neuron_is_per_channel(*call.neuron), call.reduced_precision});
  if (call.adds()) {
    add(digest, call.addend);
    digest.add({call.addend.data == call.dst.data, static_cast<std::int64_t>(call.after->type)});
  }
  return digest;
}

std::string description_of(const ConvCall& call) {
  const Window& w = call.window;
  const auto pair = [](std::int64_t h, std::int64_t w) { return std::to_string(h) + 'x' + std::to_string(w); };
  const auto extents = [&](const Tensor& image) {
    return std::to_string(image.n) + 'x' + pair(image.h, image.w) + 'x' + std::to_string(image.c);
  };
  std::string text = extents(call.src) + " -> " + extents(call.dst) + ", " + pair(w.kernel_h, w.kernel_w);
  if (w.stride_h != 1 || w.stride_w != 1) text += ", stride " + pair(w.stride_h, w.stride_w);
  if (w.dilation_h != 1 || w.dilation_w != 1) text += ", dilation " + pair(w.dilation_h, w.dilation_w);
  if (call.weights->groups > 1) text += ", groups " + std::to_string(call.weights->groups);
  if (call.adds()) text += ", sum";
  if (call.src.format == Format::bfloat16 || call.dst.format == Format::bfloat16) text += ", bfloat16 images";
  return text + (call.reduced_precision ? ", reduced precision" : "");
}

/// Time the implementation of this pass. The first call finds those that accept it, and has them make their code
/// and packed weights.
void time_convolution(const ConvCall& call) {
  const Digest digest = digest_of(call);
  ConvCall next = call;
  if (!choices::is_known(digest)) {
    std::optional<ScratchTensor> addend;  // of a sum in its place, which each implementation overwrites
    if (call.adds() && call.addend.data == call.dst.data) {
      addend.emplace(call.addend.n, call.addend.h, call.addend.w, call.addend.c, call.addend.format);
      copy(call.addend, addend->tensor);
    }
    std::vector<const char*> accepting;
    const auto try_one = [&](const Implementation<ConvCall>& one) {
      if (one.run(next)) return false;
      accepting.push_back(one.name);
      if (addend) copy(addend->tensor, call.addend);
      return true;
    };
    std::ranges::find_if(kConvolutions, try_one);
    const auto is_timed = [](const char* name) {
      return std::ranges::any_of(kTimed, [&](const char* one) { return std::strcmp(one, name) == 0; });
    };
    if (is_timed(accepting.front()) && call.weights->values.size() <= kMaxTimedWeights)
      for (const auto& one : kConvolutions) {
        next.chosen = one.name;
        if (one.name != accepting.front() && is_timed(one.name)) try_one(one);
      }
    choices::add(digest, "convolve", description_of(call), accepting);
  }
  next.chosen = choices::current(digest);
  const auto* const one = std::ranges::find(kConvolutions, next.chosen, &Implementation<ConvCall>::name);
  const double begin = choices::now();
  const char* const why_not = one == std::end(kConvolutions) ? "no longer timed" : one->run(next);
  if (why_not) return run_first("convolve", kConvolutions, call);
  choices::record(digest, next.chosen, choices::now() - begin);
  trace_dispatch("convolve, timed", next.chosen, nullptr);
}

/// Run what times have chosen, if they have and it accepts the call; return whether it has run.
bool run_chosen(const ConvCall& call) {
  const char* const name = choices::find(digest_of(call));
  if (!name) return false;
  for (const auto& one : kConvolutions) {
    if (std::strcmp(one.name, name) != 0) continue;
    ConvCall chosen = call;
    chosen.chosen = one.name;
    const char* const why_not = one.run(chosen);
    if (dispatch().traces) trace_dispatch("convolve, chosen by times", one.name, why_not);
    return !why_not;
  }
  return false;
}

template <class TensorOf>
ConvCall call_of(const ConvProblem& problem, const TensorOf& tensor) {
  ConvCall call = {tensor(problem.src), tensor(problem.dst), problem.weights.get(),
                   problem.window,      &problem.neuron,     reduces_precision(problem)};
  if (problem.addend.memory) {
    call.addend = tensor(problem.addend);
    call.after = &problem.after;
  }
  return call;
}

/// Return a tensor whose address only says which memory it is: that of images between the convolutions of a chain may
/// not be allocated.
Tensor without_memory(const ImageView& view) {
  return tensor_of(view, reinterpret_cast<std::byte*>(view.memory.get()));
}

}  // namespace

Digest digest_of(const ConvProblem& problem) { return digest_of(call_of(problem, without_memory)); }
std::string description_of(const ConvProblem& problem) { return description_of(call_of(problem, without_memory)); }

void run_convolution(const ConvCall& call) {
  // Weights in place are packed by each call, which is not what times are of.
  if (choices::are_asked() && !call.weights->in_place) {
    if (choices::are_timed()) return time_convolution(call);
    if (run_chosen(call)) return;
  }
  run_first("convolve", kConvolutions, call);
}

void run(const ConvProblem& problem) {
  const std::int64_t r = problem.subpixel;
  ConvCall call = call_of(problem, [](const ImageView& view) { return tensor_of(view); });
  if (r <= 1) return run_convolution(call);
  const Tensor dst = call.dst;
  const ScratchTensor result(dst.n, (dst.h + r - 1) / r, (dst.w + r - 1) / r, r * r * dst.c);
  call.dst = result.tensor;
  run_convolution(call);
  depth_to_space(result.tensor, dst, r);
}

void run(const TransposeProblem& problem) {
  const TransposeCall call = {{tensor_of(problem.src), tensor_of(problem.dst), problem.weights.get(), problem.window,
                               &problem.neuron, problem.reduced_precision && multiplies_bfloat16()}};
  run_first("convolve_transpose", kTransposes, call);
}

}  // namespace openmps::cpu
