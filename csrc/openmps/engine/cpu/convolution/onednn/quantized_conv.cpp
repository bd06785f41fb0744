// SPDX-License-Identifier: Apache-2.0
// Convolutions of 8-bit numbers by oneDNN's primitives: products of unsigned by signed bytes, sums of 32 bits.
#include <algorithm>
#include <cstring>

#include "engine/cpu/convolution/onednn/conv_parts.hpp"
#include "engine/cpu/convolution/onednn/post_ops.hpp"
#include "engine/cpu/pointwise/elementwise.hpp"
#include "engine/cpu/quantized/quantized.hpp"
#include "engine/shared/neuron.hpp"
#include "engine/shared/parallel.hpp"

namespace openmps::cpu {
namespace {

using dnnl::memory;

struct QuantizedGeometry {
  SourceAxis h, w;
};

/// Operands of a primitive besides its source.
struct Constants {
  float src_scale, dst_scale;
  std::int32_t src_zero, dst_zero;
  std::shared_ptr<const ByteWeights> weights;
  Scratch packed;
};

void pack_bytes(const ConvWeights& weights, const memory::desc& wanted, Constants& constants) {
  const std::int64_t g = weights.groups, o = weights.out_channels / g, i = weights.in_channels_per_group;
  const std::int64_t kh = weights.kernel_h, kw = weights.kernel_w, per_output = kh * kw * i;
  const auto type = memory::data_type::s8;
  // OHWI in oneDNN's logical order: (group,) output, input, row, column.
  const memory::desc given =
      g > 1 ? memory::desc({g, o, i, kh, kw}, type, memory::dims{o * per_output, per_output, 1, kw * i, i})
            : memory::desc({o, i, kh, kw}, type, memory::dims{per_output, 1, kw * i, i});
  constants.packed = Scratch::to_keep(wanted.get_size());
  memory from(given, onednn_engine(), const_cast<std::int8_t*>(constants.weights->values.data()));
  memory to(wanted, onednn_engine(), constants.packed.data());
  dnnl::stream stream(onednn_engine());
  dnnl::reorder(from, to).execute(stream, from, to);
  stream.wait();
}

std::shared_ptr<Compiled> make_quantized(const QuantizedConvCall& call, const QuantizedGeometry& g,
                                         std::shared_ptr<const ByteWeights> bytes, int threads) {
  const QuantizedConvProblem& problem = call.problem;
  const ConvWeights& weights = *problem.weights;
  const Window& w = problem.window;
  const ThreadLimit limit(threads);
  const bool stores_numbers = problem.dst_steps.scale != 0;
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  dnnl::post_ops ops;
  append_neuron(ops, problem.neuron);
  attributes.set_post_ops(ops);
  attributes.set_scales_mask(DNNL_ARG_SRC, 0);
  attributes.set_scales_mask(DNNL_ARG_WEIGHTS, weights.groups > 1 ? 3 : 1);
  if (stores_numbers) attributes.set_scales_mask(DNNL_ARG_DST, 0);
  if (problem.src_steps.zero) attributes.set_zero_points_mask(DNNL_ARG_SRC, 0);
  if (stores_numbers && problem.dst_steps.zero) attributes.set_zero_points_mask(DNNL_ARG_DST, 0);
  memory::desc filter =
      weights.groups > 1
          ? memory::desc({weights.groups, weights.out_channels / weights.groups, weights.in_channels_per_group,
                          weights.kernel_h, weights.kernel_w},
                         memory::data_type::s8, memory::format_tag::any)
          : memory::desc({weights.out_channels, weights.in_channels_per_group, weights.kernel_h, weights.kernel_w},
                         memory::data_type::s8, memory::format_tag::any);
  const dnnl::convolution_forward::primitive_desc pd(
      onednn_engine(), dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct,
      image_desc(call.src.n, call.src.c, g.h.count, g.w.count, Format::unorm8), filter, bias_desc(weights),
      image_desc(call.dst, call.dst.format), {w.stride_h, w.stride_w}, {w.dilation_h - 1, w.dilation_w - 1},
      {g.h.before, g.w.before}, {g.h.after, g.w.after}, attributes, true);
  if (!pd || is_reference(pd)) return nullptr;
  auto constants =
      std::make_shared<Constants>(Constants{problem.src_steps.scale, problem.dst_steps.scale, problem.src_steps.zero,
                                            problem.dst_steps.zero, std::move(bytes), Scratch()});
  pack_bytes(weights, pd.weights_desc(), *constants);
  const memory::desc one({1}, memory::data_type::f32, memory::format_tag::a);
  const memory::desc whole({1}, memory::data_type::s32, memory::format_tag::a);
  const memory::desc each({weights.out_channels}, memory::data_type::f32, memory::format_tag::a);
  std::vector<Compiled::Fixed> fixed = {
      {DNNL_ARG_WEIGHTS, pd.weights_desc(), constants->packed.data()},
      {DNNL_ARG_ATTR_SCALES | DNNL_ARG_SRC, one, &constants->src_scale},
      {DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS, each, constants->weights->steps.data()},
  };
  if (!weights.bias.empty()) fixed.push_back({DNNL_ARG_BIAS, pd.bias_desc(), weights.bias.data()});
  if (stores_numbers) fixed.push_back({DNNL_ARG_ATTR_SCALES | DNNL_ARG_DST, one, &constants->dst_scale});
  if (problem.src_steps.zero) fixed.push_back({DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_SRC, whole, &constants->src_zero});
  if (stores_numbers && problem.dst_steps.zero)
    fixed.push_back({DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_DST, whole, &constants->dst_zero});
  return std::make_shared<Compiled>(dnnl::convolution_forward(pd), pd.src_desc(), pd.dst_desc(), pd.scratchpad_desc(),
                                    std::move(fixed), std::vector<Compiled::Borrowed>(), threads, constants);
}

/// Return whether oneDNN computes the neuron as a post-op with errors far below a step of the result.
bool is_post_op(const Neuron& neuron) {
  return is_exact_on_sums(neuron) || neuron.type == NeuronType::sigmoid || neuron.type == NeuronType::hard_sigmoid ||
         neuron.type == NeuronType::hard_swish;
}

}  // namespace

bool is_exact_on_sums(const Neuron& neuron) {
  return neuron.type == NeuronType::none || (neuron.type == NeuronType::relu && neuron.a == 0) ||
         (neuron.type == NeuronType::relun && neuron.a == 0 && neuron.b >= 0);
}

const char* quantized_conv_primitive(const QuantizedConvCall& call) {
  const QuantizedConvProblem& problem = call.problem;
  const Window& w = problem.window;
  if (!multiplies_bytes()) return "the processor does not multiply bytes";
  if (!is_post_op(problem.neuron)) return "oneDNN's activation is inexact or slow";
  const QuantizedGeometry g = {map_source_axis(call.src.h, call.dst.h, w.start_h, w.stride_h, reach_h(w)),
                               map_source_axis(call.src.w, call.dst.w, w.start_w, w.stride_w, reach_w(w))};
  if (g.h.count <= 0 || g.w.count <= 0) return "no source pixel is used";
  if (g.h.is_far(reach_h(w)) || g.w.is_far(reach_w(w))) return "some windows lie outside of the source";
  if (g.h.count != call.src.h || g.w.count != call.src.w) return "a part of the source is used";
  // oneDNN's kernels for both end the process for some dilated windows.
  const bool has_border = g.h.before > 0 || g.w.before > 0 || g.h.after > 0 || g.w.after > 0;
  if (problem.src_steps.zero && has_border) return "taps out of bounds do not have the number 0";
  auto bytes = ByteWeights::of(*problem.weights);
  if (!bytes) return "the weights are no whole multiples of a step";
  const std::int64_t work = call.dst.size() * w.kernel_h * w.kernel_w * problem.weights->in_channels_per_group;
  const int threads = threads_for(work, 4 * kThreadGrain);
  const WeightsCache::Key key = {2 | (threads << 8),
                                 call.src.n,
                                 g.h.count,
                                 g.w.count,
                                 call.dst.h,
                                 call.dst.w,
                                 g.h.before,
                                 g.w.before,
                                 g.h.after,
                                 g.w.after,
                                 w.stride_h,
                                 w.stride_w,
                                 w.dilation_h,
                                 w.dilation_w,
                                 static_cast<std::int64_t>(problem.neuron.type),
                                 key_bits(problem.neuron.a),
                                 key_bits(problem.neuron.b),
                                 key_bits(problem.src_steps.scale),
                                 problem.src_steps.zero,
                                 key_bits(problem.dst_steps.scale),
                                 problem.dst_steps.zero};
  const auto compiled = WeightsCache::of(*problem.weights).find(key, [&] {
    return make_or_decline([&] { return make_quantized(call, g, bytes, threads); });
  });
  if (!compiled) return "oneDNN has only its reference for this";
  compiled->run({call.src.data, call.dst.data, nullptr, nullptr});
  return nullptr;
}

const char* quantized_conv_materialized(const QuantizedConvCall& call) {
  const Tensor &src = call.src, &dst = call.dst;
  QuantizedConvProblem problem = call.problem;
  Window& w = problem.window;
  // The largest extents keep products of extents within 64 bits.
  constexpr std::int64_t kMost = std::int64_t{1} << 20;
  if (std::max({dst.h, dst.w, w.stride_h, w.stride_w, reach_h(w), reach_w(w)}) > kMost) return "too large a source";
  const std::int64_t height = (dst.h - 1) * w.stride_h + reach_h(w), width = (dst.w - 1) * w.stride_w + reach_w(w);
  if (height * width > 4096 + 4 * (src.h * src.w + dst.h * dst.w))
    return "the padded source is much larger than the source";
  const ScratchTensor padded(src.n, height, width, src.c, Format::unorm8);
  std::memset(padded.tensor.data, problem.src_steps.zero, static_cast<std::size_t>(padded.tensor.size()));
  const std::int64_t first_h = std::max<std::int64_t>(0, w.start_h), first_w = std::max<std::int64_t>(0, w.start_w);
  const std::int64_t rows = std::min(src.h, w.start_h + height) - first_h;
  const std::int64_t columns = std::min(src.w, w.start_w + width) - first_w;
  if (rows > 0 && columns > 0)
    copy(src.region(first_h, first_w, rows, columns),
         padded.tensor.region(first_h - w.start_h, first_w - w.start_w, rows, columns));
  w.start_h = w.start_w = 0;
  const QuantizedConvCall inside{padded.tensor, dst, problem};
  return quantized_conv_products(inside) ? quantized_conv_primitive(inside) : nullptr;
}

}  // namespace openmps::cpu
