// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/convolution/conv_gradient.hpp"

#include <algorithm>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/cpu/convolution/convolution.hpp"
#include "engine/cpu/pointwise/elementwise.hpp"
#include "engine/cpu/runtime.hpp"
#include "engine/shared/implementations.hpp"
#include "engine/shared/isa.hpp"
#include "engine/shared/parallel.hpp"

namespace openmps::cpu {
namespace {

/// In order: the first that does not decline runs. The last accepts everything.
constexpr Implementation<DataGradientCall> kData[] = {
    {"depthwise", data_gradient_depthwise}, {"taps", data_gradient_by_taps},
    {"narrow", data_gradient_narrow},       {"winograd", data_gradient_winograd},
    {"primitive", data_gradient_primitive}, {"patches", data_gradient_by_patches},
};
const ImplementationNames kDataNames(kData);
constexpr Implementation<WeightsGradientCall> kWeights[] = {
    {"taps", weights_gradient_by_taps},        {"in_place", weights_gradient_in_place},
    {"winograd", weights_gradient_winograd},   {"primitive", weights_gradient_primitive},
    {"depthwise", weights_gradient_depthwise}, {"patches", weights_gradient_by_patches},
};
const ImplementationNames kWeightsNames(kWeights);

// Of bfloat16, if the problem and the processor allow it. If they decline, the lists above follow.
constexpr Implementation<DataGradientCall> kReducedData[] = {
    {"winograd", data_gradient_winograd},
    {"primitive_of_bfloats", data_gradient_primitive},
};
const ImplementationNames kReducedDataNames(kReducedData);
constexpr Implementation<WeightsGradientCall> kReducedWeights[] = {
    {"winograd", weights_gradient_winograd},
    {"products_of_bfloats", weights_gradient_of_bfloats},
    {"primitive_of_bfloats", weights_gradient_primitive},
};
const ImplementationNames kReducedWeightsNames(kReducedWeights);

/// An image as dense values of the formats that are asked for: itself, or copies.
class Dense {
 public:
  explicit Dense(const ImageView& view) : view_(view) {}

  const Tensor& floats() { return of(Format::float32, floats_); }
  const Tensor& bfloats() { return of(Format::bfloat16, bfloats_); }

 private:
  struct Converted {
    Tensor tensor;
    Scratch memory;
  };
  const Tensor& of(Format format, std::optional<Converted>& converted) {
    if (!converted) {
      converted.emplace();
      converted->tensor = dense(tensor_of(view_), format, converted->memory);
    }
    return converted->tensor;
  }

  const ImageView& view_;
  std::optional<Converted> floats_, bfloats_;
};

float* floats_of(const ChannelValues& values) {
  return reinterpret_cast<float*>(values.memory->data() + values.offset);
}

MPSCNN_CLONES void sum_rows(const float* rows, std::int64_t count, std::int64_t channels, float* sums) {
  for (std::int64_t r = 0; r < count; ++r, rows += channels) {
#pragma omp simd
    for (std::int64_t i = 0; i < channels; ++i) sums[i] += rows[i];
  }
}

/// Return the weights of a transpose seen as a convolution from its result: inputs and outputs swapped, taps reversed.
std::shared_ptr<ConvWeights> reversed_roles(const ConvWeights& weights) {
  return weights.derived<ConvWeights>("onednn.reversed_roles", [&] {
    auto made = std::make_shared<ConvWeights>();
    const std::int64_t taps = weights.kernel_h * weights.kernel_w, inputs = weights.in_channels_per_group;
    const std::int64_t outputs = weights.out_channels / weights.groups;
    made->out_channels = inputs * weights.groups;
    made->kernel_h = weights.kernel_h, made->kernel_w = weights.kernel_w;
    made->in_channels_per_group = outputs;
    made->groups = weights.groups;
    made->values.own().resize(weights.values.size());
    float* const to = made->values.own().data();
    const float* const from = weights.values.data();
    parallel_ranges(made->out_channels, threads_for(static_cast<std::int64_t>(weights.values.size()), 64 * 1024),
                    [&](std::int64_t begin, std::int64_t end) {
                      for (std::int64_t i = begin; i < end; ++i) {
                        const std::int64_t group = i / inputs, own = i % inputs;
                        for (std::int64_t t = 0; t < taps; ++t) {
                          const float* value = from + (group * outputs * taps + taps - 1 - t) * inputs + own;
                          for (std::int64_t o = 0; o < outputs; ++o)
                            to[(i * taps + t) * outputs + o] = value[o * taps * inputs];
                        }
                      }
                    });
    return made;
  });
}

/// Store gradients of reversed_roles() in the order of the weights.
void restore_roles(const float* from, const ConvWeights& weights, float* to, bool accumulates) {
  const std::int64_t taps = weights.kernel_h * weights.kernel_w, inputs = weights.in_channels_per_group;
  const std::int64_t outputs = weights.out_channels / weights.groups;
  parallel_ranges(weights.out_channels, threads_for(static_cast<std::int64_t>(weights.values.size()), 64 * 1024),
                  [&](std::int64_t begin, std::int64_t end) {
                    for (std::int64_t o = begin; o < end; ++o) {
                      const float* const of_group = from + o / outputs * inputs * taps * outputs + o % outputs;
                      for (std::int64_t t = 0; t < taps; ++t) {
                        float* const values = to + (o * taps + t) * inputs;
                        for (std::int64_t i = 0; i < inputs; ++i) {
                          const float value = of_group[(i * taps + taps - 1 - t) * outputs];
                          values[i] = accumulates ? values[i] + value : value;
                        }
                      }
                    }
                  });
}

}  // namespace

void bias_gradient(const Tensor& diff_dst, float* sums, bool accumulates) {
  // Sum in float for few enough pixels to lose no digits, then add these sums in double.
  constexpr std::int64_t kPixels = 64;
  const std::int64_t pixels = diff_dst.n * diff_dst.h * diff_dst.w, c = diff_dst.c;
  const int threads = threads_for(pixels * c, 64 * 1024);
  const auto count = static_cast<std::size_t>(c);
  std::vector<double> totals(count * static_cast<std::size_t>(threads));
  std::vector<float> parts(totals.size());
  parallel_ranges(pixels, threads, [&](std::int64_t begin, std::int64_t end) {
    const std::size_t first = count * static_cast<std::size_t>(thread_number());
    float* const part = parts.data() + first;
    for (std::int64_t i = begin; i < end; i += kPixels) {
      std::fill(part, part + c, 0.0f);
      sum_rows(diff_dst.floats() + i * c, std::min(kPixels, end - i), c, part);
      for (std::int64_t k = 0; k < c; ++k) totals[first + static_cast<std::size_t>(k)] += part[k];
    }
  });
  for (std::size_t k = 0; k < count; ++k) {
    double sum = accumulates ? sums[k] : 0.0;
    for (std::size_t i = k; i < totals.size(); i += count) sum += totals[i];
    sums[k] = static_cast<float>(sum);
  }
}

namespace {

/// Few channels per group leave most of a product's vector empty.
bool reduces_precision(const ConvGradientProblem& problem) {
  return problem.reduced_precision && multiplies_bfloat16() &&
         (problem.weights->groups == 1 || problem.weights->in_channels_per_group >= 16);
}

/// Store the gradient in an image of any format.
template <class Solve>
void store_dense(const Tensor& wanted, bool is_stored_as_it_is, const Solve& solve) {
  if (is_stored_as_it_is) return solve(wanted);
  const ScratchTensor dense(wanted.n, wanted.h, wanted.w, wanted.c);
  solve(dense.tensor);
  copy(dense.tensor, wanted);
}

/// The images of a gradient by the weights as the problem allows them: of bfloat16 first, then of floats.
template <class Solve>
void store_weights_gradient(const ConvGradientProblem& problem, Dense& diff_dst, Dense& src, const Window& window,
                            float* diff_weights, bool accumulates, const Solve& solve_floats) {
  const auto call = [&](const Tensor& gradient, const Tensor& source) {
    return WeightsGradientCall{gradient, source, problem.weights->groups, window, diff_weights, accumulates};
  };
  if (reduces_precision(problem)) {
    const WeightsGradientCall reduced = call(diff_dst.bfloats(), src.bfloats());
    if (try_first("convolve_gradient, weights, bfloat16", kReducedWeights, reduced)) return;
  }
  solve_floats(call(diff_dst.floats(), src.floats()));
}

}  // namespace

void run(const ConvGradientProblem& problem) {
  Dense diff_dst(problem.diff_dst), src(problem.src);
  if (problem.diff_src.memory) {
    DataGradientCall call = {{}, {}, problem.weights.get(), problem.window};
    call.window.start_h -= problem.first_h;
    call.window.start_w -= problem.first_w;
    call.src_first_h = -problem.first_h, call.src_first_w = -problem.first_w;
    call.src_h = problem.src.h, call.src_w = problem.src.w;
    const Tensor wanted = tensor_of(problem.diff_src);
    const bool reduces = reduces_precision(problem), is_bfloat = reduces && wanted.format == Format::bfloat16;
    store_dense(wanted, wanted.is_dense() && (wanted.format == Format::float32 || is_bfloat), [&](const Tensor& to) {
      call.diff_src = to;
      if (reduces) {
        call.diff_dst = diff_dst.bfloats();
        if (try_first("convolve_gradient, data, bfloat16", kReducedData, call)) return;
      }
      call.diff_dst = diff_dst.floats();
      store_dense(to, to.format == Format::float32, [&](const Tensor& floats) {
        call.diff_src = floats;
        run_first("convolve_gradient, data", kData, call);
      });
    });
  }
  if (problem.diff_weights.memory)
    store_weights_gradient(
        problem, diff_dst, src, problem.window, floats_of(problem.diff_weights), problem.accumulates,
        [](const WeightsGradientCall& call) { run_first("convolve_gradient, weights", kWeights, call); });
  if (problem.diff_bias.memory) bias_gradient(diff_dst.floats(), floats_of(problem.diff_bias), problem.accumulates);
}

void run(const TransposeGradientProblem& problem) {
  const ConvWeights& weights = *problem.weights;
  Dense diff_dst(problem.diff_dst), src(problem.src);
  // Pixel n of the source is at n * stride of Z: result pixel n * stride - start - k * dilation reads it with tap k.
  // That is a strided convolution of the gradient with the taps in reverse order.
  Window window = problem.window;
  window.start_h = -window.start_h - (window.kernel_h - 1) * window.dilation_h;
  window.start_w = -window.start_w - (window.kernel_w - 1) * window.dilation_w;
  if (problem.diff_src.memory) {
    const auto turned = reversed_roles(weights);
    const Neuron none;
    ConvCall call = {diff_dst.floats(),         tensor_of(problem.diff_src), turned.get(), window, &none,
                     reduces_precision(problem)};
    call.window.start_h += problem.first_h * window.stride_h;
    call.window.start_w += problem.first_w * window.stride_w;
    run_convolution(call);
  }
  if (problem.diff_weights.memory) {
    const Scratch turned(weights.values.size() * sizeof(float));
    auto* const values = reinterpret_cast<float*>(turned.data());
    store_weights_gradient(problem, src, diff_dst, window, values, false, [](const WeightsGradientCall& call) {
      run_first("convolve_transpose_gradient, weights", kWeights, call);
    });
    restore_roles(values, weights, floats_of(problem.diff_weights), problem.accumulates);
  }
  if (problem.diff_bias.memory) bias_gradient(diff_dst.floats(), floats_of(problem.diff_bias), problem.accumulates);
}

}  // namespace openmps::cpu
